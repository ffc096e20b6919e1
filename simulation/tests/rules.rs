//! What each rule is there for: without it there is a schedule that breaks something, with it there is none.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::mem::discriminant;

use leasehold_simulation::check::Violation;
use leasehold_simulation::explorer::{Explorer, Found, Plan};
use leasehold_simulation::plans;
use leasehold_simulation::settings::{Mode, Rule};
use leasehold_simulation::trace::Trace;

/// Explores a plan to its end.
fn explore(plan: Plan) -> Explorer {
    let mut explorer = Explorer::new(plan).unwrap();
    while explorer.explore(1000) {}
    explorer
}

/// The shortest schedule that breaks something without a rule: at the most so long, beside what has happened before.
fn found_without(rule: Rule, mode: Mode, longest: usize) -> Found {
    let plan = plans::without(rule, plans::about(rule, mode).unwrap());
    let before = plan.before.len();
    let explorer = explore(plan);
    let found = explorer.found().unwrap_or_else(|| panic!("{mode:?}: nothing is broken without {rule:?}"));
    let length = found.trace.events.len() - before;
    assert!(length <= longest, "{mode:?}: the shortest schedule without {rule:?} is {length} events long");
    assert_eq!(found.trace.replay().unwrap().violation(), Some(&found.violation));
    found.clone()
}

/// Without the rule this breaks, in at the most so many events; with it every schedule of the same world is sound.
fn is_needed(rule: Rule, longest: [usize; 2], is_expected: fn(&Violation) -> bool) {
    for (mode, longest) in [Mode::BeforeCommit, Mode::LeaseFirst].into_iter().zip(longest) {
        let found = found_without(rule, mode, longest);
        assert!(is_expected(&found.violation), "{mode:?}: {}", found.violation);
        let minimal = minimal(&found.trace);
        assert!(minimal.events.len() <= found.trace.events.len());
        let explorer = explore(plans::about(rule, mode).unwrap());
        assert_eq!(explorer.found(), None, "{mode:?}: with {rule:?}");
        assert!(explorer.progress().is_finished && !explorer.progress().is_cut_off);
    }
}

/// The trace without what its violation does not need; it replays, and nothing more can be taken out.
fn minimal(trace: &Trace) -> Trace {
    let violation = trace.replay().unwrap().violation().unwrap().clone();
    let minimal = trace.minimise().unwrap();
    let again = minimal.replay().unwrap().violation().unwrap().clone();
    assert_eq!(discriminant(&again), discriminant(&violation));
    assert_eq!(minimal.minimise().as_ref(), Some(&minimal), "nothing more can be taken out");
    minimal
}

#[test]
fn b03_without_lease_exclusivity_two_cells_are_told_that_a_name_is_theirs() {
    is_needed(Rule::LeaseExclusivity, [16, 14], |found| matches!(found, Violation::Unclaimed { .. }));
}

#[test]
fn b04_without_ownership_a_cell_destroys_what_is_not_its_own() {
    is_needed(Rule::Ownership, [19, 17], |found| matches!(found, Violation::Unclaimed { .. }));
}

#[test]
fn b22_b23_without_memory_who_asks_again_is_not_told_the_truth() {
    is_needed(Rule::SettledLeaseMemory, [15, 15], |found| matches!(found, Violation::ToldWrongly { .. }));
}

#[test]
fn b09_without_replay_keys_a_save_collides_with_itself() {
    is_needed(Rule::ReplayKeys, [10, 8], |found| matches!(found, Violation::OwnObstacle));
}

#[test]
fn r04_without_the_local_fence_a_late_commit_has_no_claim() {
    is_needed(Rule::LocalFence, [17, 17], |found| matches!(found, Violation::Unclaimed { .. }));
}

#[test]
fn v02_without_skipping_recent_rows_a_claim_is_corrected_against_its_row() {
    is_needed(Rule::SkipRecentRows, [38, 38], |found| matches!(found, Violation::Miscorrected { .. }));
}

#[test]
fn v02_without_skipping_recent_claims_a_lagging_replica_has_a_claim_corrected_against_its_row() {
    is_needed(Rule::SkipRecentClaims, [28, 28], |found| matches!(found, Violation::Miscorrected { .. }));
}
