// Chooses the events that continue a run without further faults. The simulation's `nextCalm` lets
// every process finish; then the autopilot waits until the outstanding leases are stale, and lets
// each cell's reconciler settle them.
import type { MessageId, Settings, Simulation, View, WorldEvent } from "./protocol";

/** More events than any run of the page needs to come to rest. */
export const MAX_EVENTS_TO_REST = 20_000;
/**
 * The number of reconciliations after which the autopilot gives up. A rule that is off may leave a
 * lease for ever.
 */
const MAX_ROUNDS = 3;

/**
 * The state of the autopilot: it belongs to one run and must be replaced when a person applies
 * another event.
 */
export class Autopilot {
    /** The cells left to reconcile in this round. */
    private due: number[] = [];
    private rounds = 0;

    /**
     * Returns the next event, or `undefined` if the run is at rest. The message `except` is not
     * delivered.
     */
    next(simulation: Simulation, except?: MessageId): WorldEvent | undefined {
        return simulation.nextCalm(except) ?? this.reconcile(simulation.view(), simulation.settings());
    }

    /** Returns true if a next event exists. The autopilot's state stays unchanged. */
    hasNext(simulation: Simulation): boolean {
        const copy = new Autopilot();
        copy.due = [...this.due];
        copy.rounds = this.rounds;
        return copy.next(simulation) !== undefined;
    }

    private reconcile(view: View, settings: Settings): WorldEvent | undefined {
        if (this.due.length === 0) {
            const cells = view.cells.map(({ cell }) => cell).filter((cell) => hasOutstanding(view, cell));
            if (cells.length === 0 || settings.reconcilers === 0 || this.rounds >= MAX_ROUNDS) return undefined;
            this.rounds += 1;
            this.due = cells;
            const seconds = secondsUntilStale(view, settings);
            if (seconds > 0) return { wait: { seconds } };
        }
        const cell = this.due.shift();
        return cell === undefined ? undefined : { step: { cell, process: { reconciler: 0 } } };
    }
}

function hasOutstanding(view: View, cell: number): boolean {
    const hasLease = view.leases.some((lease) => lease.cell === cell && lease.status === "Outstanding");
    const state = view.cells.find((other) => other.cell === cell);
    return hasLease || (state !== undefined && state.lease_rows.length > 0);
}

/** The margin for cells whose database clock is behind the service's or runs slower. */
const CLOCK_MARGIN_SECONDS = 60;

/**
 * Returns the seconds until the youngest outstanding lease and lease row are stale on every clock.
 */
function secondsUntilStale(view: View, settings: Settings): number {
    const leases = view.leases.filter((lease) => lease.status === "Outstanding").map((lease) => lease.age_micros);
    const rows = view.cells.flatMap((cell) => cell.lease_rows.map((row) => row.age_micros));
    const youngest = Math.min(...leases, ...rows) / 1e6;
    const remaining = settings.thresholds.stale_after_seconds - youngest;
    return remaining <= 0 ? 0 : Math.ceil(remaining) + CLOCK_MARGIN_SECONDS;
}
