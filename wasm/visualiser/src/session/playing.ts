// The clock of playing: so many events a second, however often the screen is drawn.
import { effect } from "@preact/signals";

import type { Session } from "./session";

/** The most events between two pictures: what a second of playing at the greatest speed would be on a slow screen. */
const MOST_AT_ONCE = 200;

/** Plays while the session says so. */
export function startPlaying(session: Session): void {
    effect(() => {
        if (!session.isPlaying.value) return;
        return run(session);
    });
}

function run(session: Session): () => void {
    let last = performance.now();
    let owed = 0;
    let frame = requestAnimationFrame(tick);
    function tick(now: number): void {
        owed = Math.min(MOST_AT_ONCE, owed + ((now - last) / 1000) * session.speed.peek());
        last = now;
        const events = Math.floor(owed);
        owed -= events;
        if (playSome(session, events)) frame = requestAnimationFrame(tick);
        else session.pause();
    }
    return () => cancelAnimationFrame(frame);
}

/** False once nothing is left to play, something is violated, or what is waited for is under way. */
function playSome(session: Session, events: number): boolean {
    for (let left = events; left > 0; left -= 1) {
        const before = session.position.peek();
        if (!session.advance()) return false;
        const violated = session.marks.peek().violation;
        if (session.isAwaitedUnderWay()) return false;
        if (violated !== undefined && before <= violated && session.position.peek() > violated) return false;
    }
    return true;
}
