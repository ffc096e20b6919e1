import { useEffect } from "preact/hooks";

import { session } from "../session/app";
import { openServed } from "../session/served";
import { openDropped } from "./files";
import { Header } from "./header";
import { Help, isHelpOpen } from "./help";
import { onKey } from "./keys";
import { Lanes } from "./lanes";
import { MenuLayer } from "./menu";
import { LiveRegion, NoticeBar, reading } from "./notice";
import { Aside, Now } from "./now";
import { type Pane, pane } from "./places";
import { Sidebar } from "./sidebar";
import { State } from "./state";
import { Transport } from "./transport";

const PANES: [Pane, string][] = [
    ["choose", "Choose"],
    ["run", "Run"],
    ["state", "State"],
];

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
                    <Aside />
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
        <aside class="side" tabIndex={0} aria-label="What is known where" data-position={reading.value.position}>
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
            {session.recording.value && session.isOfServer.value && (
                <button type="button" onClick={() => void openServed()}>
                    Refresh
                </button>
            )}
        </div>
    );
}

/** A moment of a log, to the second. */
function moment(timestamp: string): string {
    return timestamp.replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

function headline(): { title: string; watch: string } {
    const origin = session.origin.value;
    const recording = session.recording.value;
    if (recording) {
        const rest = recording.ignored > 0 ? ` ${recording.ignored} other lines are left out.` : "";
        const times = recording.length === 1 ? "once" : `${recording.length} times`;
        return {
            title: session.isOfServer.value ? "This server's leases" : "A live server's log",
            watch: `Leases were begun or settled ${times}, from ${moment(recording.startedAt)} on.${rest} Nothing is known of what went on within a cell.`,
        };
    }
    const scenario = session.scenario.value;
    if (scenario) return { title: scenario.title + (session.isBent.value ? ", changed" : ""), watch: scenario.watch };
    if (origin.kind === "free") {
        return { title: `Free play, seed ${origin.settings.seed}`, watch: "Chance decides what happens next. Play, stop anywhere, and meddle." };
    }
    const violation = session.marks.value.violation;
    const found = violation === undefined ? "" : ` A promise is broken by event ${violation + 1}: play it to see how it comes to that.`;
    return { title: origin.kind === "trace" ? origin.title : "", watch: `A recorded run. Step through it, or bend it at any place.${found}` };
}
