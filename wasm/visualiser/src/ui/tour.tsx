import { computed } from "@preact/signals";

import { type Place, TOUR, tourStep, type TourStep } from "../model/tour";
import { session, tour } from "../session/app";
import { selectTabForRun } from "./navigation";

/** The step of the tour that the page shows; `undefined` outside the tour. */
export const shownStep = computed(() => tourStep(session.tourStep.value));

/** Returns the class of a part of the page at which the tour's step may point. */
export function litClass(place: Place): string {
    return shownStep.value?.places.includes(place) ? "lit" : "";
}

/** Shows the step of the tour, in place of the headline. */
export function TourCard({ step }: { step: TourStep }) {
    const number = session.tourStep.value ?? 1;
    const isLast = number === TOUR.length;
    return (
        <section class={step.rulesOff ? "tour bad" : "tour"} aria-label="Guided tour">
            <div aria-live="polite">
                <div class="tour-title">
                    <h2>{step.title}</h2>
                    <span>
                        {number} of {TOUR.length}
                    </span>
                </div>
                <p class="tour-text">
                    {step.text.map(([from, part]) => (
                        <span key={from} class={session.position.value < from ? "later" : undefined}>
                            {part}{" "}
                        </span>
                    ))}
                </p>
            </div>
            <div class="tour-buttons">
                <button type="button" aria-disabled={number === 1} onClick={() => tour.back()}>
                    {step.back ?? "Back"}
                </button>
                <button type="button" class="primary" onClick={next}>
                    {step.next ?? (isLast ? "Explore the page" : "Next")}
                </button>
                <button type="button" aria-label="Play again" title="Play again (space)" onClick={() => tour.playAgain()}>
                    ↻
                </button>
                {!isLast && (
                    <button type="button" class="link" onClick={() => tour.end()}>
                        Skip
                    </button>
                )}
            </div>
        </section>
    );
}

function next(): void {
    tour.next();
    if (session.tourStep.peek() === undefined) selectTabForRun(session);
}

/** Shows the button that starts the tour, or resumes it. */
export function TourButton() {
    const step = tour.pausedAt.value;
    return (
        <button type="button" class="tour-start" onClick={() => tour.start()}>
            {step === undefined ? "Guided tour" : `Continue the tour: ${step} of ${TOUR.length}`}
        </button>
    );
}
