//! Ends the withholding of a lock.

use super::hand_over::{Draft, HeldAt};
use super::refused;
use crate::lease::Fence;
use crate::lock::{LockPath, LockState};
use crate::rejection::Reason;
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

/// The command to end the withholding of a lock whose former holder's time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elapse {
    /// The withheld lock or slot.
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
    let held = HeldAt::read(tx, &command.lock)?;
    let withheld = held.and_then(|held| match held.row().state {
        LockState::Withheld(withholding) if withholding.fence == command.fence => Some((held, withholding)),
        _ => None,
    });
    let Some((held, withholding)) = withheld else { return Ok(Err(refused(Reason::FencePassed))) };
    if command.quiet_micros < withholding.silence_micros {
        return Ok(Err(refused(Reason::LockWithheld)));
    }
    pass_on(tx, held, now)
}

/// Ends the state of a lock or slot that nobody holds: it is orphaned if a cleanup is due, else it goes to
/// the next ask, or is free if no ask waits. Returns true.
pub(super) fn pass_on<T: Transaction>(tx: &mut T, mut held: HeldAt, now: Timestamp) -> Answer<bool, T::Error> {
    let mut draft = Draft::new(tx, now)?;
    let row = held.slot.as_mut().unwrap_or(&mut held.lock);
    (row.state, row.updated_at) = (row.rest(), now);
    draft.give_back(&mut held);
    draft.finish(tx, &held.path.base(), held.lock, &[])?;
    tx.write(draft.into_changes())?;
    Ok(Ok(true))
}
