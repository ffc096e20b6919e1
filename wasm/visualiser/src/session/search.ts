// Searches for a violation, and shortens the trace of a violation, in a web worker.
import { computed, signal } from "@preact/signals";

import type { SearchResult } from "../model/link";
import type { Progress, Rule } from "../model/protocol";
import type { SearchMessage, SearchRequest } from "./explorer.worker";

/** The state of the page's search for a violation. */
export type SearchState =
    | { kind: "idle" }
    | { kind: "running"; rule: Rule; progress: Progress | undefined }
    | { kind: "found"; rule: Rule; violation: string; trace: string; progress: Progress }
    /**
     * The search explored everything and found nothing. `isFromLink` is true if only a link says
     * this: anybody can write a link.
     */
    | { kind: "none"; result: SearchResult; rule: Rule; isFromLink: boolean }
    | { kind: "failed"; rule: Rule; text: string };

/** The page's search for a violation. One search runs at a time. */
export class Search {
    readonly state = signal<SearchState>({ kind: "idle" });
    /**
     * The result of a finished search without a violation, which links contain; otherwise
     * `undefined`.
     */
    readonly result = computed(() => (this.state.value.kind === "none" ? this.state.value.result : undefined));
    private worker: Worker | undefined;

    /**
     * Searches every order of events in the rule's small world, with the rule switched off or on.
     * Calls `onFound` with the trace of a violation.
     */
    start(rule: Rule, isOff: boolean, onFound: (trace: string) => void): void {
        this.cancel();
        this.state.value = { kind: "running", rule, progress: undefined };
        this.request({ kind: "search", rule, isOff }, (message) => {
            if (message.kind === "progress") this.state.value = { kind: "running", rule, progress: message.progress };
            else if (message.kind === "none") this.endWithout({ rule, isOff, states: message.progress.states, events: message.progress.events }, false);
            else if (message.kind === "failed") this.end({ ...message, rule });
            else if (message.kind === "found") {
                this.end({ ...message, rule });
                onFound(message.trace);
            }
        });
    }

    /**
     * Shows the search result of a link. If the link has none, hides the result that is shown,
     * because it belongs to another run.
     */
    show(result: SearchResult | undefined): void {
        if (result) this.endWithout(result, true);
        else if (this.state.peek().kind === "none") this.cancel();
    }

    private endWithout(result: SearchResult, isFromLink: boolean): void {
        this.end({ kind: "none", result, rule: result.rule, isFromLink });
    }

    /**
     * Shortens the trace of a violation. Calls `onDone` with the shorter trace, or with `undefined`
     * if the trace contains no violation.
     */
    shorten(trace: string, onDone: (trace: string | undefined) => void, onFailed: (text: string) => void): void {
        this.cancel();
        this.request({ kind: "shorten", trace }, (message) => {
            this.end({ kind: "idle" });
            if (message.kind === "shortened") onDone(message.trace);
            if (message.kind === "failed") onFailed(message.text);
        });
    }

    private request(request: SearchRequest, onMessage: (message: SearchMessage) => void): void {
        // Vite recognises a worker's file only by exactly this pattern: `new Worker(new URL(…,
        // import.meta.url))`.
        const worker = new Worker(new URL("./explorer.worker.ts", import.meta.url), { type: "module" });
        this.worker = worker;
        worker.onerror = (event) => onMessage({ kind: "failed", text: event.message || "the worker could not start: load the page again" });
        worker.onmessage = ({ data }: MessageEvent<SearchMessage>) => {
            if (data.kind === "ready") worker.postMessage(request);
            else onMessage(data);
        };
    }

    /** Stops the search that is running. */
    cancel(): void {
        this.end({ kind: "idle" });
    }

    private end(state: SearchState): void {
        this.worker?.terminate();
        this.worker = undefined;
        this.state.value = state;
    }
}
