// The entries of the page's menus: the events that a person can apply to a participant or to a
// message. An event that is impossible at the position is listed with the reason.
import { isSameProcess, partsOf } from "./events";
import type { PlacedLane } from "./lanes";
import { lockLaneActions } from "./lock_actions";
import { type Action, type ActionGroup, type Candidate, withReasons } from "./menu_entries";
import { isBegunAnswer } from "./message_texts";
import type { CellView, Change, LockSettings, MessageView, Process, View, WorldEvent } from "./protocol";
import { changeText } from "./texts";

/** Returns the menu entries for a message in flight, such as to deliver or to drop it. */
export function messageActions(message: MessageView, view: View, possible: readonly WorldEvent[]): Action[] {
    const cell = view.cells.find(({ cell }) => cell === message.cell);
    const blocked = cell?.is_cut_off ? `cell ${message.cell} is cut off: heal its connection first` : "its receiver is paused: let it run again first";
    const candidates: Candidate[] = [
        { label: "Deliver it", event: { deliver: message.id }, otherwise: blocked },
        { label: "Drop it", event: { drop: message.id }, otherwise: blocked, isFault: true, hint: "the message is lost, and neither side is notified" },
        { label: "Duplicate it", event: { duplicate: message.id }, otherwise: "the message has as many copies as a world allows", isFault: true },
    ];
    if (isBegunAnswer(message.says)) {
        candidates.push({
            label: "Cancel its call",
            event: { cancel_call: message.id },
            otherwise: "its begin has an idempotency key, or the answer has left the service",
            isFault: true,
            hint: "the caller has gone, so the answer cannot leave and the service will roll the lease back",
        });
    }
    return withReasons(candidates, possible);
}

/**
 * Returns the groups of menu entries for the participant of a lane. `terms` are the settings of the
 * world's locks, absent in a world of claims.
 */
export function laneActions(lane: PlacedLane, view: View, possible: readonly WorldEvent[], terms?: LockSettings): ActionGroup[] {
    if (view.locks && terms) return lockLaneActions(lane, view, view.locks, terms, possible);
    if (lane.kind === "service") return [{ title: "The service", actions: serviceActions(view, possible) }];
    const cell = view.cells.find(({ cell }) => cell === lane.cell);
    if (cell === undefined) return [];
    if (lane.kind === "user") {
        return [{ title: `Users of cell ${cell.cell} ask to`, actions: saveActions(cell, view) }, cellGroup(cell, possible)];
    }
    if (lane.kind === "database") {
        return [
            { title: `Cell ${cell.cell}'s database`, actions: databaseActions(cell, possible) },
            { title: "Plain SQL, without a claim", actions: driftActions(cell, view) },
        ];
    }
    const process: Process | undefined = lane.lane !== "service" && "process" in lane.lane ? lane.lane.process[1] : undefined;
    return process === undefined ? [] : [{ title: "This process", actions: processActions(cell, process, possible) }, cellGroup(cell, possible)];
}

function cellGroup(cell: CellView, possible: readonly WorldEvent[]): ActionGroup {
    const number = cell.cell;
    const candidates: Candidate[] = [
        { label: "Cut it off from the service", event: { partition: { cell: number } }, otherwise: "the cell is cut off already", isFault: true, hint: "messages wait until the connection is healed" },
        { label: "Heal its connection", event: { heal: { cell: number } }, otherwise: "the cell is not cut off" },
    ];
    return { title: `Cell ${number}`, actions: withReasons(candidates, possible) };
}

function serviceActions(view: View, possible: readonly WorldEvent[]): Action[] {
    const candidates: Candidate[] = [
        { label: "Stop it", event: "stop_service", otherwise: "the service is down already", isFault: true },
        { label: "Start it", event: "start_service", otherwise: "the service is up" },
        { label: "Roll back a lease that no caller can know", event: "take_back", otherwise: "every outstanding lease may be known to its caller" },
        { label: "Forget old settled leases", event: "forget", otherwise: view.is_up ? "no settled lease is old enough" : "the service is down" },
    ];
    return [...withReasons(candidates, possible), ...waitActions()];
}

/**
 * Returns menu entries that let time pass: each wait is longer than one of the default thresholds,
 * so that leases become stale, rows old, or settled leases forgotten.
 */
function waitActions(): Action[] {
    const waits: [number, string][] = [
        [60, "Wait a minute"],
        [660, "Wait 11 minutes: outstanding leases become stale"],
        [3700, "Wait an hour: no row is recent for verification"],
        [90_000, "Wait a day: settled leases may be forgotten"],
    ];
    return waits.map(([seconds, label]) => ({ label, event: { wait: { seconds } } }));
}

function processActions(cell: CellView, process: Process, possible: readonly WorldEvent[]): Action[] {
    const target = { cell: cell.cell, process };
    const isWorker = typeof process !== "string" && "worker" in process;
    const blocked = isWorker ? blockedWorkerReason(cell, process.worker) : "the process waits for an answer";
    const candidates: Candidate[] = [
        { label: isWorker ? "Take the next step" : "Start a run, or take the next step", event: { step: target }, otherwise: blocked },
        { label: "Time out", event: { time_out: target }, otherwise: "the process waits for no answer of the service", isFault: true, hint: "it stops waiting for the answer" },
        { label: "Crash", event: { crash: target }, otherwise: "the process is idle: a crash would change nothing", isFault: true, hint: "it restarts at once, with an empty memory" },
    ];
    if (isWorker) {
        const worker = process.worker;
        candidates.push({ label: "Lose the database connection", event: { disconnect: { cell: cell.cell, worker } }, otherwise: "the worker has no open transaction", isFault: true });
    }
    const commits = possible.filter((event) => isCommitOf(event, cell.cell, process));
    return [...withReasons(candidates, possible), ...commits.map(commitAction)];
}

/** Returns true if the event ends a COMMIT of the process that the cell's database has received. */
function isCommitOf(event: WorldEvent, cell: number, process?: Process): boolean {
    const parts = partsOf(event);
    const isCommit = (parts.kind === "finish_commit" || parts.kind === "lose_commit") && parts.cell === cell;
    return isCommit && (process === undefined || (parts.process !== undefined && isSameProcess(parts.process, process)));
}

function blockedWorkerReason(cell: CellView, number: number): string {
    const worker = cell.workers[number];
    if (worker?.phase === undefined) return "the worker has nothing to save: let a user ask for something";
    if (worker.phase === "await_database") return "the worker waits for its database to commit";
    if (worker.phase === "write") return "another transaction has locked the rows";
    return "the worker waits for the service's answer";
}

function commitAction(event: WorldEvent): Action {
    const { kind, process } = partsOf(event);
    const commit = process !== undefined && typeof process !== "string" && "worker" in process ? `worker ${process.worker}'s COMMIT` : "the COMMIT";
    return kind === "finish_commit" ? { label: `Carry out ${commit}`, event } : { label: `Lose ${commit}`, event, isFault: true };
}

function databaseActions(cell: CellView, possible: readonly WorldEvent[]): Action[] {
    const commits = possible.filter((event) => isCommitOf(event, cell.cell));
    const candidates: Candidate[] = [
        { label: "Restart", event: { restart_database: { cell: cell.cell } }, otherwise: "the database has no connection: a restart would change nothing", isFault: true, hint: "open transactions are rolled back" },
        { label: "Bring the replica up to date", event: { replicate: { cell: cell.cell } }, otherwise: "the replica is up to date" },
    ];
    return [...commits.map(commitAction), ...withReasons(candidates, possible)];
}

/** The numbers of names and of rows that a menu offers. More would not fit on a screen. */
const [MENU_NAMES, MENU_ROWS] = [6, 4];

/**
 * Returns menu entries for the saves that a user may ask for: creates of the first names, and
 * changes of the first rows.
 */
function saveActions(cell: CellView, view: View): Action[] {
    const worker = cell.workers.findIndex(({ phase }) => phase === undefined);
    const changes: Change[] = view.names.slice(0, MENU_NAMES).map((_, name) => ({ create: name }));
    for (const { row } of cell.rows.slice(0, MENU_ROWS)) {
        const freeName = view.names.findIndex((name) => !cell.rows.some((other) => other.name === name));
        if (freeName >= 0) changes.push({ rename: { row, name: freeName } });
        changes.push({ delete: row });
    }
    const [first, second] = cell.rows;
    if (first && second) changes.push({ swap: [first.row, second.row] }, { transfer: { from: first.row, to: second.row } });
    changes.push("invalid");
    return changes.map((change) => ({
        label: changeText(change, view.names),
        event: { save: { cell: cell.cell, worker: Math.max(0, worker), change } },
        ...(worker < 0 ? { reason: "every worker of this cell is busy" } : {}),
    }));
}

function driftActions(cell: CellView, view: View): Action[] {
    const freeName = view.names.findIndex((name) => !cell.rows.some((row) => row.name === name) && !isLocked(cell, undefined, name));
    const row = cell.rows.find(({ row, name }) => !isLocked(cell, row, name));
    const noRow = cell.rows.length > 0 ? "open transactions have locked the rows" : "the table has no rows";
    return [
        {
            label: `Insert ${view.names[freeName] ?? "a row"} with no claim`,
            event: { drift: { cell: cell.cell, drift: { insert: Math.max(0, freeName) } } },
            isFault: true,
            ...(freeName < 0 ? { reason: "every name has a row here, or an open transaction has locked it" } : {}),
        },
        {
            label: row ? `Delete row ${row.row}, and leave its claim` : "Delete a row, and leave its claim",
            event: { drift: { cell: cell.cell, drift: { delete: row?.row ?? cell.rows[0]?.row ?? 0 } } },
            isFault: true,
            ...(row ? {} : { reason: noRow }),
        },
    ];
}

/** Returns true if an open transaction of the cell's database has written the row or the name. */
function isLocked(cell: CellView, row: number | undefined, name: string): boolean {
    const writes = cell.transactions.flatMap((transaction) => transaction.writes);
    return writes.some(([written, before, after]) => written === row || before === name || after === name);
}
