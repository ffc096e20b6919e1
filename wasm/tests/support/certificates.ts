// A certificate authority and the certificates that it signs, as files in a directory.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

import type { TlsFiles } from "leasehold/locks";

/** A certificate authority. Its files are removed at the end of the test. */
export class Authority {
    readonly #directory = mkdtempSync(join(tmpdir(), "leasehold-certificates-"));

    constructor(test: TestContext) {
        test.after(() => rmSync(this.#directory, { recursive: true }));
        this.#request("ca", "basicConstraints=critical,CA:TRUE");
    }

    server(): TlsFiles {
        return this.#issue("server", "DNS:localhost,IP:127.0.0.1");
    }

    service(name: string): TlsFiles {
        return this.#issue(name, `URI:spiffe://leasehold/service/${name}`);
    }

    admin(): TlsFiles {
        return this.#issue("admin", "URI:spiffe://leasehold/admin");
    }

    #issue(name: string, alternativeNames: string): TlsFiles {
        this.#request(name, `subjectAltName=${alternativeNames}`, "-CA", this.#path("ca.pem"), "-CAkey", this.#path("ca.key"));
        return { ca: this.#path("ca.pem"), certificate: this.#path(`${name}.pem`), key: this.#path(`${name}.key`) };
    }

    #request(name: string, extension: string, ...signer: string[]): void {
        const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", this.#path(`${name}.key`)];
        const certificate = ["-subj", `/CN=${name}`, "-addext", extension, "-days", "2", "-out", this.#path(`${name}.pem`)];
        // A configuration of its own: the machine's may add extensions.
        execFileSync("openssl", ["req", "-x509", "-config", "/dev/null", ...key, ...certificate, ...signer], { stdio: "pipe" });
    }

    #path(file: string): string {
        return join(this.#directory, file);
    }
}
