//! What each rule is there for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use leasehold_simulation::event::{Change, Drift, Process};
use leasehold_simulation::explorer::{Allowance, Explorer, Plan, Wish};
use leasehold_simulation::settings::{Mode, Rule, RulesOff, Settings, Thresholds};

fn small(cells: u8, mode: Mode, off: Option<Rule>) -> Settings {
    let rules_off = off.map_or(RulesOff::default(), |rule| RulesOff::default().with(rule));
    Settings { cells, workers: 1, names: 2, reconcilers: 1, modes: vec![mode], rules_off, ..Settings::default() }
}

#[test]
fn probe() {
    let wish = |cell, change| Wish { cell, worker: 0, change };
    for mode in [Mode::BeforeCommit, Mode::LeaseFirst] {
        let plan = |cells, off, wishes: &[Wish], drifts: &[(u8, Drift)], allowance| Plan {
            settings: small(cells, mode, off),
            before: vec![],
            wishes: wishes.to_vec(),
            drifts: drifts.to_vec(),
            allowance,
            wait_seconds: 700,
            depth: 100,
        };
        let two = [wish(1, Change::Create(0)), wish(2, Change::Create(0))];
        let plans = [
            ("two", plan(2, None, &two, &[], Allowance::default())),
            ("two off", plan(2, Some(Rule::LeaseExclusivity), &two, &[], Allowance::default())),
            ("one all", plan(1, None, &two[..1], &[], Allowance { drops: 1, duplicates: 1, time_outs: 1, crashes: 1, disconnects: 1, stops: 1, waits: 1, reconciliations: 1, verifications: 0 })),
            ("one some", plan(1, None, &two[..1], &[], Allowance { drops: 1, crashes: 1, time_outs: 1, waits: 1, reconciliations: 1,  ..Allowance::default() })),
            ("fence", plan(1, Some(Rule::LocalFence), &two[..1], &[], Allowance { waits: 1, reconciliations: 1,  ..Allowance::default() })),
            ("memory", plan(1, Some(Rule::SettledLeaseMemory), &two[..1], &[], Allowance { time_outs: 1, drops: 1, ..Allowance::default() })),
            ("keys", plan(1, Some(Rule::ReplayKeys), &two[..1], &[], Allowance { time_outs: 1, drops: 1, ..Allowance::default() })),
            ("ownership", plan(2, Some(Rule::Ownership), &[two[0], wish(2, Change::Delete(1))], &[(2, Drift::Insert(0))], Allowance::default())),
        ];
        for (title, plan) in plans {
            let start = std::time::Instant::now();
            let mut explorer = Explorer::new(plan).unwrap();
            while explorer.explore(1000) && explorer.progress().states < 400_000 {}
            println!("{mode:?} {title}: {:?} {:?} in {:?}", explorer.progress(), explorer.found().map(|f| (f.violation.to_string(), f.trace.events.len())), start.elapsed());
        }
    }
    let _ = (Process::Verifier, Thresholds::default());
}
