//! The server's memory of queues: the calls that wait for a lane, and the ended sessions whose lanes
//! come back.
//!
//! All rules are in `leasehold_core::queueing`, and all rows are in the store. [`QueueHost`] learns of
//! both from the saved changes of the committer ([`QueueHost::saved`]). Calls and ticks read the store
//! themselves, so forgotten news cost time, never a request (Q04).

mod bodies;
mod lost;
mod offers;
mod ready;
mod takers;
mod unserved;

use std::sync::Arc;

use leasehold_core::queue::{Lane, LaneHold, LanePath, QueuePath, Request, RequestState};
use leasehold_core::queueing::news::{opened, readied};
use leasehold_core::rows::{LaneOrder, NetChanges, RowChange, RowKind};
use leasehold_core::time::Timestamp;

pub use self::bodies::RecentBodies;
pub use self::lost::{Lost, LostSessions};
pub use self::offers::{Next, OfferRead, Offered};
pub use self::ready::Offer;
pub use self::takers::{DecidingTake, HoldNews, Taker, Takers};
pub use self::unserved::UnservedLanes;

/// The numbers of changes of requests in a save, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedRequests {
    /// The number of requests that were submitted.
    pub submitted: usize,
    /// The number of attempts that have begun.
    pub taken: usize,
    /// The number of requests that are new again, after a failure, a loss or a return of their batch.
    pub returned: usize,
    /// The number of requests that are complete.
    pub completed: usize,
    /// The number of requests whose last attempt has failed.
    pub failed: usize,
}

impl SavedRequests {
    /// Counts the changes of requests that a group of commands has made. A request that a group has changed more than
    /// once counts by its first and its last state.
    pub fn of(changes: &NetChanges) -> Self {
        let mut saved = Self::default();
        changes.requests.iter().for_each(|change| saved.add(change));
        saved
    }

    fn add(&mut self, RowChange { before, after, .. }: &RowChange<Request>) {
        let Some(after) = after else { return };
        let state = before.as_ref().map(|before| before.state);
        let attempts = before.as_ref().map_or(0, |before| before.attempts);
        let is_now = |wanted| after.state == wanted && state != Some(wanted);
        self.submitted += usize::from(state.is_none());
        self.taken += usize::from(after.attempts > attempts);
        self.returned += usize::from(is_now(RequestState::New) && state == Some(RequestState::InProgress));
        self.completed += usize::from(is_now(RequestState::Complete));
        self.failed += usize::from(is_now(RequestState::Error));
    }
}

/// The server's memory of queues.
#[derive(Default)]
pub struct QueueHost {
    /// The calls that wait for a lane.
    pub takers: Arc<Takers>,
    /// The ready lanes for which no call of this server was idle.
    pub unserved: UnservedLanes,
    /// The bodies that this server has saved last.
    pub bodies: RecentBodies,
    /// The ended sessions that may hold lanes.
    pub lost: LostSessions,
}

impl QueueHost {
    /// Learns from the saved changes of a group, before the callers are answered.
    pub fn saved(&self, changes: &NetChanges) {
        for change in &changes.sessions {
            let was_live = change.before.as_ref().is_some_and(|session| session.is_live());
            let is_live = change.after.as_ref().is_some_and(|session| session.is_live());
            if was_live && !is_live {
                self.lost.add(change.key);
            }
        }
        // Calls are woken after the lanes are in memory, so that they find them.
        self.takers.offers.saved(changes);
        self.bodies.saved(changes);
        changes.lanes.iter().for_each(|change| self.follow_hold(change));
        // A call of this server learns of the time at which the lane is due. Calls of other servers find the lane when they
        // look by themselves.
        let put_off = changes.lanes.iter().filter(|change| is_put_off(change));
        put_off.for_each(|change| _ = self.takers.wake_for(change.key.queue()));
        readied(changes).for_each(|lane| self.wake_for(lane.queue()));
        opened(changes).for_each(|queue| self.wake_for(queue));
    }

    /// Wakes one call that is idle, here or at another server.
    fn wake_for(&self, queue: &QueuePath) {
        if !self.takers.wake_for(queue) {
            self.unserved.add(queue);
        }
    }

    /// Tells the call of a worker whose hold has begun or ended.
    fn follow_hold(&self, RowChange { key, before, after }: &RowChange<Lane>) {
        let [before, after] = [before, after].map(|lane| lane.as_ref().and_then(Lane::hold));
        let take = |hold: Option<&LaneHold>| hold.map(|hold| hold.take);
        if take(before) == take(after) {
            return;
        }
        before.into_iter().for_each(|hold| self.takers.ended(key.queue(), hold.session, hold.take));
        after.into_iter().for_each(|hold| self.takers.begun(key.queue(), hold.session, hold.take));
    }
}

/// True if a change has put off the first request of a lane that waits.
fn is_put_off(RowChange { key, before, after }: &RowChange<Lane>) -> bool {
    let due_at = |row: &Option<Lane>| delayed_until(key, row.as_ref()?);
    let after = due_at(after);
    after.is_some() && due_at(before) != after
}

fn delayed_until(path: &LanePath, lane: &Lane) -> Option<Timestamp> {
    match Lane::position(path, lane)? {
        LaneOrder::Delayed(_, due_at, _) => Some(due_at),
        LaneOrder::Ready(..) | LaneOrder::Taken(..) | LaneOrder::Paused(_) | LaneOrder::Idle(..) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use futures_util::FutureExt as _;
    use leasehold_core::session::SessionId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn q18_a_lane_waits_for_a_ring_only_if_no_call_of_the_server_is_idle() {
        let (host, queue) = (QueueHost::default(), QueuePath::parse("sheets").unwrap());
        host.unserved.set_peers(BTreeSet::from(["http://one:1".to_owned()]));
        let taker = host.takers.wait(queue.clone(), SessionId(Uuid::from_u128(1)));
        assert!(taker.woken().now_or_never().is_none());
        host.wake_for(&queue);
        assert!(host.unserved.next(1).now_or_never().is_none() && taker.woken().now_or_never().is_some());
        assert!(taker.begin_look());
        host.wake_for(&queue);
        assert_eq!(host.unserved.next(1).now_or_never().unwrap(), [(queue, 1)]);
    }
}
