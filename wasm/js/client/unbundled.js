// Refuses bundles that have this package in them. The entries import this first: in a bundle of ES modules, the library of
// gRPC fails when it is loaded, with an error that does not say what to do.
import { existsSync } from "node:fs";

import { LeaseholdError } from "../error.js";

/**
 * Checks that the file of the thread that renews sessions is there: a bundle that has this module in it lacks the file. In
 * one of CommonJS, `import.meta` is empty.
 *
 * Throws `MISCONFIGURED` if the file is absent.
 */
export function checkThread() {
    if (import.meta.url !== undefined && existsSync(new URL("./keepalive.js", import.meta.url))) return;
    const message = "this bundle has `leasehold` in it, without the file of its thread: leave the package out, as with `esbuild --external:leasehold`";
    throw new LeaseholdError("MISCONFIGURED", message);
}

if (import.meta.url !== undefined) checkThread();
