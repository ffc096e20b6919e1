import { signal } from "@preact/signals";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { throttled } from "../src/session/throttled";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

test("a throttled signal whose changes are slow enough to read is never behind", () => {
    const source = signal(0);
    const copy = throttled(source, 80, () => true);
    for (let value = 1; value <= 20; value += 1) {
        // A frame may come late, so that the next change follows sooner.
        vi.advanceTimersByTime(value % 3 === 0 ? 30 : 100);
        source.value = value;
        expect(copy.value).toBe(value);
    }
});

test("a throttled signal copies the first change at once, few of many, and the last one", () => {
    const source = signal(0);
    const copy = throttled(source, 80);
    const seen: number[] = [];
    copy.subscribe((value) => void seen.push(value));
    vi.advanceTimersByTime(100);
    source.value = 1;
    expect(copy.value).toBe(1);
    for (let value = 2; value <= 20; value += 1) {
        vi.advanceTimersByTime(16);
        source.value = value;
    }
    vi.advanceTimersByTime(80);
    expect(copy.value).toBe(20);
    expect(seen.length).toBeLessThan(8);
});
