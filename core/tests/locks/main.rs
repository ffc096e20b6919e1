//! Tests of sessions and locks. The engine is compared with an independent model over random worlds
//! of commands and groups, and over every short sequence of a small world. Other tests play random
//! worlds of observers, and reach every edge of the tables.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod circles;
mod edges;
mod model;
mod observers;
mod refusals;
mod together;
mod world;

#[path = "../../src/properties.rs"]
mod properties;

use proptest::prelude::*;
use proptest::sample::subsequence;

use model::Step;
use properties::config;
use world::World;

/// A random step over few sessions, asks and locks, so that steps often concern the same ones.
fn step() -> impl Strategy<Value = Step> {
    let (session, ask, lock) = (0..4_u128, 0..12_u128, 0..3_usize);
    let place = (lock.clone(), 0..3_usize);
    // Most worlds have a way in which most asks share.
    let share = prop_oneof![3 => Just(0_usize), 1 => Just(1), 1 => Just(2), 3 => Just(3)];
    let together = (session.clone(), 0..12_u128, subsequence(vec![0, 1, 2], 2..=3), share.clone(), any::<bool>());
    prop_oneof![
        3 => together.prop_map(|(session, first, locks, share, wait)| {
            let asks = locks.into_iter().enumerate().map(|(at, lock)| ((first + at as u128) % 12, lock, share));
            Step::AcquireAll { session, asks: asks.collect(), wait }
        }),
        2 => session.clone().prop_map(Step::Open),
        1 => session.clone().prop_map(Step::Renew),
        1 => session.clone().prop_map(Step::Close),
        1 => (session.clone(), 0..3_u64, any::<bool>()).prop_map(|(s, seen, enough)| Step::Silence(s, seen, enough)),
        1 => session.clone().prop_map(Step::Evict),
        9 => (session.clone(), ask.clone(), lock.clone(), share, 0..4_u8)
            .prop_map(|(session, ask, lock, share, wait)| Step::Acquire { session, ask, lock, share, wait: wait > 0 }),
        6 => (lock.clone(), any::<bool>(), 0..8_u8).prop_map(|(lock, ok, age)| Step::Release { lock, ok, age }),
        3 => (session.clone(), ask.clone()).prop_map(|(session, ask)| Step::Leave(session, ask)),
        3 => (session, ask, place.clone()).prop_map(|(session, ask, place)| Step::Reap(session, ask, place)),
        1 => (place.clone(), any::<bool>()).prop_map(|(place, cleaned)| Step::Resolve(place, cleaned)),
        1 => (place.clone(), any::<bool>()).prop_map(|(place, at_once)| Step::Force(place, at_once)),
        2 => (place, any::<bool>()).prop_map(|(place, enough)| Step::Elapse(place, enough)),
        1 => lock.prop_map(Step::ForgetLock),
        1 => (0..4_u128).prop_map(Step::ForgetSession),
    ]
}

proptest! {
    #![proptest_config(config())]

    /// K01, K02, K05, K08, K09, K10, K13, K14, K17, K19, K20: replies and states are those of the model, and no
    /// invariant breaks, whatever the steps are.
    #[test]
    fn the_engine_agrees_with_the_model(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::default();
        steps.iter().for_each(|step| world.run(std::slice::from_ref(step)));
    }

    /// The commands of a group over a workspace have the same effect as the same commands one by
    /// one: every row that a command reads was loaded before the group.
    #[test]
    fn a_group_decides_as_its_commands_one_by_one(
        groups in proptest::collection::vec(proptest::collection::vec(step(), 1..9), 1..24)
    ) {
        let mut world = World::default();
        groups.iter().for_each(|group| world.run(group));
    }
}

/// Every sequence of four steps of a world of two sessions, three asks and one lock.
#[test]
fn every_short_sequence_agrees_with_the_model() {
    let acquire = |session, ask| Step::Acquire { session, ask, lock: 0, share: 0, wait: true };
    let steps = [
        acquire(0, 0),
        acquire(1, 1),
        acquire(0, 2),
        Step::Release { lock: 0, ok: true, age: 0 },
        Step::Leave(1, 1),
        Step::Close(0),
        Step::Evict(1),
        Step::Elapse((0, 0), true),
    ];
    let mut world = World::default();
    world.run(&[Step::Open(0), Step::Open(1)]);
    let mut reached = 0;
    explore(&world, &steps, 4, &mut reached);
    assert_eq!(reached, 8 + 8_u64.pow(2) + 8_u64.pow(3) + 8_u64.pow(4));
}

/// K17: every sequence of four steps after the holder of a reaped lock has died, while an ask waits.
#[test]
fn k17_every_short_sequence_after_a_death_agrees_with_the_model() {
    let acquire = |session, ask| Step::Acquire { session, ask, lock: 2, share: 0, wait: true };
    let steps = [
        Step::Reap(1, 2, (2, 0)),
        Step::Reap(2, 3, (2, 0)),
        Step::Release { lock: 2, ok: true, age: 0 },
        Step::Release { lock: 2, ok: false, age: 0 },
        Step::Leave(1, 2),
        Step::Evict(1),
        Step::Force((2, 0), false),
        Step::Elapse((2, 0), true),
        Step::Resolve((2, 0), true),
        Step::Resolve((2, 0), false),
        acquire(2, 4),
    ];
    let mut world = World::default();
    let death = [Step::Silence(0, 0, true), acquire(1, 1)];
    world.run(&[Step::Open(0), Step::Open(1), Step::Open(2), acquire(0, 0)]);
    world.run(&death);
    let mut reached = 0;
    explore(&world, &steps, 4, &mut reached);
    assert_eq!(reached, 11 + 11_u64.pow(2) + 11_u64.pow(3) + 11_u64.pow(4));
}

/// K13: every sequence of four steps of asks that share a lock, and of one that wants it alone.
#[test]
fn k13_every_short_sequence_of_shared_asks_agrees_with_the_model() {
    let acquire = |session, ask, share| Step::Acquire { session, ask, lock: 2, share, wait: true };
    let steps = [
        acquire(0, 0, 3),
        acquire(1, 1, 3),
        acquire(1, 2, 0),
        acquire(0, 3, 1),
        Step::Release { lock: 2, ok: true, age: 0 },
        Step::Release { lock: 2, ok: true, age: 3 },
        Step::Leave(1, 2),
        Step::Evict(1),
        Step::Silence(0, 0, true),
        Step::Force((2, 1), false),
        Step::Elapse((2, 1), true),
    ];
    for before in [&[][..], &[acquire(0, 4, 3), acquire(1, 5, 3)]] {
        let mut world = World::default();
        world.run(&[Step::Open(0), Step::Open(1)]);
        before.iter().for_each(|step| world.run(std::slice::from_ref(step)));
        let mut reached = 0;
        explore(&world, &steps, 4, &mut reached);
        assert_eq!(reached, 11 + 11_u64.pow(2) + 11_u64.pow(3) + 11_u64.pow(4));
    }
}

/// K14: every sequence of four steps of asks for two locks together, beside asks for one of them.
#[test]
fn k14_every_short_sequence_of_asks_together_agrees_with_the_model() {
    let together = |session, first: u128, locks: [usize; 2], wait| {
        let asks = vec![(first, locks[0], 0), (first + 1, locks[1], 0)];
        Step::AcquireAll { session, asks, wait }
    };
    let single = Step::Acquire { session: 1, ask: 6, lock: 1, share: 0, wait: true };
    let steps = [
        together(0, 0, [0, 1], true),
        together(1, 2, [1, 0], true),
        together(1, 4, [0, 1], false),
        single,
        Step::Release { lock: 0, ok: true, age: 0 },
        Step::Release { lock: 1, ok: true, age: 0 },
        Step::Leave(1, 2),
        Step::Silence(0, 0, true),
        Step::Force((1, 0), true),
    ];
    let mut world = World::default();
    world.run(&[Step::Open(0), Step::Open(1)]);
    let mut reached = 0;
    explore(&world, &steps, 4, &mut reached);
    assert_eq!(reached, 9 + 9_u64.pow(2) + 9_u64.pow(3) + 9_u64.pow(4));
}

fn explore(world: &World, steps: &[Step], depth: u32, reached: &mut u64) {
    if depth == 0 {
        return;
    }
    for step in steps {
        let mut next = world.clone();
        next.run(std::slice::from_ref(step));
        *reached += 1;
        explore(&next, steps, depth - 1, reached);
    }
}
