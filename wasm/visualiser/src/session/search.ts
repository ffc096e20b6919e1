// Looking for a violation, in a worker so that the page stays alive.
import { computed, signal } from "@preact/signals";

import type { Searched } from "../model/link";
import type { Progress, Rule } from "../model/protocol";
import type { SearchMessage, SearchRequest } from "./explorer.worker";

/** How a search stands. */
export type SearchState =
    | { kind: "idle" }
    | { kind: "running"; rule: Rule; progress: Progress | undefined }
    | { kind: "found"; rule: Rule; violation: string; trace: string; progress: Progress }
    | { kind: "none"; searched: Searched; rule: Rule; isByLink: boolean }
    | { kind: "failed"; rule: Rule; text: string };

/** A search for a violation. */
export class Search {
    readonly state = signal<SearchState>({ kind: "idle" });
    /** What was looked at and holds no violation, as links say it. */
    readonly searched = computed(() => (this.state.value.kind === "none" ? this.state.value.searched : undefined));
    private worker: Worker | undefined;

    /** Looks at every schedule of the small world about a rule, with the rule off or on. */
    start(rule: Rule, isOff: boolean, found: (trace: string) => void): void {
        this.cancel();
        this.state.value = { kind: "running", rule, progress: undefined };
        this.ask({ kind: "search", rule, isOff }, (told) => {
            if (told.kind === "progress") this.state.value = { kind: "running", rule, progress: told.progress };
            else if (told.kind === "none") this.foundNone({ rule, isOff, states: told.progress.states, events: told.progress.events }, false);
            else if (told.kind === "failed") this.end({ ...told, rule });
            else if (told.kind === "found") {
                this.end({ ...told, rule });
                found(told.trace);
            }
        });
    }

    /** Shows what a link says of a search that found nothing; or nothing of one that was shown, which another page state knows nothing of. */
    show(searched: Searched | undefined): void {
        if (searched) this.foundNone(searched, true);
        else if (this.state.peek().kind === "none") this.cancel();
    }

    /** Whether the page has looked itself, or only a link says so: anybody can write a link. */
    private foundNone(searched: Searched, isByLink: boolean): void {
        this.end({ kind: "none", searched, rule: searched.rule, isByLink });
    }

    /** Takes out of a run what its violation does not need; undefined where nothing is violated. */
    shorten(trace: string, done: (trace: string | undefined) => void, failed: (text: string) => void): void {
        this.cancel();
        this.ask({ kind: "shorten", trace }, (told) => {
            this.end({ kind: "idle" });
            if (told.kind === "shortened") done(told.trace);
            if (told.kind === "failed") failed(told.text);
        });
    }

    private ask(request: SearchRequest, told: (message: SearchMessage) => void): void {
        const worker = new Worker(new URL("./explorer.worker.ts", import.meta.url), { type: "module" });
        this.worker = worker;
        worker.onerror = (event) => told({ kind: "failed", text: event.message || "the search could not be started" });
        worker.onmessage = ({ data }: MessageEvent<SearchMessage>) => {
            if (data.kind === "ready") worker.postMessage(request);
            else told(data);
        };
    }

    /** Gives up looking. */
    cancel(): void {
        this.end({ kind: "idle" });
    }

    private end(state: SearchState): void {
        this.worker?.terminate();
        this.worker = undefined;
        this.state.value = state;
    }
}
