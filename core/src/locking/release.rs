//! Releases a lock.

use super::hand_over::{Draft, HeldAt};
use super::{own_session, refused};
use crate::lease::Fence;
use crate::lock::{Grant, GrantEnd, Lock, LockPath, LockValue};
use crate::rejection::Reason;
use crate::session::{Principal, SessionId};
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

/// The outcome of the work under a lock, as the holder reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseOutcome {
    /// The work succeeded.
    Succeeded,
    /// The work failed.
    Failed,
}

/// The command to release a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The session that holds the lock.
    pub session: SessionId,
    /// The service that opened the session.
    pub principal: Principal,
    /// The lock or slot to release.
    pub lock: LockPath,
    /// The fence of the grant to end.
    pub fence: Fence,
    /// The outcome of the work under the lock.
    pub outcome: ReleaseOutcome,
    /// The value to keep with the lock for its readers (K03).
    pub value: LockValue,
}

/// Releases a lock, as succeeded or failed (K03), and grants it to the next ask. A cleanup that failed
/// leaves the lock orphaned (K17). Returns true if the grant ended, false if an earlier run of the command ended it (K19).
///
/// # Errors
/// The store failed. The inner error is a refusal: the session is unknown, another service's or
/// ended, or the session does not hold the lock under this fence.
pub fn release<T: Transaction>(tx: &mut T, command: &Release, now: Timestamp) -> Answer<bool, T::Error> {
    let session = match own_session(tx, command.session, &command.principal)? {
        Ok(session) => session,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let end = match command.outcome {
        ReleaseOutcome::Succeeded => GrantEnd::Succeeded,
        ReleaseOutcome::Failed => GrantEnd::Failed,
    };
    let is_meant = |grant: &Grant| (grant.session, grant.fence) == (command.session, command.fence);
    let held = HeldAt::read(tx, &command.lock)?;
    let meant = held.and_then(|held| Some((held.row().grant().copied().filter(is_meant)?, held)));
    let Some((grant, mut held)) = meant else {
        let lock = tx.row::<Lock>(&command.lock.base())?;
        let last = lock.and_then(|lock| lock.last.as_ref());
        let is_repeated = last.is_some_and(|last| is_meant(&last.grant) && last.end == end);
        let reason = if session.is_live() { Reason::FencePassed } else { Reason::SessionEnded };
        return Ok(if is_repeated { Ok(false) } else { Err(refused(reason)) });
    };
    let mut draft = Draft::new(tx, now)?;
    draft.end(&mut held, (grant, end, command.value.clone()), None);
    draft.finish(tx, &command.lock.base(), held.lock, &[])?;
    draft.write(tx, command.session, session.with_one_ask_less())?;
    Ok(Ok(true))
}
