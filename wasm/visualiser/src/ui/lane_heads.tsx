import { laneActions } from "../model/actions";
import { type LaneKind, type PlacedLane } from "../model/lanes";
import { clientText } from "../model/lock_texts";
import type { CellView, View } from "../model/protocol";
import { frontText } from "../model/queue_texts";
import { silenceObstacle } from "../model/silence";
import { laneName, lanePurpose, phaseText, saveResultText } from "../model/texts";
import { session } from "../session/app";
import { contentWidth, isNarrow, lanesLeft, layout } from "./lane_layout";
import { openMenu } from "./menu";
import { displayed } from "./notice";
import { litClass } from "./tour";

const ICONS: Record<LaneKind, string> = {
    user: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM5 21c0-4 3-6 7-6s7 2 7 6",
    program: "M4 5h16v14H4zM4 9h16M8 13l2 2-2 2M13 17h3",
    worker: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 3v3M12 18v3M3 12h3M18 12h3M6 6l2 2M16 16l2 2M18 6l-2 2M8 16l-2 2",
    reconciler: "M5 10a7 7 0 0 1 13-2l1 2M19 14a7 7 0 0 1-13 2l-1-2M19 5v5h-5M5 19v-5h5",
    verifier: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5L21 21",
    client: "M7 11V8a5 5 0 0 1 10 0v3M5 11h14v9H5zM12 14v3",
    keepalive: "M3 12h4l2-5 4 10 2-5h6",
    front: "M3 6h12v12H3zM8 12h13M17 8l4 4-4 4",
    database: "M5 6c0-4 14-4 14 0v12c0 4-14 4-14 0zM5 6c0 4 14 4 14 0M5 12c0 4 14 4 14 0",
    service: "M4 5h16v6H4zM4 13h16v6H4zM7 8h.01M7 16h.01",
};

const LABELS: Record<LaneKind, string> = {
    user: "users",
    program: "program",
    worker: "worker",
    reconciler: "reconciler",
    verifier: "verifier",
    client: "client",
    keepalive: "keepalive",
    front: "front",
    database: "database",
    service: "service",
};

/**
 * The width of a lane, in pixels, from which on its head shows each label, and that of a letter. In
 * a narrower lane, the head shows an abbreviation if its label does not fit.
 */
const [LABEL_WIDTH, LETTER_WIDTH] = [50, 6.2];
const ABBREVIATIONS: Record<LaneKind, string> = { user: "user", program: "pro", worker: "w", reconciler: "rec", verifier: "ver", client: "cl", keepalive: "ka", front: "fr", database: "db", service: "svc" };

/** Shows the heads of the lanes, which name the participants. */
export function LaneHeads() {
    const { lanes, spans, width } = layout.value;
    const { view } = displayed.value;
    return (
        <div class="heads" style={{ minWidth: `${contentWidth.value}px` }}>
            <div class="heads-lanes" style={{ marginLeft: `${lanesLeft.value}px`, width: `${width}px` }}>
                {spans.map(({ cell, left, right }) => (
                    <CellHead key={cell} cell={cell} left={left} width={right - left} view={view} />
                ))}
                {lanes.map((lane) => (
                    <Head key={lane.key} lane={lane} view={view} />
                ))}
            </div>
            {!isNarrow.value && <span class="heads-text">events</span>}
        </div>
    );
}

function CellHead({ cell, left, width, view }: { cell: number; left: number; width: number; view: View | undefined }) {
    const isCutOff = view?.cells.find((other) => other.cell === cell)?.is_cut_off ?? false;
    return (
        <div class={isCutOff ? "cell-head cut" : "cell-head"} style={{ left: `${left + 2}px`, width: `${width - 4}px` }}>
            cell {cell}
            {isCutOff && <b> cut off</b>}
        </div>
    );
}

function Head({ lane, view }: { lane: PlacedLane; view: View | undefined }) {
    const laneWidth = widthOfLanes();
    const status = view ? statusOf(lane, view) : undefined;
    const isRecording = session.recording.value !== undefined;
    const hasNumber = (lane.kind === "worker" || lane.kind === "reconciler") && !isRecording && hasSiblings(lane);
    const label = isRecording && lane.kind === "worker" ? "cell" : hasRoom(LABELS[lane.kind], hasNumber, laneWidth) ? LABELS[lane.kind] : ABBREVIATIONS[lane.kind];
    const text = `${label}${hasNumber ? ` ${lane.number}` : ""}`;
    const isDown = lane.kind === "service" && view?.is_up === false;
    return (
        <button
            type="button"
            class={`head ${lane.kind}${isDown ? " down" : ""} ${litClass(`lane ${lane.key}`)}`}
            style={{ left: `${lane.x - laneWidth / 2}px`, width: `${laneWidth}px` }}
            aria-label={`${text}: ${laneName(lane)}${status ? `, ${status}` : ""}. Open its menu`}
            aria-haspopup="menu"
            title={`${laneName(lane)}${status ? `: ${status}` : ""}`}
            data-lane={lane.key}
            disabled={isRecording}
            onClick={(event) => openLane(lane, event.currentTarget)}
        >
            <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">
                <path d={ICONS[lane.kind]} />
            </svg>
            <span>{text}</span>
        </button>
    );
}

function hasRoom(label: string, hasNumber: boolean, width: number): boolean {
    return width >= Math.min(LABEL_WIDTH, (label.length + (hasNumber ? 2 : 0)) * LETTER_WIDTH);
}

/** Returns the width of each lane in pixels. The last lane ends where all lanes end. */
function widthOfLanes(): number {
    const { lanes, width } = layout.value;
    const last = lanes[lanes.length - 1];
    return last ? (width - last.x) * 2 : 60;
}

function hasSiblings(lane: PlacedLane): boolean {
    return layout.value.lanes.some((other) => other.kind === lane.kind && other.cell === lane.cell && other.number !== lane.number);
}

function openLane(lane: PlacedLane, anchor: HTMLElement): void {
    const simulation = session.simulation.peek();
    const view = session.view.peek();
    if (!simulation || !view) return;
    const status = statusOf(lane, view);
    const about = `${lanePurpose(lane.kind, view.locks?.lanes !== undefined)}${status ? ` Now: ${status}.` : ""}`;
    openMenu({ title: laneName(lane), about, groups: laneActions(lane, view, simulation.possible(), simulation.settings().locks), extras: silenceEntries(lane, view), anchor });
}

/** Returns the menu entry that plays the silence of a client, as a list with at most one entry. */
function silenceEntries({ kind, cell }: PlacedLane, view: View) {
    if (kind !== "client" && kind !== "keepalive") return [];
    const reason = silenceObstacle(cell, view);
    const hint = "it sends no renewal, the others do, and the service counts its ticks";
    return [{ label: "Let its session expire", run: () => session.expire(cell), hint, ...(reason === undefined ? {} : { reason }) }];
}

function statusOf(lane: PlacedLane, view: View): string | undefined {
    if (lane.kind === "service") return !view.is_up ? "down" : view.locks?.is_paused ? "paused" : "up";
    const cell = view.cells.find(({ cell }) => cell === lane.cell);
    return cell && statusInCell(lane, cell);
}

function statusInCell(lane: PlacedLane, cell: CellView): string | undefined {
    if (lane.kind === "worker") {
        const worker = cell.workers[lane.number];
        if (worker?.phase) return phaseText(worker.phase);
        return worker?.told ? `idle; answered its user: ${saveResultText(worker.told)}` : "idle";
    }
    if (lane.kind === "reconciler") return cell.reconcilers[lane.number]?.step ? "running" : "idle";
    if (lane.kind === "verifier") return cell.verifier.step ? "running" : "idle";
    if (lane.kind === "client") return cell.client && clientText(cell.client);
    if (lane.kind === "front") return cell.front && frontText(cell.front);
    if (lane.kind === "keepalive") return cell.client?.is_renewing ? "waits for the answer to a renewal" : undefined;
    if (lane.kind === "database") return cell.transactions.length > 0 ? `open transactions: ${cell.transactions.length}` : undefined;
    return undefined;
}
