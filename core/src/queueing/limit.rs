//! Limits how many lanes of a queue are taken at a time.

use std::num::NonZeroU32;

use super::draft::Draft;
use crate::queue::{Queue, QueuePath};
use crate::time::Timestamp;
use crate::transaction::Transaction;

/// The command to set the limit of a queue. The requests of a group that has a limit have a queue of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitQueue {
    /// The queue.
    pub queue: QueuePath,
    /// The largest number of lanes that are taken at a time, `None` for any number.
    pub limit: Option<NonZeroU32>,
}

/// Sets the limit of a queue, or removes it (Q17). Requests that are taken as one count as one. What was taken before the
/// queue had a limit goes on, and does not count. While a queue has a limit, each take and settle of it writes the
/// queue's row, so that any two conflict and the limit is exact. Returns true if the command changed something.
///
/// # Errors
/// The store failed.
pub fn limit_queue<T: Transaction>(tx: &mut T, command: &LimitQueue, now: Timestamp) -> Result<bool, T::Error> {
    let queue = tx.row::<Queue>(&command.queue)?.copied().unwrap_or_default();
    if queue.limit == command.limit {
        return Ok(false);
    }
    let mut draft = Draft::new(now);
    draft.put_queue(&command.queue, Queue { limit: command.limit, ..queue });
    draft.write(tx)?;
    Ok(true)
}
