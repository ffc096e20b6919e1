//! Bad commands: each has its own reason, and changes nothing.

use std::num::NonZeroU32;

use leasehold_core::lease::Fence;
use leasehold_core::lock::{LockState, LockValue, MAX_WAITERS_PER_LOCK};
use leasehold_core::locking::acquire::{Acquire, Acquired, acquire};
use leasehold_core::locking::end::{Cause, End};
use leasehold_core::locking::leave::Leave;
use leasehold_core::locking::open::{Open, open};
use leasehold_core::locking::release::{Release, ReleaseOutcome};
use leasehold_core::locking::renew::Renew;
use leasehold_core::locking::{HeldSlot, LockCommand};
use leasehold_core::memory::MemoryStore;
use leasehold_core::session::{MAX_ASKS_PER_SESSION, Principal, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;

use super::world::{ask, lock, principal, session, terms};

const NOW: Timestamp = Timestamp::MIN;

fn stranger() -> Principal {
    Principal::parse("stranger").unwrap()
}

fn opened(sessions: u128) -> MemoryStore {
    let mut store = MemoryStore::default();
    for number in 0..sessions {
        let command = Open { session: session(number), principal: principal(), terms: terms() };
        assert_eq!(open(&mut store, &command, NOW).unwrap(), Ok(true));
    }
    store
}

fn acquire_command(of: u128, number: u128, at: usize) -> Acquire {
    Acquire {
        session: session(of),
        principal: principal(),
        ask: ask(number),
        lock: lock(at),
        share: None,
        held: Vec::new(),
        wait: true,
        reaped: None,
    }
}

/// Runs a command that must be refused, and returns the text of the refusal.
fn refusal(store: &mut MemoryStore, command: &LockCommand) -> String {
    let before = store.state().unwrap();
    let refusal = command.apply(store, NOW).unwrap().unwrap_err();
    assert_eq!(store.state().unwrap(), before, "a refusal changes nothing");
    format!("{} {refusal}", refusal.reason().code())
}

#[test]
fn a_session_of_another_service_is_refused() {
    let mut store = opened(1);
    let acquired = acquire(&mut store, &acquire_command(0, 0, 0), NOW).unwrap();
    assert_eq!(acquired, Ok(Acquired::Holding(HeldSlot { fence: Fence(1), slot: 0 })));
    let (session, principal) = (session(0), stranger());
    let release = Release {
        session,
        principal: stranger(),
        lock: lock(0),
        fence: Fence(1),
        outcome: ReleaseOutcome::Failed,
        value: LockValue::default(),
    };
    for command in [
        LockCommand::Open(Open { session, principal: stranger(), terms: terms() }),
        LockCommand::Renew(Renew { session, principal: stranger() }),
        LockCommand::End(End { session, cause: Cause::Close(stranger()) }),
        LockCommand::Acquire(Acquire { principal: stranger(), ..acquire_command(0, 1, 1) }),
        LockCommand::Leave(Leave { session, principal, ask: ask(0) }),
        LockCommand::Release(release),
    ] {
        assert!(refusal(&mut store, &command).starts_with("SESSION_NOT_OWNED "), "{command:?}");
    }
}

#[test]
fn a_session_is_not_opened_again_with_other_terms() {
    let mut store = opened(1);
    let terms = Terms::parse(9_000_000, 500_000).unwrap();
    let command = LockCommand::Open(Open { session: session(0), principal: principal(), terms });
    assert!(refusal(&mut store, &command).starts_with("SESSION_REUSED "));
}

/// K17: a holder whose lock is reaped is cleaned up after, though a later ask comes from a server that
/// does not reap the namespace.
#[test]
fn k17_a_held_lock_stays_reaped() {
    let mut store = opened(2);
    let reaped = NonZeroU32::new(3);
    acquire(&mut store, &Acquire { reaped, ..acquire_command(0, 0, 0) }, NOW).unwrap().unwrap();
    acquire(&mut store, &acquire_command(1, 1, 0), NOW).unwrap().unwrap();
    let end = LockCommand::End(End { session: session(0), cause: Cause::Close(principal()) });
    end.apply(&mut store, NOW).unwrap().unwrap();
    let row = store.state().unwrap().locks[&lock(0)].clone();
    assert_eq!((row.state, row.reaped, row.waiting), (LockState::Orphaned, reaped, 1));
}

/// K21: an ask above the limit is refused, and the refusal names the limit and the number.
#[test]
fn k21_the_asks_of_a_session_are_limited() {
    let mut store = opened(1);
    for number in 0..u128::from(MAX_ASKS_PER_SESSION) {
        acquire(&mut store, &acquire_command(0, number, number as usize), NOW).unwrap().unwrap();
    }
    let command = LockCommand::Acquire(acquire_command(0, 5_000, 5_000));
    assert!(refusal(&mut store, &command).contains("`asks_per_session` is 1001, at most 1000 is allowed"));
    let end = LockCommand::End(End { session: session(0), cause: Cause::Close(principal()) });
    end.apply(&mut store, NOW).unwrap().unwrap();
    assert!(store.state().unwrap().asks.is_empty(), "one write settles all of them");
}

/// K21: a waiting ask above the limit is refused, and the refusal names the limit and the number.
#[test]
fn k21_the_waiters_of_a_lock_are_limited() {
    let waiters = u128::from(MAX_WAITERS_PER_LOCK);
    let mut store = opened(waiters / 1_000 + 2);
    for number in 0..=waiters {
        acquire(&mut store, &acquire_command(number / 1_000, number, 0), NOW).unwrap().unwrap();
    }
    let command = LockCommand::Acquire(acquire_command(waiters / 1_000 + 1, waiters + 1, 0));
    assert!(refusal(&mut store, &command).contains("`waiters_per_lock` is 10001, at most 10000 is allowed"));
}

/// K24: no refusal and no printed command has a key.
#[test]
fn k24_a_command_prints_no_key() {
    let mut store = opened(0);
    let command = LockCommand::Acquire(acquire_command(0, 0, 0));
    let text = format!("{} {command:?}", refusal(&mut store, &command));
    assert!(!text.contains("k0") && text.contains("test"), "{text}");
}
