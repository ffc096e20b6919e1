// The clocks by which a process counts the silence of its session.
import assert from "node:assert/strict";
import { describe, it } from "node:test";

interface Moment {
    readonly monotonic: bigint;
    readonly uptime: bigint;
}

// A module of the package itself, which `exports` does not name.
const path = new URL("../../js/client/clock.js", import.meta.url).href;
const { microsBetween, now }: { microsBetween: (start: Moment, end: Moment) => bigint; now: () => Moment } = await import(path);

describe("the silence of a session", () => {
    const start = { monotonic: 1_000n, uptime: 5_000n };
    const after = (monotonic: bigint, uptime: bigint): bigint => microsBetween(start, { monotonic: 1_000n + monotonic, uptime: 5_000n + uptime });

    it("K11: goes on while the machine sleeps, and if one of the clocks stands still or goes back", () => {
        assert.equal(after(10n, 3_600n), 3_600n);
        assert.equal(after(10n, 0n), 10n);
        assert.equal(after(10n, -3_600n), 10n);
        assert.equal(after(0n, -1n), 0n);
    });

    it("grows on both clocks of this machine", () => {
        const begin = now();
        const before = now();
        let later = before;
        while (later.uptime === before.uptime) later = now();
        assert.ok(later.monotonic > before.monotonic);
        // The uptime has steps of 10 ms. It grows by one of them more than the time around both looks at most.
        assert.ok(later.uptime - before.uptime <= now().monotonic - begin.monotonic + 20_000n);
    });
});
