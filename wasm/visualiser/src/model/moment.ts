// One event of a run, with everything that its explanation is about: the message that arrived or
// was lost, and the states of the world before and after the event.
import type { Simulation } from "leasehold/simulation";

import { partsOf, processParts } from "./events";
import type { Arrow, Entry, LeaseView, Process, Rule, Timeline, View, WorkerView } from "./protocol";

/** An event of a run with its message, and the states of the world around it. */
export interface Moment {
    entry: Entry;
    /** The message that arrived or was lost in the event. */
    message?: Arrow | undefined;
    /** The request that `message` answers; absent if the message is no answer. */
    request?: Arrow | undefined;
    before: View;
    after: View;
    rulesOff: readonly Rule[];
}

/** Returns the event after position `index` as a moment, or `undefined` at the end of the run. */
export function momentAt(simulation: Simulation, index: number): Moment | undefined {
    const [entry] = simulation.entries(index, index + 1);
    if (entry === undefined) return undefined;
    const id = entry.arrived ?? entry.lost[0];
    const message = id === undefined ? undefined : simulation.arrows(index, index + 1).find((arrow) => arrow.id === id);
    const request = message && answeredRequest(message, simulation);
    const [before, after] = [viewAt(simulation, index), viewAt(simulation, index + 1)];
    return { entry, message, request, before, after, rulesOff: simulation.settings().rules_off };
}

/** Returns the state of the world at a position. The simulation's own position stays as it is. */
export function viewAt(simulation: Simulation, position: number): View {
    const present = simulation.position;
    simulation.seek(position);
    const view = simulation.view();
    simulation.seek(present);
    return view;
}

/**
 * Returns the request that `answer` answers, or `undefined` if the message is not an answer. A
 * duplicate answers the request of its original.
 */
function answeredRequest(answer: Arrow, timeline: Timeline): Arrow | undefined {
    const [sending] = timeline.entries(answer.sent, answer.sent + 1);
    if (sending === undefined || answer.from !== "service") return undefined;
    const { kind, message } = partsOf(sending.event);
    const arrows = timeline.arrows(answer.sent, answer.sent + 1);
    const original = kind === "duplicate" ? arrows.find(({ id }) => id === message) : undefined;
    return original ? answeredRequest(original, timeline) : arrows.find(({ id }) => id === sending.arrived);
}

/** Returns a lease as the service knows it, or `undefined` if the service knows no such lease. */
export function leaseIn(view: View, lease: string | undefined): LeaseView | undefined {
    return view.leases.find((other) => other.lease === lease);
}

/** Returns true if the committed row of the lease is in the database of its cell. */
export function hasLeaseRow(view: View, lease: string | undefined): boolean {
    return view.cells.some(({ lease_rows }) => lease_rows.some((row) => row.lease === lease));
}

/** Returns the number of a worker in its cell, or `undefined` if the process is no worker. */
export function workerNumber(process: Process | undefined): number | undefined {
    const parts = process && processParts(process);
    return parts?.kind === "worker" ? parts.number : undefined;
}

/** Returns the state of a worker, or `undefined` if the process is no worker of the cell. */
export function workerIn(view: View, cell: number | undefined, process: Process | undefined): WorkerView | undefined {
    const number = workerNumber(process);
    return number === undefined ? undefined : view.cells.find((other) => other.cell === cell)?.workers[number];
}

/** The state of a worker's local transaction. `none`: the worker has no transaction. */
export type TransactionState = "none" | "open" | "committing" | "orphaned";

/** Returns the state of the latest local transaction that a worker has begun. */
export function transactionOf(view: View, cell: number | undefined, process: Process | undefined): TransactionState {
    const number = workerNumber(process);
    const transactions = view.cells.find((other) => other.cell === cell)?.transactions ?? [];
    return transactions.filter(({ worker }) => worker === number).at(-1)?.state ?? "none";
}
