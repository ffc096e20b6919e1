//! The commands of sessions and locks, as functions over a [`Transaction`]; one file has one
//! command.
//!
//! A command first reads all rows that it decides on and then writes once, as in
//! [`update`](crate::update). A command that frees a lock grants it to the next ask in the same
//! write, so no lock is free while an ask waits (K09).
//!
//! ```
//! use leasehold_core::lock::{AskId, LockPath, LockValue};
//! use leasehold_core::locking::acquire::{Acquire, Acquired, acquire};
//! use leasehold_core::locking::open::{Open, open};
//! use leasehold_core::locking::release::{ReleaseOutcome, Release, release};
//! use leasehold_core::memory::MemoryStore;
//! use leasehold_core::session::{Principal, SessionId, Terms};
//! use leasehold_core::time::Timestamp;
//! use uuid::Uuid;
//!
//! let (mut store, now) = (MemoryStore::default(), Timestamp::from_micros(1));
//! let principal = Principal::parse("billing").unwrap();
//! let session = SessionId(Uuid::from_u128(1));
//! let terms = Terms::parse(10_000_000, 1_000_000).unwrap();
//! open(&mut store, &Open { session, principal: principal.clone(), terms }, now).unwrap().unwrap();
//!
//! let lock = LockPath::parse(&["user", "update"], "7").unwrap();
//! let ask = AskId(Uuid::from_u128(2));
//! let command = Acquire { session, principal: principal.clone(), ask, lock: lock.clone(), share: None, held: vec![], wait: false, reaped: None };
//! let Acquired::Holding(hold) = acquire(&mut store, &command, now).unwrap().unwrap() else { unreachable!() };
//!
//! let (fence, outcome, value) = (hold.fence, ReleaseOutcome::Succeeded, LockValue::default());
//! let command = Release { session, principal, lock, fence, outcome, value };
//! assert_eq!(release(&mut store, &command, now).unwrap(), Ok(true));
//! // A repeated release changes nothing (K19).
//! assert_eq!(release(&mut store, &command, now).unwrap(), Ok(false));
//! ```

pub mod acquire;
pub mod acquire_all;
pub mod elapse;
pub mod end;
pub mod force;
pub mod forget;
mod hand_over;
mod keys;
pub mod leave;
pub mod open;
pub mod reads;
pub mod reap;
pub mod release;
pub mod renew;
pub mod resolve;
pub mod scan;

use std::sync::Arc;

use crate::lease::{Fence, Fences};
use crate::rejection::{Detail, Reason, Rejection};
use crate::session::{Principal, Session, SessionId};
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

pub use hand_over::{Granted, HeldSlot, granted};
pub(crate) use keys::LockReads;

/// One command of sessions and locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockCommand {
    /// Opens a session: run by [`open`](open::open).
    Open(open::Open),
    /// Writes a renewal of a session: run by [`renew`](renew::renew).
    Renew(renew::Renew),
    /// Closes a session, expires or evicts it: run by [`end`](end::end).
    End(end::End),
    /// Asks for a lock: run by [`acquire`](acquire::acquire).
    Acquire(acquire::Acquire),
    /// Asks for several locks together: run by [`acquire_all`](acquire_all::acquire_all).
    AcquireAll(acquire_all::AcquireAll),
    /// Releases a lock: run by [`release`](release::release).
    Release(release::Release),
    /// Leaves the queue of a lock: run by [`leave`](leave::leave).
    Leave(leave::Leave),
    /// Takes a lock from its holder: run by [`force`](force::force).
    Force(force::Force),
    /// Ends the withholding of a lock: run by [`elapse`](elapse::elapse).
    Elapse(elapse::Elapse),
    /// Begins the cleanup of an orphaned lock: run by [`reap`](reap::reap).
    Reap(reap::Reap),
    /// Resolves an orphaned lock: run by [`resolve`](resolve::resolve).
    Resolve(resolve::Resolve),
    /// Forgets an ended session: run by [`forget_session`](forget::forget_session).
    ForgetSession(forget::ForgetSession),
    /// Forgets a free lock: run by [`forget_lock`](forget::forget_lock).
    ForgetLock(forget::ForgetLock),
}

/// The reply to a command of sessions and locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockReply {
    /// The reply to an acquire or a reap: the lock is held, or the ask waits.
    Acquired(acquire::Acquired),
    /// The reply to an acquire of several locks, in the order in which it names them.
    AllAcquired(Arc<[acquire::Acquired]>),
    /// The reply to a written renewal: the number of written renewals.
    Renewed(u64),
    /// The reply to every other command: true if the command changed something.
    Done(bool),
}

impl LockReply {
    /// Returns the reply with the fences that the store has assigned to its grants.
    #[must_use]
    pub fn with_fences(self, fences: &Fences) -> Self {
        match self {
            Self::Acquired(acquired) => Self::Acquired(acquired.with_fences(fences)),
            Self::AllAcquired(all) => Self::AllAcquired(all.iter().map(|one| one.with_fences(fences)).collect()),
            reply => reply,
        }
    }
}

impl LockCommand {
    /// Runs the command over a transaction and returns the reply.
    ///
    /// # Errors
    /// The outer error means that the store failed and nothing was changed. The inner error is a
    /// refusal.
    pub fn apply<T: Transaction>(&self, tx: &mut T, now: Timestamp) -> Answer<LockReply, T::Error> {
        Ok(match self {
            Self::Open(command) => open::open(tx, command, now)?.map(LockReply::Done),
            Self::Renew(command) => renew::renew(tx, command, now)?.map(LockReply::Renewed),
            Self::End(command) => end::end(tx, command, now)?.map(LockReply::Done),
            Self::Acquire(command) => acquire::acquire(tx, command, now)?.map(LockReply::Acquired),
            Self::AcquireAll(command) => acquire_all::acquire_all(tx, command, now)?.map(LockReply::AllAcquired),
            Self::Release(command) => release::release(tx, command, now)?.map(LockReply::Done),
            Self::Leave(command) => leave::leave(tx, command, now)?.map(LockReply::Done),
            Self::Force(command) => force::force(tx, command, now)?.map(LockReply::Done),
            Self::Elapse(command) => elapse::elapse(tx, command, now)?.map(LockReply::Done),
            Self::Reap(command) => reap::reap(tx, command, now)?.map(LockReply::Acquired),
            Self::Resolve(command) => resolve::resolve(tx, command, now)?.map(LockReply::Done),
            Self::ForgetSession(command) => Ok(LockReply::Done(forget::forget_session(tx, command)?)),
            Self::ForgetLock(command) => Ok(LockReply::Done(forget::forget_lock(tx, command)?)),
        })
    }
}

/// Returns the session with this id if the principal opened it.
pub(crate) fn own_session<T: Transaction>(tx: &T, id: SessionId, principal: &Principal) -> Answer<Session, T::Error> {
    Ok(match tx.row::<Session>(&id)? {
        None => Err(refused(Reason::SessionNotFound)),
        Some(session) if session.principal != *principal => Err(refused(Reason::SessionNotOwned)),
        Some(session) => Ok(session.clone()),
    })
}

/// Returns the session with this id if it is live and the principal opened it.
pub(crate) fn live_session<T: Transaction>(tx: &T, id: SessionId, principal: &Principal) -> Answer<Session, T::Error> {
    let session = own_session(tx, id, principal)?;
    Ok(session.and_then(|session| if session.is_live() { Ok(session) } else { Err(refused(Reason::SessionEnded)) }))
}

/// Returns the next fence, and gives it out by storing it in `newest`.
fn draw(newest: &mut Fence) -> Fence {
    *newest = newest.next();
    *newest
}

pub(crate) fn refused(reason: Reason) -> Rejection {
    Rejection::whole(reason, Detail::None)
}
