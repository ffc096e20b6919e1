import { computed } from "@preact/signals";

import { differenceOf } from "../model/outcome";
import { session } from "../session/app";
import { openServed } from "../session/served";

const headline = computed(headlineOf);

/** What is watched, and how it ends. */
export function Watch() {
    const { title, watch } = headline.value;
    return (
        <div class="watch">
            <h2>{title}</h2>
            <p>{watch}</p>
            <Outcome />
            {session.recording.value && session.isOfServer.value && (
                <button type="button" onClick={() => void openServed()}>
                    Refresh
                </button>
            )}
        </div>
    );
}

/** What broke, or why nothing did: whoever opens a link sees it at once, wherever it leads. */
function Outcome() {
    const verdict = session.verdict.value;
    if (verdict === undefined) return null;
    // At the end the advice says to play on.
    if (verdict.kind === "open" && session.atEnd.value) return null;
    if (verdict.kind !== "broken") return <p class={`verdict ${verdict.kind}`}>{verdict.text}</p>;
    const place = verdict.position + 1;
    const isReached = session.position.value >= place;
    return (
        <p class="verdict bad">
            A promise is broken at event {place}
            {isReached ? "." : `: ${verdict.text}`}{" "}
            {!isReached && (
                <button type="button" class="link" onClick={() => session.seek(place)}>
                    Go there, and see why
                </button>
            )}
        </p>
    );
}

/** A moment of a log, to the second. */
function moment(timestamp: string): string {
    return timestamp.replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

interface Headline {
    title: string;
    watch: string;
}

function headlineOf(): Headline {
    const origin = session.origin.value;
    if (session.recording.value) return ofRecording(session.recording.value);
    if (session.scenario.value) return ofScenario(session.scenario.value);
    if (origin.kind === "free") {
        return { title: `Free play, seed ${origin.settings.seed}`, watch: "Chance decides what happens next. Play, stop anywhere, and meddle." };
    }
    return { title: origin.kind === "trace" ? origin.title : "", watch: "A recorded run. Step through it, or bend it at any place." };
}

function ofRecording(recording: NonNullable<typeof session.recording.value>): Headline {
    const rest = recording.ignored > 0 ? ` ${recording.ignored} other lines are left out.` : "";
    const times = recording.length === 1 ? "once" : `${recording.length} times`;
    return {
        title: session.isOfServer.value ? "This server's leases" : "A live server's log",
        watch: `Leases were begun or settled ${times}, from ${moment(recording.startedAt)} on.${rest} Nothing is known of what went on within a cell.`,
    };
}

function ofScenario(scenario: NonNullable<typeof session.scenario.value>): Headline {
    const rulesOff = session.rulesOff.value;
    const isBent = session.isBent.value;
    if (!isBent && rulesOff.length === 0) return { title: scenario.title, watch: scenario.watch };
    const title = scenario.title + (isBent ? ", changed" : ", without a rule");
    const entries = session.timeline.value?.entries(0, session.length.value) ?? [];
    return { title, watch: differenceOf(scenario, entries, rulesOff) ?? scenario.watch };
}
