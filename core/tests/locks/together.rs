//! Asks for several locks together: their refusals, and that they never wait in a circle.

use std::collections::BTreeMap;

use leasehold_core::lease::Fence;
use leasehold_core::lock::{Ask, AskState, LockPath, LockValue};
use leasehold_core::locking::acquire_all::{AcquireAll, AskFor, MAX_LOCKS_TOGETHER, acquire_all};
use leasehold_core::locking::open::{Open, open};
use leasehold_core::locking::release::{Release, ReleaseOutcome, release};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rejection::Reason;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use proptest::prelude::*;

use super::properties::config;
use super::world::{ask, lock, principal, session, terms};

const NOW: Timestamp = Timestamp::from_micros(1);

/// Returns the ask with this number for a lock.
fn ask_for(number: u128, at: usize) -> AskFor {
    AskFor { ask: ask(number), lock: lock(at), share: None, reaped: None }
}

/// K14, K21: no lock, too many locks, a lock or an id that is named twice.
#[test]
fn k14_a_list_that_is_no_set_of_locks_is_refused() {
    let refusal = |asks| AcquireAll::parse(session(0), &principal(), asks, &[], true).unwrap_err();
    let many = (0..=MAX_LOCKS_TOGETHER).map(|at| ask_for(at as u128, at)).collect();
    let refused = refusal(many);
    assert_eq!(
        (refused.reason(), refused.to_string().contains("17, at most 16 is allowed")),
        (Reason::LimitExceeded, true)
    );
    for asks in [vec![], vec![ask_for(0, 0), ask_for(1, 0)], vec![ask_for(0, 0), ask_for(0, 1)]] {
        assert_eq!(refusal(asks).reason(), Reason::InvalidUpdate);
    }
    let most = (0..MAX_LOCKS_TOGETHER).map(|at| ask_for(at as u128, at)).collect();
    assert!(AcquireAll::parse(session(0), &principal(), most, &[], true).is_ok());
}

/// Returns the locks that the asks of one command hold, if they hold all.
fn held(asks: &BTreeMap<leasehold_core::lock::AskId, Ask>, command: &AcquireAll) -> Option<Vec<(LockPath, Fence)>> {
    let held = command.acquires().iter().map(|acquire| match asks.get(&acquire.ask)?.state {
        AskState::Holding(fence) => Some((acquire.lock.clone(), fence)),
        AskState::Waiting(_) => None,
    });
    held.collect()
}

proptest! {
    #![proptest_config(config())]

    /// K14: callers that name any locks in any order, and release them once they hold all, are all served.
    #[test]
    fn k14_asks_together_never_wait_in_a_circle(
        named in proptest::collection::vec(Just((0..5_usize).collect::<Vec<_>>()).prop_shuffle(), 1..12),
        counts in proptest::collection::vec(1..=5_usize, 12),
        choices in proptest::collection::vec(any::<prop::sample::Index>(), 12),
    ) {
        let mut store = MemoryStore::default();
        open(&mut store, &Open { session: session(0), principal: principal(), terms: terms() }, NOW).unwrap().unwrap();
        let mut commands: Vec<_> = named.iter().zip(&counts).enumerate().map(|(number, (locks, count))| {
            let asks = locks[..*count].iter().map(|at| ask_for(number as u128 * 10 + *at as u128, *at));
            AcquireAll::parse(session(0), &principal(), asks.collect(), &[], true).unwrap()
        }).collect();
        for command in &commands {
            acquire_all(&mut store, command, NOW).unwrap().unwrap();
        }
        for choice in choices.iter().take(commands.len()) {
            let asks = store.state().unwrap().asks;
            let served: Vec<_> = (0..commands.len()).filter(|at| held(&asks, &commands[*at]).is_some()).collect();
            prop_assert!(!served.is_empty(), "nobody has all locks");
            let command = commands.remove(*choice.get(&served));
            for (lock, fence) in held(&asks, &command).unwrap() {
                let (outcome, value) = (ReleaseOutcome::Succeeded, LockValue::default());
                let command = Release { session: session(0), principal: principal(), lock, fence, outcome, value };
                prop_assert!(release(&mut store, &command, NOW).unwrap().unwrap());
            }
        }
        prop_assert!(store.state().unwrap().asks.is_empty());
    }
}
