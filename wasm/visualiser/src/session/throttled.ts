import { effect, type ReadonlySignal, signal } from "@preact/signals";

/**
 * Returns a copy of a signal that changes at most once in `pauseMs` milliseconds. The first change
 * after a pause is copied at once, and the last change is never lost. The copy is for texts that
 * people read, because these need not follow every frame of a fast run. While `isImmediate` returns
 * true, every change is copied at once.
 */
export function throttled<T>(source: ReadonlySignal<T>, pauseMs: number, isImmediate = (): boolean => false): ReadonlySignal<T> {
    const copy = signal(source.peek());
    let copiedAt = Number.NEGATIVE_INFINITY;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const update = () => {
        clearTimeout(timer);
        timer = undefined;
        copiedAt = performance.now();
        copy.value = source.peek();
    };
    effect(() => {
        // Reading `value` subscribes this effect to the source signal.
        source.value;
        const remaining = copiedAt + pauseMs - performance.now();
        if (remaining <= 0 || isImmediate()) update();
        else timer ??= setTimeout(update, remaining);
    });
    return copy;
}
