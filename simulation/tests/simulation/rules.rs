//! Tests of the purpose of each rule: without the rule some schedule breaks the world, and with it
//! none does.

use std::mem::discriminant;

use leasehold_simulation::explorer::{Counterexample, Explorer, Plan};
use leasehold_simulation::plans;
use leasehold_simulation::settings::{Mode, Rule};
use leasehold_simulation::trace::Trace;
use leasehold_simulation::violation::Violation;

use crate::parallel;

/// Explores all schedules of a plan and returns the finished search.
fn explore(plan: Plan) -> Explorer {
    let mut explorer = Explorer::new(plan).unwrap();
    while explorer.explore(1000) {}
    explorer
}

/// Returns the shortest schedule that breaks the world without a rule. The schedule may have at
/// most `longest` events, not counting the plan's events `before`.
fn found_without(rule: Rule, mode: Mode, longest: usize) -> Counterexample {
    let plan = plans::without(rule, plans::about(rule, mode).unwrap());
    let before = plan.before.len();
    let explorer = explore(plan);
    let found = explorer.counterexample().unwrap_or_else(|| panic!("{mode:?}: nothing is broken without {rule:?}"));
    let length = found.trace.events.len() - before;
    assert!(length <= longest, "{mode:?}: the shortest schedule without {rule:?} is {length} events long");
    assert_eq!(found.trace.replay().unwrap().violation(), Some(&found.violation));
    found.clone()
}

/// Asserts that the world of the rule's plan breaks without the rule and is sound with it.
/// `longest` is the largest number of events of the breaking schedule in each mode.
fn is_needed(rule: Rule, longest: [usize; 2], is_expected: fn(&Violation) -> bool) {
    parallel::map([Mode::BeforeCommit, Mode::LeaseFirst].into_iter().zip(longest), |(mode, longest)| {
        let found = found_without(rule, mode, longest);
        assert!(is_expected(&found.violation), "{mode:?}: {}", found.violation);
        let minimal = minimal(&found.trace);
        assert!(minimal.events.len() <= found.trace.events.len());
        let explorer = explore(plans::about(rule, mode).unwrap());
        assert_eq!(explorer.counterexample(), None, "{mode:?}: with {rule:?}");
        assert!(explorer.progress().is_finished && !explorer.progress().is_cut_off);
    });
}

/// Minimises a trace. Asserts that the result has a violation of the same kind and cannot be made
/// shorter.
fn minimal(trace: &Trace) -> Trace {
    let violation = trace.replay().unwrap().violation().unwrap().clone();
    let minimal = trace.minimise().unwrap();
    let again = minimal.replay().unwrap().violation().unwrap().clone();
    assert_eq!(discriminant(&again), discriminant(&violation));
    assert_eq!(minimal.minimise().as_ref(), Some(&minimal), "nothing more can be taken out");
    minimal
}

#[test]
fn b03_without_lease_exclusivity_two_cells_own_one_name() {
    is_needed(Rule::LeaseExclusivity, [16, 14], |found| matches!(found, Violation::Unclaimed { .. }));
}

#[test]
fn b04_without_ownership_a_cell_destroys_another_cells_claim() {
    is_needed(Rule::Ownership, [19, 17], |found| matches!(found, Violation::Unclaimed { .. }));
}

#[test]
fn b22_b23_without_memory_a_repeated_settle_gets_a_false_answer() {
    is_needed(Rule::SettledLeaseMemory, [15, 15], |found| matches!(found, Violation::ToldWrongly { .. }));
}

#[test]
fn b09_without_replay_keys_a_save_collides_with_its_own_first_attempt() {
    is_needed(Rule::ReplayKeys, [10, 8], |found| matches!(found, Violation::OwnObstacle));
}

#[test]
fn r04_without_the_commit_guard_a_late_commit_has_no_claim() {
    is_needed(Rule::CommitGuard, [17, 17], |found| matches!(found, Violation::Unclaimed { .. }));
}

#[test]
fn v02_without_skipping_recent_rows_a_correction_contradicts_its_row() {
    is_needed(Rule::SkipRecentRows, [38, 38], |found| matches!(found, Violation::Miscorrected { .. }));
}

#[test]
fn v02_without_skipping_recent_claims_a_lagging_replica_causes_a_false_correction() {
    is_needed(Rule::SkipRecentClaims, [28, 28], |found| matches!(found, Violation::Miscorrected { .. }));
}
