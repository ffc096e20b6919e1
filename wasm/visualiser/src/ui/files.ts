import { LONG_LINK } from "../model/link";
import { presentLink } from "../session/address";
import { session } from "../session/app";

/** Saves the run as a file. */
export function saveTrace(): void {
    const text = session.traceText();
    if (text === undefined) return session.tell("a live server's log is a file already: there is nothing to save", true);
    const origin = session.origin.peek();
    const name = origin.kind === "scenario" ? origin.id : origin.kind === "free" ? `seed-${origin.settings.seed}` : "run";
    const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `leasehold-${name}.json`;
    link.click();
    URL.revokeObjectURL(url);
}

/** Opens a file that a person has chosen. */
export async function openFile(file: File): Promise<void> {
    session.openFile(await file.text(), file.name);
}

/** Opens a file that was dropped on the page. */
export function openDropped(event: DragEvent): void {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) void openFile(file);
}

/** Puts the link to what is shown on the clipboard. */
export async function copyLink(): Promise<void> {
    const link = await presentLink(session);
    if (link === undefined) return session.tell("a live server's log is not put into a link: send the file", true);
    try {
        await navigator.clipboard.writeText(link);
        const isLong = link.length > LONG_LINK;
        session.tell(isLong ? "the link is copied; it is long, and some programs cut it: a saved file is safer" : "the link is copied: whoever opens it sees what you see", false);
    } catch {
        session.tell("the browser does not let the page copy: copy the address from the address bar", true);
    }
}
