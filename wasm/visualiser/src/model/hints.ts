// Hints about the next thing to try, for people who see the page for the first time.
import { variantName } from "./events";
import { isSettleRequest, plainText } from "./message_texts";
import type { Entry, MessageView, View, WorldEvent } from "./protocol";

/**
 * The introduction that the page shows at the start of a scenario. It must be short: people read it
 * before they press play.
 */
export const INTRODUCTION =
    "A name may exist only once in all cells, but no transaction spans their databases. So a worker begins a lease on the name at the service, commits its rows in its own database, and then commits the lease. Each step may fail: watch how the cells and the service recover.";

/** The hint at the start of a world of claims without random events. */
export const FIRST_EVENT = "Click the head of a column, such as the users of a cell, and choose an event. Then play, or step: the others react.";

/**
 * Returns a hint about the first message in flight that a person can deliver or drop, or
 * `undefined` if there is none.
 */
export function envelopeHint(messages: readonly MessageView[]): string | undefined {
    const message = messages.find(({ can_arrive }) => can_arrive);
    return message && `“${plainText(message.says)}” is in flight: click its envelope to drop, duplicate or delay the message.`;
}

/**
 * Returns the latest create of a user that failed and would succeed now, because its name is free
 * and its worker idle. Returns `undefined` if there is none.
 */
export function saveToRepeat(events: readonly WorldEvent[], view: View): WorldEvent | undefined {
    return [...events].reverse().find((event) => variantName(event) === "save" && wouldSucceedNow(event, view));
}

/**
 * Returns the position of the event that last dropped a request to settle a lease, or `undefined`
 * if no event did.
 */
export function lastLostSettleRequest(entries: readonly Entry[]): number | undefined {
    const sent = new Map(entries.flatMap((entry) => entry.sent.map((arrow) => [arrow.id, arrow.says])));
    const drops = entries.filter((entry) => variantName(entry.event) === "drop" && entry.lost.some((id) => isSettleRequest(sent.get(id) ?? "")));
    return drops.at(-1)?.position;
}

/** The results of a save after which the user may ask for it again. */
const FAILED_SAVES: readonly unknown[] = ["unknown", "unavailable", "too_late"];

function wouldSucceedNow(event: WorldEvent, view: View): boolean {
    if (typeof event === "string" || !("save" in event)) return false;
    const { cell, worker: number, change } = event.save;
    if (typeof change === "string" || !("create" in change)) return false;
    const worker = view.cells.find((other) => other.cell === cell)?.workers[number];
    const name = view.names[change.create];
    const isFree = !view.claims.some((claim) => claim.name === name) && !view.cells.some(({ rows }) => rows.some((row) => row.name === name));
    return isFree && worker !== undefined && worker.phase === undefined && FAILED_SAVES.includes(worker.told);
}
