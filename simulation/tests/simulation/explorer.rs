//! Tests that explore every schedule of the smallest worlds.

use leasehold_simulation::event::Event;
use leasehold_simulation::explorer::{Allowance, Explorer, InvalidPlan, Plan, Progress};
use leasehold_simulation::plans;
use leasehold_simulation::quiescence;
use leasehold_simulation::settings::{Mode, Rule, WorldSettings};

use crate::parallel;

fn explore(plan: Plan, states_at_a_time: u64) -> Explorer {
    let mut explorer = Explorer::new(plan).unwrap();
    while explorer.explore(states_at_a_time) {}
    explorer
}

/// Explores all schedules of a plan in both modes. No schedule may break the world, and the search
/// must find at least `fewest_states` states.
fn is_sound(plan: fn(Mode) -> Plan, fewest_states: [u64; 2]) {
    parallel::map([Mode::BeforeCommit, Mode::LeaseFirst].into_iter().zip(fewest_states), |(mode, fewest_states)| {
        let explorer = explore(plan(mode), 10_000);
        let progress = explorer.progress();
        assert_eq!(explorer.counterexample(), None);
        assert!(progress.is_finished && !progress.is_cut_off, "{progress:?}");
        assert!(progress.states >= fewest_states, "{progress:?}");
    });
}

#[test]
fn one_save_with_every_fault_is_sound_in_every_order() {
    is_sound(plans::one_save, [20_000, 20_000]);
}

#[test]
fn two_cells_that_want_the_same_name_are_sound_in_every_order() {
    is_sound(plans::one_name, [200_000, 100_000]);
}

#[test]
fn a_row_renamed_during_its_correction_is_sound_in_every_order() {
    is_sound(plans::one_correction, [200_000, 200_000]);
}

/// Returns a plan without idempotency keys in which a worker saves the same row twice. The service
/// finds the call of one begin cancelled. The worker can crash, the service can stop, and
/// reconciliation can run.
fn one_cancelled_begin(mode: Mode) -> Plan {
    let allowance =
        Allowance { cancels: 1, crashes: 1, stops: 1, waits: 1, reconciliations: 1, ..Allowance::default() };
    let plan = plans::one_save(mode);
    let wishes = [plan.wishes.clone(), plan.wishes.clone()].concat();
    plans::without(Rule::ReplayKeys, Plan { allowance, wishes, ..plan })
}

#[test]
fn b25_a_cancelled_begin_is_sound_in_every_order() {
    is_sound(one_cancelled_begin, [173_000, 175_000]);
}

#[test]
fn a_search_in_slices_finds_the_same_violation() {
    let plan = || plans::without(Rule::CommitGuard, plans::about(Rule::CommitGuard, Mode::BeforeCommit).unwrap());
    let (whole, sliced) = (explore(plan(), u64::MAX), explore(plan(), 1));
    assert!(whole.counterexample().is_some());
    assert_eq!((whole.counterexample(), whole.progress()), (sliced.counterexample(), sliced.progress()));
}

#[test]
fn a_schedule_beyond_the_depth_limit_is_reported() {
    let plan = Plan { depth: 3, ..plans::one_save(Mode::BeforeCommit) };
    let progress = explore(plan, u64::MAX).progress();
    assert!(progress.is_finished && progress.is_cut_off && progress.depth == 3, "{progress:?}");
}

#[test]
fn an_empty_plan_has_one_state_and_an_invalid_one_is_refused() {
    let settings = WorldSettings { cells: 1, workers: 1, ..WorldSettings::default() };
    let plan = Plan {
        settings,
        before: vec![],
        wishes: vec![],
        drifts: vec![],
        works: vec![],
        starts: Vec::new(),
        allowance: Allowance::default(),
        wait_seconds: 1,
        depth: 9,
    };
    let expected = Progress { states: 1, is_finished: true, ..Progress::default() };
    assert_eq!(explore(plan.clone(), 10).progress(), expected);
    let impossible = Plan { before: vec![Event::StartService], ..plan.clone() };
    assert!(matches!(Explorer::new(impossible), Err(InvalidPlan::Before(_))));
    let wish = *plans::one_save(Mode::BeforeCommit).wishes.first().unwrap();
    assert!(matches!(Explorer::new(Plan { wishes: vec![wish; 17], ..plan }), Err(InvalidPlan::TooLong)));
}

/// The test ends all faults at every state of a save and of a correction.
#[test]
fn every_state_of_a_save_or_a_correction_becomes_quiescent() {
    let allowance = Allowance { crashes: 1, verifications: 1, ..Allowance::default() };
    let plan_of = |mode, is_save| match is_save {
        true => plans::one_save(mode),
        false => Plan { allowance, ..plans::one_correction(mode) },
    };
    let plans = [Mode::BeforeCommit, Mode::LeaseFirst].into_iter().flat_map(|mode| [(mode, true), (mode, false)]);
    parallel::map(plans, |(mode, is_save)| {
        let mut explorer = Explorer::new(plan_of(mode, is_save)).unwrap();
        let mut worlds = 0;
        while explorer.explore(1) {
            let Some(world) = explorer.frontier().next_back() else { continue };
            let mut world = world.clone();
            quiescence::reach(&mut world).unwrap();
            assert_eq!(quiescence::check(&world), Ok(()), "{:?}", world.cells());
            worlds += 1;
        }
        assert!(worlds > 1000);
    });
}
