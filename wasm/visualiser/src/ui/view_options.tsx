import type { Signal } from "@preact/signals";

import { session } from "../session/app";
import { canMergeSteps, hasUnusedLanes } from "./lane_layout";
import { pane } from "./navigation";

/** Shows what a person can leave out of the lanes. */
export function ViewOptions() {
    return (
        <div class="options" role="group" aria-label="What the lanes show">
            {canMergeSteps.value && <Option signal={session.mergedSteps} on="Show each local step" off="Merge local steps" />}
            {hasUnusedLanes.value && <Option signal={session.allLanes} on="Hide unused columns" off="Show all columns" />}
        </div>
    );
}

/** Shows a switch, labelled with what it does next: `on` while it is on. */
function Option({ signal, on, off }: { signal: Signal<boolean>; on: string; off: string }) {
    const toggle = () => {
        signal.value = !signal.value;
        pane.value = "run";
    };
    return (
        <button type="button" class="link" onClick={toggle}>
            {signal.value ? on : off}
        </button>
    );
}
