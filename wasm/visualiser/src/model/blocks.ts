// Entries by blocks of rows, so that a row that has not changed stays the same object and is not drawn again.
import { BLOCK } from "./geometry";
import type { Entry, Timeline } from "./protocol";

/** Remembers the blocks that were read since the run last changed. */
export class EntryBlocks {
    private blocks = new Map<number, Entry[]>();
    private of: Timeline | undefined;
    private revision = -1;

    /** The entries of a range. */
    read(timeline: Timeline, revision: number, from: number, to: number): Entry[] {
        if (this.of !== timeline || this.revision !== revision) this.blocks.clear();
        this.of = timeline;
        this.revision = revision;
        const first = Math.floor(from / BLOCK) * BLOCK;
        const entries: Entry[] = [];
        for (let start = first; start < to; start += BLOCK) {
            const block = this.blocks.get(start) ?? timeline.entries(start, Math.min(start + BLOCK, timeline.length));
            this.blocks.set(start, block);
            entries.push(...block);
        }
        return entries.slice(from - first, to - first);
    }
}
