// The rows of a run: each event has a row of its own, or shares one with other local steps of its
// cell. All heights of the lanes come from here.
import { partsOf } from "./events";
import type { Entry } from "./protocol";

/** The largest number of events in a row. With more, their marks would cover each other. */
const MAX_MERGED_EVENTS = 6;

/** The rows of a run, from top to bottom, and the heights of its events in pixels. */
export class RowScale {
    /**
     * `height` is that of a row in pixels, `length` that of the run in events. `firsts` has the first
     * event of each row; without it each event has a row of its own.
     */
    constructor(
        readonly height: number,
        readonly length: number,
        private readonly firsts?: readonly number[],
    ) {}

    /** The number of rows. */
    get count(): number {
        return this.firsts?.length ?? this.length;
    }

    /** Returns the first event of a row; for a row below the last one the end of the run. */
    firstOf(row: number): number {
        return this.firsts === undefined ? Math.min(row, this.length) : (this.firsts[row] ?? this.length);
    }

    /** Returns the row of an event. Behind the end of the run, each event has a row of its own. */
    rowOf(event: number): number {
        const { firsts } = this;
        if (firsts === undefined || event >= this.length) return this.count + event - this.length;
        let [low, high] = [0, firsts.length - 1];
        while (low < high) {
            const middle = Math.ceil((low + high) / 2);
            if ((firsts[middle] ?? 0) <= event) low = middle;
            else high = middle - 1;
        }
        return low;
    }

    /** Returns true if an event shares its row with others. */
    isShared(event: number): boolean {
        return this.sizeOf(this.rowOf(event)) > 1;
    }

    /** Returns the height at which an event begins. The events of a row share its height equally. */
    top(event: number): number {
        const row = this.rowOf(event);
        const share = row < this.count ? (event - this.firstOf(row)) / this.sizeOf(row) : 0;
        return (row + share) * this.height;
    }

    /** Returns the height of an event's middle. */
    middle(event: number): number {
        return (this.top(event) + this.top(event + 1)) / 2;
    }

    private sizeOf(row: number): number {
        return Math.max(1, this.firstOf(row + 1) - this.firstOf(row));
    }
}

/**
 * Returns the first event of each row if consecutive local steps of a cell share one. Messages,
 * faults, refusals and violations keep rows of their own.
 */
export function mergedRows(entries: readonly Entry[]): number[] {
    const firsts: number[] = [];
    let cell: number | undefined;
    entries.forEach((entry, event) => {
        const own = cellOfLocalStep(entry);
        const first = firsts.at(-1) ?? 0;
        if (own === undefined || own !== cell || event - first >= MAX_MERGED_EVENTS) firsts.push(event);
        cell = own;
    });
    return firsts;
}

/** Returns the cell of a step that nobody outside of it notices; `undefined` for other events. */
function cellOfLocalStep({ event, sent, arrived, lost, fault, refused, violation }: Entry): number | undefined {
    const isNoticed = sent.length > 0 || arrived !== undefined || lost.length > 0;
    return isNoticed || fault || refused || violation !== undefined ? undefined : partsOf(event).cell;
}
