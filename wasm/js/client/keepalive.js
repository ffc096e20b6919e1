// The keepalive of a session: a worker thread that renews the session over a channel of its own.
//
// Synchronous code on the main thread therefore starves no renewal. The worker knows the deadline
// by its own clock, and the main thread by its own: neither needs the other.
import { workerData } from "node:worker_threads";

import { Calls } from "./calls.js";
import { now } from "./clock.js";
import { CallError } from "./error.js";
import { Silence } from "./silence.js";

/** The pause after a renewal without an answer. */
const RETRY_MILLIS = 100;
/** The longest pause. Timers stand still while the machine sleeps, but the silence does not. */
const MAX_PAUSE_MILLIS = 5_000;

const { port, endpoint, sessionId, terms, openedAt } = workerData;
const silence = new Silence(terms, openedAt);
const calls = new Calls(endpoint);
let isRenewalDue = false;
let wake = () => {};

function pause(millis) {
    return new Promise((resolve) => {
        const timer = setTimeout(resolve, Math.min(millis, MAX_PAUSE_MILLIS));
        wake = () => {
            clearTimeout(timer);
            resolve();
        };
    });
}

function renewNow() {
    isRenewalDue = true;
    wake();
}

function end() {
    silence.end();
    wake();
}

async function renew() {
    isRenewalDue = false;
    const sentAt = now();
    const millis = Math.max(Math.min(silence.remainingMillis, silence.renewalMillis), RETRY_MILLIS);
    const { forcedFences } = await calls.attempt("RenewSession", { sessionId }, { millis });
    // An answer after the deadline revives nothing (K02).
    if (silence.standing === "lost") return;
    silence.renewed(sentAt);
    port.postMessage({ sentAt, forced: forcedFences.map(BigInt) });
}

/** Renews the session until it is lost, and then says so. */
async function keep() {
    while (silence.standing !== "lost") {
        if (!isRenewalDue && silence.renewalInMillis > 0) {
            await pause(silence.renewalInMillis);
            continue;
        }
        try {
            await renew();
        } catch (error) {
            if (!(error instanceof CallError)) throw error;
            await (error.isFinal ? end() : pause(RETRY_MILLIS));
        }
    }
    port.postMessage({ isLost: true });
}

/** Takes one piece of news. A renewal tells which locks were taken, also before the stream began. */
function hear({ news }) {
    if (news === "ENDED") end();
    if (news === "FORCED" || news === "WATCHED") renewNow();
}

/** Hears the news of the session. A stream that breaks is opened again. */
async function watch() {
    while (silence.standing !== "lost") {
        try {
            await calls.stream("WatchSession", { sessionId }, {}, hear);
        } catch (error) {
            if (!(error instanceof CallError)) throw error;
            if (error.isFinal) return end();
        }
        await new Promise((resolve) => setTimeout(resolve, Math.min(silence.renewalMillis, MAX_PAUSE_MILLIS)));
    }
}

await Promise.all([keep(), watch()]);
