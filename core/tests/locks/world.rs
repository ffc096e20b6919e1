//! A world that runs the same steps on the model and on the engine with the reference store: once
//! command by command, and once in groups.

use std::num::NonZeroU32;

use leasehold_core::command::{Command, Reply};
use leasehold_core::division::ShareMode;
use leasehold_core::invariant;
use leasehold_core::lease::Fence;
use leasehold_core::lock::{Ask, AskId, AskState, Lock, LockPath, LockState, LockValue};
use leasehold_core::locking::acquire::{Acquire, Acquired};
use leasehold_core::locking::acquire_all::{AcquireAll, AskFor};
use leasehold_core::locking::elapse::Elapse;
use leasehold_core::locking::end::{Cause, End, Silence};
use leasehold_core::locking::force::Force;
use leasehold_core::locking::forget::{ForgetLock, ForgetSession};
use leasehold_core::locking::leave::Leave;
use leasehold_core::locking::open::Open;
use leasehold_core::locking::reap::Reap;
use leasehold_core::locking::release::{Release, ReleaseOutcome};
use leasehold_core::locking::renew::Renew;
use leasehold_core::locking::resolve::{Resolution, Resolve};
use leasehold_core::locking::{LockCommand, LockReply, granted};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rejection::Rejection;
use leasehold_core::rows::State;
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use uuid::Uuid;

use super::model::{Answer, Granted, MOST_CLEANUPS, Model, Place, SHARES, Step};

pub(crate) const DURATION: u64 = 2_000_000;
pub(crate) const GRACE: u64 = 500_000;

pub(crate) fn session(number: u128) -> SessionId {
    SessionId(Uuid::from_u128(1_000 + number))
}

pub(crate) fn ask(number: u128) -> AskId {
    AskId(Uuid::from_u128(2_000 + number))
}

pub(crate) fn lock(number: usize) -> LockPath {
    LockPath::parse(&["test"], &format!("k{number}")).unwrap()
}

/// Returns the way to share a lock that has this index in the model.
pub(crate) fn share(index: usize) -> Option<ShareMode> {
    match SHARES[index] {
        0 => None,
        256 => Some(ShareMode::Shared),
        permits => Some(ShareMode::permits(permits).unwrap()),
    }
}

pub(crate) fn principal() -> Principal {
    Principal::parse("service").unwrap()
}

pub(crate) fn terms() -> Terms {
    Terms::parse(DURATION, GRACE).unwrap()
}

#[derive(Clone, Default)]
pub(crate) struct World {
    pub store: MemoryStore,
    grouped: MemoryStore,
    model: Model,
    now: u64,
}

impl World {
    /// Runs a group of steps on the model and on both stores, and compares everything.
    pub(crate) fn run(&mut self, steps: &[Step]) {
        self.now += 1;
        let now = Timestamp::from_micros(self.now);
        let (mut commands, mut expected) = (Vec::new(), Vec::new());
        for step in steps {
            let command = Command::Lock(self.command(step));
            let reply = command.apply(&mut self.store, now).unwrap();
            let answer = self.model.run(step);
            assert_agree(&answer, &reply, step);
            commands.push(command);
            expected.push(reply);
            let state = self.store.state().unwrap();
            assert_eq!(invariant::check(&state), Ok(()), "{step:?}");
            self.compare(&state);
        }
        assert_eq!(self.run_grouped(&commands, now), expected, "{steps:?}");
        assert_eq!(self.grouped.state().unwrap(), self.store.state().unwrap(), "{steps:?}");
    }

    /// Runs a group over a workspace, as a server does, and checks the grants that the server would
    /// tell waiting callers.
    fn run_grouped(&mut self, commands: &[Command], now: Timestamp) -> Vec<Result<Reply, Rejection>> {
        let mut workspace = self.grouped.workspace().unwrap();
        loop {
            let keys = workspace.missing(commands);
            if keys.is_empty() {
                break;
            }
            self.grouped.load(keys, &mut workspace).unwrap();
        }
        let replies = commands.iter().map(|command| command.apply(&mut workspace, now).unwrap()).collect();
        let changes = workspace.into_changes();
        let before = self.grouped.state().unwrap();
        self.grouped.save(&changes).unwrap();
        for told in granted(&changes) {
            let row = self.grouped.state().unwrap().asks[&told.ask].clone();
            let fence = told.hold.fence;
            assert_eq!((row.session, row.state), (told.session, AskState::Holding(fence)));
            assert_eq!(row.lock.slot(), told.hold.slot);
            assert!(before.asks.get(&told.ask).is_none_or(|row| row.state != AskState::Holding(fence)));
        }
        replies
    }

    fn command(&self, step: &Step) -> LockCommand {
        let principal = principal();
        match *step {
            Step::Open(id) => LockCommand::Open(Open { session: session(id), principal, terms: terms() }),
            Step::Renew(id) => LockCommand::Renew(Renew { session: session(id), principal }),
            Step::Close(id) => LockCommand::End(End { session: session(id), cause: Cause::Close(principal) }),
            Step::Silence(id, renewals_seen, enough) => {
                let silence = Silence { renewals_seen, quiet_micros: DURATION + GRACE - u64::from(!enough) };
                LockCommand::End(End { session: session(id), cause: Cause::Silence(silence) })
            }
            Step::Evict(id) => LockCommand::End(End { session: session(id), cause: Cause::Evict }),
            Step::Acquire { session: id, ask: number, lock: at, share: way, wait } => {
                let (session, ask, lock, share) = (session(id), ask(number), lock(at), share(way));
                let reaped = MOST_CLEANUPS[at].and_then(NonZeroU32::new);
                LockCommand::Acquire(Acquire { session, principal, ask, lock, share, held: Vec::new(), wait, reaped })
            }
            Step::AcquireAll { session: id, ref asks, wait } => {
                let asks = asks.iter().map(|(number, at, way)| {
                    let reaped = MOST_CLEANUPS[*at].and_then(NonZeroU32::new);
                    AskFor { ask: ask(*number), lock: lock(*at), share: share(*way), reaped }
                });
                let all = AcquireAll::parse(session(id), &principal, asks.collect(), &[], wait);
                LockCommand::AcquireAll(all.unwrap())
            }
            Step::Release { lock: at, ok, age } => {
                let unknown = Granted { ask: 0, session: 999, fence: 0, slot: 0 };
                let grant = self.model.grant_of_age(at, age).unwrap_or(unknown);
                let outcome = if ok { ReleaseOutcome::Succeeded } else { ReleaseOutcome::Failed };
                let (session, fence, value) = (session(grant.session), Fence(grant.fence), LockValue::default());
                let lock = lock(at).at_slot(grant.slot).unwrap();
                LockCommand::Release(Release { session, principal, lock, fence, outcome, value })
            }
            Step::Leave(id, number) => LockCommand::Leave(Leave { session: session(id), principal, ask: ask(number) }),
            Step::Force(at, at_once) => {
                let (lock, place) = self.place(at);
                LockCommand::Force(Force { lock, fence: Fence(place.fence_to_take()), at_once })
            }
            Step::Elapse(at, enough) => {
                // The former home may renew the holder for half of the grace, then its own time begins (K20).
                let quiet_micros = DURATION + GRACE + GRACE / 2 - u64::from(!enough);
                let (lock, place) = self.place(at);
                LockCommand::Elapse(Elapse { lock, fence: Fence(place.fence_to_take()), quiet_micros })
            }
            Step::Reap(id, number, at) => {
                let (session, ask, (lock, place)) = (session(id), ask(number), self.place(at));
                let fence = due(place);
                LockCommand::Reap(Reap { session, principal, ask, lock, fence })
            }
            Step::Resolve(at, cleaned) => {
                let resolution = if cleaned { Resolution::Cleaned } else { Resolution::Retry };
                let (lock, place) = self.place(at);
                LockCommand::Resolve(Resolve { lock, fence: due(place), resolution })
            }
            Step::ForgetLock(at) => LockCommand::ForgetLock(ForgetLock { lock: lock(at), free_before: Timestamp::MAX }),
            Step::ForgetSession(id) => {
                LockCommand::ForgetSession(ForgetSession { session: session(id), ended_before: Timestamp::MAX })
            }
        }
    }

    /// Returns the place of a lock that a step names, with its path.
    fn place(&self, (at, number): (usize, usize)) -> (LockPath, Place) {
        let place = self.model.locks[at].place(number);
        (lock(at).at_slot(place.slot).unwrap(), place)
    }

    /// Compares holders and queues with those of the model.
    fn compare(&self, state: &State) {
        for (at, expected) in self.model.locks.iter().enumerate() {
            let path = lock(at);
            let rows = state.locks.iter().filter(|(row, lock)| row.is_of(&path) && is_taken(lock));
            let found: Vec<_> = rows.map(|(row, lock)| found_place(row.slot(), lock)).collect();
            assert_eq!(found, expected.places.iter().map(expected_place).collect::<Vec<_>>());
            let turns = state.turns.iter().filter(|(key, _)| key.lock == path);
            let wait: Vec<_> = turns.map(|(_, turn)| (turn.ask, state.asks[&turn.ask].session)).collect();
            let queue: Vec<_> = expected.queue.iter().map(|(id, owner, _)| (ask(*id), session(*owner))).collect();
            assert_eq!(wait, queue, "K08: the order of the wait");
        }
        let holding = |ask: &&Ask| matches!(ask.state, AskState::Holding(_));
        let places = self.model.locks.iter().flat_map(|lock| &lock.places);
        let holders = places.filter(|place| place.holder.is_some()).count();
        assert_eq!(state.asks.values().filter(holding).count(), holders);
    }
}

/// Returns the fence of the grant whose cleanup is due, or one that no grant has.
fn due(place: Place) -> Fence {
    Fence(place.due.map_or(0, |(fence, _)| fence))
}

/// What is compared of a place: its slot, its holder, the fence of a withheld grant, the cleanup that is
/// due (K17), and true if it waits for that.
type Compared = (u32, Option<(AskId, SessionId, Fence)>, Option<Fence>, Option<(Fence, u32)>, bool);

/// True if a row is of a whole lock that is not free, or of a slot. A slot that is free has no row.
fn is_taken(lock: &Lock) -> bool {
    !matches!(lock.state, LockState::Free | LockState::Divided(_))
}

fn found_place(slot: u32, lock: &Lock) -> Compared {
    let holder = lock.grant().map(|grant| (grant.ask, grant.session, grant.fence));
    let withheld = match lock.state {
        LockState::Withheld(withholding) => Some(withholding.fence),
        _ => None,
    };
    let due = lock.obituary.map(|obituary| (obituary.fence, obituary.attempts));
    (slot, holder, withheld, due, lock.state == LockState::Orphaned)
}

fn expected_place(place: &Place) -> Compared {
    let holder = place.holder.map(|held| (ask(held.ask), session(held.session), Fence(held.fence)));
    let due = place.due.map(|(fence, attempts)| (Fence(fence), attempts));
    (place.slot, holder, place.withheld.map(Fence), due, place.is_orphaned())
}

/// Compares a reply with the model's answer. The number of asks ahead is an upper bound.
fn assert_agree(answer: &Answer, reply: &Result<Reply, Rejection>, step: &Step) {
    let found = match reply {
        Err(rejection) => Answer::Refused(rejection.reason().code()),
        Ok(Reply::Lock(LockReply::Done(changed))) => Answer::Done(*changed),
        Ok(Reply::Lock(LockReply::Renewed(renewals))) => Answer::Renewed(*renewals),
        Ok(Reply::Lock(LockReply::Acquired(acquired))) => found_acquired(*acquired, Some(answer)),
        Ok(Reply::Lock(LockReply::AllAcquired(all))) => {
            let expected = if let Answer::All(expected) = answer { expected.as_slice() } else { &[] };
            let each = all.iter().enumerate().map(|(at, one)| found_acquired(*one, expected.get(at)));
            Answer::All(each.collect())
        }
        Ok(other) => panic!("{other:?}"),
    };
    assert_eq!(found, *answer, "{step:?}");
}

fn found_acquired(acquired: Acquired, expected: Option<&Answer>) -> Answer {
    match (acquired, expected) {
        (Acquired::Holding(hold), _) => Answer::Holding(hold.fence.0, hold.slot),
        (Acquired::Waiting(ahead), Some(Answer::Waiting(exact))) if *exact <= ahead => Answer::Waiting(*exact),
        (Acquired::Waiting(ahead), _) => Answer::Waiting(ahead),
    }
}
