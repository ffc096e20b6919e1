import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { session } from "../session/app";
import { openDropped } from "./files";
import { Header } from "./header";
import { Help, isHelpOpen } from "./help";
import { onKey } from "./keys";
import { Lanes } from "./lanes";
import { MenuLayer } from "./menu";
import { LiveRegion, NoticeBar, reading } from "./notice";
import { Now } from "./now";
import { Sidebar } from "./sidebar";
import { State } from "./state";
import { Transport } from "./transport";

/** On a phone one of these is in sight at a time. */
type Pane = "run" | "state" | "choose";
const PANES: [Pane, string][] = [
    ["choose", "Choose"],
    ["run", "Run"],
    ["state", "State"],
];
export const pane = signal<Pane>("run");

/** The page. */
export function App() {
    useEffect(() => {
        const overIt = (event: DragEvent) => event.preventDefault();
        addEventListener("keydown", onKey);
        addEventListener("dragover", overIt);
        addEventListener("drop", openDropped);
        return () => {
            removeEventListener("keydown", onKey);
            removeEventListener("dragover", overIt);
            removeEventListener("drop", openDropped);
        };
    }, []);
    return (
        <div class={`app pane-${pane.value}`}>
            <Header />
            <main class="main">
                <Sidebar />
                <section class="stage" aria-label="The run">
                    <Watch />
                    <Lanes />
                </section>
                <Side />
            </main>
            <Transport />
            <nav class="panes" aria-label="Parts of the page">
                {PANES.map(([key, label]) => (
                    <button type="button" key={key} aria-pressed={pane.value === key} onClick={() => (pane.value = key)}>
                        {label}
                    </button>
                ))}
            </nav>
            <NoticeBar />
            <LiveRegion />
            <MenuLayer />
            {isHelpOpen.value && <Help />}
        </div>
    );
}

function Side() {
    return (
        <aside class="side" aria-label="What is known where" data-position={reading.value.position}>
            <Now />
            <State />
        </aside>
    );
}

function Watch() {
    const { title, watch } = headline();
    return (
        <div class="watch">
            <h2>{title}</h2>
            <p>{watch}</p>
        </div>
    );
}

function headline(): { title: string; watch: string } {
    const origin = session.origin.value;
    const recording = session.recording.value;
    if (recording) {
        const rest = recording.ignored > 0 ? ` ${recording.ignored} other lines are left out.` : "";
        return { title: "A live server's log", watch: `${recording.length} times the service begun or settled a lease, from ${recording.startedAt}.${rest} Nothing is known of what went on within a cell.` };
    }
    const scenario = session.scenario.value;
    if (scenario) return { title: scenario.title + (session.isBent.value ? ", bent" : ""), watch: scenario.watch };
    if (origin.kind === "free") {
        return { title: `Free play, seed ${origin.settings.seed}`, watch: "Chance decides what happens next. Play, stop anywhere, and meddle." };
    }
    return { title: origin.kind === "trace" ? origin.title : "", watch: "A recorded run. Step through it, or bend it at any place." };
}
