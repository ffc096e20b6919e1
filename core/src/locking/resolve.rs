//! Resolves an orphaned lock, as an operator decides.

use super::elapse::pass_on;
use super::hand_over::HeldAt;
use super::refused;
use crate::lease::Fence;
use crate::lock::{Lock, LockPath, LockState, Obituary};
use crate::rejection::Reason;
use crate::rows::Changes;
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

/// An operator's decision about an orphaned lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// The cleanup is begun again, and its attempts count from 0: the cause of its failures is gone.
    Retry,
    /// The operator has cleaned up, so the lock passes on.
    Cleaned,
}

/// The command of an operator to resolve an orphaned lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// The orphaned lock or slot.
    pub lock: LockPath,
    /// The fence of the grant whose cleanup is due, so that a later one is not resolved by mistake.
    pub fence: Fence,
    /// The decision.
    pub resolution: Resolution,
}

/// Resolves an orphaned lock, which may be set aside (K17). Returns false if the attempts count from 0
/// already.
///
/// # Errors
/// The store failed. The inner error is a refusal: the lock waits for no cleanup of this grant.
pub fn resolve<T: Transaction>(tx: &mut T, command: &Resolve, now: Timestamp) -> Answer<bool, T::Error> {
    let held = HeldAt::read(tx, &command.lock)?.filter(|held| held.row().state == LockState::Orphaned);
    let is_due = |obituary: &Obituary| obituary.fence == command.fence;
    let due = held.and_then(|held| Some((held.row().obituary.filter(is_due)?, held)));
    let Some((obituary, mut held)) = due else { return Ok(Err(refused(Reason::FencePassed))) };
    match command.resolution {
        Resolution::Cleaned => {
            held.slot.as_mut().unwrap_or(&mut held.lock).obituary = None;
            pass_on(tx, held, now)
        }
        Resolution::Retry if obituary.attempts == 0 => Ok(Ok(false)),
        Resolution::Retry => {
            let obituary = Some(Obituary { attempts: 0, ..obituary });
            let lock = Lock { obituary, updated_at: now, ..held.row().clone() };
            tx.write(Changes { locks: vec![(command.lock.clone(), Some(lock))], ..Changes::default() })?;
            Ok(Ok(true))
        }
    }
}
