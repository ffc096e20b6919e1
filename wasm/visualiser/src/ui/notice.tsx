import { computed } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { quotedText, readableText } from "../model/texts";
import { session } from "../session/app";
import { throttled } from "../session/throttled";

/**
 * The time for which a notice is shown, in milliseconds. An error stays until the person closes it.
 */
const NOTICE_MS = 6000;
/**
 * The largest playback speed, in events per second, at which each event is announced to screen
 * readers. Speech is no faster.
 */
const MAX_ANNOUNCED_SPEED = 2;
/**
 * The pause between two updates of the texts and tables, in milliseconds: about twelve updates per
 * second.
 */
const DISPLAY_PAUSE_MS = 80;

/** Shows the notice to the person, if there is one. */
export function NoticeBar() {
    const notice = session.notice.value;
    useEffect(() => {
        if (notice === undefined || notice.isError) return;
        const timer = setTimeout(() => (session.notice.value = undefined), NOTICE_MS);
        return () => clearTimeout(timer);
    }, [notice]);
    return (
        <div class="notices">
            {notice && (
                <div class={notice.isError ? "notice error" : "notice"} role={notice.isError ? "alert" : "status"}>
                    <span>{quotedText(notice.text)}</span>
                    <button type="button" class="plain" aria-label="Close this message" onClick={() => (session.notice.value = undefined)}>
                        ✕
                    </button>
                </div>
            )}
        </div>
    );
}

/** The last event before the position; `undefined` at the start of the run. */
export const lastEntry = computed(() => {
    session.revision.value;
    const position = session.position.value;
    return position > 0 ? session.timeline.value?.entries(position - 1, position)[0] : undefined;
});

/**
 * The largest playback speed, in events per second, at which texts and tables follow each event at
 * once. People can read them at this speed.
 */
const MAX_READABLE_SPEED = 10;

/** The state that texts and tables show. During fast playback it is older than the lanes' state. */
export const displayed = throttled(
    computed(() => ({ view: session.view.value, entry: lastEntry.value, position: session.position.value, revision: session.revision.value })),
    DISPLAY_PAUSE_MS,
    () => session.isPlaying.peek() && session.speed.peek() <= MAX_READABLE_SPEED,
);

/** True while the texts and tables show an older state than the lanes. */
export const isDisplayStale = computed(() => displayed.value.position !== session.position.value || displayed.value.revision !== session.revision.value);

const announcement = computed(() => {
    if (session.isPlaying.value && session.speed.value > MAX_ANNOUNCED_SPEED) return "playing";
    const { position, entry } = displayed.value;
    const length = session.length.value;
    if (entry === undefined) return `at the start, ${length} events follow`;
    const violation = entry.violation ? ` An invariant is violated: ${readableText(entry.violation)}` : "";
    return `${position} of ${length}: ${entry.says}.${violation}`;
});

/** Announces events to users of screen readers. */
export function LiveRegion() {
    return (
        <div class="visually-hidden" role="status" aria-live="polite" data-testid="live">
            {announcement.value}
        </div>
    );
}
