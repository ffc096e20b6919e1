//! Every schedule of the smallest worlds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use leasehold_simulation::calm;
use leasehold_simulation::event::Event;
use leasehold_simulation::explorer::{Allowance, BadPlan, Explorer, Plan, Progress};
use leasehold_simulation::plans;
use leasehold_simulation::settings::{Mode, Rule, Settings};

fn explore(plan: Plan, states_at_a_time: u64) -> Explorer {
    let mut explorer = Explorer::new(plan).unwrap();
    while explorer.explore(states_at_a_time) {}
    explorer
}

/// All schedules, to their ends: nothing is broken. And there are enough of them to mean something.
fn is_sound(plan: Plan, fewest_states: u64) {
    let explorer = explore(plan, 10_000);
    let progress = explorer.progress();
    assert_eq!(explorer.found(), None);
    assert!(progress.is_finished && !progress.is_cut_off, "{progress:?}");
    assert!(progress.states >= fewest_states, "{progress:?}");
}

#[test]
fn one_save_with_every_trouble_breaks_nothing_in_any_order() {
    is_sound(plans::one_save(Mode::BeforeCommit), 20_000);
    is_sound(plans::one_save(Mode::LeaseFirst), 20_000);
}

#[test]
fn two_cells_that_want_one_name_break_nothing_in_any_order() {
    is_sound(plans::one_name(Mode::BeforeCommit), 200_000);
    is_sound(plans::one_name(Mode::LeaseFirst), 100_000);
}

#[test]
fn a_row_that_is_renamed_while_its_name_is_claimed_for_it_breaks_nothing_in_any_order() {
    is_sound(plans::one_correction(Mode::BeforeCommit), 200_000);
    is_sound(plans::one_correction(Mode::LeaseFirst), 200_000);
}

#[test]
fn in_slices_it_finds_the_same() {
    let plan = || plans::without(Rule::LocalFence, plans::about(Rule::LocalFence, Mode::BeforeCommit).unwrap());
    let (whole, sliced) = (explore(plan(), u64::MAX), explore(plan(), 1));
    assert!(whole.found().is_some());
    assert_eq!((whole.found(), whole.progress()), (sliced.found(), sliced.progress()));
}

#[test]
fn a_schedule_that_is_longer_than_allowed_is_told() {
    let plan = Plan { depth: 3, ..plans::one_save(Mode::BeforeCommit) };
    let progress = explore(plan, u64::MAX).progress();
    assert!(progress.is_finished && progress.is_cut_off && progress.depth == 3, "{progress:?}");
}

#[test]
fn a_plan_of_nothing_has_one_state() {
    let settings = Settings { cells: 1, workers: 1, ..Settings::default() };
    let plan = Plan {
        settings,
        before: vec![],
        wishes: vec![],
        drifts: vec![],
        allowance: Allowance::default(),
        wait_seconds: 1,
        depth: 9,
    };
    let expected = Progress { states: 1, is_finished: true, ..Progress::default() };
    assert_eq!(explore(plan.clone(), 10).progress(), expected);
    let impossible = Plan { before: vec![Event::StartService], ..plan.clone() };
    assert!(matches!(Explorer::new(impossible), Err(BadPlan::Before(_))));
    let wish = *plans::one_save(Mode::BeforeCommit).wishes.first().unwrap();
    assert!(matches!(Explorer::new(Plan { wishes: vec![wish; 17], ..plan }), Err(BadPlan::TooLong)));
}

/// Wherever a save or a correction has come to when all trouble ends, it comes to rest.
#[test]
fn every_state_on_the_way_of_a_save_or_a_correction_comes_to_rest() {
    let allowance = Allowance { crashes: 1, verifications: 1, ..Allowance::default() };
    let correction = |mode| Plan { allowance, ..plans::one_correction(mode) };
    let plans = [Mode::BeforeCommit, Mode::LeaseFirst].map(|mode| [plans::one_save(mode), correction(mode)]);
    for plan in plans.into_iter().flatten() {
        let mut explorer = Explorer::new(plan).unwrap();
        let mut worlds = 0;
        while explorer.explore(1) {
            let Some(world) = explorer.open().next_back() else { continue };
            let mut world = world.clone();
            calm::settle(&mut world).unwrap();
            assert_eq!(calm::at_rest(&world), Ok(()), "{:?}", world.cells());
            worlds += 1;
        }
        assert!(worlds > 1000);
    }
}
