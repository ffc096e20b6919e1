// What the server that offers this page has begun and settled lately. A page from elsewhere has no such server: that is
// only asked when a person wants to know, since a server that does not know the question complains of it.
import { session } from "./app";

const PATH = "audit";
const FORM = "application/jsonl";

/** Opens the server's leases as they are now. */
export async function openServed(): Promise<void> {
    try {
        const answer = await fetch(PATH);
        if (!answer.ok || !isLines(answer)) return session.tell(whyNone(answer), true);
        const text = await answer.text();
        if (text.trim() === "") return session.tell("this server has begun no lease since it started: begin one, then open this again", false);
        session.openServed(text);
    } catch {
        session.tell("the server cannot be reached: is it still running?", true);
    }
}

function whyNone({ status }: Response): string {
    if (status >= 500) return `the server does not tell its leases, it answered ${status}: try again`;
    return "this page does not come from a claims server, so there are no leases to show: open the address that `leasehold serve` tells as `page`, or a server's log as a file";
}

function isLines(answer: Response): boolean {
    return answer.headers.get("content-type")?.startsWith(FORM) ?? false;
}
