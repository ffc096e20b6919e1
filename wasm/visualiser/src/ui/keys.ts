import { session, tour } from "../session/app";
import { isHelpOpen } from "./help";
import { closeMenu, openedMenu } from "./menu";

/** The number of events by which the keys Page Down and Page Up move. */
const PAGE_EVENTS = 10;

const ACTIONS: Record<string, () => void> = {
    " ": () => (session.isPlaying.peek() ? session.pause() : session.play()),
    ArrowRight: () => session.step(),
    ArrowDown: () => session.step(),
    ArrowLeft: () => session.back(),
    ArrowUp: () => session.back(),
    PageDown: () => session.seek(session.position.peek() + PAGE_EVENTS),
    PageUp: () => session.seek(session.position.peek() - PAGE_EVENTS),
    Home: () => session.seek(0),
    End: () => session.seek(session.length.peek()),
    "?": () => (isHelpOpen.value = true),
    s: () => session.quiesce(),
};

/** The actions of keys in the tour. Other keys would leave the events of its step. */
const TOUR_ACTIONS: Record<string, () => void> = {
    " ": () => tour.playAgain(),
    ArrowRight: () => tour.next(),
    ArrowLeft: () => tour.back(),
    "?": () => (isHelpOpen.value = true),
};

/**
 * Runs the page's action for a key. Does nothing if a modifier is pressed, or if the focused
 * element uses the key itself.
 */
export function onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
        isHelpOpen.value = false;
        closeMenu();
        return;
    }
    const action = (session.tourStep.peek() === undefined ? ACTIONS : TOUR_ACTIONS)[event.key];
    if (action === undefined || openedMenu.peek() || isHelpOpen.peek() || isUsedByTarget(event)) return;
    event.preventDefault();
    action();
}

/**
 * Moves the focus to the play button if the button that was pressed has disappeared. Otherwise the
 * focus would go to the body, and a keyboard user would start again at the top of the page. Menus
 * and envelopes do this themselves.
 */
export function restoreFocus(event: MouseEvent): void {
    const pressed = event.target instanceof Element ? event.target.closest("button:not([role=menuitem], .envelope)") : null;
    if (pressed === null) return;
    requestAnimationFrame(() => {
        if (pressed.isConnected || document.activeElement !== document.body) return;
        document.querySelector<HTMLElement>(".main-button")?.focus({ preventScroll: true });
    });
}

/** Returns true if the focused element uses the key itself, as a text field does. */
function isUsedByTarget(event: KeyboardEvent): boolean {
    const target = event.target;
    if (!(target instanceof HTMLElement)) return false;
    // The scrubber is an exception: it moves by whole events, with the same keys as the page.
    if (target.matches("input:not([type=checkbox]), select, textarea")) return target.closest(".scrubber") === null;
    if (target.matches("button, summary, input[type=checkbox], a")) return event.key === " ";
    return false;
}
