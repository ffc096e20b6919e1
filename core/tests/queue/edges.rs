//! Every edge of the table of requests is reached by random worlds, and no other.

use std::collections::BTreeSet;

use leasehold_core::queue::RequestId;
use leasehold_core::rows::State;
use leasehold_core::store::Store;
use leasehold_core::table::{REQUEST, RequestStatus};

use super::model::{New, Settled, Step};
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
        let (session, id, lane) = (u128::from(self.roll(3)), u128::from(self.roll(12)), self.roll(3) as usize);
        match self.roll(24) {
            0..=2 => Step::Open(session),
            3 => Step::Silence(session, true),
            4 => Step::ForgetSession(session),
            5..=9 => {
                let creates = self.roll(4) == 0;
                Step::Submit(vec![New { id, lane, creates, priority: 0, delay: 0, most: 2, text: "a" }])
            }
            10..=14 => Step::Take(session, u128::from(self.roll(1_000)), lane, 100),
            15 => Step::Settle(lane, 0, Settled::Completed),
            16 | 17 => Step::Settle(lane, 0, Settled::Failed(Some(0))),
            18 => Step::Settle(lane, 0, Settled::GivenBack),
            19 | 20 => Step::Reclaim(lane, 0, true, Some(0)),
            21 => Step::Withdraw(id),
            22 => Step::Resubmit(id),
            _ => Step::ForgetRequest(id),
        }
    }
}

fn statuses(state: &State, id: &RequestId) -> RequestStatus {
    RequestStatus::of(state.requests.get(id))
}

#[test]
fn every_edge_of_the_table_is_reached_and_no_other() {
    let (mut dice, mut reached) = (Dice(19), BTreeSet::new());
    for _ in 0..200 {
        let mut world = World::default();
        let mut before = world.store.state().unwrap();
        for _ in 0..200 {
            world.step(dice.step());
            let after = world.store.state().unwrap();
            for id in before.requests.keys().chain(after.requests.keys()) {
                let (from, to) = (statuses(&before, id), statuses(&after, id));
                if from != to {
                    reached.insert(format!("{from:?} {to:?}"));
                }
            }
            before = after;
        }
    }
    let table: BTreeSet<_> = REQUEST.iter().map(|edge| format!("{:?} {:?}", edge.from, edge.to)).collect();
    assert_eq!(reached, table);
}
