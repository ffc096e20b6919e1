// The clocks by which a process counts the silence of its session.
import { uptime } from "node:os";

/**
 * Returns this moment in microseconds, on two clocks that all threads of the process share.
 *
 * Node's monotonic clock stands still while a Linux machine sleeps (libuv, `uv__hrtime`). The
 * machine's uptime runs on, in steps of 10 ms (libuv, `uv_uptime`). On macOS it moves with the wall
 * clock.
 */
export function now() {
    return { monotonic: process.hrtime.bigint() / 1000n, uptime: BigInt(Math.round(uptime() * 1e6)) };
}

/** Returns the microseconds from one moment to a later one: the larger time of the two clocks. */
export function microsBetween(start, end) {
    const times = [end.monotonic - start.monotonic, end.uptime - start.uptime, 0n];
    return times.reduce((longest, time) => (time > longest ? time : longest));
}
