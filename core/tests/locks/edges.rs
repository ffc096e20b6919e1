//! Every edge of the tables of sessions and locks is reached by random worlds, and no other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use leasehold_core::lock::{Lock, LockPath};
use leasehold_core::store::Store;
use leasehold_core::table::{LOCK, LockStatus, SESSION, SLOT, SessionStatus};

use super::model::Step;
use super::world::World;

/// A small random generator (SplitMix64) with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn step(&mut self) -> Step {
        let (session, ask) = (u128::from(self.roll(4)), u128::from(self.roll(12)));
        let (lock, number) = (self.roll(3) as usize, self.roll(3) as usize);
        let place = (lock, number);
        match self.roll(29) {
            0..=3 => Step::Open(session),
            4 => Step::Renew(session),
            5 => Step::Close(session),
            6 => Step::Silence(session, self.roll(2), true),
            7 => Step::Evict(session),
            8..=13 => Step::Acquire {
                session,
                ask,
                lock,
                share: [0, 0, 1, 3, 3][self.roll(5) as usize],
                wait: self.roll(4) > 0,
            },
            14..=17 => Step::Release { lock, ok: self.roll(2) == 0, age: 0 },
            18 => Step::Leave(session, ask),
            19 => Step::Force(place, false),
            20 | 21 => Step::Elapse(place, true),
            22 => Step::ForgetLock(lock),
            23 => Step::Resolve(place, self.roll(2) == 0),
            24..=27 => Step::Reap(session, ask, place),
            _ => Step::ForgetSession(session),
        }
    }
}

/// Counts for each row the change of its status between two states. Rows with an unchanged status
/// are left out.
fn count<K: Ord + Clone, R: PartialEq, S: PartialEq + std::fmt::Debug>(
    rows: [&BTreeMap<K, R>; 2],
    status: impl Fn(Option<&R>) -> S,
    counts: &mut HashMap<(String, String), u64>,
) {
    let keys: BTreeSet<&K> = rows[0].keys().chain(rows[1].keys()).collect();
    for key in keys {
        let (before, after) = (rows[0].get(key), rows[1].get(key));
        let (from, to) = (status(before), status(after));
        if from != to {
            *counts.entry((format!("{from:?}"), format!("{to:?}"))).or_default() += 1;
        }
    }
}

fn fence_of(lock: &Lock) -> Option<u64> {
    lock.grant().map(|grant| grant.fence.0)
}

#[test]
fn every_edge_of_the_tables_is_reached_and_no_other() {
    let (mut dice, mut sessions, mut locks, mut handed_over) = (Dice(11), HashMap::new(), HashMap::new(), 0);
    let mut slots = HashMap::new();
    let slots_of = |rows: &BTreeMap<LockPath, Lock>, is_slot: bool| -> BTreeMap<LockPath, Lock> {
        rows.iter()
            .filter(|(path, _)| (path.slot() > 0) == is_slot)
            .map(|(path, row)| (path.clone(), row.clone()))
            .collect()
    };
    for _ in 0..2_000 {
        let mut world = World::default();
        let mut before = world.store.state().unwrap();
        for _ in 0..200 {
            world.run(&[dice.step()]);
            let after = world.store.state().unwrap();
            count([&before.sessions, &after.sessions], SessionStatus::of, &mut sessions);
            for (is_slot, counts) in [(false, &mut locks), (true, &mut slots)] {
                let [before, after] = [&before.locks, &after.locks].map(|rows| slots_of(rows, is_slot));
                count([&before, &after], LockStatus::of, counts);
            }
            let passed = after.locks.iter().filter(|(path, lock)| {
                let former = before.locks.get(*path).and_then(fence_of);
                former.is_some() && fence_of(lock).is_some_and(|fence| Some(fence) != former)
            });
            handed_over += passed.count();
            before = after;
        }
    }
    let edges =
        |pairs: Vec<(String, String)>| pairs.into_iter().filter(|(from, to)| from != to).collect::<BTreeSet<_>>();
    let table = edges(SESSION.iter().map(|edge| (format!("{:?}", edge.from), format!("{:?}", edge.to))).collect());
    assert_eq!(sessions.keys().cloned().collect::<BTreeSet<_>>(), table);
    let table = edges(LOCK.iter().map(|edge| (format!("{:?}", edge.from), format!("{:?}", edge.to))).collect());
    assert_eq!(locks.keys().cloned().collect::<BTreeSet<_>>(), table);
    let table = edges(SLOT.iter().map(|edge| (format!("{:?}", edge.from), format!("{:?}", edge.to))).collect());
    assert_eq!(slots.keys().cloned().collect::<BTreeSet<_>>(), table);
    assert!(handed_over > 50, "K09: a lock is handed over in one write: {handed_over}");
}
