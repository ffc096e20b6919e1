import { useEffect } from "preact/hooks";

import { openDropped } from "./files";
import { Header } from "./header";
import { Help, isHelpOpen } from "./help";
import { keepFocus, onKey } from "./keys";
import { Lanes } from "./lanes";
import { MenuLayer } from "./menu";
import { isReadingBehind, LiveRegion, NoticeBar } from "./notice";
import { Aside, Now } from "./now";
import { type Pane, pane } from "./places";
import { Sidebar } from "./sidebar";
import { State } from "./state";
import { Transport } from "./transport";
import { Watch } from "./watch";

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
        addEventListener("click", keepFocus);
        addEventListener("dragover", overIt);
        addEventListener("drop", openDropped);
        return () => {
            removeEventListener("keydown", onKey);
            removeEventListener("click", keepFocus);
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
        <aside class="side" tabIndex={0} aria-label="What is known where" aria-busy={isReadingBehind}>
            <Now />
            <State />
        </aside>
    );
}
