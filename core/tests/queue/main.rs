//! Tests of queues. The engine is compared with an independent model over random worlds of commands and groups, and
//! over every short sequence of small worlds. Other tests reach every edge of the table of requests, and refuse bad
//! commands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod edges;
mod invariants;
mod limits;
mod model;
mod refusals;
mod world;

#[path = "../../src/properties.rs"]
mod properties;

use proptest::prelude::*;

use model::{New, Settled, Step};
use properties::config;
use world::World;

fn new() -> impl Strategy<Value = New> {
    let creates = prop_oneof![3 => Just(false), 1 => Just(true)];
    let delay = prop_oneof![3 => Just(0_u64), 1 => Just(5)];
    let kind =
        (creates, prop_oneof![Just(0_u8), Just(9)], delay, 1..4_u32, prop_oneof![9 => Just("a"), 1 => Just("b")]);
    (0..14_u128, 0..3_usize, kind).prop_map(|(id, lane, (creates, priority, delay, most, text))| {
        // A request mostly has the same content when it is submitted again.
        let (priority, most) =
            if text == "a" { (9 * u8::from(id % 3 == 0), 1 + id as u32 % 3) } else { (priority, most) };
        New { id, lane: if text == "a" { id as usize % 3 } else { lane }, creates, priority, delay, most, text }
    })
}

fn submit() -> impl Strategy<Value = Step> {
    proptest::collection::vec(new(), 1..4).prop_map(|mut all| {
        all.sort_by_key(|new| new.id);
        all.dedup_by_key(|new| new.id);
        Step::Submit(all)
    })
}

fn settled() -> impl Strategy<Value = Settled> {
    prop_oneof![
        2 => Just(Settled::Completed),
        2 => retry().prop_map(Settled::Failed),
        1 => Just(Settled::GivenBack),
    ]
}

fn retry() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![2 => Just(Some(0)), 2 => Just(Some(5)), 1 => Just(None)]
}

/// A random step over few sessions, requests and lanes, so that steps often concern the same ones.
fn step() -> impl Strategy<Value = Step> {
    let (session, id, lane) = (0..3_u128, 0..14_u128, 0..3_usize);
    let age = prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    let hold = (lane.clone(), age);
    prop_oneof![
        3 => session.clone().prop_map(Step::Open),
        1 => session.clone().prop_map(Step::Close),
        1 => (session.clone(), any::<bool>()).prop_map(|(session, enough)| Step::Silence(session, enough)),
        1 => session.clone().prop_map(Step::Evict),
        1 => session.clone().prop_map(Step::ForgetSession),
        2 => prop_oneof![4 => 1..8_u64, 1 => Just(2_000_000)].prop_map(Step::Wait),
        10 => submit(),
        10 => (session, 0..10_u128, lane.clone(), prop_oneof![1 => 1..3_u32, 1 => Just(100)])
            .prop_map(|(session, take, lane, most)| Step::Take(session, take, lane, most)),
        8 => (hold.clone(), settled()).prop_map(|((lane, age), how)| Step::Settle(lane, age, how)),
        3 => (hold.clone(), prop_oneof![Just("half"), Just("more")])
            .prop_map(|((lane, age), text)| Step::Note(lane, age, text)),
        5 => (hold, any::<bool>(), retry())
            .prop_map(|((lane, age), enough, retry)| Step::Reclaim(lane, age, enough, retry)),
        2 => id.clone().prop_map(Step::Withdraw),
        2 => id.clone().prop_map(Step::Resubmit),
        1 => (0..2_usize, any::<bool>()).prop_map(|(queue, paused)| Step::PauseQueue(queue, paused)),
        1 => (lane.clone(), any::<bool>()).prop_map(|(lane, paused)| Step::PauseLane(lane, paused)),
        1 => (0..2_usize, 0..3_u32).prop_map(|(queue, limit)| Step::LimitQueue(queue, limit)),
        2 => id.prop_map(Step::ForgetRequest),
        1 => lane.prop_map(Step::ForgetLane),
    ]
}

proptest! {
    #![proptest_config(config())]

    /// Q01, Q02, Q03, Q07 to Q13, Q17, Q19, Q20: replies and states are those of the model, and no invariant breaks,
    /// whatever the steps are.
    #[test]
    fn the_engine_agrees_with_the_model(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::default();
        steps.into_iter().for_each(|step| world.step(step));
    }

    /// The commands of a group over a workspace have the same effect as the same commands one by one: every row that a
    /// command reads was loaded before the group.
    #[test]
    fn a_group_decides_as_its_commands_one_by_one(
        groups in proptest::collection::vec(proptest::collection::vec(step(), 1..9), 1..24)
    ) {
        let mut world = World::default();
        world.run(&[Step::Open(0), Step::Open(1), Step::Open(2)]);
        groups.iter().for_each(|group| world.run(group));
    }
}

fn update(id: u128) -> New {
    New { id, lane: 0, creates: false, priority: 0, delay: 0, most: 2, text: "a" }
}

fn explore(world: &World, steps: &[Step], depth: u32) -> u64 {
    if depth == 0 {
        return 0;
    }
    let reached = steps.iter().map(|step| {
        let mut next = world.clone();
        next.step(step.clone());
        1 + explore(&next, steps, depth - 1)
    });
    reached.sum()
}

/// Runs every sequence of as many steps after some first ones.
fn run_all(before: &[Step], steps: &[Step], depth: u32) {
    let mut world = World::default();
    before.iter().for_each(|step| world.step(step.clone()));
    let count = steps.len() as u64;
    assert_eq!(explore(&world, steps, depth), (1..=depth).map(|depth| count.pow(depth)).sum::<u64>());
}

/// Q01, Q02, Q08, Q10: every sequence of five steps of two workers, a create and two updates of one lane.
#[test]
fn every_short_sequence_agrees_with_the_model() {
    let steps = [
        Step::Submit(vec![New { creates: true, ..update(0) }]),
        Step::Submit(vec![update(1)]),
        Step::Submit(vec![update(2)]),
        Step::Take(0, 0, 0, 100),
        Step::Take(1, 1, 0, 100),
        Step::Settle(0, 0, Settled::Completed),
        Step::Settle(0, 0, Settled::Failed(Some(0))),
        Step::Withdraw(1),
    ];
    run_all(&[Step::Open(0), Step::Open(1)], &steps, 5);
}

/// Q03, Q11, Q13, Q20: every sequence of five steps after a take whose worker may die.
#[test]
fn q03_every_short_sequence_after_a_take_agrees_with_the_model() {
    let before = [Step::Open(0), Step::Open(1), Step::Submit(vec![update(0), update(1)]), Step::Take(0, 0, 0, 100)];
    let steps = [
        Step::Silence(0, true),
        Step::Evict(0),
        Step::ForgetSession(0),
        Step::Reclaim(0, 0, false, Some(5)),
        Step::Reclaim(0, 0, true, Some(0)),
        Step::Note(0, 0, "half"),
        Step::Settle(0, 0, Settled::GivenBack),
        Step::Take(1, 1, 0, 100),
        Step::Resubmit(0),
    ];
    run_all(&before, &steps, 5);
}

/// Q12, Q19: every sequence of five steps of delayed, urgent and paused lanes.
#[test]
fn q12_every_short_sequence_of_the_ready_order_agrees_with_the_model() {
    let steps = [
        Step::Submit(vec![New { delay: 2, ..update(0) }]),
        Step::Submit(vec![update(1)]),
        Step::Submit(vec![New { lane: 1, priority: 9, ..update(2) }]),
        Step::PauseLane(0, true),
        Step::PauseLane(0, false),
        Step::PauseQueue(0, true),
        Step::PauseQueue(0, false),
        Step::Wait(3),
        Step::Take(0, 0, 0, 100),
        Step::Settle(0, 0, Settled::Failed(Some(3))),
    ];
    run_all(&[Step::Open(0)], &steps, 5);
}

/// Q09: every sequence of five steps around the first create of a resource.
#[test]
fn q09_every_short_sequence_of_creates_agrees_with_the_model() {
    let create = |id| Step::Submit(vec![New { creates: true, most: 1, ..update(id) }]);
    let steps = [
        create(0),
        create(1),
        Step::Submit(vec![update(2), New { creates: true, most: 1, ..update(3) }]),
        Step::Take(0, 0, 0, 100),
        Step::Take(0, 1, 0, 100),
        Step::Settle(0, 0, Settled::Failed(Some(0))),
        Step::Resubmit(0),
        Step::Withdraw(0),
        Step::ForgetRequest(0),
        Step::ForgetLane(0),
    ];
    run_all(&[Step::Open(0)], &steps, 5);
}

/// Q17: every sequence of five steps of two lanes of a queue with a limit, whose worker may die.
#[test]
fn q17_every_short_sequence_of_a_limited_queue_agrees_with_the_model() {
    let steps = [
        Step::LimitQueue(0, 1),
        Step::LimitQueue(0, 0),
        Step::Take(0, 0, 0, 100),
        Step::Take(1, 1, 1, 100),
        Step::Settle(0, 0, Settled::Completed),
        Step::Settle(1, 0, Settled::GivenBack),
        Step::Close(0),
        Step::Reclaim(0, 0, true, Some(0)),
        Step::PauseQueue(0, true),
    ];
    let submit = Step::Submit(vec![update(0), New { lane: 1, ..update(1) }]);
    run_all(&[Step::Open(0), Step::Open(1), submit], &steps, 5);
}
