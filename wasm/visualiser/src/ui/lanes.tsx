import { batch, computed, effect, signal, useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { EntryCache } from "../model/entry_cache";
import { type EventExtent, extentOf, type RowRange, rowsToRender, scrollLeftFor, scrollTopFor, visibleRows } from "../model/geometry";
import { laneKey, type LaneLayout, layOutLanes, type Participants } from "../model/lanes";
import type { Entry } from "../model/protocol";
import { session } from "../session/app";
import { MAX_SCANNED_EVENTS } from "../session/session";
import { throttled } from "../session/throttled";
import { Envelopes } from "./envelopes";
import { LaneHeads } from "./lane_heads";
import { Lines } from "./lines";
import { lastEntry } from "./notice";
import { Rows } from "./rows";

/**
 * The window width below which the sentences are above the lanes instead of beside them. All sizes
 * in this module are in pixels.
 */
const NARROW_WIDTH = 620;
/** The width of the column with event numbers, left of the lanes. */
const GUTTER = 46;
/** The least width of the sentences that are beside the lanes. */
const MIN_TEXT_WIDTH = 200;
/** The height of the lanes' heads (`.heads` in `styles/lanes.css`). */
const HEADS_HEIGHT = 66;
/** The number of empty rows below the last event, for the lines of messages in flight. */
const ROWS_BELOW = 2;
/** The largest number of lanes for which lanes without an event are shown too. */
const MAX_EMPTY_LANES = 7;

/** The size of the element in which the lanes scroll. */
const size = signal({ width: 800, height: 500 });
/**
 * The width as a separate signal: a change of the height alone must not lay out the lanes again.
 */
const width = computed(() => size.value.width);
const scrollTop = signal(0);
/**
 * True while the position jumps by more than a screen again and again, for example while a person
 * drags the scrubber. During this time only the visible rows are rendered; the rows around them
 * follow after a pause.
 */
export const isJumping = signal(false);
let jumpEnd: ReturnType<typeof setTimeout> | undefined;
const JUMP_PAUSE_MS = 120;
const scrollLeft = signal(0);
/** The scroll offsets that the page knows of, set either by a person or by the page itself. */
let lastScroll = { top: 0, left: 0 };
/**
 * True if a person has scrolled sideways since playback started. Played events then do not scroll
 * sideways.
 */
let isScrolledByPerson = false;

export const isNarrow = computed(() => width.value < NARROW_WIDTH);
export const rowHeight = computed(() => (isNarrow.value ? 52 : 40));
/** The horizontal position of the left edge of the lanes. */
export const lanesLeft = computed(() => (isNarrow.value ? 4 : GUTTER));

const participants = computed<Participants>(() => {
    const recording = session.recording.value;
    if (recording) return { cells: recording.cells, workers: 1, reconcilers: 0, hasVerifier: false, isRecording: true };
    const settings = session.settings.value;
    const cells = Array.from({ length: settings?.cells ?? 1 }, (_, index) => index + 1);
    return { cells, workers: settings?.workers ?? 1, reconcilers: settings?.reconcilers ?? 1, hasVerifier: true };
});

/** The keys of the lanes to show, or `undefined` to show all lanes. */
const shownLanes = computed<ReadonlySet<string> | undefined>(() => {
    session.revision.value;
    const { cells, workers, reconcilers, isRecording } = participants.value;
    const count = cells.length * (3 + workers + reconcilers) + 1;
    const timeline = session.timeline.value;
    if (session.allLanes.value || isRecording || count <= MAX_EMPTY_LANES || !timeline || timeline.length > MAX_SCANNED_EVENTS) return undefined;
    const used = new Set<string>(cells.flatMap((cell) => [`user:${cell}`, `database:${cell}`, `worker:${cell}:0`]));
    for (const entry of timeline.entries(0, timeline.length)) {
        used.add(laneKey(entry.lane));
        for (const arrow of entry.sent) used.add(laneKey(arrow.from)).add(laneKey(arrow.to));
    }
    return used;
});

export const layout = computed<LaneLayout>(() => {
    // The sentences beside the lanes get up to 400 pixels, but at most half of the window.
    const room = isNarrow.value ? width.value - 8 : Math.max(width.value * 0.5, width.value - GUTTER - 400);
    return layOutLanes(participants.value, room, shownLanes.value);
});

/** The horizontal position of the left edge of the sentences. */
export const textLeft = computed(() => (isNarrow.value ? 6 : GUTTER + layout.value.width + 14));

/** The width of the lanes, plus that of the sentences if these are beside the lanes. */
export const contentWidth = computed(() => (isNarrow.value ? lanesLeft.value + layout.value.width : textLeft.value + MIN_TEXT_WIDTH));
/** The largest horizontal scroll offset of the lanes. */
const maxScrollLeft = computed(() => Math.max(0, contentWidth.value - width.value));

const renderedRows = computed<RowRange>(() => {
    const length = session.length.value;
    const visible = visibleRows(scrollTop.value, size.value.height - HEADS_HEIGHT, rowHeight.value, length);
    return isJumping.value ? visible : rowsToRender(visible, length);
});

const entryCache = new EntryCache();

/**
 * Shows the lanes: the participants side by side, with time running down. Only rows near the
 * visible ones are rendered.
 */
export function Lanes() {
    const scroller = useRef<HTMLDivElement>(null);
    useEffect(() => {
        const box = scroller.current;
        if (!box) return;
        const observer = new ResizeObserver(() => (size.value = { width: box.clientWidth, height: box.clientHeight }));
        observer.observe(box);
        return () => observer.disconnect();
    }, []);
    // Use two numbers, not one object. Scrolling within a block of rows changes neither number, so
    // nothing is rendered.
    const from = useComputed(() => renderedRows.value.from).value;
    const to = useComputed(() => renderedRows.value.to).value;
    const revision = session.revision.value;
    const timeline = session.timeline.value;
    const range = { from, to };
    const entries: Entry[] = timeline ? entryCache.read(timeline, revision, from, to) : [];
    const arrows = timeline?.arrows(from, to) ?? [];
    const height = (session.length.value + ROWS_BELOW) * rowHeight.value;
    return (
        <div
            class={isNarrow.value ? "lanes narrow" : "lanes"}
            ref={scroller}
            tabIndex={0}
            role="region"
            aria-label="Lanes: participants side by side, time running down"
            onScroll={(event) => onScroll(event.currentTarget)}
        >
            <LaneHeads />
            <div class="track" style={{ height: `${height}px`, minWidth: `${contentWidth.value}px` }}>
                <Lines range={range} entries={entries} arrows={arrows} />
                <Rows from={from} entries={entries} />
                <Playhead />
                <Envelopes />
            </div>
            <ScrollSync scroller={scroller} />
        </div>
    );
}

// Keeps the position visible. This effect computes the scroll offset before the components render,
// so the browser computes the layout only once.
effect(() => {
    const { height } = size.value;
    const rows = rowHeight.value;
    const room = height - HEADS_HEIGHT;
    const maxScrollTop = Math.max(0, (session.length.value + ROWS_BELOW) * rows - room);
    const target = scrollTopFor(Math.max(0, session.position.value - 1), scrollTop.peek(), room, rows);
    setScrollTop(Math.min(maxScrollTop, Math.round(target)));
});

/**
 * The pause between two horizontal scrolls, in milliseconds. More frequent scrolls would be
 * unreadable, and each repaints all lanes.
 */
const SCROLL_LEFT_PAUSE_MS = 120;

/**
 * The horizontal positions of the last event. `isPlayed` is true if playback has played the event.
 * `undefined` if all lanes fit into the window.
 */
const lastExtent = computed<(EventExtent & { isPlayed: boolean }) | undefined>(() => {
    const entry = maxScrollLeft.value > 0 ? lastEntry.value : undefined;
    const arrows = entry && session.timeline.value?.arrows(entry.position, entry.position + 1);
    const extent = entry && extentOf(entry, arrows ?? [], layout.value, session.length.value);
    return extent && { x: extent.x + lanesLeft.value, farX: extent.farX + lanesLeft.value, isPlayed: session.isPlaying.peek() };
});
const followedExtent = throttled(lastExtent, SCROLL_LEFT_PAUSE_MS);

// Keeps the last event visible in the horizontal direction.
effect(() => {
    const [target, furthest, room] = [followedExtent.value, maxScrollLeft.value, width.value];
    // On a phone the lanes have the width 0 while another pane is shown.
    if (room === 0 || (isScrolledByPerson && target?.isPlayed)) return;
    const left = target ? scrollLeftFor(target, scrollLeft.peek(), room) : scrollLeft.peek();
    scrollLeft.value = Math.min(furthest, Math.round(left));
});

effect(() => {
    if (session.isPlaying.value) isScrolledByPerson = false;
});

/** Sets the vertical scroll offset, and notices jumps of more than a screen. */
function setScrollTop(top: number): void {
    batch(() => {
        if (Math.abs(top - scrollTop.peek()) > size.peek().height) {
            isJumping.value = true;
            clearTimeout(jumpEnd);
            jumpEnd = setTimeout(() => (isJumping.value = false), JUMP_PAUSE_MS);
        }
        scrollTop.value = top;
    });
}

function onScroll(box: HTMLElement): void {
    isScrolledByPerson ||= box.scrollLeft !== lastScroll.left;
    lastScroll = { top: box.scrollTop, left: box.scrollLeft };
    batch(() => {
        setScrollTop(lastScroll.top);
        scrollLeft.value = lastScroll.left;
    });
}

/** Applies the page's scroll offsets to the scrolling element. */
function ScrollSync({ scroller }: { scroller: { current: HTMLDivElement | null } }) {
    const [top, left] = [scrollTop.value, scrollLeft.value];
    useLayoutEffect(() => {
        if (scroller.current && lastScroll.top !== top) scroller.current.scrollTop = top;
    }, [top]);
    useLayoutEffect(() => {
        const box = scroller.current;
        if (!box || lastScroll.left === left) return;
        box.scrollLeft = left;
        // Note the offset that the browser has really set, which may be smaller. Any other offset
        // later comes from a person.
        lastScroll.left = box.scrollLeft;
    }, [left]);
    return null;
}

/** Shows a line at the position, and a veil over the events after it. */
function Playhead() {
    const top = session.position.value * rowHeight.value;
    // A veil of twice the window's height covers the window at every scroll offset. The browser
    // would paint a longer veil as a whole.
    const height = size.value.height * 2;
    return (
        <>
            <div class="playhead" style={{ top: `${top}px` }} aria-hidden="true" />
            <div class="veil" style={{ top: `${top}px`, height: `${height}px` }} aria-hidden="true" />
        </>
    );
}
