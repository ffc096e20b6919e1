import { computed } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { session } from "../session/app";
import { openDroppedFile } from "./files";
import { Header } from "./header";
import { Help, isHelpOpen } from "./help";
import { onKey, restoreFocus } from "./keys";
import { Lanes } from "./lanes";
import { MenuLayer } from "./menu";
import { CurrentEvent, PhoneAdvice } from "./current_event";
import { type Pane, pane } from "./navigation";
import { isDisplayStale, LiveRegion, NoticeBar } from "./notice";
import { Sidebar } from "./sidebar";
import { State } from "./state";
import { shownStep, TourCard } from "./tour";
import { Transport } from "./transport";
import { Headline } from "./headline";

const PANES: [Pane, string][] = [
    ["choose", "Choose"],
    ["run", "Run"],
    ["state", "State"],
];

/** The largest playback speed, in events a second, at which a transition ends before the next event. */
const MAX_CALM_SPEED = 2;

/** True if changes may be shown as transitions: at a higher speed they would lag behind the events. */
const isCalm = computed(() => !session.isPlaying.value || session.speed.value <= MAX_CALM_SPEED);

/** Shows the whole page. */
export function App() {
    useEffect(() => {
        // Accept the drag of a file. Without this the browser does not deliver the drop (HTML
        // standard, 6.11.5).
        const onDragOver = (event: DragEvent) => event.preventDefault();
        addEventListener("keydown", onKey);
        addEventListener("click", restoreFocus);
        addEventListener("dragover", onDragOver);
        addEventListener("drop", openDroppedFile);
        return () => {
            removeEventListener("keydown", onKey);
            removeEventListener("click", restoreFocus);
            removeEventListener("dragover", onDragOver);
            removeEventListener("drop", openDroppedFile);
        };
    }, []);
    const step = shownStep.value;
    return (
        <div class={`app ${step ? "touring pane-run" : `pane-${pane.value}`}${isCalm.value ? " calm" : ""}`}>
            <Header />
            <main class="main">
                {!step && <Sidebar />}
                <section class="stage" aria-label="The run">
                    {step ? <TourCard step={step} /> : <Headline />}
                    {!step && <PhoneAdvice />}
                    <Lanes />
                </section>
                <StatePanel />
            </main>
            {!step && <Transport />}
            {!step && <Panes />}
            <NoticeBar />
            <LiveRegion />
            <MenuLayer />
            {isHelpOpen.value && <Help />}
        </div>
    );
}

/** Shows the buttons by which a person at a phone chooses a part of the page. */
function Panes() {
    return (
        <nav class="panes" aria-label="Parts of the page">
            {PANES.map(([key, label]) => (
                <button type="button" key={key} aria-pressed={pane.value === key} onClick={() => (pane.value = key)}>
                    {label}
                </button>
            ))}
        </nav>
    );
}

/** Shows the state and the last event. In the tour, the step explains the events. */
function StatePanel() {
    return (
        <aside class="side" tabIndex={0} aria-label="State of the service and the cells" aria-busy={isDisplayStale}>
            {!shownStep.value && <CurrentEvent />}
            <State />
        </aside>
    );
}
