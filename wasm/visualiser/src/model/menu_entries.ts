// The entries of the page's menus, without and with the events that are possible.
import { eventKey } from "./events";
import type { WorldEvent } from "./protocol";

/** An entry of a menu: an event that a person can apply. */
export interface Action {
    label: string;
    event: WorldEvent;
    /**
     * The reason for which the event of this entry is impossible now; absent if the event is
     * possible.
     */
    reason?: string;
    /** A text that explains the event to newcomers. */
    hint?: string;
    /** True if the event of this entry is a fault, such as a crash. */
    isFault?: boolean;
}

/** A group of menu entries with a title. */
export interface ActionGroup {
    title: string;
    actions: Action[];
}

/**
 * A menu entry before the possible events are known. `reason` is shown only if the event is
 * impossible.
 */
export interface Candidate extends Omit<Action, "reason"> {
    otherwise: string;
}

/** Returns the candidates as menu entries. An entry whose event is not in `possible` has a reason. */
export function withReasons(candidates: Candidate[], possible: readonly WorldEvent[]): Action[] {
    const keys = new Set(possible.map(eventKey));
    return candidates.map(({ otherwise, ...action }) =>
        keys.has(eventKey(action.event)) ? action : { ...action, reason: otherwise },
    );
}
