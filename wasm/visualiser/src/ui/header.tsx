import { useRef } from "preact/hooks";

import icon from "../icon.svg";
import { openServed } from "../session/served";
import { copyLink, openFile, saveFile } from "./files";
import { isHelpOpen } from "./help";
import { openMenu } from "./menu";

/** The top of the page. */
export function Header() {
    return (
        <header class="header">
            <h1>
                <img src={icon} alt="" width="22" height="22" /> Leasehold <small>step by step</small>
            </h1>
            <div class="tools">
                <button type="button" onClick={() => void copyLink()}>
                    Copy link
                </button>
                <button type="button" onClick={saveFile}>
                    Save
                </button>
                <Open />
                <button type="button" aria-label="Help" title="Help (?)" onClick={() => (isHelpOpen.value = true)}>
                    ?
                </button>
            </div>
        </header>
    );
}

/** Opens a file, or what the server has begun and settled that offers the page. */
function Open() {
    const input = useRef<HTMLInputElement>(null);
    const chosen = (event: Event) => {
        const chooser = event.currentTarget as HTMLInputElement;
        const file = chooser.files?.[0];
        if (file) void openFile(file);
        chooser.value = "";
    };
    const choose = () => input.current?.click();
    const offer = (anchor: HTMLElement) => {
        const extras = [
            { label: "A file…", act: choose },
            { label: "This server's leases", act: () => void openServed() },
        ];
        openMenu({ title: "Open", about: "A saved run, a live server's log, or what the server that offers this page has begun and settled since it started.", groups: [], extras, anchor });
    };
    return (
        <>
            <button
                type="button"
                aria-haspopup="menu"
                title="Open a saved run, or a live server's log"
                onClick={(event) => offer(event.currentTarget)}
            >
                Open…
            </button>
            <input ref={input} type="file" hidden accept=".json,.jsonl,.log,.txt" onChange={chosen} aria-label="Open a saved run, or a live server's log" />
        </>
    );
}
