// A page that fetches the wasm files itself. Vite gives their URLs.
import { BucketType, canonicalForm, init } from "leasehold/slim";
import engineUrl from "leasehold/leasehold.wasm?url";
import { init as initSimulation, Simulation } from "leasehold/simulation/slim";
import simulationUrl from "leasehold/simulation.wasm?url";

async function start() {
    await Promise.all([init(engineUrl), initSimulation(new URL(simulationUrl, location.href))]);
    const run = new Simulation({ cells: 1, seed: 7 });
    run.play(20);
    const answer = `${canonicalForm(BucketType.USERNAMES, "Alice")} after ${run.length} events`;
    document.body.dataset.page = answer;
    document.body.dataset.worker = answer;
}

void start();
