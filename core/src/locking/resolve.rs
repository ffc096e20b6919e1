//! Resolves an orphaned lock, as an operator decides.

use super::elapse::pass_on;
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
    /// The orphaned lock.
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
    let lock = tx.row::<Lock>(&command.lock)?.filter(|lock| lock.state == LockState::Orphaned);
    let due = lock.and_then(|lock| Some((lock, lock.obituary.filter(|obituary| obituary.fence == command.fence)?)));
    let Some((lock, obituary)) = due else { return Ok(Err(refused(Reason::FencePassed))) };
    match command.resolution {
        Resolution::Cleaned => pass_on(tx, &command.lock, Lock { obituary: None, ..lock.clone() }, now),
        Resolution::Retry if obituary.attempts == 0 => Ok(Ok(false)),
        Resolution::Retry => {
            let obituary = Some(Obituary { attempts: 0, ..obituary });
            let lock = Lock { obituary, updated_at: now, ..lock.clone() };
            tx.write(Changes { locks: vec![(command.lock.clone(), Some(lock))], ..Changes::default() })?;
            Ok(Ok(true))
        }
    }
}
