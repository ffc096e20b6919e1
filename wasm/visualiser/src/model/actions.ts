// What a person can let happen to somebody or to a message, and why not where it is impossible.
import { about, isSameProcess, keyOf } from "./happening";
import type { PlacedLane } from "./lanes";
import type { CellView, Change, Happening, MessageView, Process, View } from "./protocol";
import { changeInWords } from "./words";

/** A choice in a menu. */
export interface Action {
    label: string;
    event: Happening;
    /** Why it cannot be chosen now. */
    reason?: string;
    /** What it is, for those who see it for the first time. */
    hint?: string;
    /** Whether it is trouble. */
    isFault?: boolean;
}

/** A titled group of choices. */
export interface ActionGroup {
    title: string;
    actions: Action[];
}

interface Offer extends Omit<Action, "reason"> {
    otherwise: string;
}

/** Greys out what is not among the possible. */
function offered(offers: Offer[], possible: readonly Happening[]): Action[] {
    const keys = new Set(possible.map(keyOf));
    return offers.map(({ otherwise, ...action }) =>
        keys.has(keyOf(action.event)) ? action : { ...action, reason: otherwise },
    );
}

/** What can happen to a message that is under way. */
export function messageActions(message: MessageView, view: View, possible: readonly Happening[]): Action[] {
    const cell = view.cells.find((one) => one.cell === message.cell);
    const held = cell?.is_cut_off ? `cell ${message.cell} is cut off: heal it first` : "the service is down: start it first";
    const offers: Offer[] = [
        { label: "Deliver it", event: { deliver: message.id }, otherwise: held },
        { label: "Drop it", event: { drop: message.id }, otherwise: held, isFault: true, hint: "it is lost, and nobody is told" },
        { label: "Duplicate it", event: { duplicate: message.id }, otherwise: "there are as many copies as can be", isFault: true },
    ];
    return offered(offers, possible);
}

/** What can happen to a participant. */
export function laneActions(lane: PlacedLane, view: View, possible: readonly Happening[]): ActionGroup[] {
    if (lane.kind === "service") return [{ title: "The service", actions: serviceActions(view, possible) }];
    const cell = view.cells.find((one) => one.cell === lane.cell);
    if (cell === undefined) return [];
    if (lane.kind === "user") {
        return [{ title: `Users of cell ${cell.cell} ask for`, actions: saves(cell, view) }, cellGroup(cell, possible)];
    }
    if (lane.kind === "database") {
        return [
            { title: `Cell ${cell.cell}'s database`, actions: databaseActions(cell, possible) },
            { title: "Plain SQL, past the claims", actions: drifts(cell, view) },
        ];
    }
    const process: Process | undefined = lane.lane !== "service" && "process" in lane.lane ? lane.lane.process[1] : undefined;
    return process === undefined ? [] : [{ title: "Let it", actions: processActions(cell, process, possible) }, cellGroup(cell, possible)];
}

function cellGroup(cell: CellView, possible: readonly Happening[]): ActionGroup {
    const number = cell.cell;
    const offers: Offer[] = [
        { label: "Cut it off from the service", event: { partition: { cell: number } }, otherwise: "it is cut off already", isFault: true, hint: "messages wait at the border" },
        { label: "Heal the connection", event: { heal: { cell: number } }, otherwise: "it is not cut off" },
    ];
    return { title: `Cell ${number}`, actions: offered(offers, possible) };
}

function serviceActions(view: View, possible: readonly Happening[]): Action[] {
    const offers: Offer[] = [
        { label: "Stop it", event: "stop_service", otherwise: "it is down already", isFault: true },
        { label: "Start it", event: "start_service", otherwise: "it is up" },
        { label: "Forget old settled leases", event: "forget", otherwise: view.is_up ? "nothing is old enough" : "it is down" },
    ];
    return [...offered(offers, possible), ...waits()];
}

function waits(): Action[] {
    const spans: [number, string][] = [
        [60, "Let a minute pass"],
        [660, "Let 11 minutes pass: leases count as left behind"],
        [3700, "Let an hour pass: verification looks at everything"],
        [90_000, "Let a day pass: settled leases may be forgotten"],
    ];
    return spans.map(([seconds, label]) => ({ label, event: { wait: { seconds } } }));
}

function processActions(cell: CellView, process: Process, possible: readonly Happening[]): Action[] {
    const at = { cell: cell.cell, process };
    const isWorker = process !== "verifier" && "worker" in process;
    const stuck = isWorker ? stuckWorker(cell, process.worker) : "it waits for an answer";
    const offers: Offer[] = [
        { label: isWorker ? "take its next step" : "run, or take its next step", event: { step: at }, otherwise: stuck },
        { label: "give up waiting for the answer", event: { time_out: at }, otherwise: "it waits for no answer from the service", isFault: true },
        { label: "crash", event: { crash: at }, otherwise: "it does nothing that a crash could interrupt", isFault: true, hint: "it is back at once, with nothing in its memory" },
    ];
    if (isWorker) {
        const worker = process.worker;
        offers.push({ label: "lose its database connection", event: { disconnect: { cell: cell.cell, worker } }, otherwise: "it has no transaction open", isFault: true });
    }
    const database = possible.filter((event) => isAboutDatabase(event, cell.cell, process));
    return [...offered(offers, possible), ...database.map((event) => commitAction(event))];
}

function isAboutDatabase(event: Happening, cell: number, process: Process): boolean {
    const { kind, cell: of, process: by } = about(event);
    return (kind === "finish_commit" || kind === "lose_commit") && of === cell && by !== undefined && isSameProcess(by, process);
}

function stuckWorker(cell: CellView, number: number): string {
    const worker = cell.workers[number];
    if (worker?.phase === undefined) return "it has nothing to save: let a user ask for something";
    if (worker.phase === "await_database") return "it waits for its database to commit";
    if (worker.phase === "write") return "another transaction holds the rows";
    return "it waits for the service's answer";
}

function commitAction(event: Happening): Action {
    const { kind, process } = about(event);
    const whose = process !== undefined && process !== "verifier" && "worker" in process ? `worker ${process.worker}'s COMMIT` : "the COMMIT";
    return kind === "finish_commit" ? { label: `carry out ${whose}`, event } : { label: `lose ${whose}`, event, isFault: true };
}

function databaseActions(cell: CellView, possible: readonly Happening[]): Action[] {
    const commits = possible.filter((event) => {
        const { kind, cell: of } = about(event);
        return of === cell.cell && (kind === "finish_commit" || kind === "lose_commit");
    });
    const offers: Offer[] = [
        { label: "restart", event: { restart_database: { cell: cell.cell } }, otherwise: "nobody is connected: nothing would happen", isFault: true, hint: "open transactions are rolled back" },
        { label: "bring the replica up to date", event: { replicate: { cell: cell.cell } }, otherwise: "the replica is up to date" },
    ];
    return [...commits.map(commitAction), ...offered(offers, possible)];
}

/** What users may want: each name that is free here, and each row. */
function saves(cell: CellView, view: View): Action[] {
    const worker = cell.workers.findIndex((one) => one.phase === undefined);
    const changes: Change[] = view.names.slice(0, 6).map((_, name) => ({ create: name }));
    for (const row of cell.rows.slice(0, 4)) {
        const other = view.names.findIndex((name) => !cell.rows.some((one) => one.name === name));
        if (other >= 0) changes.push({ rename: { row: row.row, name: other } });
        changes.push({ delete: row.row });
    }
    const [first, second] = cell.rows;
    if (first && second) changes.push({ swap: [first.row, second.row] }, { transfer: { from: first.row, to: second.row } });
    changes.push("invalid");
    return changes.map((change) => ({
        label: changeInWords(change, view.names),
        event: { save: { cell: cell.cell, worker: Math.max(0, worker), change } },
        ...(worker < 0 ? { reason: "every worker of this cell is busy" } : {}),
    }));
}

function drifts(cell: CellView, view: View): Action[] {
    const free = view.names.findIndex((name) => !cell.rows.some((row) => row.name === name) && !isLocked(cell, undefined, name));
    const row = cell.rows.find((one) => !isLocked(cell, one.row, one.name));
    const taken = cell.rows.length > 0 ? "open transactions hold its rows" : "it has no rows";
    return [
        {
            label: `insert ${view.names[free] ?? "a row"} with no claim`,
            event: { drift: { cell: cell.cell, drift: { insert: Math.max(0, free) } } },
            isFault: true,
            ...(free < 0 ? { reason: "every name is taken here, or held by an open transaction" } : {}),
        },
        {
            label: row ? `delete row ${row.row}, and leave its claim` : "delete a row, and leave its claim",
            event: { drift: { cell: cell.cell, drift: { delete: row?.row ?? cell.rows[0]?.row ?? 0 } } },
            isFault: true,
            ...(row ? {} : { reason: taken }),
        },
    ];
}

/** Whether an open transaction has written a row or a name. */
function isLocked(cell: CellView, row: number | undefined, name: string): boolean {
    const writes = cell.transactions.flatMap((tx) => tx.writes);
    return writes.some(([id, before, after]) => id === row || before === name || after === name);
}
