// Caches the entries of a timeline in blocks of rows. The simulation returns new objects from each
// call. But an unchanged row must keep the same object, because Preact's `memo` compares properties
// by identity and skips the row if they are equal.
import { BLOCK_ROWS } from "./geometry";
import type { Entry, Timeline } from "./protocol";

/** The blocks of entries that were read since the timeline last changed. */
export class EntryCache {
    private blocks = new Map<number, Entry[]>();
    private timeline: Timeline | undefined;
    private revision = -1;

    /**
     * Returns the entries from position `from` to `to`. A call for another timeline or revision
     * empties the cache first.
     */
    read(timeline: Timeline, revision: number, from: number, to: number): Entry[] {
        if (this.timeline !== timeline || this.revision !== revision) this.blocks.clear();
        this.timeline = timeline;
        this.revision = revision;
        const first = Math.floor(from / BLOCK_ROWS) * BLOCK_ROWS;
        const entries: Entry[] = [];
        for (let start = first; start < to; start += BLOCK_ROWS) {
            const block = this.blocks.get(start) ?? timeline.entries(start, Math.min(start + BLOCK_ROWS, timeline.length));
            this.blocks.set(start, block);
            entries.push(...block);
        }
        return entries.slice(from - first, to - first);
    }
}
