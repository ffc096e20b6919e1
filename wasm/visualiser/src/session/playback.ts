// Playback: advances the session by its speed in events a second, independent of the frame rate.
import { effect } from "@preact/signals";

import type { Session } from "./session";

/**
 * The limit of events in one frame. Without it a slow frame would make the next one slower still.
 */
const MAX_EVENTS_PER_FRAME = 200;

/** Plays whenever the session's `isPlaying` is true. */
export function startPlayback(session: Session): void {
    effect(() => {
        if (!session.isPlaying.value) return;
        return play(session);
    });
}

/** Plays in animation frames and returns the function that stops playing. */
function play(session: Session): () => void {
    let last = performance.now();
    let due = 0;
    let frame = requestAnimationFrame(tick);
    function tick(now: number): void {
        due = Math.min(MAX_EVENTS_PER_FRAME, due + ((now - last) / 1000) * session.speed.peek());
        last = now;
        const events = Math.floor(due);
        due -= events;
        if (advanceBy(session, events)) frame = requestAnimationFrame(tick);
        else session.pause();
    }
    return () => cancelAnimationFrame(frame);
}

/**
 * Advances by a number of events. Returns false at the end, at the violation, or if the awaited
 * request is in flight.
 */
function advanceBy(session: Session, events: number): boolean {
    for (let remaining = events; remaining > 0; remaining -= 1) {
        const before = session.position.peek();
        if (!session.advance()) return false;
        const violated = session.marks.peek().violation;
        if (session.isAwaitedRequestInFlight()) return false;
        if (violated !== undefined && before <= violated && session.position.peek() > violated) return false;
    }
    return true;
}
