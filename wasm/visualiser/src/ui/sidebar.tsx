import { useLayoutEffect, useRef } from "preact/hooks";

import { SCENARIOS } from "../model/scenarios";
import { readable, RULE_NAMES } from "../model/words";
import { search, session } from "../session/app";
import { RULES } from "../session/session";
import { findViolation } from "./find";
import { FreePlay } from "./free_play";
import { pane, type Tab, tab } from "./places";

const TABS: [Tab, string][] = [
    ["scenarios", "Scenarios"],
    ["free", "Free play"],
    ["rules", "Rules"],
];

/** What to watch. */
export function Sidebar() {
    const choose = (event: KeyboardEvent) => {
        const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (step === 0) return;
        event.preventDefault();
        event.stopPropagation();
        const at = TABS.findIndex(([key]) => key === tab.value);
        const next = TABS[(at + step + TABS.length) % TABS.length];
        if (next) tab.value = next[0];
        const list = event.currentTarget as HTMLElement;
        requestAnimationFrame(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
    };
    return (
        <nav class="choose" aria-label="What to watch">
            <div class="tabs" role="tablist" aria-label="What to watch" onKeyDown={choose}>
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
            <div class="tab-panel" id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab.value}`}>
                {tab.value === "scenarios" && <Scenarios />}
                {tab.value === "free" && <FreePlay />}
                {tab.value === "rules" && <Rules />}
            </div>
        </nav>
    );
}

function Scenarios() {
    const current = session.scenario.value?.id;
    const open = (id: string) => {
        session.openScenario(id);
        pane.value = "run";
    };
    return (
        <ul class="scenarios">
            {SCENARIOS.map(({ id, title, watch }) => (
                <li key={id}>
                    <button type="button" title={watch} aria-current={current === id ? "true" : undefined} data-scenario={id} onClick={() => open(id)}>
                        {title}
                    </button>
                </li>
            ))}
        </ul>
    );
}

function Rules() {
    const isRecording = session.recording.value !== undefined;
    const state = search.state.value;
    const searched = state.kind === "idle" ? undefined : state.rule;
    return (
        <div class="rules">
            <p>Switch a rule off: the same events happen again without it, as far as they can.</p>
            {RULES.map(({ rule, summary }) => (
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
                    {searched === rule && <SearchState />}
                </div>
            ))}
        </div>
    );
}

/** How the search stands, below the rule that it is about. */
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
                        Looking at every schedule of a small world: <b>{(state.progress?.states ?? 0).toLocaleString("en")}</b> states, {(state.progress?.depth ?? 0)} events deep.
                    </p>
                    <progress aria-label="Looking for a violation" />
                    <button type="button" onClick={() => search.cancel()}>
                        Cancel
                    </button>
                </>
            )}
            {state.kind === "found" && (
                <>
                    <p>
                        Found after {state.progress.states.toLocaleString("en")} states: {readable(state.violation)}. The run that is open now leads there, without any event that is not needed.
                    </p>
                    <button type="button" onClick={() => findViolation(state.rule, false)}>
                        Search the same world with the rule on
                    </button>
                </>
            )}
            {state.kind === "none" && (
                <p>
                    {state.isByLink && "The link says: "}No violation {state.searched.isOff ? "without" : "with"} the rule: every schedule of this world was looked at, {state.searched.states.toLocaleString("en")} states and{" "}
                    {state.searched.events.toLocaleString("en")} events.{" "}
                    <button type="button" class="link" onClick={() => findViolation(state.rule, state.searched.isOff)}>
                        Search again
                    </button>
                </p>
            )}
            {state.kind === "failed" && <p>The search failed: {state.text}</p>}
        </div>
    );
}
