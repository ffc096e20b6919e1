// What to try next, for people who see the page for the first time.
import { kindOf } from "./happening";
import type { Entry, Happening, MessageView, View } from "./protocol";

/** What the page is about, in as many words as somebody reads before pressing play. */
export const BEGINNING =
    "A name may exist only once in all cells, but no transaction spans their databases. So a worker begins a lease on the name at the service, commits its rows in its own database, and then commits the lease. Anything may fail in between: watch what becomes of it.";

/** The first message under way to which something can be done, in words. */
export function aboutEnvelope(messages: readonly MessageView[]): string | undefined {
    const message = messages.find((one) => one.can_arrive);
    return message && `“${message.says}” is under way: click its envelope to drop, double or delay it.`;
}

/** What a user asked for in vain, and can ask for once more: the name is free, and the worker idle. */
export function askedInVain(events: readonly Happening[], view: View): Happening | undefined {
    return [...events].reverse().find((event) => kindOf(event) === "save" && isInVain(event, view));
}

/** Where a request to settle a lease was lost last, whose answer might as well have been lost. */
export function lostRequest(entries: readonly Entry[]): number | undefined {
    const sent = new Map(entries.flatMap((entry) => entry.sent.map((arrow) => [arrow.id, arrow.says])));
    const lost = entries.filter((entry) => kindOf(entry.event) === "drop" && entry.lost.some((id) => SETTLES.includes(sent.get(id) ?? "")));
    return lost.at(-1)?.position;
}

/** What the requests say that settle a lease. */
export const SETTLES = ["commit", "roll back"];

const IN_VAIN: readonly unknown[] = ["unknown", "unavailable", "too_late"];

function isInVain(event: Happening, view: View): boolean {
    if (typeof event === "string" || !("save" in event)) return false;
    const { cell, worker: number, change } = event.save;
    if (typeof change === "string" || !("create" in change)) return false;
    const worker = view.cells.find((one) => one.cell === cell)?.workers[number];
    const name = view.names[change.create];
    const isFree = !view.claims.some((claim) => claim.name === name) && !view.cells.some(({ rows }) => rows.some((row) => row.name === name));
    return isFree && worker !== undefined && worker.phase === undefined && IN_VAIN.includes(worker.told);
}
