// Who stands where: one lane for every participant, the service rightmost, cells from left to right.
import { processOf } from "./happening";
import type { Lane, Process } from "./protocol";

/** What a lane is of. */
export type LaneKind = "user" | "worker" | "reconciler" | "verifier" | "database" | "service";

/** A lane with its place. */
export interface PlacedLane {
    key: string;
    kind: LaneKind;
    /** The cell; 0 for the service. */
    cell: number;
    /** Which worker or reconciler. */
    number: number;
    /** The middle, in pixels from the left of the lanes. */
    x: number;
    lane: Lane;
}

/** Cells' share of the lanes, for the headings above them. */
export interface CellSpan {
    cell: number;
    left: number;
    right: number;
}

/** All lanes of a run. */
export interface LaneLayout {
    lanes: PlacedLane[];
    spans: CellSpan[];
    width: number;
    /** Where a lane is; lanes that are hidden stand where their cell does. */
    x(lane: Lane): number;
}

/** What the lanes are made of. */
export interface World {
    cells: number[];
    workers: number;
    reconcilers: number;
    hasVerifier: boolean;
    /** A recording of a service sees nothing within a cell. */
    isRecording?: boolean;
}

const GAP_BETWEEN_CELLS = 0.45;
export const NARROWEST_LANE = 28;
const WIDEST_LANE = 118;

/** A text for a lane that is the same for the same lane. */
export function laneKey(lane: Lane): string {
    if (lane === "service") return "service";
    if ("user" in lane) return `user:${lane.user}`;
    if ("database" in lane) return `database:${lane.database}`;
    const { kind, number } = processOf(lane.process[1]);
    return `${kind}:${lane.process[0]}:${number}`;
}

/** The cell that a lane belongs to; 0 for the service. */
export function cellOf(lane: Lane): number {
    if (lane === "service") return 0;
    if ("user" in lane) return lane.user;
    return "database" in lane ? lane.database : lane.process[0];
}

function place(kind: LaneKind, cell: number, number: number, lane: Lane): PlacedLane {
    return { key: laneKey(lane), kind, cell, number, x: 0, lane };
}

function lanesOfCell(cell: number, world: World): PlacedLane[] {
    const process = (kind: LaneKind, number: number, of: Process) => place(kind, cell, number, { process: [cell, of] });
    const workers = Array.from({ length: world.workers }, (_, worker) => process("worker", worker, { worker }));
    if (world.isRecording) return workers;
    const reconcilers = Array.from({ length: world.reconcilers }, (_, reconciler) =>
        process("reconciler", reconciler, { reconciler }),
    );
    const verifier = world.hasVerifier ? [process("verifier", 0, "verifier")] : [];
    const user = place("user", cell, 0, { user: cell });
    return [user, ...workers, place("database", cell, 0, { database: cell }), ...reconcilers, ...verifier];
}

/** Places the lanes that are `shown` within a width, as far as they fit. */
export function placeLanes(world: World, width: number, shown?: ReadonlySet<string>): LaneLayout {
    const isShown = (lane: PlacedLane) => shown === undefined || shown.has(lane.key);
    const cells = world.cells.map((cell) => lanesOfCell(cell, world).filter(isShown));
    const service = place("service", 0, 0, "service");
    const count = cells.reduce((sum, lanes) => sum + lanes.length, 1);
    const units = count + cells.length * GAP_BETWEEN_CELLS;
    const pitch = Math.min(WIDEST_LANE, Math.max(NARROWEST_LANE, width / units));
    let x = 0;
    const spans: CellSpan[] = [];
    for (const lanes of cells) {
        const left = x;
        for (const lane of lanes) {
            lane.x = x + pitch / 2;
            x += pitch;
        }
        const cell = lanes[0]?.cell;
        if (cell !== undefined) spans.push({ cell, left, right: x });
        x += pitch * GAP_BETWEEN_CELLS;
    }
    service.x = x + pitch / 2;
    const lanes = [...cells.flat(), service];
    return { lanes, spans, width: x + pitch, x: finder(lanes, spans) };
}

function finder(lanes: PlacedLane[], spans: CellSpan[]): (lane: Lane) => number {
    const places = new Map(lanes.map((lane) => [lane.key, lane.x]));
    return (lane) => {
        const span = spans.find(({ cell }) => cell === cellOf(lane));
        return places.get(laneKey(lane)) ?? (span ? (span.left + span.right) / 2 : 0);
    };
}
