//! The ordered reads of queues: the lanes that workers can take, the requests of a lane, and the rows
//! that a host looks after.

use std::ops::Bound;

use uuid::Uuid;

use crate::lease::Fence;
use crate::order::sorted_by;
use crate::queue::{Lane, LanePath, LaneState, MAX_BATCH_REQUESTS, QueuePath, Request, RequestId};
use crate::rows::{LaneOrder, OrderedRead, RequestOrder};
use crate::session::SessionId;
use crate::time::Timestamp;

/// Returns the read of the first lanes of a queue in the order of their ranks.
pub fn ready_of(queue: &QueuePath, limit: usize) -> OrderedRead<Lane> {
    let at = |rank| LaneOrder::Ready(queue.clone(), rank, LanePath::first());
    OrderedRead { from: Bound::Included(at(Timestamp::MIN)), to: Bound::Excluded(at(Timestamp::MAX)), limit }
}

/// Returns the read of the first delayed lanes of a queue that are due by `now`, the one first that was due
/// first. With [`Timestamp::MAX`], it finds the time at which a host looks next.
pub fn delayed_of(queue: &QueuePath, now: Timestamp, limit: usize) -> OrderedRead<Lane> {
    let at = |time| LaneOrder::Delayed(queue.clone(), time, LanePath::first());
    OrderedRead { from: Bound::Included(at(Timestamp::MIN)), to: Bound::Excluded(at(now.plus_micros(1))), limit }
}

/// Returns the lanes to offer to workers next, in order, from the first ready lanes of a queue and its
/// first delayed ones that are due by now.
///
/// Both reads take the same limit. The worker that finds a lane taken tries the next one.
pub fn in_order(ready: Vec<(LanePath, Lane)>, due: Vec<(LanePath, Lane)>) -> Vec<LanePath> {
    let rank = |lane: &Lane| match &lane.state {
        LaneState::Waiting(head) => head.rank,
        LaneState::Idle | LaneState::Taken(_) => Timestamp::MAX,
    };
    let all = ready.into_iter().chain(due).collect();
    let sorted = sorted_by(all, |(a, one), (b, other)| (rank(one), a).cmp(&(rank(other), b)));
    sorted.into_iter().map(|(path, _)| path).collect()
}

/// Returns the read of the first lanes that a session holds, in the order of the takes.
pub fn taken_by(session: SessionId, limit: usize) -> OrderedRead<Lane> {
    let at = |fence| LaneOrder::Taken(session, Fence(fence), LanePath::first());
    OrderedRead { from: Bound::Included(at(0)), to: Bound::Excluded(at(u64::MAX)), limit }
}

/// Returns the read of the first lanes that any session holds, by session. A host that starts finds those
/// whose session has ended meanwhile.
pub fn all_taken(limit: usize) -> OrderedRead<Lane> {
    let at = |session| LaneOrder::Taken(SessionId(session), Fence(0), LanePath::first());
    OrderedRead { from: Bound::Included(at(Uuid::nil())), to: Bound::Included(at(Uuid::max())), limit }
}

/// Returns the read of the first lanes that have been idle since before a time, the oldest first.
pub fn idle_before(before: Timestamp, limit: usize) -> OrderedRead<Lane> {
    let at = |time| LaneOrder::Idle(time, LanePath::first());
    OrderedRead { from: Bound::Included(at(Timestamp::MIN)), to: Bound::Excluded(at(before)), limit }
}

/// Returns the read of the first requests that wait in a lane.
pub fn waiting_of(lane: &LanePath, limit: usize) -> OrderedRead<Request> {
    let at = |number| Bound::Included(RequestOrder::Waiting(lane.clone(), number));
    OrderedRead { from: at(0), to: at(u64::MAX), limit }
}

/// Returns the read of the requests of a lane that a worker has taken. Its limit is one above
/// [`MAX_BATCH_REQUESTS`], so the answer always reaches the end of the list.
pub fn taken_of(lane: &LanePath) -> OrderedRead<Request> {
    let at = |number| Bound::Included(RequestOrder::Taken(lane.clone(), number));
    OrderedRead { from: at(0), to: at(u64::MAX), limit: MAX_BATCH_REQUESTS + 1 }
}

/// Returns the read of the first requests that were settled before a time, the oldest first.
pub fn settled_before(before: Timestamp, limit: usize) -> OrderedRead<Request> {
    let at = |time| RequestOrder::Settled(time, RequestId(Uuid::nil()));
    OrderedRead { from: Bound::Included(at(Timestamp::MIN)), to: Bound::Excluded(at(before)), limit }
}
