import { endpointOf } from "./endpoint.js";
import { checkThread } from "./unbundled.js";
import { micros } from "./values.js";

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
