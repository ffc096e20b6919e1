import { Explorer, ruleWorld, Simulation } from "leasehold/simulation";

import type { Progress, Rule } from "../model/protocol";

/** What to look at: every schedule about a rule, or what a violation needs of a run. */
export type SearchRequest = { kind: "search"; rule: Rule; isOff: boolean } | { kind: "shorten"; trace: string };

/** What a search tells. */
export type SearchMessage =
    /** What was sent before this is lost: the module awaits its wasm file before it listens. */
    | { kind: "ready" }
    | { kind: "progress"; progress: Progress }
    /** A run of which nothing can be left out. */
    | { kind: "found"; violation: string; trace: string; progress: Progress }
    | { kind: "none"; progress: Progress }
    | { kind: "shortened"; trace: string | undefined }
    | { kind: "failed"; text: string };

/** States between two words of progress. */
const SLICE = 400;

addEventListener("message", ({ data }: MessageEvent<SearchRequest>) => {
    try {
        if (data.kind === "search") search(data.rule, data.isOff);
        else tell({ kind: "shortened", trace: Simulation.load(data.trace).minimise() });
    } catch (error) {
        tell({ kind: "failed", text: error instanceof Error ? error.message : String(error) });
    }
});

tell({ kind: "ready" });

function tell(message: SearchMessage): void {
    postMessage(message);
}

function search(rule: Rule, isOff: boolean): void {
    const plan = ruleWorld(rule);
    const rules_off = isOff ? [rule] : [];
    const explorer = new Explorer({ ...plan, settings: { ...plan.settings, rules_off } });
    while (explorer.explore(SLICE)) tell({ kind: "progress", progress: explorer.progress() });
    const [found, progress] = [explorer.found(), explorer.progress()];
    explorer.free();
    tell(found ? { kind: "found", ...shortened(found.trace), progress } : { kind: "none", progress });
}

/** The run without what its violation does not need: the world's beginning is given, whether that is needed or not. */
function shortened(found: string): { trace: string; violation: string } {
    const trace = Simulation.load(found).minimise() ?? found;
    const run = Simulation.load(trace);
    run.seek(run.length);
    const { violation } = run.view();
    if (violation === undefined) throw new Error("what was found violates nothing when it is played again");
    return { trace, violation: violation[1] };
}
