import { batch, computed, effect, signal, useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { EntryBlocks } from "../model/blocks";
import { type Range, rowsInSight, scrollAcross, scrollTo, type Stretch, stretchOf, withBlocksAround } from "../model/geometry";
import { laneKey, type LaneLayout, placeLanes, type World } from "../model/lanes";
import type { Entry } from "../model/protocol";
import { session } from "../session/app";
import { deferred } from "../session/deferred";
import { LaneHeads } from "./lane_heads";
import { Bubbles } from "./bubbles";
import { Lines } from "./lines";
import { lastEntry } from "./notice";
import { Rows } from "./rows";

/** Below this width words stand above the lanes instead of beside them. */
const NARROW = 620;
const GUTTER = 46;
/** The least room for words beside the lanes. */
const WORDS = 200;
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
/** Of its own: a window that only becomes higher moves no lane. */
const width = computed(() => size.value.width);
const scrollTop = signal(0);
/** Whether all that was in sight has just been left at once, as a dragged scrubber does: what lies around is drawn once it rests. */
export const isLeaping = signal(false);
let landing: ReturnType<typeof setTimeout> | undefined;
const LANDING_MS = 120;
const scrollLeft = signal(0);
/** Where a person, or this page, has scrolled to last. */
let byHand = { top: 0, left: 0 };
/** Whether a person has scrolled sideways since playing began: then no event that is played is followed. */
let isHeld = false;

export const isNarrow = computed(() => width.value < NARROW);
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
    const room = isNarrow.value ? width.value - 8 : Math.max(width.value * 0.5, width.value - GUTTER - 400);
    return placeLanes(world.value, room, usedLanes.value);
});

export const wordsLeft = computed(() => (isNarrow.value ? 6 : GUTTER + layout.value.width + 14));

/** How wide the lanes are, with the words where those stand beside them. */
export const across = computed(() => (isNarrow.value ? lanesLeft.value + layout.value.width : wordsLeft.value + WORDS));
/** How far they can be scrolled sideways. */
const furthestAcross = computed(() => Math.max(0, across.value - width.value));

const drawn = computed<Range>(() => {
    const length = session.length.value;
    const inSight = rowsInSight(scrollTop.value, size.value.height - HEADS, rowHeight.value, length);
    return isLeaping.value ? inSight : withBlocksAround(inSight, length);
});

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
    return (
        <div
            class={isNarrow.value ? "lanes narrow" : "lanes"}
            ref={scroller}
            tabIndex={0}
            role="region"
            aria-label="Lanes: participants side by side, time running down"
            onScroll={(event) => scrolled(event.currentTarget)}
        >
            <LaneHeads />
            <div class="track" style={{ height: `${height}px`, minWidth: `${across.value}px` }}>
                <Lines range={range} entries={entries} arrows={arrows} />
                <Rows from={from} entries={entries} />
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
    moveTo(Math.min(furthest, Math.round(target)));
});

/** Nobody's eyes follow lanes that go to and fro more often, and the screen does not, either. */
const ACROSS_MS = 120;

/** What is to be in sight of the last event, and whether it was played; nothing where no lane ever is out of sight. */
const stretch = computed<(Stretch & { isPlayed: boolean }) | undefined>(() => {
    const entry = furthestAcross.value > 0 ? lastEntry.value : undefined;
    const arrows = entry && session.timeline.value?.arrows(entry.position, entry.position + 1);
    const found = entry && stretchOf(entry, arrows ?? [], layout.value, session.length.value);
    return found && { at: found.at + lanesLeft.value, far: found.far + lanesLeft.value, isPlayed: session.isPlaying.peek() };
});
const followed = deferred(stretch, ACROSS_MS);

/** Keeps the last event in sight sideways, too. */
effect(() => {
    const [target, furthest, room] = [followed.value, furthestAcross.value, width.value];
    // On a phone the lanes have no size while something else is in sight.
    if (room === 0 || (isHeld && target?.isPlayed)) return;
    const left = target ? scrollAcross(target, scrollLeft.peek(), room) : scrollLeft.peek();
    scrollLeft.value = Math.min(furthest, Math.round(left));
});

effect(() => {
    if (session.isPlaying.value) isHeld = false;
});

function moveTo(top: number): void {
    batch(() => {
        if (Math.abs(top - scrollTop.peek()) > size.peek().height) {
            isLeaping.value = true;
            clearTimeout(landing);
            landing = setTimeout(() => (isLeaping.value = false), LANDING_MS);
        }
        scrollTop.value = top;
    });
}

function scrolled(box: HTMLElement): void {
    isHeld ||= box.scrollLeft !== byHand.left;
    byHand = { top: box.scrollTop, left: box.scrollLeft };
    batch(() => {
        moveTo(byHand.top);
        scrollLeft.value = byHand.left;
    });
}

/** Scrolls to where the position is in sight. */
function Follow({ scroller }: { scroller: { current: HTMLDivElement | null } }) {
    const [top, left] = [scrollTop.value, scrollLeft.value];
    useLayoutEffect(() => {
        if (scroller.current && byHand.top !== top) scroller.current.scrollTop = top;
    }, [top]);
    useLayoutEffect(() => {
        const box = scroller.current;
        if (!box || byHand.left === left) return;
        box.scrollLeft = left;
        // As far as it went: what is scrolled to otherwise is scrolled to by hand.
        byHand.left = box.scrollLeft;
    }, [left]);
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
