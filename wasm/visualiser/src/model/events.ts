// Reads the parts of an event. An event is a Rust enum as serde writes it in JSON: a string, or an
// object whose only member is named after the variant.
import type { MessageId, Process, WorldEvent } from "./protocol";

/** Returns the name of the variant of an enum value in serde's form. */
export function variantName<T extends string | object>(value: T): string {
    if (typeof value === "string") return value;
    return Object.keys(value)[0] ?? "";
}

/**
 * The parts that most events have: the variant's name, the cell, the process (a worker is one too)
 * and the message.
 */
export interface EventParts {
    kind: string;
    cell?: number;
    process?: Process;
    message?: MessageId;
}

/** Returns the parts of an event; those that the event does not have are absent. */
export function partsOf(event: WorldEvent): EventParts {
    const kind = variantName(event);
    if (typeof event === "string") return { kind };
    const content: unknown = Object.values(event)[0];
    if (typeof content === "number") return { kind, message: content };
    if (typeof content !== "object" || content === null) return { kind };
    const parts = content as { cell?: number; worker?: number; process?: Process };
    const process = parts.process ?? (parts.worker === undefined ? undefined : { worker: parts.worker });
    return {
        kind,
        ...(parts.cell === undefined ? {} : { cell: parts.cell }),
        ...(process === undefined ? {} : { process }),
    };
}

/** Returns true if two events have the same variant and the same members. */
export function isSameEvent(left: WorldEvent, right: WorldEvent): boolean {
    return eventKey(left) === eventKey(right);
}

/**
 * Returns a text that is equal for equal events. The simulation writes the members of an event
 * always in one order.
 */
export function eventKey(event: WorldEvent): string {
    return JSON.stringify(event);
}

/** Returns how many events at the beginning of two runs are equal. */
export function commonPrefixLength(left: readonly WorldEvent[], right: readonly WorldEvent[]): number {
    const length = Math.min(left.length, right.length);
    for (let index = 0; index < length; index += 1) {
        const [one, other] = [left[index], right[index]];
        if (one === undefined || other === undefined || !isSameEvent(one, other)) return index;
    }
    return length;
}

/**
 * Returns the kind of a process, and its number within the cell. A cell has one verifier, one client,
 * one keepalive and one front, number 0.
 */
export function processParts(process: Process): { kind: "worker" | "reconciler" | "verifier" | "client" | "keepalive" | "front"; number: number } {
    if (typeof process === "string") return { kind: process, number: 0 };
    if ("worker" in process) return { kind: "worker", number: process.worker };
    return { kind: "reconciler", number: process.reconciler };
}

/** Returns true if two process values name the same process of one cell. */
export function isSameProcess(left: Process, right: Process): boolean {
    return JSON.stringify(left) === JSON.stringify(right);
}
