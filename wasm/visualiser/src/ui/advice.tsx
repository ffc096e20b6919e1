// Advice about the present position: the explanation of the last event, and things to try next.
import { computed } from "@preact/signals";

import { explain } from "../model/explanations";
import { envelopeHint, FIRST_EVENT, INTRODUCTION, lastLostSettleRequest, saveToRepeat } from "../model/hints";
import { explainLock, FIRST_LOCK_EVENT, LOCK_INTRODUCTION } from "../model/lock_texts";
import { isWorldByHand } from "../model/origin";
import { momentAt } from "../model/moment";
import type { Rule } from "../model/protocol";
import { FIRST_QUEUE_EVENT, QUEUE_INTRODUCTION } from "../model/queue_texts";
import { quotedRule, RULE_NAMES, WHY_RULE, WITHOUT_RULE } from "../model/texts";
import { kindOf, type WorldKind } from "../model/world_form";
import { session } from "../session/app";
import { findViolation } from "./find_violation";
import { displayed } from "./notice";

const INTRODUCTIONS: Record<WorldKind, string> = { claims: INTRODUCTION, locks: LOCK_INTRODUCTION, queues: QUEUE_INTRODUCTION };
const FIRST_EVENTS: Record<WorldKind, string> = { claims: FIRST_EVENT, locks: FIRST_LOCK_EVENT, queues: FIRST_QUEUE_EVENT };

const explanation = computed(() => {
    const { entry } = displayed.value;
    const moment = entry && session.simulation.value && momentAt(session.simulation.value, entry.position);
    return moment && (session.settings.value?.locks ? explainLock(moment) : explain(moment));
});

const isPaused = computed(() => !session.isPlaying.value && session.recording.value === undefined);
const isEnd = computed(() => isPaused.value && session.atEnd.value && session.length.value > 0);
const envelope = computed(() => (isPaused.value ? envelopeHint(displayed.value.view?.messages ?? []) : undefined));
const failedSave = computed(() => {
    const view = displayed.value.view;
    return isEnd.value && view && session.scenario.value && !session.canContinue() ? saveToRepeat(session.events(), view) : undefined;
});
const lostRequest = computed(() => (isEnd.value && session.verdict.value?.kind === "held" ? lastLostSettleRequest(session.timeline.value?.entries(0, session.length.value) ?? []) : undefined));
const isStart = computed(() => displayed.value.position === 0 && isPaused.value && session.origin.value.kind !== "trace");
const setUp = computed(() => (isPaused.value ? session.setUp.value : undefined));

/** Shows the advice about the present position. */
export function Advice() {
    return (
        <>
            {setUp.value !== undefined && <SetUp events={setUp.value} />}
            {isStart.value && <p class="hint">{INTRODUCTIONS[kindOf(session.settings.value)]}</p>}
            {isStart.value && isWorldByHand(session.origin.value) && <p class="hint">{FIRST_EVENTS[kindOf(session.settings.value)]}</p>}
            <EventNote />
            {envelope.value && <p class="hint">{envelope.value}</p>}
            {isEnd.value && <AdviceAtEnd />}
        </>
    );
}

/** Shows the explanation of the last event, also of one after a violation. */
export function EventNote() {
    if (explanation.value === undefined) return null;
    const { text, rule, isLostRequest } = explanation.value;
    return (
        <div class="note">
            <p>{text}</p>
            {rule && <RuleSwitch rule={rule} />}
            {isLostRequest && <LoseAnswerInstead />}
        </div>
    );
}

/** Tells that the events before the story are played, and offers to play them again. */
function SetUp({ events }: { events: number }) {
    return (
        <p class="hint">
            Events 1 to {events} have set the scene. Press play: the story begins.{" "}
            <button type="button" class="link" onClick={() => session.seek(0)}>
                Go to the start
            </button>
        </p>
    );
}

function RuleSwitch({ rule }: { rule: Rule }) {
    const isOff = session.rulesOff.value.includes(rule);
    return (
        <p class="what-if">
            <span>
                Rule: {RULE_NAMES[rule].toLowerCase()}
                {isOff && " (switched off)"}.
            </span>{" "}
            <button type="button" class="link" onClick={() => session.setRule(rule, !isOff)}>
                {isOff ? "Switch it on again" : `Without it ${WITHOUT_RULE[rule]}: switch it off`}
            </button>
        </p>
    );
}

/** Offers to lose the answer instead of the request. The caller cannot tell the two cases apart. */
function LoseAnswerInstead() {
    return (
        <p class="what-if">
            <span>The caller cannot distinguish a lost request from a lost answer.</span>{" "}
            <button type="button" class="link" onClick={() => session.loseAnswerInstead()}>
                Lose the answer instead, and see the difference
            </button>
        </p>
    );
}

function AdviceAtEnd() {
    const save = failedSave.value;
    const isAtRest = !session.canContinue();
    const rulesOff = isAtRest ? session.rulesOff.value : [];
    return (
        <>
            <p class="hint">{endHint()}</p>
            {save && (
                <p class="actions">
                    <button type="button" onClick={() => session.repeatSave(save)}>
                        The user asks again: play up to the commit
                    </button>
                </p>
            )}
            {isAtRest && lostRequest.value !== undefined && (
                <p class="what-if">
                    <button type="button" class="link" onClick={() => session.loseAnswerInstead(lostRequest.value)}>
                        Lose the answer in place of the request, and see the difference
                    </button>
                </p>
            )}
            {rulesOff.map((rule) => (
                <p class="what-if" key={rule}>
                    <button type="button" class="link" onClick={() => findViolation(rule, true)}>
                        Find a run that violates an invariant without {quotedRule(rule)}
                    </button>
                </p>
            ))}
        </>
    );
}

function endHint(): string {
    const origin = session.origin.value;
    if (origin.kind === "free" && !isWorldByHand(origin)) return "Play on: more random events follow.";
    if (isWorldByHand(origin) && !session.canContinue()) return "Every process is idle. Click the head of a column, and choose the next event.";
    if (session.isEdited.value) return session.canContinue() ? "Play on to see the reactions of all participants." : "Every process is idle: nothing is left to do.";
    const again = failedSave.value ? " The name is free again, so its user may ask once more." : "";
    const hasMessages = (session.timeline.value?.arrows(0, session.length.value).length ?? 0) > 0;
    const back = hasMessages ? " Step back to a message to or from the service: it is then an envelope that you can drop or delay." : "";
    return `The scenario ends here.${again}${back}`;
}

/**
 * Shows, at a violation, the reason for each rule that is off, and a button that switches the rule
 * on.
 */
export function RulesOffReasons() {
    return (
        <>
            {session.rulesOff.value.map((rule) => (
                <p class="what-if" key={rule}>
                    <span>
                        The rule {quotedRule(rule)} is off. {WHY_RULE[rule]}
                    </span>{" "}
                    <button type="button" class="link" onClick={() => session.setRule(rule, false)}>
                        Switch it on again
                    </button>
                </p>
            ))}
        </>
    );
}
