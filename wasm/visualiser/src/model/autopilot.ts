// Chooses the events that continue a run without further faults. First the simulation's `nextCalm`
// lets every process finish. Then the autopilot waits until the outstanding leases are stale, and
// lets the reconciler of each cell settle them. A run is at rest when the autopilot has no further
// event.
import type { MessageId, Settings, Simulation, View, WorldEvent } from "./protocol";

/**
 * The largest number of events that the autopilot plays. No run of the page needs so many to come
 * to rest.
 */
export const MAX_EVENTS_TO_REST = 20_000;
/**
 * The number of rounds of reconciliation after which the autopilot stops. If a rule is off, a lease
 * may stay outstanding for ever.
 */
const MAX_ROUNDS = 3;

/**
 * The autopilot of one run, with its progress. Replace it by a new one when a person applies an
 * event.
 */
export class Autopilot {
    /** The numbers of the cells that are still to reconcile in the current round. */
    private due: number[] = [];
    private rounds = 0;

    /**
     * Returns the next event of the run, or `undefined` if the run is at rest. The message with the
     * id `except` is not delivered.
     */
    next(simulation: Simulation, except?: MessageId): WorldEvent | undefined {
        return simulation.nextCalm(except) ?? this.reconcile(simulation.view(), simulation.settings());
    }

    /** Returns true if `next` would return an event. This method does not change the autopilot. */
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

/** A margin for cells whose database's clock is behind the service's clock or slower than it. */
const CLOCK_MARGIN_SECONDS = 60;

/**
 * Returns the number of seconds after which every outstanding lease and every lease row is stale by
 * all clocks; 0 if all are stale already.
 */
function secondsUntilStale(view: View, settings: Settings): number {
    const leases = view.leases.filter((lease) => lease.status === "Outstanding").map((lease) => lease.age_micros);
    const rows = view.cells.flatMap((cell) => cell.lease_rows.map((row) => row.age_micros));
    const youngest = Math.min(...leases, ...rows) / 1e6;
    const remaining = settings.thresholds.stale_after_seconds - youngest;
    return remaining <= 0 ? 0 : Math.ceil(remaining) + CLOCK_MARGIN_SECONDS;
}
