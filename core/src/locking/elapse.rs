//! Ends the withholding of a lock.

use super::hand_over::Draft;
use super::refused;
use crate::lease::Fence;
use crate::lock::{Lock, LockPath, LockState};
use crate::rejection::Reason;
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

/// The command to end the withholding of a lock whose former holder's time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elapse {
    /// The withheld lock.
    pub lock: LockPath,
    /// The fence of the grant that was taken away.
    pub fence: Fence,
    /// The microseconds for which a host was awake and observed the lock as withheld.
    pub quiet_micros: u64,
}

/// Grants a withheld lock to the next ask, or frees the lock if no ask waits. If a cleanup is due, the
/// lock is orphaned instead (K17). Returns true.
///
/// # Errors
/// The store failed. The inner error is a refusal: the lock is not withheld under this fence, or was
/// not observed for long enough (K20).
pub fn elapse<T: Transaction>(tx: &mut T, command: &Elapse, now: Timestamp) -> Answer<bool, T::Error> {
    let lock = tx.row::<Lock>(&command.lock)?;
    let withheld = lock.and_then(|lock| match lock.state {
        LockState::Withheld(withholding) if withholding.fence == command.fence => Some((lock, withholding)),
        LockState::Free | LockState::Held(_) | LockState::Withheld(_) | LockState::Orphaned => None,
    });
    let Some((lock, withholding)) = withheld else { return Ok(Err(refused(Reason::FencePassed))) };
    if command.quiet_micros < withholding.silence_micros {
        return Ok(Err(refused(Reason::LockWithheld)));
    }
    pass_on(tx, &command.lock, lock.clone(), now)
}

/// Ends the state of a lock that nobody holds: the lock is orphaned if a cleanup is due, else it goes to
/// the next ask, or is free if no ask waits. Returns true.
pub(super) fn pass_on<T: Transaction>(
    tx: &mut T,
    path: &LockPath,
    lock: Lock,
    now: Timestamp,
) -> Answer<bool, T::Error> {
    let mut draft = Draft::new(tx, now)?;
    let lock = Lock { state: lock.rest(), updated_at: now, ..lock };
    draft.finish(tx, path, lock, &[])?;
    tx.write(draft.into_changes())?;
    Ok(Ok(true))
}
