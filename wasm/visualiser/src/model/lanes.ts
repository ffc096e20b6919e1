// Computes the layout of the lanes, one for each participant: the cells from left to right, then
// the service.
import { processParts } from "./events";
import type { Lane, Process } from "./protocol";

/** The kind of participant to which a lane belongs. */
export type LaneKind = "user" | "program" | "worker" | "reconciler" | "verifier" | "client" | "keepalive" | "front" | "database" | "service";

/** A lane with its horizontal position. */
export interface PlacedLane {
    key: string;
    kind: LaneKind;
    /** The number of the lane's cell; 0 for the service. */
    cell: number;
    /** The number of the lane's worker or reconciler within its cell; 0 for other lanes. */
    number: number;
    /** The middle of the lane, in pixels from the left edge of the leftmost lane. */
    x: number;
    lane: Lane;
}

/** The left and right edge of all lanes of one cell, in pixels. */
export interface CellSpan {
    cell: number;
    left: number;
    right: number;
}

/** The lanes of a run, with their horizontal positions. */
export interface LaneLayout {
    lanes: PlacedLane[];
    spans: CellSpan[];
    width: number;
    /** Returns the middle of a lane in pixels. For a hidden lane this is the middle of its cell. */
    x(lane: Lane): number;
}

/** The participants of a run, from which the lanes are made. */
export interface Participants {
    cells: number[];
    /** The number of workers, and of reconcilers, in each cell. */
    workers: number;
    reconcilers: number;
    hasVerifier: boolean;
    /** True for a world of locks: each cell has a client and a keepalive, and no other process. */
    hasClients?: boolean;
    /** True for the world of a queue: each cell has a front, too. */
    hasFronts?: boolean;
    /** True for the audit log of a server, which contains no events within a cell. */
    isRecording?: boolean;
}

/** The gap between two cells, as a multiple of a lane's width. */
const CELL_GAP = 0.45;
/**
 * The least width of a lane, in pixels. The head of a narrower one would be too small to click:
 * WCAG 2.2, 2.5.8 asks for 24 pixels.
 */
export const MIN_LANE_WIDTH = 28;
const MAX_LANE_WIDTH = 118;

/** Returns a text that is equal for equal lanes, and different for different ones. */
export function laneKey(lane: Lane): string {
    if (lane === "service") return "service";
    if ("user" in lane) return `user:${lane.user}`;
    if ("database" in lane) return `database:${lane.database}`;
    const { kind, number } = processParts(lane.process[1]);
    return `${kind}:${lane.process[0]}:${number}`;
}

/** Returns the number of the cell to which a lane belongs; 0 for the service. */
export function cellOf(lane: Lane): number {
    if (lane === "service") return 0;
    if ("user" in lane) return lane.user;
    return "database" in lane ? lane.database : lane.process[0];
}

function unplaced(kind: LaneKind, cell: number, number: number, lane: Lane): PlacedLane {
    return { key: laneKey(lane), kind, cell, number, x: 0, lane };
}

function lanesOfCell(cell: number, participants: Participants): PlacedLane[] {
    const processLane = (kind: LaneKind, number: number, process: Process) => unplaced(kind, cell, number, { process: [cell, process] });
    const user = unplaced(participants.hasClients ? "program" : "user", cell, 0, { user: cell });
    const fronts = participants.hasFronts ? [processLane("front", 0, "front")] : [];
    if (participants.hasClients) return [user, ...fronts, processLane("client", 0, "client"), processLane("keepalive", 0, "keepalive")];
    const workers = Array.from({ length: participants.workers }, (_, worker) => processLane("worker", worker, { worker }));
    if (participants.isRecording) return workers;
    const reconcilers = Array.from({ length: participants.reconcilers }, (_, reconciler) =>
        processLane("reconciler", reconciler, { reconciler }),
    );
    const verifier = participants.hasVerifier ? [processLane("verifier", 0, "verifier")] : [];
    return [user, ...workers, unplaced("database", cell, 0, { database: cell }), ...reconcilers, ...verifier];
}

/**
 * Returns the layout of the lanes with a key in `shown`, or of all lanes. The lanes share `width`
 * as far as the limits of a lane's width allow, so the layout may be wider or narrower.
 */
export function layOutLanes(participants: Participants, width: number, shown?: ReadonlySet<string>): LaneLayout {
    const isShown = (lane: PlacedLane) => shown === undefined || shown.has(lane.key);
    const cells = participants.cells.map((cell) => lanesOfCell(cell, participants).filter(isShown));
    const service = unplaced("service", 0, 0, "service");
    const count = cells.reduce((sum, lanes) => sum + lanes.length, 1);
    const units = count + cells.length * CELL_GAP;
    const laneWidth = Math.min(MAX_LANE_WIDTH, Math.max(MIN_LANE_WIDTH, width / units));
    let x = 0;
    const spans: CellSpan[] = [];
    for (const lanes of cells) {
        const left = x;
        for (const lane of lanes) {
            lane.x = x + laneWidth / 2;
            x += laneWidth;
        }
        const cell = lanes[0]?.cell;
        if (cell !== undefined) spans.push({ cell, left, right: x });
        x += laneWidth * CELL_GAP;
    }
    service.x = x + laneWidth / 2;
    const lanes = [...cells.flat(), service];
    return { lanes, spans, width: x + laneWidth, x: laneFinder(lanes, spans) };
}

function laneFinder(lanes: PlacedLane[], spans: CellSpan[]): (lane: Lane) => number {
    const xByKey = new Map(lanes.map((lane) => [lane.key, lane.x]));
    return (lane) => {
        const span = spans.find(({ cell }) => cell === cellOf(lane));
        return xByKey.get(laneKey(lane)) ?? (span ? (span.left + span.right) / 2 : 0);
    };
}
