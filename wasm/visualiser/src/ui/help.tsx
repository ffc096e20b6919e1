import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { tour } from "../session/app";

export const isHelpOpen = signal(false);

const KEYS: [string, string][] = [
    ["space", "play or pause"],
    ["→ or ↓", "one event forward"],
    ["← or ↑", "one event back"],
    ["page down, page up", "ten events forward or back"],
    ["home, end", "to the start or the end"],
    ["s", "end all faults, and play until every process is idle"],
    ["tab, enter", "focus a participant or a message, and open its menu"],
    ["?", "this help"],
    ["→, ← and space in the tour", "the next step, the step before, and the same step again"],
];

/** Shows the help: the purpose of the page, how to use it, and its keys. */
export function Help() {
    const dialog = useRef<HTMLDialogElement>(null);
    useEffect(() => dialog.current?.showModal(), []);
    const close = () => (isHelpOpen.value = false);
    const startTour = () => {
        close();
        tour.show(1);
    };
    return (
        <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={close}>
            {/* The dialog focuses this element. It would focus its first button, which is at its end. */}
            <h2 id="help-title" tabIndex={-1} autofocus>
                About this page
            </h2>
            <p>
                Several <b>cells</b> serve different people, each with a database of its own. A name such as <i>alice</i> must exist only once
                in all of them. The <b>service</b> stores the <b>claim</b> of each name: the cell that owns it.
            </p>
            <p>
                No transaction spans two databases. So a worker first begins a <b>lease</b> on the names it wants, then commits its rows
                locally, and then commits the lease. Each step may fail: watch how the cells and the service recover.
            </p>
            <p>
                A <b>lock</b> lets one client at a time do a piece of work, for as long as it renews its <b>session</b>. Some stories show
                locks and a <b>queue</b>. In “Free play” you make a world of claims, of locks or of a queue, with random events or by hand.
            </p>
            <ul>
                <li>Time runs down. Each column is a participant. Click its head to crash it, cut it off, or let it take a step.</li>
                <li>Arrows are messages. A message in flight at the blue line is an envelope: click it to deliver, drop, duplicate or delay the message.</li>
                <li>A level grey arrow is a statement to the cell's database. A level green arrow is what a user or a worker says; a pink one tells a user of a refusal, or that the outcome is unknown.</li>
                <li>A circle is an event, a green square a local COMMIT, a red cross a fault. A diamond with a bar is a refusal, and so is a line that ends in a bar.</li>
                <li>An event that you apply replaces the rest of the run. Play on to see the reactions of all participants.</li>
                <li>Another scenario, seed or file, or a switched rule, replaces the run. The browser's Back restores it with your changes.</li>
                <li>Switch a rule off and let the page find a violation, to see the purpose of the rule.</li>
            </ul>
            <h2>Keys</h2>
            <dl class="keys">
                {KEYS.map(([key, action]) => (
                    <div key={key}>
                        <dt>{key}</dt>
                        <dd>{action}</dd>
                    </div>
                ))}
            </dl>
            <p>
                <button type="button" onClick={startTour}>
                    Guided tour
                </button>
            </p>
            <form method="dialog">
                <button type="submit" class="primary">
                    Close
                </button>
            </form>
        </dialog>
    );
}
