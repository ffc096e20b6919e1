//! A world that runs the same steps on the model and on the engine with the reference store: once
//! command by command, and once in groups.

use std::num::NonZeroU32;

use leasehold_core::command::{Command, Reply};
use leasehold_core::invariant;
use leasehold_core::lease::Fence;
use leasehold_core::lock::{Ask, AskId, AskState, LockPath, LockState, LockValue};
use leasehold_core::locking::acquire::{Acquire, Acquired};
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

use super::model::{Answer, Granted, MOST_CLEANUPS, Model, Step};

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
            assert_eq!((row.session, row.state), (told.session, AskState::Holding(told.fence)));
            assert!(before.asks.get(&told.ask).is_none_or(|row| row.state != AskState::Holding(told.fence)));
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
            Step::Acquire { session: id, ask: number, lock: at, wait } => {
                let (session, ask, lock) = (session(id), ask(number), lock(at));
                let reaped = MOST_CLEANUPS[at].and_then(NonZeroU32::new);
                LockCommand::Acquire(Acquire { session, principal, ask, lock, wait, reaped })
            }
            Step::Release { lock: at, ok, age } => {
                let unknown = Granted { ask: 0, session: 999, fence: 0 };
                let grant = self.model.grant_of_age(at, age).unwrap_or(unknown);
                let outcome = if ok { ReleaseOutcome::Succeeded } else { ReleaseOutcome::Failed };
                let (session, fence, value) = (session(grant.session), Fence(grant.fence), LockValue::default());
                LockCommand::Release(Release { session, principal, lock: lock(at), fence, outcome, value })
            }
            Step::Leave(id, number) => LockCommand::Leave(Leave { session: session(id), principal, ask: ask(number) }),
            Step::Force(at, at_once) => {
                let fence = Fence(self.model.fence_to_take(at));
                LockCommand::Force(Force { lock: lock(at), fence, at_once })
            }
            Step::Elapse(at, enough) => {
                // The former home may renew the holder for half of the grace, then its own time begins (K20).
                let quiet_micros = DURATION + GRACE + GRACE / 2 - u64::from(!enough);
                let fence = Fence(self.model.fence_to_take(at));
                LockCommand::Elapse(Elapse { lock: lock(at), fence, quiet_micros })
            }
            Step::Reap(id, number, at) => {
                let (session, ask, lock, fence) = (session(id), ask(number), lock(at), self.due(at));
                LockCommand::Reap(Reap { session, principal, ask, lock, fence })
            }
            Step::Resolve(at, cleaned) => {
                let resolution = if cleaned { Resolution::Cleaned } else { Resolution::Retry };
                LockCommand::Resolve(Resolve { lock: lock(at), fence: self.due(at), resolution })
            }
            Step::ForgetLock(at) => LockCommand::ForgetLock(ForgetLock { lock: lock(at), free_before: Timestamp::MAX }),
            Step::ForgetSession(id) => {
                LockCommand::ForgetSession(ForgetSession { session: session(id), ended_before: Timestamp::MAX })
            }
        }
    }

    /// Returns the fence of the grant whose cleanup is due, or one that no grant has.
    fn due(&self, at: usize) -> Fence {
        Fence(self.model.locks[at].due.map_or(0, |(fence, _)| fence))
    }

    /// Compares holders and queues with those of the model.
    fn compare(&self, state: &State) {
        for (at, expected) in self.model.locks.iter().enumerate() {
            let path = lock(at);
            let row = state.locks.get(&path);
            let grant = row.and_then(|row| row.grant()).map(|grant| (grant.ask, grant.session, grant.fence));
            let holder = expected.holder.map(|held| (ask(held.ask), session(held.session), Fence(held.fence)));
            assert_eq!(grant, holder);
            let withheld = row.and_then(|row| match row.state {
                LockState::Withheld(withholding) => Some(withholding.fence),
                LockState::Free | LockState::Held(_) | LockState::Orphaned => None,
            });
            assert_eq!(withheld, expected.withheld.map(Fence));
            let obituary = row.and_then(|row| row.obituary).map(|obituary| (obituary.fence.0, obituary.attempts));
            assert_eq!(obituary, expected.due, "K17: the cleanup that is due");
            let is_orphaned = row.is_some_and(|row| row.state == LockState::Orphaned);
            assert_eq!(is_orphaned, expected.is_orphaned(), "K17: nobody holds the lock before its cleanup");
            let turns = state.turns.iter().filter(|(key, _)| key.lock == path);
            let wait: Vec<_> = turns.map(|(_, turn)| (turn.ask, state.asks[&turn.ask].session)).collect();
            let queue: Vec<_> = expected.queue.iter().map(|(id, owner)| (ask(*id), session(*owner))).collect();
            assert_eq!(wait, queue, "K08: the order of the wait");
        }
        let holding = |ask: &&Ask| matches!(ask.state, AskState::Holding(_));
        let holders = self.model.locks.iter().filter(|lock| lock.holder.is_some()).count();
        assert_eq!(state.asks.values().filter(holding).count(), holders);
    }
}

/// Compares a reply with the model's answer. The number of asks ahead is an upper bound.
fn assert_agree(answer: &Answer, reply: &Result<Reply, Rejection>, step: &Step) {
    let found = match reply {
        Err(rejection) => Answer::Refused(rejection.reason().code()),
        Ok(Reply::Lock(LockReply::Done(changed))) => Answer::Done(*changed),
        Ok(Reply::Lock(LockReply::Renewed(renewals))) => Answer::Renewed(*renewals),
        Ok(Reply::Lock(LockReply::Acquired(Acquired::Holding(fence)))) => Answer::Holding(fence.0),
        Ok(Reply::Lock(LockReply::Acquired(Acquired::Waiting(ahead)))) => match answer {
            Answer::Waiting(exact) if exact <= ahead => answer.clone(),
            _ => Answer::Waiting(*ahead),
        },
        Ok(other) => panic!("{other:?}"),
    };
    assert_eq!(found, *answer, "{step:?}");
}
