import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export const isHelpOpen = signal(false);

const KEYS: [string, string][] = [
    ["space", "play, pause"],
    ["→ or ↓", "one event on"],
    ["← or ↑", "one event back"],
    ["page down, page up", "ten events on, or back"],
    ["home, end", "to the start, to the end"],
    ["s", "let it settle: end all trouble, and play until calm"],
    ["tab, enter", "go to a participant or a message, and open its menu"],
    ["?", "this help"],
];

/** What the page is, and how it is used. */
export function Help() {
    const dialog = useRef<HTMLDialogElement>(null);
    useEffect(() => dialog.current?.showModal(), []);
    const close = () => (isHelpOpen.value = false);
    return (
        <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={close}>
            <h2 id="help-title">What you see</h2>
            <p>
                Several <b>cells</b> serve different people, each with a database of its own. A name such as <i>alice</i> must exist only once
                in all of them. The <b>service</b> keeps who has <b>claimed</b> which name.
            </p>
            <p>
                No transaction spans two databases. So a worker first begins a <b>lease</b> on the names it wants, then commits its rows
                locally, and then commits the lease. Anything may fail between any two steps: watch what becomes of it.
            </p>
            <ul>
                <li>Time runs down. Each column is a participant; click its head to crash it, cut it off, or let it go on.</li>
                <li>Arrows are messages. One that is under way at the blue line can be clicked: deliver, drop, duplicate or delay it.</li>
                <li>Whatever you do at a place replaces what came after it. Play on, and everybody reacts to it.</li>
                <li>Another scenario, seed or file, or a rule that is switched, takes the place of the run: the browser's Back brings it back, as you had changed it.</li>
                <li>Switch a rule off, let the page find a violation, and see what the rule is there for.</li>
            </ul>
            <h2>Keys</h2>
            <dl class="keys">
                {KEYS.map(([key, what]) => (
                    <div key={key}>
                        <dt>{key}</dt>
                        <dd>{what}</dd>
                    </div>
                ))}
            </dl>
            <form method="dialog">
                <button type="submit" class="primary">
                    Close
                </button>
            </form>
        </dialog>
    );
}
