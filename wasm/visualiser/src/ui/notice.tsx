import { computed } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { readable } from "../model/words";
import { session } from "../session/app";
import { deferred } from "../session/deferred";

const SHOWN_MS = 6000;
/** Faster than this nobody can listen. */
const TOLD_UP_TO_SPEED = 2;

/** What a person is told in passing. */
export function NoticeBar() {
    const notice = session.notice.value;
    useEffect(() => {
        if (notice === undefined || notice.isError) return;
        const timer = setTimeout(() => (session.notice.value = undefined), SHOWN_MS);
        return () => clearTimeout(timer);
    }, [notice]);
    return (
        <div class="notices">
            {notice && (
                <div class={notice.isError ? "notice error" : "notice"} role={notice.isError ? "alert" : "status"}>
                    <span>{notice.text}</span>
                    <button type="button" class="plain" aria-label="Close this message" onClick={() => (session.notice.value = undefined)}>
                        ✕
                    </button>
                </div>
            )}
        </div>
    );
}

/** What the last event was, in words; undefined before the first. */
export const lastEntry = computed(() => {
    session.revision.value;
    const position = session.position.value;
    return position > 0 ? session.timeline.value?.entries(position - 1, position)[0] : undefined;
});

/** What is read rather than watched: renewed a dozen times a second at the most. */
export const reading = deferred(
    computed(() => ({ view: session.view.value, entry: lastEntry.value, position: session.position.value, revision: session.revision.value })),
    80,
);

/** Whether what is read is of an earlier moment than what is watched. */
export const isReadingBehind = computed(() => reading.value.position !== session.position.value || reading.value.revision !== session.revision.value);

const said = computed(() => {
    if (session.isPlaying.value && session.speed.value > TOLD_UP_TO_SPEED) return "playing";
    const { position, entry } = reading.value;
    const length = session.length.value;
    if (entry === undefined) return `at the start, ${length} events follow`;
    const violation = entry.violation ? ` A promise is broken: ${readable(entry.violation)}` : "";
    return `${position} of ${length}: ${entry.says}.${violation}`;
});

/** Says each step to people who do not see the lanes. */
export function LiveRegion() {
    return (
        <div class="visually-hidden" role="status" aria-live="polite" data-testid="live">
            {said.value}
        </div>
    );
}
