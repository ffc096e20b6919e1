import { existsSync } from "node:fs";

import { endpointOf } from "./endpoint.js";
import { misconfigured } from "./error.js";
import { micros } from "./values.js";

/**
 * Checks that the file of the thread that renews sessions is there: a bundle that has this module in it lacks the file. In
 * one of CommonJS, `import.meta` is empty.
 *
 * Throws `MISCONFIGURED` if the file is absent.
 */
function checkThread() {
    if (import.meta.url !== undefined && existsSync(new URL("./keepalive.js", import.meta.url))) return;
    throw misconfigured("this bundle has `leasehold` in it, without the file of its thread: leave the package out, as with `esbuild --external:leasehold`");
}

/**
 * Returns the settings of `connect` as sessions and calls take them. `api.d.ts` declares their types.
 *
 * Throws `MISCONFIGURED` if one of them cannot work.
 */
export function settingsOf({ sessionDurationSeconds = 15, sessionGraceSeconds = 5, timeoutSeconds = 10, ...address }) {
    checkThread();
    const endpoint = endpointOf(address);
    const terms = {
        durationMicros: micros("sessionDurationSeconds", sessionDurationSeconds),
        graceMicros: micros("sessionGraceSeconds", sessionGraceSeconds),
    };
    return { endpoint, terms, millis: Number(micros("timeoutSeconds", timeoutSeconds)) / 1e3 };
}
