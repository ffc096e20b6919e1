//! Forgets ended sessions and free locks, so that their rows do not stay for ever.

use crate::lock::{Lock, LockPath, LockState};
use crate::rows::Changes;
use crate::session::{Session, SessionId};
use crate::time::Timestamp;
use crate::transaction::Transaction;

/// The command to forget an ended session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgetSession {
    /// The session to forget.
    pub session: SessionId,
    /// The time before which the session must have ended to be forgotten.
    pub ended_before: Timestamp,
}

/// The command to forget a free lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgetLock {
    /// The lock to forget.
    pub lock: LockPath,
    /// The time before which the lock must have become free to be forgotten.
    pub free_before: Timestamp,
}

/// Forgets a session if it ended before `ended_before`. Returns true if it was forgotten.
///
/// # Errors
/// The store failed.
pub fn forget_session<T: Transaction>(tx: &mut T, command: &ForgetSession) -> Result<bool, T::Error> {
    let Some(session) = tx.row::<Session>(&command.session)? else { return Ok(false) };
    if session.is_live() || session.updated_at >= command.ended_before {
        return Ok(false);
    }
    tx.write(Changes { sessions: vec![(command.session, None)], ..Changes::default() })?;
    Ok(true)
}

/// Forgets a lock if it became free before `free_before`. Returns true if it was forgotten. If the
/// lock is acquired again, its next fence is still larger, since all locks take their fences from
/// one counter.
///
/// # Errors
/// The store failed.
pub fn forget_lock<T: Transaction>(tx: &mut T, command: &ForgetLock) -> Result<bool, T::Error> {
    let Some(lock) = tx.row::<Lock>(&command.lock)? else { return Ok(false) };
    if lock.state != LockState::Free || lock.updated_at >= command.free_before {
        return Ok(false);
    }
    tx.write(Changes { locks: vec![(command.lock.clone(), None)], ..Changes::default() })?;
    Ok(true)
}
