import { computed } from "@preact/signals";

import type { Arrow, Rule } from "../model/protocol";
import { aboutEnvelope, askedInVain, BEGINNING, lostRequest } from "../model/tries";
import { explain, requestOf } from "../model/why";
import { RULE_NAMES, WHY_RULE, WITHOUT_RULE } from "../model/words";
import { session } from "../session/app";
import { findViolation } from "./find";
import { reading } from "./notice";

const note = computed(() => {
    const { entry } = reading.value;
    const timeline = session.simulation.value;
    if (!entry || !timeline) return undefined;
    const id = entry.arrived ?? entry.lost[0];
    const arrows = id === undefined ? [] : timeline.arrows(entry.position, entry.position + 1);
    const message: Arrow | undefined = arrows.find((arrow) => arrow.id === id);
    return explain(entry, message, message && requestOf(message, timeline)?.says);
});

const isResting = computed(() => !session.isPlaying.value && session.recording.value === undefined);
const isEnd = computed(() => isResting.value && session.atEnd.value && session.length.value > 0);
const envelope = computed(() => (isResting.value ? aboutEnvelope(reading.value.view?.messages ?? []) : undefined));
const inVain = computed(() => {
    const view = reading.value.view;
    return isEnd.value && view && session.scenario.value && !session.canGoOn() ? askedInVain(session.events(), view) : undefined;
});
const lost = computed(() => (isEnd.value && session.verdict.value?.kind === "held" ? lostRequest(session.timeline.value?.entries(0, session.length.value) ?? []) : undefined));
const isBeginning = computed(() => reading.value.position === 0 && isResting.value && session.scenario.value !== undefined);

/** Whether there is anything to say. */
export const hasAdvice = computed(() => [note, envelope, isEnd, isBeginning].some((one) => Boolean(one.value)));

/** Why it happened, and what to try next. */
export function Advice() {
    return (
        <>
            {isBeginning.value && <p class="hint">{BEGINNING}</p>}
            {note.value && (
                <div class="note">
                    <p>{note.value.text}</p>
                    {note.value.rule && <WhatIf rule={note.value.rule} />}
                    {note.value.isOfRequest && <OtherLoss />}
                </div>
            )}
            {envelope.value && <p class="hint">{envelope.value}</p>}
            {isEnd.value && <AtEnd />}
        </>
    );
}

function WhatIf({ rule }: { rule: Rule }) {
    const isOff = session.rulesOff.value.includes(rule);
    return (
        <p class="what-if">
            <span>
                Rule: {RULE_NAMES[rule].toLowerCase()}
                {isOff && ", but not now"}.
            </span>{" "}
            <button type="button" class="link" onClick={() => session.setRule(rule, !isOff)}>
                {isOff ? "Switch it on again" : `Without it ${WITHOUT_RULE[rule]}: switch it off`}
            </button>
        </p>
    );
}

/** Whoever waits can't tell a lost request from a lost answer. */
function OtherLoss() {
    return (
        <p class="what-if">
            <span>Whoever waits cannot tell this from a lost answer.</span>{" "}
            <button type="button" class="link" onClick={() => session.loseAnswerInstead()}>
                Lose the answer instead, and see the difference
            </button>
        </p>
    );
}

function AtEnd() {
    const save = inVain.value;
    const isCalm = !session.canGoOn();
    const off = isCalm ? session.rulesOff.value : [];
    return (
        <>
            <p class="hint">{endHint()}</p>
            {save && (
                <p class="actions">
                    <button type="button" onClick={() => session.ask(save)}>
                        The user asks again: play up to the commit
                    </button>
                </p>
            )}
            {isCalm && lost.value !== undefined && (
                <p class="what-if">
                    <button type="button" class="link" onClick={() => session.loseAnswerInstead(lost.value)}>
                        Lose the answer in place of the request, and see the difference
                    </button>
                </p>
            )}
            {off.map((rule) => (
                <p class="what-if" key={rule}>
                    <button type="button" class="link" onClick={() => findViolation(rule, true)}>
                        Find a run in which something breaks without “{RULE_NAMES[rule].toLowerCase()}”
                    </button>
                </p>
            ))}
        </>
    );
}

function endHint(): string {
    if (session.origin.value.kind === "free") return "Play on: chance decides.";
    if (session.isBent.value) return session.canGoOn() ? "Play on to see how everybody goes on from here." : "All is calm: nobody has anything left to do.";
    const again = inVain.value ? "The name is free, and its user does not know it. " : "";
    return `This is the end. ${again}You can step back to any arrow: its message is an envelope there, to be dropped or delayed.`;
}

/** Why the rules are there that are off where a promise is broken, and the way back. */
export function WhyRules() {
    return (
        <>
            {session.rulesOff.value.map((rule) => (
                <p class="what-if" key={rule}>
                    <span>
                        The rule “{RULE_NAMES[rule].toLowerCase()}” is off. {WHY_RULE[rule]}
                    </span>{" "}
                    <button type="button" class="link" onClick={() => session.setRule(rule, false)}>
                        Switch it on again
                    </button>
                </p>
            ))}
        </>
    );
}
