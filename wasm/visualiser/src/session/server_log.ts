// Fetches the audit log from the Leasehold server that serves this page. The request is sent only
// when a person asks for the log: a page on a static host has no such server, and a failed request
// would appear in the browser's console.
import { session } from "./app";

/** The server's path and content type of the audit log (`server/src/serve/page.rs`). */
const PATH = "audit";
const CONTENT_TYPE = "application/jsonl";

/** Fetches and opens the present audit log of the server that serves the page. */
export async function openServerLog(): Promise<void> {
    try {
        const response = await fetch(PATH);
        if (!response.ok || !isLog(response)) return session.notify(failureText(response), true);
        const text = await response.text();
        if (text.trim() === "") return session.notify("this server has begun no lease since it started: begin one, then open its leases again", false);
        session.openServerLog(text);
    } catch {
        session.notify("the server cannot be reached: check that it still runs", true);
    }
}

function failureText({ status }: Response): string {
    if (status >= 500) return `the server did not send its leases and answered ${status}: try again`;
    return "this page does not come from a claims server, so there are no leases to show: open the address that `leasehold serve` prints as `page`, or open a server's log as a file";
}

function isLog(response: Response): boolean {
    return response.headers.get("content-type")?.startsWith(CONTENT_TYPE) ?? false;
}
