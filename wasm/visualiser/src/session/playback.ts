// Playback: moves the session's position forward by `speed` events per second, whatever the frame
// rate.
import { effect } from "@preact/signals";

import type { Session } from "./session";

/**
 * The largest number of events in one frame. Without a limit, a slow frame would make the next
 * frame slower still.
 */
const MAX_EVENTS_PER_FRAME = 200;

/** Plays the run as long as the session's `isPlaying` is true. */
export function startPlayback(session: Session): void {
    effect(() => {
        if (!session.isPlaying.value) return;
        return play(session);
    });
}

/** Starts to play in animation frames. Returns the function that stops playing. */
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
 * Moves forward by a number of events. Returns false if playback must stop: at the end, at the
 * violation, or where the session says so.
 */
function advanceBy(session: Session, events: number): boolean {
    for (let remaining = events; remaining > 0; remaining -= 1) {
        const before = session.position.peek();
        if (!session.advance()) return false;
        const violated = session.marks.peek().violation;
        if (session.mustStop()) return false;
        if (violated !== undefined && before <= violated && session.position.peek() > violated) return false;
    }
    return true;
}
