import { LONG_LINK } from "../model/link";
import { presentLink } from "../session/address";
import { session } from "../session/app";

/** Saves the run, or the live server's log that is open, as a file that “Open” reads. */
export function saveFile(): void {
    const recording = session.recording.peek();
    if (recording) return download("leases.jsonl", "application/jsonl", recording.text());
    const trace = session.traceText();
    if (trace !== undefined) download(`${runName()}.json`, "application/json", trace);
}

function runName(): string {
    const origin = session.origin.peek();
    if (origin.kind === "trace") return "run";
    return origin.kind === "scenario" ? origin.id : `seed-${origin.settings.seed}`;
}

function download(name: string, type: string, text: string): void {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `leasehold-${name}`;
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
    if (link === undefined) return session.tell("a live server's log is not put into a link: save it, and send the file", true);
    try {
        await navigator.clipboard.writeText(link);
        const isLong = link.length > LONG_LINK;
        session.tell(isLong ? "the link is copied; it is long, and some programs cut it: a saved file is safer" : "the link is copied: whoever opens it sees what you see", false);
    } catch {
        session.tell("the browser does not let the page copy: copy the address from the address bar", true);
    }
}
