import { computed, effect, signal, useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { EntryBlocks } from "../model/blocks";
import { drawnRows, type Range, scrollTo } from "../model/geometry";
import { laneKey, type LaneLayout, placeLanes, type World } from "../model/lanes";
import type { Entry } from "../model/protocol";
import { session } from "../session/app";
import { LaneHeads } from "./lane_heads";
import { Bubbles } from "./bubbles";
import { Lines } from "./lines";
import { Rows } from "./rows";

/** Below this width words stand above the lanes instead of beside them. */
const NARROW = 620;
const GUTTER = 46;
/** How high the heads are, as the style sheet says. */
const HEADS = 66;
/** Room for messages that are under way at the end. */
const ROWS_BELOW = 2;
/** A run of more lanes than these hides those in which nothing happens. */
const MANY_LANES = 7;
/** A longer run is not looked through for the lanes that it uses. */
const LOOKED_THROUGH = 1500;

/** The size of what scrolls, and how far it is scrolled. */
const size = signal({ width: 800, height: 500 });
const scrollTop = signal(0);
/** Where a person, or this page, has scrolled to last. */
let byHand = 0;

export const isNarrow = computed(() => size.value.width < NARROW);
export const rowHeight = computed(() => (isNarrow.value ? 52 : 40));
/** Where the lanes begin, and where the words do. */
export const lanesLeft = computed(() => (isNarrow.value ? 4 : GUTTER));

const world = computed<World>(() => {
    const recording = session.recording.value;
    if (recording) return { cells: recording.cells, workers: 1, reconcilers: 0, hasVerifier: false, isRecording: true };
    const settings = session.settings.value;
    const cells = Array.from({ length: settings?.cells ?? 1 }, (_, at) => at + 1);
    return { cells, workers: settings?.workers ?? 1, reconcilers: settings?.reconcilers ?? 1, hasVerifier: true };
});

const usedLanes = computed<ReadonlySet<string> | undefined>(() => {
    session.revision.value;
    const { cells, workers, reconcilers, isRecording } = world.value;
    const count = cells.length * (3 + workers + reconcilers) + 1;
    const timeline = session.timeline.value;
    if (session.allLanes.value || isRecording || count <= MANY_LANES || !timeline || timeline.length > LOOKED_THROUGH) return undefined;
    const used = new Set<string>(cells.flatMap((cell) => [`user:${cell}`, `database:${cell}`, `worker:${cell}:0`]));
    for (const entry of timeline.entries(0, timeline.length)) {
        used.add(laneKey(entry.lane));
        for (const arrow of entry.sent) used.add(laneKey(arrow.from)).add(laneKey(arrow.to));
    }
    return used;
});

export const layout = computed<LaneLayout>(() => {
    const { width } = size.value;
    const room = isNarrow.value ? width - 8 : Math.max(width * 0.5, width - GUTTER - 400);
    return placeLanes(world.value, room, usedLanes.value);
});

export const wordsLeft = computed(() => (isNarrow.value ? 6 : GUTTER + layout.value.width + 14));

const drawn = computed<Range>(() => drawnRows(scrollTop.value, size.value.height, rowHeight.value, session.length.value));

const blocks = new EntryBlocks();

/** The lanes: participants side by side, time running down. Only what is in sight is drawn. */
export function Lanes() {
    const scroller = useRef<HTMLDivElement>(null);
    useEffect(() => {
        const box = scroller.current;
        if (!box) return;
        const observer = new ResizeObserver(() => (size.value = { width: box.clientWidth, height: box.clientHeight }));
        observer.observe(box);
        return () => observer.disconnect();
    }, []);
    // Scrolling within one block of rows changes nothing here.
    const from = useComputed(() => drawn.value.from).value;
    const to = useComputed(() => drawn.value.to).value;
    const revision = session.revision.value;
    const timeline = session.timeline.value;
    const range = { from, to };
    const entries: Entry[] = timeline ? blocks.read(timeline, revision, from, to) : [];
    const arrows = timeline?.arrows(from, to) ?? [];
    const height = (session.length.value + ROWS_BELOW) * rowHeight.value;
    const width = isNarrow.value ? undefined : { minWidth: `${wordsLeft.value + 200}px` };
    return (
        <div
            class={isNarrow.value ? "lanes narrow" : "lanes"}
            ref={scroller}
            tabIndex={0}
            role="region"
            aria-label="Lanes: participants side by side, time running down"
            onScroll={(event) => {
                byHand = event.currentTarget.scrollTop;
                scrollTop.value = byHand;
            }}
        >
            <LaneHeads />
            <div class="track" style={{ height: `${height}px`, ...width }}>
                <Lines range={range} entries={entries} arrows={arrows} />
                <Rows entries={entries} />
                <Playhead />
                <Bubbles />
            </div>
            <Follow scroller={scroller} />
        </div>
    );
}

/** Keeps the position in sight: where to scroll is known before anything is drawn, so that all is laid out once. */
effect(() => {
    const { height } = size.value;
    const rows = rowHeight.value;
    const room = height - HEADS;
    const furthest = Math.max(0, (session.length.value + ROWS_BELOW) * rows - room);
    const target = scrollTo(Math.max(0, session.position.value - 1), scrollTop.peek(), room, rows);
    scrollTop.value = Math.min(furthest, Math.round(target));
});

/** Scrolls to where the position is in sight. */
function Follow({ scroller }: { scroller: { current: HTMLDivElement | null } }) {
    const target = scrollTop.value;
    useLayoutEffect(() => {
        if (scroller.current && byHand !== target) scroller.current.scrollTop = target;
    }, [target]);
    return null;
}

function Playhead() {
    const top = session.position.value * rowHeight.value;
    // Only as much as can be in sight: it is painted.
    const height = size.value.height * 2;
    return (
        <>
            <div class="playhead" style={{ top: `${top}px` }} aria-hidden="true" />
            <div class="veil" style={{ top: `${top}px`, height: `${height}px` }} aria-hidden="true" />
        </>
    );
}
