// The menu entries that only the world of a queue has.
import type { PlacedLane } from "./lanes";
import type { Action, Candidate } from "./menu_entries";
import type { CellView, LocksView, WorkKind } from "./protocol";

const SUBMITS: [WorkKind, string, string?][] = [
    ["create", "Submit the create of the sheet"],
    ["update", "Submit an update of the sheet"],
    ["poison", "Submit a poison of the sheet", "an update that ends each worker that works on it"],
];

/** Returns the entries that have the program of a cell submit a request, or ask for work. */
export function queueStarts({ cell, client, front }: CellView, { lanes = [] }: LocksView): Action[] {
    if (lanes.length === 0) return [];
    const busy = front?.submits === undefined ? {} : { reason: "the front is busy" };
    const submits = lanes.flatMap(({ lane }, number) =>
        SUBMITS.map(([kind, label, hint]): Action => ({ label: `${label} ${lane}`, event: { submit: { cell, lane: number, kind } }, ...busy, ...(hint === undefined ? {} : { hint }) })),
    );
    const serve: Action = { label: "Ask for work", event: { serve: { cell } }, ...(client?.phase === undefined ? {} : { reason: "the client is busy" }) };
    return [serve, ...submits];
}

/** Returns the entries of a cell's front. */
export function frontCandidates(cell: number): Candidate[] {
    const process = "front";
    return [
        { label: "Take the next step", event: { step: { cell, process } }, otherwise: "the front is idle, or waits for an answer" },
        { label: "Time out", event: { time_out: { cell, process } }, otherwise: "the process waits for no answer", isFault: true },
        { label: "Crash", event: { crash: { cell, process } }, otherwise: "the front is idle", isFault: true, hint: "its request may be in its lane all the same" },
    ];
}

/** Returns the entries that end the work of a client on its requests. */
export function batchCandidates({ kind }: PlacedLane, { cell }: CellView, { lanes }: LocksView): Candidate[] {
    if (lanes === undefined || kind !== "client") return [];
    const otherwise = "the client works on no requests, or is paused";
    return [
        { label: "Let its work fail", event: { fail_work: { cell } }, otherwise, isFault: true, hint: "it is tried again, until its attempts are used up" },
        { label: "Give the requests back", event: { give_back: { cell } }, otherwise, hint: "as a worker does that stops; the attempt does not count" },
    ];
}
