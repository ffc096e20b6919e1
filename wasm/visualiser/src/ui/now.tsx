import { readable } from "../model/words";
import { search, session } from "../session/app";
import { Advice, hasAdvice, WhyRules } from "./advice";
import { reading } from "./notice";

/** What has just happened, and why. */
export function Now() {
    const { entry, view } = reading.value;
    const violation = view?.violation?.[1];
    return (
        <section class="now" aria-label="What has just happened">
            <h2>{entry ? `Event ${entry.position + 1}` : "The start"}</h2>
            <p class="says">{entry ? capital(entry.says) : "Nothing has happened yet. Press play, or step."}</p>
            {violation ? <Broken text={violation} /> : <Advice />}
        </section>
    );
}

/** On a phone, where the panel is out of sight: why it happened, and what to try. */
export function Aside() {
    const violation = reading.value.view?.violation?.[1];
    if (violation === undefined && !hasAdvice.value) return null;
    return (
        <div class={violation ? "aside bad" : "aside"}>
            {violation ? (
                <>
                    <p>A promise is broken: {readable(violation)}.</p>
                    <WhyRules />
                </>
            ) : (
                <Advice />
            )}
        </div>
    );
}

function capital(text: string): string {
    return text.charAt(0).toUpperCase() + text.slice(1);
}

/** In the worker: a long run takes seconds. */
function shorten(): void {
    const trace = session.traceText();
    if (trace === undefined) return;
    const before = session.length.peek();
    session.tell("looking for what the violation does not need…", false);
    const failed = (text: string) => session.tell(`the run could not be shortened: ${text}`, true);
    search.shorten(trace, (shorter) => showShorter(shorter, before), failed);
}

function showShorter(shorter: string | undefined, before: number): void {
    if (shorter === undefined) return session.tell("nothing is violated in this run any more", false);
    session.attempt(() => {
        session.openTrace(shorter, "The same violation, shortened");
        session.isShortest.value = true;
        session.seek(session.length.peek());
        session.tell(`of ${before} events ${session.length.peek()} are needed`, false);
    });
}

function Broken({ text }: { text: string }) {
    const at = session.marks.value.violation;
    const isElsewhere = at !== undefined && session.position.value !== at + 1;
    return (
        <div class="broken" role="alert">
            <h3>A promise is broken</h3>
            <p>{capital(readable(text))}.</p>
            <WhyRules />
            {(isElsewhere || session.canShorten.value) && (
                <p class="actions">
                    {isElsewhere && (
                        <button type="button" onClick={() => session.seek(at + 1)}>
                            Go to where it broke
                        </button>
                    )}
                    {session.canShorten.value && (
                        <button type="button" onClick={shorten}>
                            Shorten the run
                        </button>
                    )}
                </p>
            )}
        </div>
    );
}
