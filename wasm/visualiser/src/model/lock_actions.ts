// The menu entries for the participants of a world of locks.
import type { PlacedLane } from "./lanes";
import { type Action, type ActionGroup, type Candidate, withReasons } from "./menu_entries";
import type { CellView, LockSettings, LocksView, View, WorldEvent } from "./protocol";
import { batchCandidates, frontCandidates, queueStarts } from "./queue_actions";

/** Returns the groups of menu entries for a lane of a world of locks. */
export function lockLaneActions(lane: PlacedLane, view: View, locks: LocksView, terms: LockSettings, possible: readonly WorldEvent[]): ActionGroup[] {
    if (lane.kind === "service") return serviceGroups(locks, terms, possible);
    const cell = view.cells.find(({ cell }) => cell === lane.cell);
    if (cell === undefined) return [];
    const connection = { title: `Cell ${cell.cell}`, actions: withReasons(connectionCandidates(cell.cell), possible) };
    if (lane.kind === "program") return [{ title: `The program of cell ${cell.cell}`, actions: programActions(cell, locks, possible) }, connection];
    if (lane.kind === "front") return [{ title: "This process", actions: withReasons(frontCandidates(cell.cell), possible) }, connection];
    const withheld = locks.lanes ? "what it has taken comes back once its time is over" : "its locks are withheld until its time is over";
    const evict: Candidate = { label: "Evict its session", event: { evict: { cell: cell.cell } }, otherwise: "the service does not run, or has no live session of it", hint: withheld };
    return [
        { title: "This process", actions: withReasons([...processCandidates(lane, cell), ...batchCandidates(lane, cell, locks)], possible) },
        { title: "An operator", actions: withReasons([evict], possible) },
        connection,
    ];
}

/** The reason for which a service that is down or paused does nothing. */
const DOWN = "the service is down or paused";

function serviceGroups(locks: LocksView, terms: LockSettings, possible: readonly WorldEvent[]): ActionGroup[] {
    const ticks: Candidate[] = [
        { label: "Count a tick", event: "tick", otherwise: locks.undecided > 0 ? "the last tick's proposals are undecided" : DOWN },
        { label: "Decide a proposal", event: "decide", otherwise: locks.undecided > 0 ? DOWN : "the last tick has proposed nothing" },
    ];
    const force = locks.locks.map(
        ({ lock, status }, number): Candidate => ({
            label: `Take the lock ${lock} from its holder`,
            event: { force: number },
            otherwise: status === "Held" ? DOWN : "nobody holds the lock",
            hint: "the lock is withheld until the holder's time is over",
        }),
    );
    return [
        { title: "Time", actions: [...withReasons(ticks, possible), ...waitActions(terms), ...jumpActions(locks)] },
        { title: "The service", actions: withReasons(serviceCandidates(), possible) },
        ...(force.length > 0 ? [{ title: "An operator", actions: withReasons(force, possible) }] : []),
    ];
}

/**
 * The time for which the service remembers ended sessions and free locks
 * (`simulation/src/world/locks.rs`).
 */
const REMEMBERED_SECONDS = 20;

/** Returns menu entries that let time pass without a tick. */
function waitActions({ duration_seconds, grace_seconds }: LockSettings): Action[] {
    const seconds = duration_seconds + grace_seconds;
    return [
        { label: `Wait ${seconds} s, a session's duration and grace`, event: { wait: { seconds } }, hint: "no tick is counted meanwhile, so nobody expires" },
        { label: `Wait ${REMEMBERED_SECONDS + 1} s`, event: { wait: { seconds: REMEMBERED_SECONDS + 1 } }, hint: "what has ended may then be forgotten" },
    ];
}

/** The jump of the service's wall clock that the menu offers, and the largest sum of all jumps. */
const [JUMP_SECONDS, MAX_AHEAD_SECONDS] = [3600, 31_536_000];

function jumpActions({ ahead_seconds }: LocksView): Action[] {
    return [JUMP_SECONDS, -JUMP_SECONDS].map((seconds) => ({
        label: `The wall clock jumps an hour ${seconds > 0 ? "ahead" : "back"}`,
        event: { jump_clock: seconds },
        isFault: true,
        ...(Math.abs(ahead_seconds + seconds) > MAX_AHEAD_SECONDS ? { reason: "the clock is wrong by a year already" } : {}),
    }));
}

function serviceCandidates(): Candidate[] {
    return [
        { label: "Pause it", event: "pause_service", otherwise: DOWN, isFault: true, hint: "it receives nothing and counts no tick" },
        { label: "Let it run again", event: "resume_service", otherwise: "the service is not paused" },
        { label: "Stop it", event: "stop_service", otherwise: "the service is down already", isFault: true },
        { label: "Start it", event: "start_service", otherwise: "the service is up" },
        { label: "Forget what ended long ago", event: "forget", otherwise: DOWN },
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
    return [...works, ...queueStarts(cell, locks), ...withReasons([close], possible)];
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
    ];
}
