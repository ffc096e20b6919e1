import { computed } from "@preact/signals";

import type { Arrow, Rule } from "../model/protocol";
import { readable, RULE_NAMES, WITHOUT_RULE } from "../model/words";
import { explain } from "../model/why";
import { search, session } from "../session/app";
import { reading } from "./notice";

const note = computed(() => {
    const { entry } = reading.value;
    if (!entry || session.recording.value) return undefined;
    const id = entry.arrived ?? entry.lost[0];
    const arrows = id === undefined ? [] : (session.timeline.value?.arrows(entry.position, entry.position + 1) ?? []);
    const message: Arrow | undefined = arrows.find((arrow) => arrow.id === id);
    return explain(entry, message);
});

/** What has just happened, and why. */
export function Now() {
    const { entry, view } = reading.value;
    const violation = view?.violation?.[1];
    const isEnd = session.atEnd.value && session.length.value > 0 && !session.isPlaying.value;
    return (
        <section class="now" aria-label="What has just happened">
            <h2>{entry ? `Event ${entry.position + 1}` : "The start"}</h2>
            <p class="says">{entry ? capital(entry.says) : "Nothing has happened yet. Press play, or step."}</p>
            {violation && <Broken text={violation} />}
            {note.value && !violation && (
                <div class="note">
                    <p>{note.value.text}</p>
                    {note.value.rule && <WhatIf rule={note.value.rule} />}
                </div>
            )}
            {isEnd && !violation && !session.recording.value && <p class="hint">{endHint()}</p>}
        </section>
    );
}

/** On a phone, where the panel is out of sight: why it happened. */
export function Aside() {
    const violation = reading.value.view?.violation?.[1];
    const text = violation ? `A promise is broken: ${readable(violation)}` : note.value?.text;
    return text === undefined ? null : <div class={violation ? "aside bad" : "aside"}>{text}</div>;
}

function endHint(): string {
    if (session.origin.value.kind === "free") return "Play on: chance decides.";
    if (session.isBent.value) return session.canGoOn() ? "Play on to see how everybody goes on from here." : "All is calm: nobody has anything left to do.";
    return "This is the end. Go back anywhere, click an envelope or a participant, and see what changes.";
}

function capital(text: string): string {
    return text.charAt(0).toUpperCase() + text.slice(1);
}

function WhatIf({ rule }: { rule: Rule }) {
    const isOff = session.rulesOff.value.includes(rule);
    return (
        <p class="what-if">
            <span>Rule: {RULE_NAMES[rule].toLowerCase()}.</span>{" "}
            <button type="button" class="link" onClick={() => session.setRule(rule, !isOff)}>
                {isOff ? "Switch it on again" : `Without it ${WITHOUT_RULE[rule]}: switch it off`}
            </button>
        </p>
    );
}

/** In the worker: a long run takes seconds. */
function shorten(): void {
    const trace = session.traceText();
    if (trace === undefined) return;
    const before = session.length.peek();
    session.tell("looking for what the violation does not need…", false);
    search.shorten(trace, (shorter) => {
        if (shorter === undefined) return session.tell("nothing is violated in this run any more", false);
        session.attempt(() => {
            session.openTrace(shorter, "The same violation, shortened");
            session.seek(session.length.peek());
            session.tell(`of ${before} events ${session.length.peek()} are needed`, false);
        });
    });
}

function Broken({ text }: { text: string }) {
    const at = session.marks.value.violation;
    const off = session.rulesOff.value;
    return (
        <div class="broken" role="alert">
            <h3>A promise is broken</h3>
            <p>{capital(readable(text))}.</p>
            {off.length > 0 && <p>Off: {off.map((rule) => RULE_NAMES[rule].toLowerCase()).join("; ")}.</p>}
            <p class="actions">
                {at !== undefined && (
                    <button type="button" onClick={() => session.seek(at + 1)}>
                        Go to where it broke
                    </button>
                )}
                <button type="button" onClick={shorten}>
                    Shorten the run
                </button>
            </p>
        </div>
    );
}
