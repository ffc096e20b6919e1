import { computed } from "@preact/signals";

import { isWorldByHand } from "../model/origin";
import { differenceText } from "../model/outcome";
import type { Settings } from "../model/protocol";
import { session } from "../session/app";
import { openServerLog } from "../session/server_log";
import { ViewOptions } from "./view_options";

interface HeadlineTexts {
    title: string;
    summary: string;
}

const headline = computed(headlineTexts);

/** Shows the title and summary of the open run or log, and the outcome of the run. */
export function Headline() {
    const { title, summary } = headline.value;
    return (
        <div class="headline">
            <ViewOptions />
            <h2>{title}</h2>
            <p class={summary === session.scenario.value?.watch && session.position.value > 0 ? "watched" : undefined}>{summary}</p>
            <Outcome />
            {session.recording.value && session.isFromServer.value && (
                <button type="button" onClick={() => void openServerLog()}>
                    Refresh
                </button>
            )}
        </div>
    );
}

/**
 * Shows the violation of the run, or the reason for which there is none, at every position of the
 * run.
 */
function Outcome() {
    const verdict = session.verdict.value;
    if (verdict === undefined) return null;
    // At the end of an open run the advice already says to play on.
    if (verdict.kind === "open" && session.atEnd.value) return null;
    if (verdict.kind !== "violated") return <p class={`verdict ${verdict.kind}`}>{verdict.text}</p>;
    const afterViolation = verdict.position + 1;
    const isReached = session.position.value >= afterViolation;
    return (
        <p class="verdict bad">
            An invariant is violated at event {afterViolation}
            {isReached ? "." : `: ${verdict.text}`}{" "}
            {!isReached && (
                <button type="button" class="link" onClick={() => session.seek(afterViolation)}>
                    Go there, and see why
                </button>
            )}
        </p>
    );
}

/** Returns the timestamp of a log line as text, without fractions of a second. */
function timeText(timestamp: string): string {
    return timestamp.replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

function headlineTexts(): HeadlineTexts {
    const origin = session.origin.value;
    if (session.recording.value) return recordingTexts(session.recording.value);
    if (session.scenario.value) return scenarioTexts(session.scenario.value);
    if (origin.kind === "free") {
        return freePlayTexts(origin.settings, isWorldByHand(origin));
    }
    return { title: origin.kind === "trace" ? origin.title : "", summary: "A recorded run. Step through it, or apply another event at any position." };
}

function freePlayTexts({ seed, locks }: Settings, isByHand: boolean): HeadlineTexts {
    const world = locks === undefined ? "" : locks.lanes ? " of a queue" : " of sessions and locks";
    if (isByHand) return { title: `A world${locks ? world : " of claims"}, by hand`, summary: "Choose events in the menus of the columns and messages. Play shows the reactions of all participants, without faults." };
    return { title: `Free play${world}, seed ${seed}`, summary: "Random events happen. Play, pause anywhere, and apply events of your own." };
}

function recordingTexts(recording: NonNullable<typeof session.recording.value>): HeadlineTexts {
    const skipped = recording.skippedLines > 0 ? ` ${recording.skippedLines} other lines are skipped.` : "";
    const times = recording.length === 1 ? "once" : `${recording.length} times`;
    return {
        title: session.isFromServer.value ? "This server's leases" : "A live server's log",
        summary: `Leases were begun or settled ${times}, from ${timeText(recording.startedAt)} on.${skipped} The log lists no events within a cell.`,
    };
}

function scenarioTexts(scenario: NonNullable<typeof session.scenario.value>): HeadlineTexts {
    const rulesOff = session.rulesOff.value;
    const isEdited = session.isEdited.value;
    if (!isEdited && rulesOff.length === 0) return { title: scenario.title, summary: scenario.watch };
    const title = scenario.title + (isEdited ? ", changed" : ", without a rule");
    const entries = session.timeline.value?.entries(0, session.length.value) ?? [];
    return { title, summary: differenceText(scenario, entries, rulesOff) ?? scenario.watch };
}
