// Events are serde's enums: a word, or an object with one member. These take them apart.
import type { Happening, MessageId, Process } from "./protocol";


/** Every kind of event. */
export type HappeningKind = Happening extends infer E ? (E extends string ? E : E extends object ? keyof E & string : never) : never;

/** The name of an enum's variant. */
export function kindOf<T extends string | object>(value: T): string {
    if (typeof value === "string") return value;
    return Object.keys(value)[0] ?? "";
}

/** What an event is about: its cell, process, worker or message. */
export interface About {
    kind: string;
    cell?: number;
    process?: Process;
    message?: MessageId;
}

/** Takes an event apart. */
export function about(event: Happening): About {
    const kind = kindOf(event);
    if (typeof event === "string") return { kind };
    const inner: unknown = Object.values(event)[0];
    if (typeof inner === "number") return { kind, message: inner };
    if (typeof inner !== "object" || inner === null) return { kind };
    const parts = inner as { cell?: number; worker?: number; process?: Process };
    const process = parts.process ?? (parts.worker === undefined ? undefined : { worker: parts.worker });
    return {
        kind,
        ...(parts.cell === undefined ? {} : { cell: parts.cell }),
        ...(process === undefined ? {} : { process }),
    };
}

/** Whether two events are the same. */
export function isSame(one: Happening, other: Happening): boolean {
    return keyOf(one) === keyOf(other);
}

/** A text that is the same for the same event. */
export function keyOf(event: Happening): string {
    return JSON.stringify(event);
}

/** How many events two runs have in common at their start. */
export function commonStart(one: readonly Happening[], other: readonly Happening[]): number {
    const length = Math.min(one.length, other.length);
    for (let at = 0; at < length; at += 1) {
        const [left, right] = [one[at], other[at]];
        if (left === undefined || right === undefined || !isSame(left, right)) return at;
    }
    return length;
}

/** A process's kind and number; the verifier's number is 0. */
export function processOf(process: Process): { kind: "worker" | "reconciler" | "verifier"; number: number } {
    if (process === "verifier") return { kind: "verifier", number: 0 };
    if ("worker" in process) return { kind: "worker", number: process.worker };
    return { kind: "reconciler", number: process.reconciler };
}

/** Whether two processes are the same. */
export function isSameProcess(one: Process, other: Process): boolean {
    return JSON.stringify(one) === JSON.stringify(other);
}
