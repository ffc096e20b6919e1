// What happens next when nothing more goes wrong: everybody goes on with what they are at, whoever waits in vain gives
// up, the service and the network come back, and what is left outstanding is reconciled once it is old enough. Which of
// these can happen is the simulation's to say; this only chooses among them.
import { about, isSameProcess, kindOf } from "./happening";
import type { CellView, Happening, MessageId, Process, Settings, View } from "./protocol";

/** More than any run needs to come to rest. */
export const PATIENCE = 20_000;
/** How often what is outstanding is waited for before it is left as it is. */
const ROUNDS = 3;

/** Chooses what happens next. */
export class Autopilot {
    /** Cells that are still to be reconciled in this round. */
    private due: number[] = [];
    private rounds = 0;

    /** What happens next; nothing once all is calm. `except` is a message that is to wait. */
    next(view: View, possible: readonly Happening[], settings: Settings, except?: MessageId): Happening | undefined {
        const allowed = possible.filter((event) => about(event).message !== except || except === undefined);
        const busy = this.goOn(view, allowed);
        if (busy) return busy;
        const back = find(allowed, "start_service") ?? find(allowed, "heal");
        return back ?? this.reconcile(view, allowed, settings);
    }

    /** Whether anything happens next. Nothing is chosen by asking. */
    hasNext(view: View, possible: readonly Happening[], settings: Settings): boolean {
        const other = new Autopilot();
        other.due = [...this.due];
        other.rounds = this.rounds;
        return other.next(view, possible, settings) !== undefined;
    }

    private goOn(view: View, possible: readonly Happening[]): Happening | undefined {
        const isBusy = (event: Happening) => {
            const { cell, process } = about(event);
            const at = view.cells.find((one) => one.cell === cell);
            return at !== undefined && process !== undefined && isAtWork(at, process);
        };
        const steps = possible.filter((event) => kindOf(event) === "step" && isBusy(event));
        return (
            find(possible, "deliver") ??
            find(possible, "finish_commit") ??
            steps[0] ??
            find(possible, "time_out")
        );
    }

    private reconcile(view: View, possible: readonly Happening[], settings: Settings): Happening | undefined {
        if (this.due.length === 0) {
            const cells = view.cells.map(({ cell }) => cell).filter((cell) => isOutstanding(view, cell));
            if (cells.length === 0 || settings.reconcilers === 0 || this.rounds >= ROUNDS) return undefined;
            this.rounds += 1;
            this.due = cells;
            const seconds = untilStale(view, settings);
            if (seconds > 0) return { wait: { seconds } };
        }
        const cell = this.due.shift();
        return possible.find((event) => {
            const { kind, cell: of, process } = about(event);
            const isReconciler = process !== undefined && isSameProcess(process, { reconciler: 0 });
            return kind === "step" && of === cell && isReconciler;
        });
    }
}

function find(possible: readonly Happening[], kind: string): Happening | undefined {
    return possible.find((event) => kindOf(event) === kind);
}

/** Whether a process has begun something that it has not ended. */
export function isAtWork(cell: CellView, process: Process): boolean {
    if (process === "verifier") return present(cell.verifier.step);
    if ("worker" in process) return present(cell.workers[process.worker]?.phase);
    return present(cell.reconcilers[process.reconciler]?.step);
}

function present(value: unknown): boolean {
    return value !== undefined && value !== null;
}

function isOutstanding(view: View, cell: number): boolean {
    const isHeld = view.leases.some((lease) => lease.cell === cell && lease.status === "Outstanding");
    const left = view.cells.find((one) => one.cell === cell);
    return isHeld || (left !== undefined && left.lease_rows.length > 0);
}

/** How long until the youngest of what is outstanding counts as left behind, on the slowest clock. */
function untilStale(view: View, settings: Settings): number {
    const leases = view.leases.filter((lease) => lease.status === "Outstanding").map((lease) => lease.age_micros);
    const rows = view.cells.flatMap((cell) => cell.lease_rows.map((row) => row.age_micros));
    const youngest = Math.min(...leases, ...rows) / 1e6;
    const left = settings.thresholds.stale_after_seconds - youngest;
    return left <= 0 ? 0 : Math.ceil(left) + 60;
}
