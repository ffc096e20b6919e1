// The server's address and the TLS files, checked before the first call.
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { isIPv4 } from "node:net";
import { createSecureContext } from "node:tls";

import { misconfigured } from "./error.js";
import { UUID } from "./values.js";

const PORTS = { "http:": 80, "https:": 443 };

/**
 * Returns the endpoint for the settings of `connect`: values that another thread can be given.
 *
 * Throws `MISCONFIGURED` if the address is invalid, a connection to another machine would be
 * plaintext, or a TLS file is unusable.
 */
export function endpointOf({ address = "http://127.0.0.1:7171", tls, allowPlaintext = false, storeId }) {
    if (storeId !== undefined && !UUID.test(storeId)) {
        throw misconfigured("`storeId` is not a UUID: pass the one that the server prints as `store`");
    }
    const url = parse(address);
    const target = `${url.hostname}:${url.port || PORTS[url.protocol]}`;
    if (url.protocol === "https:") return { target, pems: readPems(address, tls), storeId };
    if (tls) throw misconfigured(`\`${address}\` is plaintext, but \`tls\` is set: use https://`);
    if (!allowPlaintext && !isLoopback(url.hostname)) {
        throw misconfigured(
            `\`${address}\` is a remote server, and the connection would be plaintext: use https:// and \`tls\`, or ` +
                "set `allowPlaintext` on a trusted network",
        );
    }
    return { target, pems: undefined, storeId };
}

function parse(address) {
    try {
        const url = new URL(address);
        const isBare = ["", "/"].includes(url.pathname) && !url.search && !url.hash && !url.username && !url.password;
        if (url.protocol in PORTS && url.hostname && isBare && url.port !== "0") return url;
    } catch {
        // The error below says the same.
    }
    throw misconfigured(`\`${address}\` is not a server address: use http://HOST:PORT or https://HOST:PORT`);
}

function isLoopback(host) {
    return host === "localhost" || host === "[::1]" || (isIPv4(host) && host.startsWith("127."));
}

function readPems(address, tls) {
    if (!tls) {
        const need = "set the files `ca`, `certificate` and `key` in `tls`";
        throw misconfigured(`\`${address}\` needs certificates: ${need}`);
    }
    const [ca, certificate, key] = ["ca", "certificate", "key"].map((name) => readPem(name, tls[name]));
    // gRPC takes any text, and each call would then fail as if the server were down.
    check("ca", () => new X509Certificate(ca));
    check("certificate", () => new X509Certificate(certificate));
    check("key", () => createSecureContext({ cert: certificate, key }));
    return { ca, certificate, key };
}

function readPem(name, path) {
    try {
        return readFileSync(path, "utf8");
    } catch (error) {
        throw misconfigured(`\`tls.${name}\` cannot be read (${error.code}): pass the path of a PEM file`);
    }
}

function check(name, parsePem) {
    try {
        parsePem();
    } catch {
        const need = name === "key" ? "the private key of `tls.certificate`, without a password" : "a PEM certificate";
        throw misconfigured(`\`tls.${name}\` is not ${need}: pass the path of such a file`);
    }
}
