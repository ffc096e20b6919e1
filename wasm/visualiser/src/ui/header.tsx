import { useRef } from "preact/hooks";

import icon from "../icon.svg";
import { openServerLog } from "../session/server_log";
import { copyLink, openFile, saveFile } from "./files";
import { isHelpOpen } from "./help";
import { openMenu } from "./menu";

/** Shows the header of the page: its title, and the buttons for files and links. */
export function Header() {
    return (
        <header class="header">
            <h1>
                <img src={icon} alt="" width="22" height="22" /> Leasehold <small>How a username stays unique across databases</small>
            </h1>
            <div class="tools">
                <button type="button" onClick={() => void copyLink()}>
                    Copy link
                </button>
                <button type="button" onClick={saveFile}>
                    Save
                </button>
                <OpenButton />
                <button type="button" aria-label="Help" title="Help (?)" onClick={() => (isHelpOpen.value = true)}>
                    ?
                </button>
            </div>
        </header>
    );
}

/** Shows the button that opens a file, or the leases of the server that serves the page. */
function OpenButton() {
    const input = useRef<HTMLInputElement>(null);
    const onChange = (event: Event) => {
        const chooser = event.currentTarget as HTMLInputElement;
        const file = chooser.files?.[0];
        if (file) void openFile(file);
        // Clear the file dialog's value. Otherwise choosing the same file again would fire no
        // `change` event.
        chooser.value = "";
    };
    const chooseFile = () => input.current?.click();
    const open = (anchor: HTMLElement) => {
        const extras = [
            { label: "A file…", run: chooseFile },
            { label: "This server's leases", run: () => void openServerLog() },
        ];
        openMenu({ title: "Open", about: "A saved run, a live server's log, or the leases of the server that serves this page since it started.", groups: [], extras, anchor });
    };
    return (
        <>
            <button
                type="button"
                aria-haspopup="menu"
                title="Open a saved run, or a live server's log"
                onClick={(event) => open(event.currentTarget)}
            >
                Open…
            </button>
            <input ref={input} type="file" hidden accept=".json,.jsonl,.log,.txt" onChange={onChange} aria-label="Open a saved run, or a live server's log" />
        </>
    );
}
