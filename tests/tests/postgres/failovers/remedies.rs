//! Remedies that are taken out: the fight must find each of their faults again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anyhow::Result;
use xtask::cluster::NODES;

use super::faults::{FAULTS, Fault};
use super::{PAUSE, World};
use leasehold_tests::fight::{SILENT, STALE};

/// The number of runs in which a fault must be found.
const RUNS: u64 = 3;
/// The messages about an answered change that is lost: the final rows lack a lease, or a lease is there again although its
/// settle was answered.
const LOST: &[&str] = &["the final state lacks the lease", STALE];

/// A remedy that is taken out.
struct TakenOut {
    /// The names that the server knows, with commas between them.
    names: &'static str,
    /// Takes out what is no part of the server.
    prepare: fn(&World) -> Result<()>,
    /// A text that the name of the fault has, which the remedy is for.
    fault: &'static str,
    /// Texts of the messages that tell of the fault.
    findings: &'static [&'static str],
}

const fn remedy(names: &'static str, fault: &'static str, findings: &'static [&'static str]) -> TakenOut {
    TakenOut { names, prepare: |_| Ok(()), fault, findings }
}

const REMEDIES: &[TakenOut] = &[
    // One host without power, and one that never answers.
    remedy("all-hosts", "loses its power", &[SILENT]),
    remedy("all-hosts", "accepts connections and never answers", &[SILENT]),
    // Reads of a former primary, and a server that never leaves it.
    remedy("departure,proof", "Patroni alone is killed", &[STALE]),
    remedy("highest-timeline", "Patroni alone is killed", &[SILENT]),
    // Reads that no durable write has proved, and an epoch that is served in at once.
    remedy("proof", "one server sees only the former primary", &[STALE]),
    remedy("wait", "one server sees only the former primary", &[STALE]),
    // A wait for a standby that was canceled.
    remedy("warnings", "the waits for a standby are canceled", LOST),
    TakenOut {
        names: "",
        prepare: |world| {
            world.cluster.execute("leasehold", "ALTER ROLE leasehold SET synchronous_commit = local")?;
            let none = "CREATE OR REPLACE FUNCTION commit_durably() RETURNS void LANGUAGE sql AS ''";
            world.cluster.execute("leasehold", none).map(drop)
        },
        fault: "the standbys are cut off",
        findings: LOST,
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
        findings: LOST,
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

/// True if a run without the remedy tells of the fault.
///
/// # Panics
/// It fails for another reason.
fn finds(remedy: &TakenOut, fault: &Fault, seed: u64) -> bool {
    let mut world = World::start([0; NODES as usize]);
    let run = catch_unwind(AssertUnwindSafe(|| {
        let load = world.load(seed, remedy.names);
        (remedy.prepare)(&world).unwrap();
        load.run_for(PAUSE);
        world.play(fault, &load);
        world.check(load, 1);
    }));
    let Err(panic) = run else {
        println!("without `{}`: nothing", remedy.names);
        return false;
    };
    let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    let Some(finding) = remedy.findings.iter().find(|finding| message.contains(**finding)) else {
        resume_unwind(panic);
    };
    println!("without `{}`: {finding}", remedy.names);
    true
}
