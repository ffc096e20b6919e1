import { computed } from "@preact/signals";

import { isWorldByHand } from "../model/origin";
import { readableText } from "../model/texts";
import { search, session } from "../session/app";
import { Advice, EventNote, RulesOffReasons } from "./advice";
import { FocusLine, lineOf } from "./event_line";
import { displayed } from "./notice";

/** True at an event after the violation: it has an explanation of its own. */
const isAfterViolation = computed(() => {
    const { violation } = session.marks.value;
    return violation !== undefined && session.position.value !== violation + 1;
});

/** Shows the last event with its explanation, or the violation. */
export function CurrentEvent() {
    const { entry, view } = displayed.value;
    const violation = view?.violation?.[1];
    return (
        <section class="current-event" aria-label="The last event" tabIndex={0}>
            <h2>{entry ? `Event ${entry.position + 1}` : "The start"}</h2>
            <LastLine id="line" />
            {violation && isAfterViolation.value && <EventNote />}
            {violation ? <ViolationBox text={violation} /> : <Advice />}
        </section>
    );
}

function LastLine({ id }: { id: string }) {
    const { entry } = displayed.value;
    const start = `No event has happened yet.${isWorldByHand(session.origin.value) ? "" : " Press play, or step."}`;
    return <p class="says">{entry ? <FocusLine line={lineOf(entry)} id={id} /> : start}</p>;
}

/**
 * Shows the last event and its explanation above the lanes. It is for phones, on which
 * `CurrentEvent` is in another pane.
 */
export function PhoneAdvice() {
    const violation = displayed.value.view?.violation?.[1];
    return (
        <section class={violation ? "phone-advice bad" : "phone-advice"} aria-label="The last event" tabIndex={0}>
            <LastLine id="phone-line" />
            {violation ? (
                <>
                    {isAfterViolation.value && <EventNote />}
                    <p>An invariant is violated: {readableText(violation)}.</p>
                    <RulesOffReasons />
                </>
            ) : (
                <Advice />
            )}
        </section>
    );
}

function capitalise(text: string): string {
    return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * Shortens the run to its violation in the web worker, because this takes seconds for a long run.
 */
function shortenRun(): void {
    const trace = session.traceText();
    if (trace === undefined) return;
    const before = session.length.peek();
    session.notify("removing the events that the violation does not need…", false);
    const onFailed = (text: string) => session.notify(`the run could not be shortened: ${text}`, true);
    search.shorten(trace, (shorter) => showShortened(shorter, before), onFailed);
}

function showShortened(shorter: string | undefined, before: number): void {
    if (shorter === undefined) return session.notify("this run violates no invariant any more", false);
    session.notifyOnError(() => {
        session.openTrace(shorter, "The same violation, shortened");
        session.isShortest.value = true;
        session.seek(session.length.peek());
        session.notify(`the violation needs ${session.length.peek()} of ${before} events`, false);
    });
}

function ViolationBox({ text }: { text: string }) {
    const violated = session.marks.value.violation;
    const isElsewhere = violated !== undefined && isAfterViolation.value;
    return (
        <div class="violation-box" role="alert">
            <h3>An invariant is violated</h3>
            <p>{capitalise(readableText(text))}.</p>
            <RulesOffReasons />
            {(isElsewhere || session.canShorten.value) && (
                <p class="actions">
                    {isElsewhere && (
                        <button type="button" onClick={() => session.seek(violated + 1)}>
                            Go to the violation
                        </button>
                    )}
                    {session.canShorten.value && (
                        <button type="button" onClick={shortenRun}>
                            Shorten the run
                        </button>
                    )}
                </p>
            )}
        </div>
    );
}
