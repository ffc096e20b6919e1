// The guided tour: moves between its steps, and remembers the step for the next visit.
import { batch, effect, signal } from "@preact/signals";

import { TOUR, tourStep } from "../model/tour";
import type { Session } from "./session";

/** The key in the browser's storage of the step to resume. */
const STEP_KEY = "leasehold-tour";
/** The stored value after a person has skipped or finished the tour. */
const ENDED = "ended";

const LEFT_BY_CHANGE = "you have changed the run, so the tour pauses: “Continue the tour” is above the scenarios";

/** The guided tour of a session. */
export class Tour {
    /** The number of the step with which the tour goes on; `undefined` before its start, and after its end. */
    readonly pausedAt = signal(resumable(readStored()));

    /** Creates the tour. If `isStill` returns true, each step shows its end without playback. */
    constructor(
        private readonly session: Session,
        private readonly isStill: () => boolean,
    ) {
        effect(() => {
            const step = session.tourStep.value;
            if (step !== undefined) this.remember(step);
            else if (session.isEdited.value && session.openStep.peek() !== undefined) session.notify(LEFT_BY_CHANGE, false);
        });
    }

    /** Opens a step, and plays its events. */
    show(number: number): void {
        // One batch, so that the tables never show the end of a step that is then played.
        batch(() => {
            this.session.openTourStep(number);
            const step = tourStep(number);
            if (step && !this.isStill()) this.session.playBetween(step.from, step.to);
        });
    }

    /** Goes to the next step. Ends the tour after the last one. */
    next(): void {
        const number = this.session.tourStep.peek() ?? 0;
        if (number < TOUR.length) this.show(number + 1);
        else this.end();
    }

    /** Goes to the step before, if there is one. */
    back(): void {
        const number = this.session.tourStep.peek() ?? 1;
        if (number > 1) this.show(number - 1);
    }

    /** Plays the events of the step once more. */
    playAgain(): void {
        const number = this.session.tourStep.peek();
        if (number !== undefined) this.show(number);
    }

    /** Starts the tour, or resumes it. */
    start(): void {
        this.show(this.pausedAt.peek() ?? 1);
    }

    /** Ends the tour, also for the next visits. */
    end(): void {
        this.session.pause();
        this.session.leaveTour();
        this.remember(undefined);
    }

    private remember(step: number | undefined): void {
        this.pausedAt.value = step;
        store(step === undefined ? ENDED : String(step));
    }
}

/** Returns the step to show to a visitor without a link; `undefined` if the tour has ended. */
export function stepToResume(): number | undefined {
    const stored = readStored();
    return stored === ENDED ? undefined : (resumable(stored) ?? 1);
}

/** Returns the number of a step that the storage contains, or `undefined` if it contains none. */
function resumable(stored: string | undefined): number | undefined {
    const number = Number(stored);
    return tourStep(number) && number;
}

function store(value: string): void {
    try {
        localStorage.setItem(STEP_KEY, value);
    } catch {
        // A browser may forbid storage, which is no error here. The next visit then begins with the
        // tour again.
    }
}

function readStored(): string | undefined {
    try {
        return localStorage.getItem(STEP_KEY) ?? undefined;
    } catch {
        return undefined;
    }
}
