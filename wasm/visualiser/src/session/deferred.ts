import { effect, type ReadonlySignal, signal } from "@preact/signals";

/** The same as a signal, but renewed at most so often: what people read need not follow every picture of a fast run. */
export function deferred<T>(source: ReadonlySignal<T>, pause_ms: number): ReadonlySignal<T> {
    const shown = signal(source.peek());
    let renewedAt = Number.NEGATIVE_INFINITY;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const renew = () => {
        timer = undefined;
        renewedAt = performance.now();
        shown.value = source.peek();
    };
    effect(() => {
        source.value;
        const left = renewedAt + pause_ms - performance.now();
        if (left <= 0) renew();
        else timer ??= setTimeout(renew, left);
    });
    return shown;
}
