// What the server that offers this page has begun and settled lately. A page from elsewhere has no such server.
import { signal } from "@preact/signals";

import { session } from "./app";

const PATH = "audit";
const FORM = "application/jsonl";

/** Whether the page comes from a server that tells its leases. */
export const isServed = signal(false);

/** Asks whether there is such a server. */
export async function findServer(): Promise<void> {
    try {
        const answer = await fetch(PATH, { method: "HEAD" });
        isServed.value = answer.ok && isLines(answer);
    } catch {
        // A page that was loaded from a disk, or whose server is gone, works without.
        isServed.value = false;
    }
}

/** Opens the server's leases as they are now. */
export async function openServed(): Promise<void> {
    try {
        const answer = await fetch(PATH);
        if (!answer.ok || !isLines(answer)) throw new Error(`the server does not tell its leases: it answered ${answer.status}`);
        const text = await answer.text();
        if (text.trim() === "") return session.tell("this server has begun no lease since it started", false);
        session.openServed(text);
    } catch (error) {
        session.tell(error instanceof TypeError ? "the server cannot be reached: is it still running?" : String((error as Error).message), true);
    }
}

function isLines(answer: Response): boolean {
    return answer.headers.get("content-type")?.startsWith(FORM) ?? false;
}
