//! The invariants of queues. A violation names ids and fences, never a key (Q22).

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::locks;
use super::locks::LockRows;
use crate::lease::Fence;
use crate::order::sorted_by;
use crate::queue::{
    BodyDigest, Head, Lane, LaneHold, LanePath, LaneState, MAX_BATCH_BYTES, MAX_BATCH_REQUESTS, Queue, QueuePath,
    Request, RequestId, RequestKind, RequestState,
};
use crate::rows::{SortedRows, State};
use crate::time::Timestamp;

/// The first broken invariant of queues. No variant stands for two workers of one lane: the row of a lane
/// names at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueViolation {
    /// A request that waits or is worked has no row of its lane. Or its number was not given out by the lane, or is
    /// another's too.
    #[error("request {0} is not where its lane has it")]
    RequestOutOfPlace(RequestId),
    /// A request has no body or another one than its row says, or a body has no request.
    #[error("the body of request {0} is missing or another's")]
    BodyDiffers(RequestId),
    /// A request has more attempts than it may, or another number than fits its state.
    #[error("request {0} has a number of attempts that does not fit its state")]
    AttemptsOutOfRange(RequestId),
    /// A lane's count of waiting requests differs from their number.
    #[error("a lane counts {counted} waiting requests and has {waiting}")]
    LaneMiscounts {
        /// The lane's count of waiting requests.
        counted: u32,
        /// The number of requests that wait in the lane.
        waiting: usize,
    },
    /// A lane that is not taken is idle while requests wait, waits for none, or is ordered by another request than
    /// the first. Or it has requests in progress.
    #[error("a lane with {waiting} waiting requests is not ordered by the first of them")]
    LaneOutOfOrder {
        /// The number of requests that wait in the lane.
        waiting: usize,
    },
    /// A lane is taken, and the requests in progress are not those that were taken: too few or too many, not the
    /// first of the lane, or some beside a create.
    #[error("the lane with fence {} has other requests in progress than were taken", .0.0)]
    BatchDiffers(Fence),
    /// A queue's row says nothing, or a queue counts another number of taken lanes than it has.
    #[error("a queue counts {counted} taken lanes and has {taken}")]
    QueueMiscounts {
        /// The queue's count of taken lanes.
        counted: u32,
        /// The number of taken lanes that count.
        taken: u32,
    },
    /// A lane names a create that is unknown or of another lane, or a create is not the one of its lane.
    #[error("request {0} is not the create of its lane")]
    CreateDiffers(RequestId),
    /// Two grants or holds have the same fence, or a fence is 0 or above the newest fence given out. Or the fence of a
    /// lane's hold is not above the fence of the hold before.
    #[error("fence {} of a lane is doubled or out of order", .0.0)]
    FenceOutOfOrder(Fence),
}

/// The rows of queues, with those of locks, from whose counter lanes take their fences.
pub struct QueueRows<'a> {
    /// The rows of locks.
    pub locks: LockRows<'a>,
    /// The queues that are paused or limited.
    pub queues: SortedRows<'a, Queue>,
    /// The lanes.
    pub lanes: SortedRows<'a, Lane>,
    /// The requests.
    pub requests: SortedRows<'a, Request>,
}

impl<'a> From<&'a State> for QueueRows<'a> {
    fn from(state: &'a State) -> Self {
        let State { queues, lanes, requests, .. } = state;
        Self { locks: state.into(), queues: queues.into(), lanes: lanes.into(), requests: requests.into() }
    }
}

/// The unsettled requests of one lane, in the order of their numbers.
#[derive(Default)]
struct Open<'a> {
    taken: Vec<&'a Request>,
    waiting: Vec<&'a Request>,
}

/// Checks every invariant of queues but those of bodies. `seen` has the fences of leases.
///
/// # Errors
/// The first violation found.
pub(super) fn check(state: &QueueRows<'_>, seen: FxHashSet<Fence>) -> Result<(), QueueViolation> {
    let open = open_requests(state)?;
    state.requests.iter().try_for_each(|(id, request)| check_request(state, *id, request))?;
    let none = Open::default();
    for (path, lane) in state.lanes.iter() {
        let at = open.binary_search_by(|(lane, _)| (*lane).cmp(path)).ok();
        check_lane(lane, at.and_then(|at| open.get(at)).map_or(&none, |(_, open)| open))?;
        let is_own = |create: &Request| create.lane == *path && create.kind == RequestKind::Create;
        if let Some(id) = lane.create
            && !state.requests.get(&id).is_some_and(is_own)
        {
            return Err(QueueViolation::CreateDiffers(id));
        }
    }
    check_counts(state)?;
    check_fences(state, seen)
}

/// Checks that each request has the body that its row says, and that each body has a request. `digests` has the
/// digests of all bodies.
///
/// # Errors
/// A request has no body or another one, or a body has no request.
pub fn check_bodies(
    requests: &BTreeMap<RequestId, Request>,
    digests: &BTreeMap<RequestId, BodyDigest>,
) -> Result<(), QueueViolation> {
    let other = requests.iter().find(|(id, request)| digests.get(id) != Some(&request.body)).map(|(id, _)| id);
    let unowned = || digests.keys().find(|id| !requests.contains_key(id));
    other.or_else(unowned).map_or(Ok(()), |id| Err(QueueViolation::BodyDiffers(*id)))
}

/// Returns the times in the rows of queues.
pub(super) fn times(state: &QueueRows<'_>) -> impl Iterator<Item = Timestamp> {
    let requests = state.requests.iter();
    let requests = requests.flat_map(|(_, request)| [request.submitted_at, request.updated_at, request.not_before]);
    let lanes = state.lanes.iter().flat_map(|(_, lane)| {
        let last = lane.last.iter().flat_map(|last| [last.ended_at, last.hold.taken_at]);
        last.chain(lane.hold().map(|hold| hold.taken_at)).chain([lane.updated_at])
    });
    requests.chain(lanes)
}

/// Returns the fences of all holds in the rows of lanes.
pub(super) fn fences(state: &QueueRows<'_>) -> impl Iterator<Item = Fence> {
    state.lanes.iter().flat_map(|(_, lane)| {
        let last = lane.last.as_ref().map(|last| last.hold.fence);
        last.into_iter().chain(lane.hold().map(|hold| hold.fence))
    })
}

/// Checks that each queue counts the lanes that were taken under its limit (Q17).
fn check_counts(state: &QueueRows<'_>) -> Result<(), QueueViolation> {
    // The lanes of a queue are neighbours in the order of the paths.
    let mut taken: Vec<(&QueuePath, u32)> = Vec::new();
    for (path, _) in state.lanes.iter().filter(|(_, lane)| lane.hold().is_some_and(|hold| hold.is_counted)) {
        match taken.last_mut().filter(|(queue, _)| *queue == path.queue()) {
            Some((_, count)) => *count += 1,
            None => taken.push((path.queue(), 1)),
        }
    }
    for (path, queue) in state.queues.iter() {
        let at = taken.binary_search_by(|(counted, _)| (*counted).cmp(path)).ok();
        let count = at.and_then(|at| taken.get_mut(at)).map_or(0, |(_, count)| std::mem::take(count));
        if *queue == Queue::default() || queue.taken != count {
            return Err(QueueViolation::QueueMiscounts { counted: queue.taken, taken: count });
        }
    }
    let other = taken.into_iter().map(|(_, count)| count).find(|count| *count > 0);
    other.map_or(Ok(()), |taken| Err(QueueViolation::QueueMiscounts { counted: 0, taken }))
}

/// Returns the unsettled requests of each lane, in the order of the paths.
fn open_requests<'a>(state: &QueueRows<'a>) -> Result<Vec<(&'a LanePath, Open<'a>)>, QueueViolation> {
    let open = state.requests.iter().filter(|(_, request)| !request.is_settled()).collect();
    let place = |(id, request): &(&'a RequestId, &'a Request)| (&request.lane, request.number, *id);
    let mut lanes: Vec<(&LanePath, Open<'_>)> = Vec::new();
    let mut before = None;
    for (id, request) in sorted_by(open, |one, other| place(one).cmp(&place(other))) {
        let is_given_out = |lane: &Lane| (1..=lane.last_number).contains(&request.number);
        let is_doubled = before.replace((&request.lane, request.number)) == Some((&request.lane, request.number));
        if is_doubled || !state.lanes.get(&request.lane).is_some_and(is_given_out) {
            return Err(QueueViolation::RequestOutOfPlace(*id));
        }
        if lanes.last().is_none_or(|(lane, _)| **lane != request.lane) {
            lanes.push((&request.lane, Open::default()));
        }
        let open = lanes.last_mut().map(|(_, open)| if request.is_new() { &mut open.waiting } else { &mut open.taken });
        open.into_iter().for_each(|list| list.push(request));
    }
    Ok(lanes)
}

fn check_request(state: &QueueRows<'_>, id: RequestId, request: &Request) -> Result<(), QueueViolation> {
    let is_fit = match request.state {
        RequestState::New => request.attempts < request.max_attempts,
        RequestState::InProgress | RequestState::Complete => (1..=request.max_attempts).contains(&request.attempts),
        RequestState::Error => request.attempts == request.max_attempts,
    };
    if !is_fit {
        return Err(QueueViolation::AttemptsOutOfRange(id));
    }
    let is_first = state.lanes.get(&request.lane).is_some_and(|lane| lane.create == Some(id));
    if request.kind == RequestKind::Create && !is_first { Err(QueueViolation::CreateDiffers(id)) } else { Ok(()) }
}

fn check_lane(lane: &Lane, open: &Open<'_>) -> Result<(), QueueViolation> {
    let waiting = open.waiting.len();
    if lane.waiting as usize != waiting {
        return Err(QueueViolation::LaneMiscounts { counted: lane.waiting, waiting });
    }
    let first = open.waiting.first().map(|request| Head::of(request));
    let is_in_order = match &lane.state {
        LaneState::Taken(hold) => return check_batch(hold, open),
        LaneState::Idle => first.is_none() && open.taken.is_empty(),
        LaneState::Waiting(head) => first == Some(*head) && open.taken.is_empty(),
    };
    if is_in_order { Ok(()) } else { Err(QueueViolation::LaneOutOfOrder { waiting }) }
}

/// Checks that the requests in progress are the first of their lane: nothing is taken behind an unfinished create,
/// and a create is taken alone (Q02, Q07).
fn check_batch(hold: &LaneHold, open: &Open<'_>) -> Result<(), QueueViolation> {
    let count = open.taken.len();
    let bytes: usize = open.taken.iter().map(|request| request.body.bytes as usize).sum();
    let is_bounded = (1..=MAX_BATCH_REQUESTS).contains(&count) && bytes <= MAX_BATCH_BYTES;
    let is_alone = count == 1 || open.taken.iter().all(|request| request.kind == RequestKind::Update);
    let last = open.taken.last().map(|request| request.number);
    let is_first = open.waiting.first().is_none_or(|first| last < Some(first.number));
    let fits = last == Some(hold.last_number) && is_bounded && is_alone && is_first;
    if fits { Ok(()) } else { Err(QueueViolation::BatchDiffers(hold.fence)) }
}

/// Checks that each hold has a fence of its own, which was given out and which no lease or grant of a lock has. Also
/// checks that the fences of one lane's holds grow.
fn check_fences(state: &QueueRows<'_>, mut seen: FxHashSet<Fence>) -> Result<(), QueueViolation> {
    seen.extend(locks::fences(&state.locks));
    for (_, lane) in state.lanes.iter() {
        let mut before = Fence(0);
        let last = lane.last.as_ref().map(|last| last.hold.fence);
        for fence in last.into_iter().chain(lane.hold().map(|hold| hold.fence)) {
            if fence <= before || fence > state.locks.fence || !seen.insert(fence) {
                return Err(QueueViolation::FenceOutOfOrder(fence));
            }
            before = fence;
        }
    }
    Ok(())
}
