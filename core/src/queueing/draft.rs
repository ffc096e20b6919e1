//! The code that is shared by the commands that change a lane.

use super::reads::{taken_of, waiting_of};
use super::retry::Retry;
use crate::queue::{
    EndedHold, Head, HoldEnd, Lane, LaneHold, LanePath, LaneState, Queue, QueuePath, Request, RequestId,
};
use crate::rows::Changes;
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Transaction};

/// The changes that one command has gathered so far.
pub(super) struct Draft {
    /// The changes of the rows of queues.
    pub(super) changes: Changes,
    now: Timestamp,
}

impl Draft {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { changes: Changes::default(), now }
    }

    /// Adds the row of a lane, as of now.
    pub(super) fn put_lane(&mut self, path: &LanePath, lane: Lane) {
        self.changes.lanes.push((path.clone(), Some(Lane { updated_at: self.now, ..lane })));
    }

    /// Adds the row of a queue, or removes it if it says nothing.
    pub(super) fn put_queue(&mut self, path: &QueuePath, queue: Queue) {
        let row = (queue != Queue::default()).then_some(queue);
        self.changes.queues.push((path.clone(), row));
    }

    /// Adds the row of a lane that no worker holds, with the state that follows from the first request
    /// that waits: one that this command has made new, or one of the store that the command leaves as it
    /// is.
    ///
    /// # Errors
    /// The store failed.
    pub(super) fn rest<T: Transaction>(&mut self, tx: &T, path: &LanePath, mut lane: Lane) -> Result<(), T::Error> {
        let changed = |id: &RequestId| self.changes.requests.iter().any(|(other, _)| other == id);
        let removed = self.changes.requests.iter().filter(|(_, row)| row.is_none()).count();
        let stored = tx.first::<Request>(&waiting_of(path, removed + 1))?;
        let stored = match stored.iter().find(|id| !changed(id)) {
            Some(id) => Some(tx.row::<Request>(id)?.ok_or(BrokenState::LaneMiscounts)?),
            None => None,
        };
        let own = self.changes.requests.iter().filter_map(|(_, row)| row.as_ref());
        let own = own.filter(|request| request.is_new() && request.lane == *path);
        let first = own.chain(stored).min_by_key(|request| request.number);
        if first.is_some() != (lane.waiting > 0) {
            return Err(BrokenState::LaneMiscounts.into());
        }
        lane.state = first.map_or(LaneState::Idle, |request| LaneState::Waiting(Head::of(request)));
        self.put_lane(path, lane);
        Ok(())
    }

    /// Ends the hold of a lane with all requests that were taken under it. `retry` is the time
    /// until the next attempt of those that have one.
    ///
    /// # Errors
    /// The store failed.
    pub(super) fn end_hold<T: Transaction>(
        &mut self,
        tx: &T,
        (path, lane, hold): (&LanePath, &Lane, &LaneHold),
        end: HoldEnd,
        retry: Retry,
    ) -> Result<(), T::Error> {
        let mut taken = Vec::new();
        for id in tx.first::<Request>(&taken_of(path))? {
            taken.push((id, tx.row::<Request>(&id)?.ok_or(BrokenState::LaneMiscounts)?));
        }
        let attempts = taken.iter().map(|(_, request)| request.attempts).max().unwrap_or_default();
        let retry_at = self.now.plus_micros(retry.micros(attempts));
        let mut lane = lane.clone();
        let mut last_number = 0;
        for (id, taken) in taken {
            last_number = taken.number;
            let request = taken.ended(end, retry_at, self.now);
            lane.waiting = lane.waiting.saturating_add(request.is_new().into());
            self.changes.requests.push((id, Some(request)));
        }
        if last_number != hold.last_number {
            return Err(BrokenState::LaneMiscounts.into());
        }
        if hold.is_counted {
            let queue = tx.row::<Queue>(path.queue())?.filter(|queue| queue.taken > 0);
            let queue = *queue.ok_or(BrokenState::QueueMiscounts)?;
            self.put_queue(path.queue(), Queue { taken: queue.taken - 1, ..queue });
        }
        lane.last = Some(EndedHold { hold: hold.clone(), end, ended_at: self.now });
        self.rest(tx, path, lane)
    }

    /// Writes the changes.
    ///
    /// # Errors
    /// The store failed.
    pub(super) fn write<T: Transaction>(self, tx: &mut T) -> Result<(), T::Error> {
        tx.write(self.changes)
    }
}
