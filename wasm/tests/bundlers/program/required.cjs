const { BucketType, canonicalForm } = require("leasehold");
const { Simulation } = require("leasehold/simulation");

const run = new Simulation({ cells: 1, seed: 7 });
run.play(20);
console.log(`${canonicalForm(BucketType.USERNAMES, "Alice")} after ${run.length} events`);
