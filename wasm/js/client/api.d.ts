import type { WebAddress } from "../globals.js";

/** The paths of the PEM files for mutual TLS. */
export interface TlsFiles {
    /** The certificate of the authority that signed the server's certificate. */
    readonly ca: string | WebAddress;
    /** The client's certificate, which identifies the caller. */
    readonly certificate: string | WebAddress;
    /** The private key of the client's certificate, without a password. */
    readonly key: string | WebAddress;
}

/**
 * The standing of a session, of a lock or of a batch, as this process knows it without the server:
 * - `safe`: the last renewal is younger than the session's duration. Work.
 * - `jeopardy`: the duration has passed without an answer. Pause; an answer makes it safe again.
 * - `lost`: stop. Another process may hold the lock, or work on the batch.
 */
export type Standing = "safe" | "jeopardy" | "lost";

/** The settings of `connect` that all clients have. */
export interface ClientSettings {
    /** The server: `http://HOST:PORT` or `https://HOST:PORT`; `http://127.0.0.1:7171` by default. */
    readonly address?: string;
    /** The files for an address with `https`. */
    readonly tls?: TlsFiles;
    /** True for plaintext to another machine, on a trusted network. */
    readonly allowPlaintext?: boolean;
    /** The id of the store that the server must have. */
    readonly storeId?: string;
    /** The time for which the process works without an answer of the server; 15 by default. */
    readonly sessionDurationSeconds?: number;
    /** The time that the process then has for its end; 5 by default. */
    readonly sessionGraceSeconds?: number;
    /** The longest time of a call, with its repeats; 10 by default. A wait is not part of it. */
    readonly timeoutSeconds?: number;
}
