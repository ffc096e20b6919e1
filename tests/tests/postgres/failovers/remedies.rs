//! Remedies that are taken out: the fight must find each of their faults again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::Result;
use xtask::cluster::NODES;

use super::faults::{FAULTS, Fault};
use super::{PAUSE, World};

/// The number of runs in which a fault must be found.
const RUNS: u64 = 3;

/// The tries after which a history counts as wrong. A right one needs far fewer: see what the test of failovers prints.
const TRIES: usize = 300_000;

/// A remedy that is taken out.
struct TakenOut {
    /// The names that the server knows, with commas between them.
    names: &'static str,
    /// Takes out what is no part of the server.
    prepare: fn(&World) -> Result<()>,
    /// A text that the name of the fault has, which the remedy is for.
    fault: &'static str,
}

const fn remedy(names: &'static str, fault: &'static str) -> TakenOut {
    TakenOut { names, prepare: |_| Ok(()), fault }
}

const REMEDIES: &[TakenOut] = &[
    // One host without power, and one that never answers.
    remedy("all-hosts", "loses its power"),
    remedy("all-hosts", "accepts connections and never answers"),
    // Reads of a former primary, and a server that never leaves it.
    remedy("departure,proof", "Patroni alone is killed"),
    remedy("highest-timeline", "Patroni alone is killed"),
    // Reads that no durable write has proved, and an epoch that is served in at once.
    remedy("proof", "one server sees only the former primary"),
    remedy("wait", "one server sees only the former primary"),
    // A wait for a standby that was canceled.
    remedy("warnings", "the waits for a standby are canceled"),
    TakenOut {
        names: "",
        prepare: |world| {
            world.execute("ALTER ROLE leasehold SET synchronous_commit = local")?;
            world.execute("CREATE OR REPLACE FUNCTION commit_durably() RETURNS void LANGUAGE sql AS ''")
        },
        fault: "the standbys are cut off",
    },
    TakenOut {
        names: "",
        prepare: |world| {
            world.cluster.configure(r#"{"synchronous_mode": null, "synchronous_mode_strict": null}"#)?;
            world.cluster.wait_until("COMMITs wait for no standby", |cluster| {
                cluster.execute("postgres", "SHOW synchronous_standby_names").is_ok_and(|names| names.is_empty())
            })
        },
        fault: "the standbys are cut off",
    },
];

/// `LEASEHOLD_REMEDY` is the number of the only remedy that is taken out, from 0.
#[test]
fn b09_b13_b30_each_remedy_that_is_taken_out_is_found() {
    let only = std::env::var("LEASEHOLD_REMEDY").ok().map(|number| number.parse::<usize>().unwrap());
    for (_, remedy) in (0..).zip(REMEDIES).filter(|(number, _)| only.is_none_or(|only| only == *number)) {
        let fault = FAULTS.iter().find(|fault| fault.name.contains(remedy.fault)).unwrap();
        let found = (0..RUNS).find(|seed| finds(remedy, fault, *seed));
        assert!(found.is_some(), "without `{}`, {RUNS} runs of `{}` find nothing", remedy.names, fault.name);
    }
}

/// True if a run without the remedy fails.
fn finds(remedy: &TakenOut, fault: &Fault, seed: u64) -> bool {
    let mut world = World::start([0; NODES as usize]);
    let run = catch_unwind(AssertUnwindSafe(|| {
        let load = world.load(seed, remedy.names);
        (remedy.prepare)(&world).unwrap();
        load.run_for(PAUSE);
        world.play(fault, &load);
        world.check(load, 1, TRIES);
    }));
    println!("without `{}`: {}", remedy.names, if run.is_err() { "found" } else { "not found" });
    run.is_err()
}
