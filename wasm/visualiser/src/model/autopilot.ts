// What happens next when nothing more goes wrong: as the simulation says until nobody is at anything; then what is left
// outstanding is reconciled once it is old enough.
import type { Happening, MessageId, Settings, Simulation, View } from "./protocol";

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
    next(simulation: Simulation, except?: MessageId): Happening | undefined {
        return simulation.nextCalm(except) ?? this.reconcile(simulation.view(), simulation.settings());
    }

    /** Whether anything happens next. Nothing is chosen by asking. */
    hasNext(simulation: Simulation): boolean {
        const other = new Autopilot();
        other.due = [...this.due];
        other.rounds = this.rounds;
        return other.next(simulation) !== undefined;
    }

    private reconcile(view: View, settings: Settings): Happening | undefined {
        if (this.due.length === 0) {
            const cells = view.cells.map(({ cell }) => cell).filter((cell) => isOutstanding(view, cell));
            if (cells.length === 0 || settings.reconcilers === 0 || this.rounds >= ROUNDS) return undefined;
            this.rounds += 1;
            this.due = cells;
            const seconds = untilStale(view, settings);
            if (seconds > 0) return { wait: { seconds } };
        }
        const cell = this.due.shift();
        return cell === undefined ? undefined : { step: { cell, process: { reconciler: 0 } } };
    }
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
