// Runs the real server as a child process of a test.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

import { connect, type Locks, type LocksSettings, type TlsFiles } from "leasehold/locks";
import { connect as connectQueues, type Queues, type QueuesSettings } from "leasehold/queues";

/** The root of the repository. Tests run compiled, in `wasm/build/tests`. */
const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));

/** Returns the server's program: `LEASEHOLD_BINARY`, or the one that the workspace's tests have built. */
function binary(): string {
    const built = join(process.env["CARGO_TARGET_DIR"] ?? join(ROOT, "target"), "debug", "leasehold");
    const found = process.env["LEASEHOLD_BINARY"] ?? built;
    assert.ok(existsSync(found), `\`${found}\` does not exist: build it with \`cargo xtask workspace-build\``);
    return found;
}

/** A server with a temporary store. A test can kill it and start it again at the same address. */
export class ClaimsServer {
    readonly #directory = mkdtempSync(join(tmpdir(), "leasehold-server-"));
    readonly #arguments: string[];
    readonly #scheme: string;
    readonly #queues: Queues[] = [];
    #listen = "127.0.0.1:0";
    #process: ChildProcess | undefined;

    /** Starts a server that ends with the test. */
    static async start(test: TestContext, tls?: TlsFiles, settings = ""): Promise<ClaimsServer> {
        const server = new ClaimsServer(tls, settings);
        test.after(() => server.end());
        await server.start();
        return server;
    }

    constructor(tls?: TlsFiles, settings = "") {
        this.#scheme = tls ? "https" : "http";
        this.#arguments = ["serve", "--create", "--data", join(this.#directory, "data")];
        if (tls || settings) this.#arguments.push("--config", this.#configuration(tls, settings));
    }

    get url(): string {
        return `${this.#scheme}://localhost:${this.port}`;
    }

    get port(): number {
        return Number(this.#listen.split(":")[1]);
    }

    /** Returns locks of this server, or of a proxy before it, that are closed at the end of the test. */
    connect(test: TestContext, settings: LocksSettings = {}): Locks {
        const locks = connect({ address: this.url, ...settings });
        test.after(() => locks.close());
        return locks;
    }

    /** Returns queues of this server, or of a proxy before it, that are closed at the end of the test. */
    queues(test: TestContext, settings: QueuesSettings = {}): Queues {
        const queues = connectQueues({ address: this.url, ...settings });
        test.after(() => queues.close());
        this.#queues.push(queues);
        return queues;
    }

    /** Starts the server, and waits until it listens. */
    async start(): Promise<void> {
        const log = join(this.#directory, "log");
        const program = spawn(binary(), [...this.#arguments, "--listen", this.#listen], { stdio: ["ignore", "pipe", openSync(log, "w")] });
        this.#process = program;
        assert.ok(program.stdout);
        for await (const line of createInterface({ input: program.stdout })) {
            const listen = /listening on (\S+)/u.exec(line)?.[1];
            if (listen !== undefined) {
                this.#listen = listen;
                program.stdout.resume();
                return;
            }
        }
        assert.fail(`the server did not start: ${readFileSync(log, "utf8")}`);
    }

    /** Kills the server. All that it has acknowledged is on disk. */
    async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
        const ended = this.#process && once(this.#process, "exit");
        this.#process?.kill(signal);
        this.#process = undefined;
        await ended;
    }

    /** Stops the server: it tells its streams, and ends. */
    async stop(): Promise<void> {
        await this.kill("SIGTERM");
    }

    async end(): Promise<void> {
        // Workers give back what they have while the server still answers.
        await Promise.all(this.#queues.map((queues) => queues.close()));
        await this.kill();
        rmSync(this.#directory, { recursive: true });
    }

    /** Lets this process end although the server runs. The server is killed with it. */
    leaveAtExit(): void {
        const program = this.#process;
        program?.unref();
        // A pipe of a child process is a socket (Node's documentation, "child.stdout").
        (program?.stdout as Socket | undefined)?.unref();
        process.on("exit", () => {
            program?.kill("SIGKILL");
            rmSync(this.#directory, { recursive: true, force: true });
        });
    }

    #configuration(tls: TlsFiles | undefined, settings: string): string {
        const path = join(this.#directory, "leasehold.toml");
        const files = tls ? `[tls]\ncertificate = "${tls.certificate}"\nkey = "${tls.key}"\nclient_ca = "${tls.ca}"\n` : "";
        writeFileSync(path, `${files}\n${CELL}\n${settings}`);
        return path;
    }
}

const CELL = `[[cells]]
id = 1
name = "cell-1"
address = "https://cell-1.example.com"
session_prefix = "cell-1-"
sequence_range = { minval = 1000, maxval = 1999 }
`;
