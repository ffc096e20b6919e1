import { signal } from "@preact/signals";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { deferred } from "../src/session/deferred";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

test("one change is followed at once, many are followed now and then, and the last one in the end", () => {
    const source = signal(0);
    const shown = deferred(source, 80);
    const seen: number[] = [];
    shown.subscribe((value) => void seen.push(value));
    vi.advanceTimersByTime(100);
    source.value = 1;
    expect(shown.value).toBe(1);
    for (let at = 2; at <= 20; at += 1) {
        vi.advanceTimersByTime(16);
        source.value = at;
    }
    vi.advanceTimersByTime(80);
    expect(shown.value).toBe(20);
    expect(seen.length).toBeLessThan(8);
});
