import { useLayoutEffect, useRef } from "preact/hooks";

import { scenarioById, STORY_GROUPS, type StoryGroup } from "../model/scenarios";
import { quotedText, readableText, RULE_NAMES } from "../model/texts";
import { groupsOf, kindOf, rulesOf, type WorldKind } from "../model/world_form";
import { search, session } from "../session/app";
import { findViolation } from "./find_violation";
import { FreePlay } from "./free_play";
import { pane, type Tab, tab } from "./navigation";
import { TourButton } from "./tour";
import { ViewOptions } from "./view_options";

const TABS: [Tab, string][] = [
    ["scenarios", "Scenarios"],
    ["free", "Free play"],
    ["rules", "Rules"],
];

/** Shows the runs that a person can choose: scenarios, random events, and runs without a rule. */
export function Sidebar() {
    const onTabKey = (event: KeyboardEvent) => {
        const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (step === 0) return;
        event.preventDefault();
        event.stopPropagation();
        const index = TABS.findIndex(([key]) => key === tab.value);
        const next = TABS[(index + step + TABS.length) % TABS.length];
        if (next) tab.value = next[0];
        const list = event.currentTarget as HTMLElement;
        requestAnimationFrame(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
    };
    return (
        <nav class="choose" aria-label="Choose a run">
            <div class="tabs" role="tablist" aria-label="Choose a run" onKeyDown={onTabKey}>
                {TABS.map(([key, label]) => (
                    <button
                        type="button"
                        role="tab"
                        key={key}
                        id={`tab-${key}`}
                        aria-selected={tab.value === key}
                        aria-controls="tab-panel"
                        tabIndex={tab.value === key ? 0 : -1}
                        onClick={() => (tab.value = key)}
                    >
                        {label}
                    </button>
                ))}
            </div>
            <ViewOptions />
            <div class="tab-panel" id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab.value}`}>
                {tab.value === "scenarios" && <Scenarios />}
                {tab.value === "free" && <FreePlay />}
                {tab.value === "rules" && <Rules />}
            </div>
        </nav>
    );
}

function Scenarios() {
    return (
        <>
            <TourButton />
            {STORY_GROUPS.map((group) => (
                <Stories key={group.title} group={group} />
            ))}
        </>
    );
}

function Stories({ group: { title, stories } }: { group: StoryGroup }) {
    const current = session.scenario.value?.id;
    const heading = `stories-${title.replaceAll(" ", "-")}`;
    const open = (id: string) => {
        session.openScenario(id);
        pane.value = "run";
    };
    return (
        <section class="stories" aria-labelledby={heading}>
            <h2 id={heading}>{title}</h2>
            <ul class="scenarios">
                {stories.map(({ id, title }) => (
                    <li key={id}>
                        <button type="button" title={scenarioById(id)?.watch} aria-current={current === id ? "true" : undefined} data-scenario={id} onClick={() => open(id)}>
                            {title}
                        </button>
                    </li>
                ))}
            </ul>
        </section>
    );
}

function Rules() {
    const own = kindOf(session.settings.value);
    return (
        <div class="rules">
            <p>Switch a rule off: the run is replayed without it, up to the first impossible event.</p>
            {groupsOf(own).map((kind) => (
                <RuleGroup key={kind} kind={kind} />
            ))}
            {KINDS.filter((kind) => !groupsOf(own).includes(kind)).map((kind) => (
                <RuleGroup key={kind} kind={kind} isOther />
            ))}
        </div>
    );
}

const KINDS: readonly WorldKind[] = ["claims", "locks", "queues"];
const GROUP_TITLES: Record<WorldKind, string> = { claims: "Claims and leases", locks: "Sessions and locks", queues: "Queues" };

/**
 * Shows the rules that matter in worlds of one kind. `isOther` is true if the open run has the
 * other kind.
 */
function RuleGroup({ kind, isOther = false }: { kind: WorldKind; isOther?: boolean }) {
    const isRecording = session.recording.value !== undefined;
    const state = search.state.value;
    const searchedRule = state.kind === "idle" ? undefined : state.rule;
    return (
        <section class="rule-group" aria-labelledby={`rules-${kind}`}>
            <h2 id={`rules-${kind}`}>{GROUP_TITLES[kind]}</h2>
            {isOther && <p>The open run has none of these, so no such rule changes it.</p>}
            {rulesOf(kind).map(({ rule, summary }) => (
                <div class="rule" key={rule}>
                    <label>
                        <input
                            type="checkbox"
                            role="switch"
                            checked={!session.rulesOff.value.includes(rule)}
                            disabled={isRecording}
                            data-rule={rule}
                            aria-describedby={`about-${rule}`}
                            onChange={(event) => session.setRule(rule, !event.currentTarget.checked)}
                        />
                        {RULE_NAMES[rule]}
                    </label>
                    <p id={`about-${rule}`}>{summary}</p>
                    <button type="button" class="link" data-search={rule} onClick={() => findViolation(rule, true)}>
                        Find a violation without it
                    </button>
                    {searchedRule === rule && <SearchState />}
                </div>
            ))}
        </section>
    );
}

/** Shows the state of the search for a violation, below the rule that is searched. */
function SearchState() {
    const box = useRef<HTMLDivElement>(null);
    const state = search.state.value;
    useLayoutEffect(() => box.current?.scrollIntoView({ block: "nearest" }), [state.kind]);
    if (state.kind === "idle") return null;
    return (
        <div class="search" ref={box} role="status" aria-live="polite" data-search-state={state.kind}>
            {state.kind === "running" && (
                <>
                    <p>
                        Searching every schedule of a small world: <b>{(state.progress?.states ?? 0).toLocaleString("en")}</b> states, schedules of {state.progress?.depth ?? 0} events.
                    </p>
                    <progress aria-label="Searching for a violation" />
                    <button type="button" onClick={() => search.cancel()}>
                        Cancel
                    </button>
                </>
            )}
            {state.kind === "found" && (
                <>
                    <p>
                        Found after {state.progress.states.toLocaleString("en")} states: {readableText(state.violation)}. The open run leads to this violation without an unnecessary event.
                    </p>
                    <button type="button" onClick={() => findViolation(state.rule, false)}>
                        Search the same world with the rule on
                    </button>
                </>
            )}
            {state.kind === "none" && (
                <p>
                    {state.isFromLink && "The link says: "}No violation {state.result.isOff ? "without" : "with"} the rule: every schedule of this world was searched, {state.result.states.toLocaleString("en")} states and{" "}
                    {state.result.events.toLocaleString("en")} events.{" "}
                    <button type="button" class="link" onClick={() => findViolation(state.rule, state.result.isOff)}>
                        Search again
                    </button>
                </p>
            )}
            {state.kind === "failed" && <p>The search failed: {quotedText(state.text)}</p>}
        </div>
    );
}
