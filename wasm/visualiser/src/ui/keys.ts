import { session } from "../session/app";
import { isHelpOpen } from "./help";
import { closeMenu, openedMenu } from "./menu";

const STEP_FAR = 10;

type Act = () => void;

const KEYS: Record<string, Act> = {
    " ": () => (session.isPlaying.peek() ? session.pause() : session.play()),
    ArrowRight: () => session.step(),
    ArrowDown: () => session.step(),
    ArrowLeft: () => session.back(),
    ArrowUp: () => session.back(),
    PageDown: () => session.seek(session.position.peek() + STEP_FAR),
    PageUp: () => session.seek(session.position.peek() - STEP_FAR),
    Home: () => session.seek(0),
    End: () => session.seek(session.length.peek()),
    "?": () => (isHelpOpen.value = true),
    s: () => session.settle(),
};

/** Keys that work wherever nothing else wants them. */
export function onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
        isHelpOpen.value = false;
        closeMenu();
        return;
    }
    const act = KEYS[event.key];
    if (act === undefined || openedMenu.peek() || isHelpOpen.peek() || wantsKey(event)) return;
    event.preventDefault();
    act();
}

/** Who has pressed a button that is gone then goes on with that of playing; a menu's has its own way. */
export function keepFocus(event: MouseEvent): void {
    const pressed = event.target instanceof Element ? event.target.closest("button:not([role=menuitem], .bubble)") : null;
    if (pressed === null) return;
    requestAnimationFrame(() => {
        if (pressed.isConnected || document.activeElement !== document.body) return;
        document.querySelector<HTMLElement>(".main-button")?.focus({ preventScroll: true });
    });
}

/** Whether what has the focus has a use of its own for a key. */
function wantsKey(event: KeyboardEvent): boolean {
    const target = event.target;
    if (!(target instanceof HTMLElement)) return false;
    // The position in the run moves by the run's own keys.
    if (target.matches("input:not([type=checkbox]), select, textarea")) return target.closest(".scrubber") === null;
    if (target.matches("button, summary, input[type=checkbox], a")) return event.key === " ";
    return false;
}
