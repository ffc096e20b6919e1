// New programs that install the packed package, as its users do.
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const PACKAGE = fileURLToPath(new URL("../../../", import.meta.url));
const PROGRAM = join(PACKAGE, "tests/bundlers/program");

/** The result of `answer` in `program/answer.js`. */
export const ANSWER = "alice after 20 events";

/** A program in a directory of its own, which is removed at the end. */
export class Project {
    readonly directory = mkdtempSync(join(tmpdir(), "leasehold-program-"));

    /** Copies the program, and installs the package and these others. */
    constructor(packages: readonly string[] = []) {
        cpSync(PROGRAM, this.directory, { recursive: true });
        this.write("slim/index.html", this.read("index.html"));
        this.write("package.json", '{ "name": "program", "private": true, "type": "module" }');
        const tarball = this.#run("npm", ["pack", "--silent", "--pack-destination", this.directory], PACKAGE).trim();
        // Without other packages, nothing comes from the network.
        const source = packages.length === 0 ? "--offline" : "--prefer-offline";
        this.run("npm", ["install", source, "--silent", "--no-audit", "--no-fund", `./${tarball}`, ...packages]);
    }

    path(file: string): string {
        return join(this.directory, file);
    }

    write(file: string, text: string): void {
        writeFileSync(this.path(file), text);
    }

    read(file: string): string {
        return readFileSync(this.path(file), "utf8");
    }

    /** Returns the names of the files in a directory of the project and below. */
    files(directory: string): string[] {
        return readdirSync(this.path(directory), { recursive: true, encoding: "utf8" });
    }

    /** Runs a program in the directory, and returns its output. */
    run(program: string, parameters: readonly string[]): string {
        return this.#run(program, parameters, this.directory);
    }

    remove(): void {
        rmSync(this.directory, { recursive: true, force: true });
    }

    #run(program: string, parameters: readonly string[], cwd: string): string {
        try {
            return execFileSync(program, parameters, { cwd, encoding: "utf8", stdio: "pipe", env: environment() });
        } catch (error) {
            const { stdout, stderr } = error as { stdout?: string; stderr?: string };
            throw new Error(`\`${program} ${parameters.join(" ")}\` failed:\n${stdout}\n${stderr}`, { cause: error });
        }
    }
}

/** Returns the environment without what `npm test` and the test runner of Node add for their own programs. */
export function environment(): NodeJS.ProcessEnv {
    const isOwn = (name: string): boolean => !name.startsWith("npm_") && !name.startsWith("NODE_");
    const entries = Object.entries(process.env).filter(([name]) => isOwn(name));
    return { ...Object.fromEntries(entries), NO_COLOR: "1" };
}
