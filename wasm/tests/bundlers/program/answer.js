import { BucketType, canonicalForm } from "leasehold";
import { Simulation } from "leasehold/simulation";

/** Calls both wasm files. */
export function answer() {
    const run = new Simulation({ cells: 1, seed: 7 });
    run.play(20);
    return `${canonicalForm(BucketType.USERNAMES, "Alice")} after ${run.length} events`;
}
