import { batch, computed, effect, signal, useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { EntryCache } from "../model/entry_cache";
import { type EventExtent, extentOf, type RowRange, rowsToRender, scrollLeftFor, scrollTopFor, visibleRows } from "../model/geometry";
import type { Entry } from "../model/protocol";
import { session } from "../session/app";
import { throttled } from "../session/throttled";
import { Envelopes } from "./envelopes";
import { LaneHeads } from "./lane_heads";
import { contentWidth, isJumping, isNarrow, lanesLeft, layout, rows, size, textLeft, width } from "./lane_layout";
import { Lines } from "./lines";
import { lastEntry } from "./notice";
import { Rows } from "./rows";

/** The height of the lanes' heads in pixels (`.heads` in `styles/lanes.css`). */
const HEADS_HEIGHT = 66;
/** The number of empty rows below the last event, for the lines of messages in flight. */
const ROWS_BELOW = 2;

const scrollTop = signal(0);
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

/** The largest horizontal scroll offset of the lanes. */
const maxScrollLeft = computed(() => Math.max(0, contentWidth.value - width.value));

const renderedRows = computed<RowRange>(() => {
    const visible = visibleRows(scrollTop.value, size.value.height - HEADS_HEIGHT, rows.value);
    return isJumping.value ? visible : rowsToRender(visible, rows.value.count);
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
    const [first, end] = [rows.value.firstOf(from), rows.value.firstOf(to)];
    const entries: Entry[] = timeline ? entryCache.read(timeline, revision, first, end) : [];
    const arrows = timeline?.arrows(first, end) ?? [];
    const height = (rows.value.count + ROWS_BELOW) * rows.value.height;
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
                <Rows range={range} entries={entries} />
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
    const room = size.value.height - HEADS_HEIGHT;
    const { count, height } = rows.value;
    const maxScrollTop = Math.max(0, (count + ROWS_BELOW) * height - room);
    const row = rows.value.rowOf(Math.max(0, session.position.value - 1));
    const target = scrollTopFor(row, scrollTop.peek(), room, height);
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
    const extent = entry && extentOf(entry, arrows ?? [], layout.value);
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

/** Shows a line at the position, and a translucent overlay over the events after it. */
function Playhead() {
    const [scale, position] = [rows.value, session.position.value];
    const top = scale.top(position);
    // Within a shared row, the line would strike the sentence through.
    const isWithin = scale.firstOf(scale.rowOf(position)) < position && position < scale.length;
    const end = isWithin && !isNarrow.value ? { width: `${textLeft.value}px` } : {};
    // The overlay begins at the position and is twice as high as the window, so it fills the rest
    // of the window while the position is visible. A longer one would cost time, because the
    // browser paints all of it. Rows that are scrolled further away have no overlay.
    const height = size.value.height * 2;
    return (
        <>
            <div class="playhead" style={{ top: `${top}px`, ...end }} aria-hidden="true" />
            <div class="overlay" style={{ top: `${top}px`, height: `${height}px` }} aria-hidden="true" />
        </>
    );
}
