// The menu entries for the participants of a world of locks.
import type { PlacedLane } from "./lanes";
import { type ActionGroup, type Candidate, withReasons } from "./menu_entries";
import type { CellView, LocksView, View, WorldEvent } from "./protocol";

/** Returns the groups of menu entries for a lane of a world of locks. */
export function lockLaneActions(lane: PlacedLane, view: View, locks: LocksView, possible: readonly WorldEvent[]): ActionGroup[] {
    if (lane.kind === "service") return [{ title: "The service", actions: withReasons(serviceCandidates(locks), possible) }];
    const cell = view.cells.find(({ cell }) => cell === lane.cell);
    if (cell === undefined) return [];
    const connection = { title: `Cell ${cell.cell}`, actions: withReasons(connectionCandidates(cell.cell), possible) };
    if (lane.kind === "user") return [{ title: `The program of cell ${cell.cell}`, actions: programActions(cell, locks, possible) }, connection];
    return [{ title: "This process", actions: withReasons(processCandidates(lane, cell), possible) }, connection];
}

function serviceCandidates(locks: LocksView): Candidate[] {
    const down = "the service is down or paused";
    return [
        { label: "Count a tick", event: "tick", otherwise: locks.undecided > 0 ? "the last tick's proposals are undecided" : down },
        { label: "Decide a proposal", event: "decide", otherwise: "the last tick has proposed nothing" },
        { label: "Pause it", event: "pause_service", otherwise: down, isFault: true, hint: "it receives nothing and counts no tick" },
        { label: "Let it run again", event: "resume_service", otherwise: "the service is not paused" },
        { label: "Stop it", event: "stop_service", otherwise: "the service is down already", isFault: true },
        { label: "Start it", event: "start_service", otherwise: "the service is up" },
        ...locks.locks.map(({ lock }, number): Candidate => ({ label: `Take the lock ${lock} from its holder`, event: { force: number }, otherwise: "nobody holds the lock" })),
        { label: "Forget what ended long ago", event: "forget", otherwise: down },
    ];
}

function connectionCandidates(cell: number): Candidate[] {
    return [
        { label: "Cut it off from the service", event: { partition: { cell } }, otherwise: "the cell is cut off already", isFault: true },
        { label: "Heal its connection", event: { heal: { cell } }, otherwise: "the cell is not cut off" },
    ];
}

function programActions(cell: CellView, locks: LocksView, possible: readonly WorldEvent[]) {
    const works = locks.locks.map(({ lock }, number) => ({
        label: `Work under the lock ${lock}`,
        event: { work: { cell: cell.cell, lock: number } } as WorldEvent,
        ...(cell.client?.phase === undefined ? {} : { reason: "the client is busy" }),
    }));
    const close: Candidate = { label: "Close the session", event: { close: { cell: cell.cell } }, otherwise: "the client is busy, or has no session" };
    return [...works, ...withReasons([close], possible)];
}

function processCandidates(lane: PlacedLane, { cell, client }: CellView): Candidate[] {
    const process = lane.kind === "keepalive" ? "keepalive" : "client";
    const paused = client?.is_paused ? "the process is paused" : undefined;
    const step: Candidate =
        process === "keepalive"
            ? { label: "Renew the session", event: { step: { cell, process } }, otherwise: paused ?? "a renewal is under way, or there is no session" }
            : { label: "Take the next step", event: { step: { cell, process } }, otherwise: paused ?? "the client is idle, or waits for an answer" };
    return [
        step,
        { label: "Time out", event: { time_out: { cell, process } }, otherwise: "the process waits for no answer", isFault: true },
        { label: "Pause the process", event: { pause: { cell } }, otherwise: "the process is paused already", isFault: true, hint: "its keepalive stops, too; its clock runs on" },
        { label: "Let it run again", event: { resume: { cell } }, otherwise: "the process is not paused" },
        { label: "Crash", event: { crash: { cell, process: "client" } }, otherwise: "the client has no session and no work", isFault: true, hint: "its session outlives it" },
        { label: "Evict its session, as an operator", event: { evict: { cell } }, otherwise: "it has no live session" },
    ];
}
