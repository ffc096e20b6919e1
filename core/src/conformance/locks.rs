//! The checks of sessions and locks.

use std::num::NonZeroU32;
use std::ops::Bound;

use uuid::Uuid;

use super::{Dice, Harness, Pair, random_command};
use crate::command::{Command, Reply};
use crate::division::{MAX_SLOTS, ShareMode};
use crate::lease::{Fence, LeaseId};
use crate::lock::{
    AskId, Lock, LockPath, LockState, LockValue, MAX_CLEANUPS, MAX_KEY_BYTES, MAX_NAMESPACE_BYTES, MAX_VALUE_BYTES,
};
use crate::locking::acquire::{Acquire, Acquired};
use crate::locking::acquire_all::{AcquireAll, AskFor};
use crate::locking::elapse::Elapse;
use crate::locking::end::{Cause, End, Silence};
use crate::locking::force::Force;
use crate::locking::forget::{ForgetLock, ForgetSession};
use crate::locking::leave::Leave;
use crate::locking::open::Open;
use crate::locking::reap::Reap;
use crate::locking::release::{Release, ReleaseOutcome};
use crate::locking::renew::Renew;
use crate::locking::resolve::{Resolution, Resolve};
use crate::locking::{LockCommand, LockReply};
use crate::rejection::Rejection;
use crate::rows::{LockOrder, OrderedRead, SessionOrder, State};
use crate::session::{MAX_ASKS_PER_SESSION, MAX_PRINCIPAL_BYTES, Principal, SessionId, Terms};
use crate::store::Store;
use crate::time::Timestamp;

/// The namespaces and keys of the random locks. Some begin alike, and one has the largest character.
const PATHS: [(&str, &str); 5] = [("a", "k"), ("a", "k1"), ("a.b", "k"), ("ab", "\u{10ffff}"), ("é", " ")];
const SECOND: u64 = 1_000_000;

pub(super) fn principal(name: &str) -> Principal {
    Principal::parse(name).expect("a valid name")
}

fn path(namespace: &str, key: &str) -> LockPath {
    LockPath::parse_joined(namespace, key).expect("a valid path")
}

/// Returns an id that is scattered like a random one, so that the order of ids is not the order of
/// numbers.
pub(super) fn scattered(number: u64) -> Uuid {
    Uuid::from_u128(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

pub(super) fn session(number: u64) -> SessionId {
    SessionId(scattered(number))
}

fn ask(number: u64) -> AskId {
    AskId(scattered(1_000 + number))
}

pub(super) fn open(number: u64) -> LockCommand {
    let terms = Terms::parse(SECOND, SECOND).expect("valid terms");
    LockCommand::Open(Open { session: session(number), principal: principal("svc"), terms })
}

fn acquire(session_number: u64, ask_number: u64, lock: &LockPath, wait: bool) -> LockCommand {
    let (session, ask, lock) = (session(session_number), ask(ask_number), lock.clone());
    LockCommand::Acquire(Acquire {
        session,
        principal: principal("svc"),
        ask,
        lock,
        share: None,
        held: Vec::new(),
        wait,
        reaped: None,
    })
}

fn release(session: SessionId, lock: &LockPath, fence: Fence) -> LockCommand {
    let (lock, outcome, value) = (lock.clone(), ReleaseOutcome::Succeeded, LockValue::default());
    LockCommand::Release(Release { session, principal: principal("svc"), lock, fence, outcome, value })
}

pub(super) fn end(number: u64, cause: Cause) -> LockCommand {
    LockCommand::End(End { session: session(number), cause })
}

impl<S: Store> Pair<S> {
    fn lock_commands(&mut self, commands: Vec<LockCommand>) -> Vec<Result<Reply, Rejection>> {
        self.run(&commands.into_iter().map(Command::Lock).collect::<Vec<_>>())
    }

    /// Runs one command that must not be refused.
    fn lock_command(&mut self, command: LockCommand) -> LockReply {
        match self.lock_commands(vec![command]).first() {
            Some(Ok(Reply::Lock(reply))) => reply.clone(),
            other => unreachable!("the command is refused: {other:?}"),
        }
    }

    fn lock_row(&self, path: &LockPath) -> Lock {
        self.store.lock(path).expect("a lock can be read").expect("the lock has a row")
    }

    fn holder(&self, path: &LockPath) -> (SessionId, AskId, Fence) {
        let lock = self.lock_row(path);
        let grant = lock.grant().expect("the lock is held");
        (grant.session, grant.ask, grant.fence)
    }

    fn compare_sessions(&self, read: &OrderedRead<crate::session::Session>) {
        let rows = self.store.sessions(read).expect("sessions can be read");
        assert_eq!(rows, self.reference.sessions(read).expect("memory"), "{read:?}");
    }

    fn compare_locks(&self, read: &OrderedRead<Lock>) {
        let rows = self.store.locks(read).expect("locks can be read");
        assert_eq!(rows, self.reference.locks(read).expect("memory"), "{read:?}");
    }
}

/// Returns one of six sessions. They change with the number of asks, because an ended session stays
/// ended.
pub(super) fn some_session(asks: u64, dice: &mut Dice) -> SessionId {
    session(asks / 30 + dice.roll(6))
}

/// Returns a fence of the lock that a command may name: that of the holder, of a withheld grant, of
/// the last grant that ended, or one that no grant has.
fn random_fence(lock: Option<&Lock>, dice: &mut Dice) -> Fence {
    let last = lock.and_then(|lock| lock.last.as_ref()).map(|last| last.grant.fence);
    let current = lock.and_then(|lock| match lock.state {
        LockState::Free | LockState::Orphaned | LockState::Divided(_) => None,
        LockState::Held(grant) => Some(grant.fence),
        LockState::Withheld(withholding) => Some(withholding.fence),
    });
    let fence = if dice.one_in(5) { last } else { current };
    fence.filter(|_| !dice.one_in(10)).unwrap_or(Fence(7))
}

/// Returns the session of the grant that `fence` may belong to, or any session.
fn random_holder(lock: Option<&Lock>, asks: u64, dice: &mut Dice) -> SessionId {
    let grant = lock.and_then(|lock| lock.grant().copied().or(lock.last.as_ref().map(|last| last.grant)));
    grant.filter(|_| !dice.one_in(8)).map_or_else(|| some_session(asks, dice), |grant| grant.session)
}

pub(super) fn random_end(state: &State, asks: u64, dice: &mut Dice) -> LockCommand {
    let id = some_session(asks, dice);
    let renewals_seen = state.sessions.get(&id).map_or(0, |session| session.renewals);
    let cause = match dice.roll(4) {
        0 if dice.one_in(2) => Cause::Evict,
        0 | 1 => Cause::Close(principal(if dice.one_in(4) { "other" } else { "svc" })),
        _ => Cause::Silence(Silence {
            renewals_seen: renewals_seen + u64::from(dice.one_in(4)),
            quiet_micros: SECOND * (1 + dice.roll(3)),
        }),
    };
    LockCommand::End(End { session: id, cause })
}

fn random_release(lock: &LockPath, row: Option<&Lock>, asks: u64, dice: &mut Dice) -> LockCommand {
    LockCommand::Release(Release {
        session: random_holder(row, asks, dice),
        principal: principal(if dice.one_in(10) { "other" } else { "svc" }),
        lock: lock.clone(),
        fence: random_fence(row, dice),
        outcome: if dice.one_in(3) { ReleaseOutcome::Failed } else { ReleaseOutcome::Succeeded },
        value: LockValue::parse(&dice.roll(9).to_be_bytes()).expect("a short value"),
    })
}

fn random_acquire(lock: &LockPath, asks: &mut u64, dice: &mut Dice) -> LockCommand {
    // A repeated ask is an earlier one of this or of another session.
    let number = if dice.one_in(6) { asks.saturating_sub(dice.roll(8)) } else { *asks + 1 };
    *asks = (*asks).max(number);
    let (session, principal) = (some_session(*asks, dice), principal("svc"));
    let wait = !dice.one_in(4);
    let (lock, share, reaped) = (lock.clone(), random_share(lock, dice), reaped(lock));
    let names = if dice.one_in(4) { dice.roll(3) } else { 0 };
    let held = (0..names).map(|back| ask(asks.saturating_sub(back))).collect();
    LockCommand::Acquire(Acquire { session, principal, ask: ask(number), lock, share, held, wait, reaped })
}

/// Two of the random locks are shared by most asks. One of them is reaped, too.
fn random_share(lock: &LockPath, dice: &mut Dice) -> Option<ShareMode> {
    let is_shared = matches!((lock.namespace(), lock.key()), ("a.b", _) | ("é", _));
    match dice.roll(8) {
        _ if !is_shared => None,
        0 => None,
        1 | 2 => Some(ShareMode::Shared),
        _ => ShareMode::permits(3).ok(),
    }
}

/// Returns a lock or one of its slots, with its row.
fn random_place(state: &State, lock: LockPath, dice: &mut Dice) -> (LockPath, Option<Lock>) {
    let slots: Vec<_> = state.locks.iter().filter(|(path, _)| path.slot() > 0 && path.is_of(&lock)).collect();
    let slot = usize::try_from(dice.roll(slots.len().max(1) as u64)).ok().and_then(|at| slots.get(at));
    match slot.filter(|_| !dice.one_in(10)) {
        Some((path, row)) => ((*path).clone(), Some((*row).clone())),
        None => (lock.clone(), state.locks.get(&lock).cloned()),
    }
}

/// Two of the random locks are reaped, one of them with a single cleanup.
fn reaped(lock: &LockPath) -> Option<NonZeroU32> {
    NonZeroU32::new(match (lock.namespace(), lock.key()) {
        ("a", "k1") => 1,
        ("é", _) => 3,
        _ => 0,
    })
}

/// Returns a fence that a cleanup may name: that of the obituary, or one that no grant has.
fn random_obituary(lock: Option<&Lock>, dice: &mut Dice) -> Fence {
    let obituary = lock.and_then(|lock| lock.obituary).filter(|_| !dice.one_in(10));
    obituary.map_or(Fence(7), |obituary| obituary.fence)
}

fn random_cleanup(lock: LockPath, row: Option<&Lock>, asks: &mut u64, dice: &mut Dice) -> LockCommand {
    let fence = random_obituary(row, dice);
    if dice.one_in(5) {
        let resolution = if dice.one_in(2) { Resolution::Cleaned } else { Resolution::Retry };
        return LockCommand::Resolve(Resolve { lock, fence, resolution });
    }
    *asks += u64::from(!dice.one_in(6));
    let (session, principal) = (some_session(*asks, dice), principal("svc"));
    LockCommand::Reap(Reap { session, principal, ask: ask(*asks), lock, fence })
}

fn random_lock_command<S: Store>(pair: &Pair<S>, asks: &mut u64, dice: &mut Dice) -> LockCommand {
    let state = pair.reference.state().expect("memory");
    let at = usize::try_from(dice.roll(PATHS.len() as u64)).unwrap_or(0);
    let (namespace, key) = PATHS.get(at).copied().unwrap_or(("a", "k"));
    let lock = path(namespace, key);
    let (at, row) = random_place(&state, lock.clone(), dice);
    let row = row.as_ref();
    let before = Timestamp::from_micros(pair.now - dice.roll(3_000));
    match dice.roll(28) {
        0..5 => LockCommand::Open(Open {
            session: some_session(*asks, dice),
            principal: principal(if dice.one_in(8) { "other" } else { "svc" }),
            terms: Terms::parse(SECOND * (1 + u64::from(dice.one_in(8))), SECOND).expect("valid terms"),
        }),
        5 => LockCommand::Renew(Renew { session: some_session(*asks, dice), principal: principal("svc") }),
        6 => random_end(&state, *asks, dice),
        7 if dice.one_in(2) => {
            LockCommand::Force(Force { lock: at, fence: random_fence(row, dice), at_once: dice.one_in(3) })
        }
        7..10 => LockCommand::Elapse(Elapse {
            lock: at,
            fence: random_fence(row, dice),
            quiet_micros: SECOND * (2 + dice.roll(3)),
        }),
        10 => LockCommand::ForgetLock(ForgetLock { lock, free_before: before }),
        11 => LockCommand::ForgetSession(ForgetSession { session: some_session(*asks, dice), ended_before: before }),
        12 | 13 => LockCommand::Leave(Leave {
            session: some_session(*asks, dice),
            principal: principal("svc"),
            ask: ask(asks.saturating_sub(dice.roll(6))),
        }),
        14..18 => random_release(&at, row, *asks, dice),
        18..22 => random_cleanup(at, row, asks, dice),
        _ => random_acquire(&lock, asks, dice),
    }
}

fn bound<T>(dice: &mut Dice, position: T) -> Bound<T> {
    match dice.roll(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(position),
        _ => Bound::Excluded(position),
    }
}

fn random_session_order(now: u64, dice: &mut Dice) -> SessionOrder {
    let id = session(dice.roll(12));
    if dice.one_in(2) {
        return SessionOrder::Live(id);
    }
    SessionOrder::Ended(Timestamp::from_micros(now - dice.roll(3_000)), id)
}

fn random_lock_order(now: u64, dice: &mut Dice) -> LockOrder {
    let at = usize::try_from(dice.roll(PATHS.len() as u64)).unwrap_or(0);
    let (namespace, key) = PATHS.get(at).copied().unwrap_or(("a", "k"));
    match dice.roll(5) {
        0 => LockOrder::Held(path(namespace, key)),
        1 => LockOrder::Withheld(path(namespace, key)),
        2 => LockOrder::Orphaned(path(namespace, key)),
        3 => LockOrder::SetAside(path(namespace, key)),
        _ => LockOrder::Free(Timestamp::from_micros(now - dice.roll(3_000)), path(namespace, key)),
    }
}

/// Returns the bounds of a random range, the smaller position first.
fn random_range<T: Ord + Clone>(dice: &mut Dice, a: T, b: T) -> (Bound<T>, Bound<T>) {
    let (from, to) =
        if a == b { return (Bound::Included(a), Bound::Included(b)) } else { (a.clone().min(b.clone()), a.max(b)) };
    (bound(dice, from), bound(dice, to))
}

fn compare_random_lists<S: Store>(pair: &Pair<S>, dice: &mut Dice) {
    let limit = usize::try_from(1 + dice.roll(6)).unwrap_or(1);
    let positions = [(); 2].map(|()| random_session_order(pair.now, dice));
    let [a, b] = positions;
    let (from, to) = random_range(dice, a, b);
    pair.compare_sessions(&OrderedRead { from, to, limit });
    let [a, b] = [(); 2].map(|()| random_lock_order(pair.now, dice));
    let (from, to) = random_range(dice, a, b);
    pair.compare_locks(&OrderedRead { from, to, limit });
}

/// K01 to K10, K19, K20: the store agrees with the reference over many random groups of commands of
/// sessions and locks. Groups of updates lie between them, which draw from the same fences. The
/// store is reopened in between (K07).
pub(super) fn random_groups_agree_with_the_reference(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let (mut dice, mut asks, mut leases) = (Dice(29), 0, Vec::<LeaseId>::new());
    for round in 0..1_000 {
        pair.now += dice.roll(2_000);
        let size = 1 + dice.roll(5);
        let commands: Vec<_> = if dice.one_in(8) {
            (0..size).filter_map(|_| random_command(&mut pair, &mut dice, &leases)).collect()
        } else {
            (0..size).map(|_| Command::Lock(random_lock_command(&pair, &mut asks, &mut dice))).collect()
        };
        for reply in pair.run(&commands).into_iter().flatten() {
            if let Reply::Begun(begun) = reply {
                leases.push(begun.lease);
            }
        }
        if round % 10 == 0 {
            pair.compare();
        }
        if round % 100 == 50 {
            pair.store = harness.reopen(pair.store);
            pair.compare();
        }
        compare_random_lists(&pair, &mut dice);
    }
    let fence = pair.reference.state().expect("memory").fence;
    assert!(fence > Fence(150), "the random commands grant too few locks to prove anything: {fence:?}");
}

/// K08, K09: each release grants the lock to the ask that has waited longest, in the same write. An
/// ask that leaves the wait is stepped over (K10).
pub(super) fn asks_are_served_in_the_order_of_their_arrival(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let lock = path("a", "k");
    (0..3).for_each(|number| _ = pair.lock_command(open(number)));
    for number in 0..40 {
        pair.lock_command(acquire(number % 3, number, &lock, true));
    }
    for number in [7, 8, 20] {
        let (session, principal) = (session(number % 3), principal("svc"));
        pair.lock_command(LockCommand::Leave(Leave { session, principal, ask: ask(number) }));
    }
    for number in (0..40).filter(|number| ![7, 8, 20].contains(number)) {
        if number % 10 == 5 {
            pair.store = harness.reopen(pair.store);
        }
        let (holder, held_by, fence) = pair.holder(&lock);
        assert_eq!((holder, held_by), (session(number % 3), ask(number)));
        assert_eq!(pair.lock_command(release(holder, &lock, fence)), LockReply::Done(true));
        // A repeated release changes nothing (K19).
        let repeated = pair.lock_commands(vec![release(holder, &lock, fence)]);
        let is_last = pair.lock_row(&lock).last.is_some_and(|last| last.grant.fence == fence);
        assert!(is_last && repeated == [Ok(Reply::Lock(LockReply::Done(false)))]);
    }
    assert_eq!(pair.lock_row(&lock).state, LockState::Free);
    pair.compare();
}

/// K07, K02: after a restart, all that was held or withheld is held or withheld, the wait is the
/// same, and nothing is granted twice. An ended session stays ended.
pub(super) fn all_that_is_held_is_held_after_a_restart(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let (held, forced) = (path("a", "held"), path("a", "forced"));
    (0..3).for_each(|number| _ = pair.lock_command(open(number)));
    let [a, b] = [(0, 1, &held), (1, 2, &forced)].map(|(session, ask, lock)| {
        let Some(Ok(Reply::Lock(LockReply::Acquired(Acquired::Holding(hold))))) =
            pair.lock_commands(vec![acquire(session, ask, lock, false)]).first().cloned()
        else {
            unreachable!("the lock is free")
        };
        hold
    });
    let again_a = Acquired::Holding(a);
    let [a, b] = [a.fence, b.fence];
    assert!(a < b);
    pair.lock_command(LockCommand::Force(Force { lock: forced.clone(), fence: b, at_once: false }));
    let waits = [acquire(1, 3, &held, true), acquire(2, 4, &held, true), acquire(2, 5, &forced, true)];
    pair.lock_commands(waits.to_vec());
    pair.lock_command(end(1, Cause::Evict));
    pair.store = harness.reopen(pair.store);
    pair.compare();

    assert_eq!(pair.holder(&held), (session(0), ask(1), a));
    let again = pair.lock_commands(vec![acquire(0, 1, &held, false), acquire(2, 6, &held, false), open(1)]);
    assert_eq!(again.first(), Some(&Ok(Reply::Lock(LockReply::Acquired(again_a)))));
    assert!(again.iter().skip(1).all(Result::is_err), "{again:?}");
    let elapsed = LockCommand::Elapse(Elapse { lock: forced.clone(), fence: b, quiet_micros: 3 * SECOND });
    pair.lock_command(elapsed);
    let (holder, held_by, fence) = pair.holder(&forced);
    assert!((holder, held_by) == (session(2), ask(5)) && fence > b);
    pair.lock_command(release(session(0), &held, a));
    let (holder, held_by, next) = pair.holder(&held);
    assert!((holder, held_by) == (session(2), ask(4)) && next > fence);
    pair.compare();
}

/// K06, K21: the end of a session with the largest number of asks ends all of them in one write,
/// and hands each held lock to the next ask.
pub(super) fn the_end_of_a_session_ends_all_its_asks(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let locks = u64::from(MAX_ASKS_PER_SESSION) / 2;
    let lock = |number: u64| path("many", &format!("{number}"));
    pair.lock_commands(vec![open(1), open(2)]);
    pair.lock_commands((0..locks).map(|number| acquire(1, number, &lock(number), true)).collect());
    pair.lock_commands((0..locks).map(|number| acquire(2, locks + number, &lock(number), true)).collect());
    // The last asks of the first session wait behind the second session's.
    pair.lock_commands((0..locks).map(|number| acquire(1, 2 * locks + number, &lock(number), true)).collect());
    let beyond = pair.lock_commands(vec![acquire(1, 3 * locks, &path("one", "more"), true)]);
    assert!(beyond.iter().all(Result::is_err), "{beyond:?}");
    let silence = Silence { renewals_seen: 0, quiet_micros: 2 * SECOND };
    pair.lock_command(end(1, Cause::Silence(silence)));
    pair.store = harness.reopen(pair.store);
    pair.compare();
    for number in [0, 1, locks - 1] {
        assert_eq!(pair.holder(&lock(number)).1, ask(locks + number));
        assert_eq!(pair.lock_row(&lock(number)).waiting, 0);
    }
}

/// K21: the longest path, principal and value, and the largest numbers, are stored and returned
/// whole.
pub(super) fn large_rows_are_kept_whole(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let lock = path(&"n".repeat(MAX_NAMESPACE_BYTES), &"é".repeat(MAX_KEY_BYTES / 2));
    let principal = principal(&"p".repeat(MAX_PRINCIPAL_BYTES));
    let terms = Terms::parse(crate::session::MAX_DURATION_MICROS, crate::session::MAX_GRACE_MICROS);
    let (session, terms) = (SessionId(Uuid::max()), terms.expect("the largest terms"));
    pair.lock_command(LockCommand::Open(Open { session, principal: principal.clone(), terms }));
    let ask = AskId(Uuid::nil());
    pair.lock_command(LockCommand::Acquire(Acquire {
        session,
        principal: principal.clone(),
        ask,
        lock: lock.clone(),
        share: None,
        held: Vec::new(),
        wait: false,
        reaped: NonZeroU32::new(MAX_CLEANUPS),
    }));
    let (_, _, fence) = pair.holder(&lock);
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(MAX_VALUE_BYTES).collect();
    let value = LockValue::parse(&bytes).expect("the longest value");
    let outcome = ReleaseOutcome::Failed;
    pair.lock_command(LockCommand::Release(Release { session, principal, lock: lock.clone(), fence, outcome, value }));
    pair.store = harness.reopen(pair.store);
    pair.compare();
    assert_eq!(pair.lock_row(&lock).last.map(|last| last.value.as_bytes().to_vec()), Some(bytes));
}

/// K14: the asks for several locks join all queues in one write, or none if a lock is held and the asks do
/// not wait. Each lock passes on by itself.
pub(super) fn several_locks_are_asked_for_together(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let locks = ["a", "b", "c"].map(|key| path("together", key));
    (0..3).for_each(|number| _ = pair.lock_command(open(number)));
    let together = |number: u64, first: u64, wait| {
        let asks = (first..).zip(&locks).map(|(number, lock)| AskFor {
            ask: ask(number),
            lock: lock.clone(),
            share: None,
            reaped: None,
        });
        let all = AcquireAll::parse(session(number), &principal("svc"), asks.collect(), &[ask(0)], wait);
        LockCommand::AcquireAll(all.expect("distinct locks"))
    };
    pair.lock_command(acquire(0, 0, &locks[1], true));
    let refused = pair.lock_commands(vec![together(1, 10, false)]);
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(pair.store.lock(&locks[2]).expect("a lock can be read"), None);
    // Both groups join in one save, and get the same answers again.
    let commands = vec![together(1, 20, true), together(2, 30, true)];
    let placed = pair.lock_commands(commands.clone());
    let is_all = |reply: &_| matches!(reply, Ok(Reply::Lock(LockReply::AllAcquired(all))) if all.len() == 3);
    assert!(placed.iter().all(is_all), "{placed:?}");
    pair.store = harness.reopen(pair.store);
    pair.compare();
    assert_eq!(pair.lock_commands(commands), placed);
    let (session_id, _, fence) = pair.holder(&locks[1]);
    pair.lock_command(release(session_id, &locks[1], fence));
    for (number, lock) in (0..).zip(&locks) {
        assert_eq!((pair.holder(lock).1, pair.lock_row(lock).waiting), (ask(20 + number), 1));
    }
    pair.lock_command(end(1, Cause::Close(principal("svc"))));
    for (number, lock) in (0..).zip(&locks) {
        assert_eq!((pair.holder(lock).1, pair.lock_row(lock).waiting), (ask(30 + number), 0));
    }
    pair.compare();
}

/// K13: as many asks as there are slots share a lock, each in a slot of its own. The one behind them that
/// wants the lock alone keeps later ones back, and holds the lock once all slots are given back.
pub(super) fn slots_are_held_and_given_back(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let (lock, all) = (path("a", "k"), u64::from(MAX_SLOTS));
    (0..3).for_each(|number| _ = pair.lock_command(open(number)));
    let shared = |number: u64| match acquire(number % 3, number, &lock, true) {
        LockCommand::Acquire(acquire) => LockCommand::Acquire(Acquire { share: Some(ShareMode::Shared), ..acquire }),
        other => other,
    };
    pair.lock_command(acquire(0, all, &lock, true));
    pair.lock_commands((0..all).map(shared).collect());
    pair.lock_commands(vec![acquire(1, all + 1, &lock, true), shared(all + 2)]);
    let (session, _, fence) = pair.holder(&lock);
    // All that share the lock are served by one release.
    pair.lock_command(release(session, &lock, fence));
    pair.store = harness.reopen(pair.store);
    pair.compare();
    assert!(matches!(pair.lock_row(&lock).state, LockState::Divided(division) if division.taken() == MAX_SLOTS));
    for slot in 1..=MAX_SLOTS {
        let slot = lock.at_slot(slot).expect("a slot");
        let (session, ask_id, fence) = pair.holder(&slot);
        assert_eq!(ask_id, ask(u64::from(slot.slot()) - 1));
        pair.lock_command(release(session, &slot, fence));
    }
    assert_eq!((pair.holder(&lock).1, pair.lock_row(&lock).waiting), (ask(all + 1), 1));
    pair.compare();
}
