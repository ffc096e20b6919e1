//! Circles of asks that wait for each other. The search is compared with worlds that are played to their
//! end.

use std::collections::BTreeMap;

use leasehold_core::circle::{CircleRead, CircleSearch};
use leasehold_core::division::ShareMode;
use leasehold_core::lock::{Ask, AskId, AskState, LockValue, MAX_HELD_ASKS};
use leasehold_core::locking::acquire::{Acquire, acquire};
use leasehold_core::locking::acquire_all::{AcquireAll, AskFor, acquire_all};
use leasehold_core::locking::leave::{Leave, leave};
use leasehold_core::locking::open::{Open, open};
use leasehold_core::locking::release::{Release, ReleaseOutcome, release};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rejection::Reason;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use proptest::prelude::*;

use super::properties::config;
use super::world::{ask, lock, principal, session, share, terms};

/// Callers, each of which is one thread of a session: it waits for one call at a time.
#[derive(Clone)]
struct Callers {
    store: MemoryStore,
    // The asks of each caller, in the order in which it asked.
    asks: BTreeMap<u128, Vec<AskId>>,
    next: u128,
}

impl Callers {
    fn new() -> Self {
        let mut store = MemoryStore::default();
        for number in 0..2 {
            let command = Open { session: session(number), principal: principal(), terms: terms() };
            open(&mut store, &command, Timestamp::MIN).unwrap().unwrap();
        }
        Self { store, asks: BTreeMap::new(), next: 0 }
    }

    fn rows(&self) -> BTreeMap<AskId, Ask> {
        self.store.state().unwrap().asks
    }

    fn own(&self, caller: u128) -> &[AskId] {
        self.asks.get(&caller).map_or(&[], Vec::as_slice)
    }

    fn waits(&self, caller: u128) -> bool {
        let rows = self.rows();
        self.own(caller).iter().any(|id| matches!(rows[id].state, AskState::Waiting(_)))
    }

    /// Lets a caller ask for one lock or for several together, unless it waits.
    fn ask(&mut self, caller: u128, locks: &[(usize, Option<ShareMode>)]) {
        if self.waits(caller) || locks.is_empty() {
            return;
        }
        let held = self.own(caller).to_vec();
        let now = Timestamp::from_micros(u64::try_from(self.next).unwrap() + 1);
        let (session, principal) = (session(caller % 2), principal());
        let ids: Vec<_> = (0..).map(|at| ask(self.next + at)).take(locks.len()).collect();
        self.next += locks.len() as u128;
        match (locks, ids.as_slice()) {
            ([(at, share)], [id]) => {
                let (lock, share) = (lock(*at), *share);
                let command = Acquire { session, principal, ask: *id, lock, share, held, wait: true, reaped: None };
                acquire(&mut self.store, &command, now).unwrap().unwrap();
            }
            _ => {
                let asks = locks.iter().zip(&ids).map(|((at, share), id)| AskFor {
                    ask: *id,
                    lock: lock(*at),
                    share: *share,
                    reaped: None,
                });
                let command = AcquireAll::parse(session, &principal, asks.collect(), &held, true).unwrap();
                acquire_all(&mut self.store, &command, now).unwrap().unwrap();
            }
        }
        self.asks.entry(caller).or_default().extend(ids);
    }

    /// Releases all that a caller holds.
    fn release_all(&mut self, caller: u128) {
        for id in self.asks.remove(&caller).unwrap_or_default() {
            let Ask { lock, state: AskState::Holding(fence), .. } = self.rows()[&id].clone() else {
                panic!("it waits")
            };
            let (session, outcome, value) = (session(caller % 2), ReleaseOutcome::Succeeded, LockValue::default());
            let command = Release { session, principal: principal(), lock, fence, outcome, value };
            assert!(release(&mut self.store, &command, Timestamp::MAX).unwrap().unwrap());
        }
    }

    /// Lets a caller leave with all asks of the call that waits.
    fn give_up(&mut self, caller: u128) {
        let rows = self.rows();
        let own = self.own(caller).to_vec();
        let waiting = own.iter().position(|id| matches!(rows[id].state, AskState::Waiting(_))).unwrap();
        // The asks of one call name each other, and nothing that was asked for before names them.
        let is_of_call = |id: &AskId| *id == own[waiting] || rows[id].held.contains(&own[waiting]);
        for id in own.iter().filter(|id| is_of_call(id)) {
            let command = Leave { session: session(caller % 2), principal: principal(), ask: *id };
            leave(&mut self.store, &command, Timestamp::MAX).unwrap().unwrap();
        }
        self.asks.insert(caller, own.iter().copied().filter(|id| !is_of_call(id)).collect());
    }

    /// Lets callers that do not wait release everything until no such caller is left, and returns those
    /// that wait for ever.
    fn stuck(&self) -> Vec<u128> {
        let mut played = self.clone();
        loop {
            let callers: Vec<_> = played.asks.keys().copied().collect();
            match callers.iter().find(|caller| !played.waits(**caller)) {
                Some(caller) => played.release_all(*caller),
                None => return callers,
            }
        }
    }

    /// Searches for a circle in which a caller waits. Returns the asks of the circle, and the last of them.
    fn circle(&self, caller: u128) -> (Vec<AskId>, Option<AskId>) {
        let rows = self.rows();
        let waiting = self.own(caller).iter().filter(|id| matches!(rows[id].state, AskState::Waiting(_)));
        for id in waiting {
            let mut search = CircleSearch::new(*id, rows[id].clone());
            while let Some(read) = search.next_read() {
                let found = read_rows(&rows, read);
                search.answer(found);
            }
            let circle = search.circle();
            if !circle.is_empty() {
                assert!(circle.contains(id));
                let last = search.last_of(&circle);
                return (circle, last);
            }
        }
        (Vec::new(), None)
    }
}

fn read_rows(rows: &BTreeMap<AskId, Ask>, read: &CircleRead) -> Vec<(AskId, Ask)> {
    let is_wanted = |ask: &Ask| match read {
        CircleRead::OfSession(session) => ask.session == *session,
        CircleRead::OfLock(lock) => ask.lock.is_of(lock),
    };
    rows.iter().filter(|(_, ask)| is_wanted(ask)).map(|(id, ask)| (*id, ask.clone())).collect()
}

fn alone(at: usize) -> [(usize, Option<ShareMode>); 1] {
    [(at, None)]
}

#[test]
fn k15_two_callers_that_wait_for_each_other_are_a_circle() {
    let mut callers = Callers::new();
    callers.ask(0, &alone(0));
    callers.ask(1, &alone(1));
    callers.ask(0, &alone(1));
    assert_eq!(callers.circle(0), (vec![], None));
    // Somebody who only waits behind them is in no circle.
    callers.ask(2, &alone(0));
    callers.ask(1, &alone(0));
    callers.ask(3, &alone(1));
    assert_eq!(callers.circle(0), (vec![ask(2), ask(4)], Some(ask(4))));
    assert_eq!(callers.circle(1), callers.circle(0));
    assert_eq!((callers.circle(2), callers.circle(3)), ((vec![], None), (vec![], None)));
    assert_eq!(callers.stuck(), [0, 1, 2, 3]);
}

#[test]
fn k15_a_caller_that_asks_for_its_own_lock_is_a_circle() {
    let mut callers = Callers::new();
    callers.ask(0, &alone(0));
    callers.ask(0, &alone(0));
    assert_eq!(callers.circle(0), (vec![ask(1)], Some(ask(1))));
    // Another thread of the same session is not.
    let mut callers = Callers::new();
    callers.ask(0, &alone(0));
    callers.ask(2, &alone(0));
    assert_eq!(callers.circle(2), (vec![], None));
}

#[test]
fn k15_a_permit_that_somebody_else_gives_back_opens_the_circle() {
    let two = Some(ShareMode::permits(2).unwrap());
    let mut callers = Callers::new();
    callers.ask(0, &[(0, two)]);
    callers.ask(1, &[(0, two)]);
    callers.ask(2, &alone(1));
    callers.ask(0, &alone(1));
    callers.ask(2, &[(0, two)]);
    // The caller 1 does not wait, and its permit will be free.
    assert_eq!((callers.circle(2), callers.stuck()), ((vec![], None), vec![]));
    callers.ask(1, &alone(1));
    assert!(callers.circle(2).0.contains(&ask(4)));
}

#[test]
fn k21_an_ask_names_a_bounded_number_of_held_asks() {
    let mut callers = Callers::new();
    let held = vec![ask(9); MAX_HELD_ASKS + 1];
    let (session, principal) = (session(0), principal());
    let command =
        Acquire { session, principal, ask: ask(0), lock: lock(0), share: None, held, wait: true, reaped: None };
    let refused = acquire(&mut callers.store, &command, Timestamp::MIN).unwrap().unwrap_err();
    assert_eq!(refused.reason(), Reason::LimitExceeded);
}

/// A caller and the locks that it asks for, each with the way to share it.
type Call = (u128, Vec<(usize, Option<ShareMode>)>);

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let shares = prop_oneof![3 => Just(0_usize), 1 => Just(1), 2 => Just(3)].prop_map(share);
    let wanted = proptest::sample::subsequence(vec![0_usize, 1, 2, 3], 1..=2);
    let wanted = (wanted, proptest::collection::vec(shares, 2))
        .prop_map(|(locks, shares)| locks.into_iter().zip(shares).collect::<Vec<_>>());
    proptest::collection::vec((0..6_u128, wanted), 1..24)
}

proptest! {
    #![proptest_config(config())]

    /// K15: who is told of a circle would wait for ever. If anybody would, somebody is told; once those who
    /// are told give up, nobody waits for ever.
    #[test]
    fn k15_a_circle_is_found_if_and_only_if_callers_wait_for_ever(calls in calls()) {
        let mut callers = Callers::new();
        for (caller, locks) in calls {
            callers.ask(caller, &locks);
            loop {
                let stuck = callers.stuck();
                let all: Vec<_> = callers.asks.keys().copied().collect();
                let told: Vec<_> = all.into_iter().filter(|caller| !callers.circle(*caller).0.is_empty()).collect();
                prop_assert!(told.iter().all(|caller| stuck.contains(caller)), "{told:?} {stuck:?}");
                prop_assert_eq!(told.is_empty(), stuck.is_empty(), "{:?} {:?}", told, stuck);
                let own = |caller: &u128| callers.circle(*caller).1.filter(|last| callers.own(*caller).contains(last));
                let Some(caller) = told.iter().find(|caller| own(caller).is_some()) else {
                    prop_assert!(told.is_empty(), "nobody asked last: {told:?}");
                    break;
                };
                callers.give_up(*caller);
            }
        }
    }
}
