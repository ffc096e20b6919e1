import { copyLink, openFile, saveTrace } from "./files";
import { isHelpOpen } from "./help";

/** The top of the page. */
export function Header() {
    const chosen = (event: Event) => {
        const input = event.currentTarget as HTMLInputElement;
        const file = input.files?.[0];
        if (file) void openFile(file);
        input.value = "";
    };
    return (
        <header class="header">
            <h1>
                <img src="./icon.svg" alt="" width="22" height="22" /> Leasehold <small>step by step</small>
            </h1>
            <div class="tools">
                <button type="button" onClick={() => void copyLink()}>
                    Copy link
                </button>
                <button type="button" onClick={saveTrace}>
                    Save
                </button>
                <label class="button">
                    Open…
                    <input type="file" class="visually-hidden" accept=".json,.jsonl,.log,.txt" onChange={chosen} aria-label="Open a saved run, or a live server's log" />
                </label>
                <button type="button" aria-label="Help" title="Help (?)" onClick={() => (isHelpOpen.value = true)}>
                    ?
                </button>
            </div>
        </header>
    );
}
