// The page's address says what it shows.
import { effect } from "@preact/signals";

import { decodeLink, encodeLink } from "../model/link";
import type { Session } from "./session";

/** Browsers allow only so many changes of the address a second. */
const PAUSE_MS = 350;

/** Opens what the address says; the first scenario where it says nothing that can be read. */
export async function openAddress(session: Session): Promise<void> {
    try {
        const link = await decodeLink(location.hash);
        if (link) session.openLink(link);
        else session.openScenario("happy-path");
    } catch (error) {
        session.openScenario("happy-path");
        session.tell(error instanceof Error ? error.message : String(error), true);
    }
}

/** The link to what is shown now. */
export async function presentLink(session: Session): Promise<string | undefined> {
    const state = session.linkState();
    if (state === undefined) return undefined;
    const url = new URL(location.href);
    url.hash = await encodeLink(state);
    return url.href;
}

/** Keeps the address up to date, and follows it when a person changes it. */
export function keepAddress(session: Session): void {
    let written = location.hash;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const write = async () => {
        const link = await presentLink(session);
        const hash = link === undefined ? "" : new URL(link).hash;
        if (hash === written) return;
        written = hash;
        history.replaceState(null, "", hash === "" ? location.pathname : hash);
    };
    effect(() => {
        session.revision.value;
        session.position.value;
        session.speed.value;
        session.allLanes.value;
        session.isBent.value;
        clearTimeout(timer);
        timer = setTimeout(() => void write(), PAUSE_MS);
    });
    addEventListener("hashchange", () => {
        if (location.hash === written) return;
        written = location.hash;
        void openAddress(session);
    });
}
