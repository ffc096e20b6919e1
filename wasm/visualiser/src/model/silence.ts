// Plays the silence of one client until its session expires, while the other clients renew. By hand
// this takes dozens of events.
import type { LocksView, Simulation, View, WorldEvent } from "./protocol";

/** The largest number of ticks that one silence plays. More would block the page. */
const MAX_TICKS = 400;

/** Returns the reason for which no session of the cell can expire now, or `undefined` if one can. */
export function silenceObstacle(cell: number, { is_up, locks }: View): string | undefined {
    const session = locks && liveSession(locks, cell);
    if (!is_up || locks?.is_paused) return "the service is down or paused, so it counts no tick";
    if (session === undefined) return "the service has no live session of it";
    return session.expires_at_ticks > MAX_TICKS ? `a session expires only after ${session.expires_at_ticks} ticks` : undefined;
}

function liveSession(locks: LocksView, cell: number) {
    return locks.sessions.find((session) => session.cell === cell && session.status === "Live");
}

/**
 * Applies ticks and their decisions until the service has no live session of the cell, or until the
 * first violation. Meanwhile the messages of the other cells arrive, and their clients renew when a
 * third of the duration has passed.
 */
export function playSilence(simulation: Simulation, cell: number): void {
    for (let ticks = 0; ticks < MAX_TICKS; ticks += 1) {
        const { locks, violation } = simulation.view();
        if (violation || !locks || !liveSession(locks, cell)) return;
        for (const other of dueRenewals(simulation, locks, cell)) applyIfPossible(simulation, { step: { cell: other, process: "keepalive" } });
        deliverOthers(simulation, cell);
        if (!applyIfPossible(simulation, "tick")) return;
        while (applyIfPossible(simulation, "decide"));
    }
}

/** Returns the cells, other than `silent`, whose sessions were silent for a third of the duration. */
function dueRenewals(simulation: Simulation, { sessions }: LocksView, silent: number): number[] {
    const terms = simulation.settings().locks;
    const dueTicks = terms ? (terms.duration_seconds * 1000) / terms.tick_millis / 3 : 0;
    return sessions.filter(({ cell, status, silent_ticks }) => cell !== silent && status === "Live" && (silent_ticks ?? 0) >= dueTicks).map(({ cell }) => cell);
}

/** Delivers the messages of all cells but `silent`, and the answers to them. */
function deliverOthers(simulation: Simulation, silent: number): void {
    const next = () => simulation.view().messages.find((message) => message.cell !== silent && message.can_arrive);
    for (let message = next(); message; message = next()) simulation.apply({ deliver: message.id });
}

/** Applies the event if it is possible. Returns true if it was. */
function applyIfPossible(simulation: Simulation, event: WorldEvent): boolean {
    try {
        simulation.apply(event);
        return true;
    } catch (error) {
        if ((error as { code?: string }).code === "IMPOSSIBLE") return false;
        throw error;
    }
}
