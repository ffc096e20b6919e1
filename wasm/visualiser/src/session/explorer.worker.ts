// The web worker that searches for violations, so that the page stays responsive.
import { Explorer, ruleWorld, Simulation } from "leasehold/simulation";

import type { Progress, Rule } from "../model/protocol";

/**
 * A request to the worker: to search a rule's small world, or to shorten the trace of a violation.
 */
export type SearchRequest = { kind: "search"; rule: Rule; isOff: boolean } | { kind: "shorten"; trace: string };

/** A message from the worker to the page. */
export type SearchMessage =
    /**
     * The worker listens now. Requests sent before are lost: the worker imports a module that waits
     * for its wasm file before the listener is added.
     */
    | { kind: "ready" }
    | { kind: "progress"; progress: Progress }
    /** The search has found a violation. `trace` leads to it and contains no unnecessary event. */
    | { kind: "found"; violation: string; trace: string; progress: Progress }
    | { kind: "none"; progress: Progress }
    | { kind: "shortened"; trace: string | undefined }
    | { kind: "failed"; text: string };

/** The number of states that the search explores between two progress messages. */
const STATES_PER_MESSAGE = 400;

addEventListener("message", ({ data }: MessageEvent<SearchRequest>) => {
    try {
        if (data.kind === "search") search(data.rule, data.isOff);
        else send({ kind: "shortened", trace: Simulation.load(data.trace).minimise() });
    } catch (error) {
        send({ kind: "failed", text: error instanceof Error ? error.message : String(error) });
    }
});

send({ kind: "ready" });

function send(message: SearchMessage): void {
    postMessage(message);
}

function search(rule: Rule, isOff: boolean): void {
    const plan = ruleWorld(rule);
    const rules_off = isOff ? [rule] : [];
    const explorer = new Explorer({ ...plan, settings: { ...plan.settings, rules_off } });
    while (explorer.explore(STATES_PER_MESSAGE)) send({ kind: "progress", progress: explorer.progress() });
    const [found, progress] = [explorer.found(), explorer.progress()];
    explorer.free();
    send(found ? { kind: "found", ...shorten(found.trace), progress } : { kind: "none", progress });
}

/**
 * Returns a shorter trace with the same violation. The explorer's trace begins with the plan's
 * initial events, some of which may be unnecessary.
 */
function shorten(found: string): { trace: string; violation: string } {
    const trace = Simulation.load(found).minimise() ?? found;
    const run = Simulation.load(trace);
    run.seek(run.length);
    const { violation } = run.view();
    if (violation === undefined) throw new Error("the replayed trace violates nothing, which is a defect: report it");
    return { trace, violation: violation[1] };
}
