import { computed, signal } from "@preact/signals";

import { laneKey, type LaneLayout, layOutLanes, type Participants } from "../model/lanes";
import { mergedRows, RowScale } from "../model/row_scale";
import { kindOf } from "../model/world_form";
import { session } from "../session/app";
import { MAX_SCANNED_EVENTS } from "../session/session";

/**
 * The window width below which the sentences are above the lanes instead of beside them. All sizes
 * and positions in this module are in pixels.
 */
const NARROW_WIDTH = 560;
/** The width of the column with event numbers, left of the lanes. */
const GUTTER = 46;
/** The least share of the window's width for the lanes, if the sentences are beside them. */
const LANES_SHARE = 0.55;
/** The least width of the sentences that are beside the lanes. */
const MIN_TEXT_WIDTH = 200;
/** The largest number of lanes for which a run without a story shows lanes without an event, too. */
const MAX_EMPTY_LANES = 7;

/** The size of the element in which the lanes scroll. */
export const size = signal({ width: 800, height: 500 });
/**
 * The width as a separate signal: a change of the height alone must not lay out the lanes again.
 */
export const width = computed(() => size.value.width);
/**
 * True while the position jumps by more than a screen again and again, for example while a person
 * drags the scrubber. During this time only the visible rows are rendered; the rows around them
 * follow after a pause.
 */
export const isJumping = signal(false);

export const isNarrow = computed(() => width.value < NARROW_WIDTH);
const rowHeight = computed(() => (isNarrow.value ? 52 : 40));
/** The horizontal position of the left edge of the lanes. */
export const lanesLeft = computed(() => (isNarrow.value ? 4 : GUTTER));

const participants = computed<Participants>(() => {
    const recording = session.recording.value;
    if (recording) return { cells: recording.cells, workers: 1, reconcilers: 0, hasVerifier: false, isRecording: true };
    const settings = session.settings.value;
    const cells = Array.from({ length: settings?.cells ?? 1 }, (_, index) => index + 1);
    const hasClients = settings?.locks !== undefined;
    const hasFronts = kindOf(settings) === "queues";
    return { cells, workers: settings?.workers ?? 1, reconcilers: settings?.reconcilers ?? 1, hasVerifier: true, hasClients, hasFronts };
});

/** The number of all lanes. */
const laneCount = computed(() => {
    const { cells, workers, reconcilers, hasClients, hasFronts } = participants.value;
    return cells.length * (hasFronts ? 4 : hasClients ? 3 : 3 + workers + reconcilers) + 1;
});

/** The keys of the lanes that have an event; `undefined` if the run shows all lanes in any case. */
const usedLanes = computed<ReadonlySet<string> | undefined>(() => {
    session.revision.value;
    const { cells, isRecording, hasClients } = participants.value;
    const isSmall = session.scenario.value === undefined && laneCount.value <= MAX_EMPTY_LANES;
    const timeline = session.timeline.value;
    if (isRecording || isSmall || !timeline || timeline.length > MAX_SCANNED_EVENTS) return undefined;
    const used = new Set<string>(cells.flatMap((cell) => [`user:${cell}`, `database:${cell}`, hasClients ? `client:${cell}:0` : `worker:${cell}:0`]));
    for (const entry of timeline.entries(0, timeline.length)) {
        used.add(laneKey(entry.lane));
        for (const arrow of entry.sent) used.add(laneKey(arrow.from)).add(laneKey(arrow.to));
    }
    return used.add("service");
});

/** True if lanes without an event can be hidden. */
export const hasUnusedLanes = computed(() => usedLanes.value !== undefined && usedLanes.value.size < laneCount.value);

/** The keys of the lanes to show, or `undefined` to show all lanes. */
const shownLanes = computed(() => (session.allLanes.value ? undefined : usedLanes.value));

export const layout = computed<LaneLayout>(() => {
    // The sentences beside the lanes get up to 400 pixels, but leave more than half of the window to the lanes.
    const room = isNarrow.value ? width.value - 8 : Math.max(width.value * LANES_SHARE, width.value - GUTTER - 400);
    return layOutLanes(participants.value, room, shownLanes.value);
});

/** The horizontal position of the left edge of the sentences. */
export const textLeft = computed(() => (isNarrow.value ? 6 : GUTTER + layout.value.width + 14));

/** True if the local steps of a cell can share a row. */
export const canMergeSteps = computed(() => session.recording.value === undefined && session.length.value <= MAX_SCANNED_EVENTS);

/** The rows of the run. */
export const rows = computed<RowScale>(() => {
    session.revision.value;
    const length = session.length.value;
    const firsts = session.mergedSteps.value && canMergeSteps.value ? mergedRows(session.timeline.value?.entries(0, length) ?? []) : undefined;
    return new RowScale(rowHeight.value, length, firsts);
});

/** The width of the lanes, plus that of the sentences if these are beside the lanes. */
export const contentWidth = computed(() => (isNarrow.value ? lanesLeft.value + layout.value.width : textLeft.value + MIN_TEXT_WIDTH));
