import { SAFE_LINK_LENGTH } from "../model/link";
import { presentLink } from "../session/address";
import { session } from "../session/app";

/** Saves the open run or log as a file, which the button “Open” can read. */
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

/** Opens a file that a person has chosen in the file dialog. */
export async function openFile(file: File): Promise<void> {
    session.openFile(await file.text(), file.name);
}

/** Opens a file that a person has dropped on the page. */
export function openDroppedFile(event: DragEvent): void {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) void openFile(file);
}

/** Copies the link to the page's present state to the clipboard. */
export async function copyLink(): Promise<void> {
    const link = await presentLink(session);
    if (link === undefined) return session.notify("a link cannot contain a live server's log: save the log, and send the file", true);
    try {
        await navigator.clipboard.writeText(link);
        const isLong = link.length > SAFE_LINK_LENGTH;
        session.notify(isLong ? "the link is copied, but some programs cut a link of this length: a saved file is safer" : "the link is copied: it opens the page in its present state", false);
    } catch {
        session.notify("the browser refuses access to the clipboard: copy the address from the address bar", true);
    }
}
