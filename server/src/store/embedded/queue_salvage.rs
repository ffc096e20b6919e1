//! Makes the salvaged rows of queues fit together, so that an import accepts them.
//!
//! A row of each kind may be lost, or rows of different times may stand side by side. A request that was not settled
//! is worked again rather than never: a lane whose worker took other requests than those that are left loses its hold,
//! and the worker's settle is refused by its fence (Q10). The row of a lane that is lost is made anew from the lane's
//! requests, so their order stays (Q07).

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::queue::{
    Head, Lane, LaneHold, LanePath, LaneState, MAX_BATCH_BYTES, MAX_BATCH_REQUESTS, Queue, QueuePath, Request,
    RequestId, RequestKind, RequestState,
};
use leasehold_core::rows::State;
use leasehold_core::time::Timestamp;

/// The requests of one lane that are not settled, in the order of their numbers.
type Open = Vec<RequestId>;

/// Restores lost lanes, orders requests that have one place, and ends holds that lost a part. Removes the requests
/// whose body is `lost`: nobody can work on them.
pub(super) fn repair(state: &mut State, lost: &BTreeSet<RequestId>) {
    let State { queues, lanes, requests, .. } = state;
    requests.retain(|id, _| !lost.contains(id));
    restore_lanes(lanes, requests);
    keep_one_create(lanes, requests);
    let mut open = open_requests(requests);
    for (path, lane) in &mut *lanes {
        let of_lane = open.remove(path).unwrap_or_default();
        give_places(lane, &of_lane, requests);
        end_lost_hold(lane, &of_lane, requests);
        put_state(lane, &of_lane, requests);
    }
    count_taken(queues, lanes);
}

/// Makes a row for each lane that a request needs and that has none: one that is not settled, or a create.
fn restore_lanes(lanes: &mut BTreeMap<LanePath, Lane>, requests: &BTreeMap<RequestId, Request>) {
    let needs_lane = |request: &&Request| !request.is_settled() || request.kind == RequestKind::Create;
    for request in requests.values().filter(needs_lane) {
        lanes.entry(request.lane.clone()).or_insert_with(|| Lane {
            state: LaneState::Idle,
            is_paused: false,
            waiting: 0,
            last_number: 0,
            create: None,
            note: None,
            last: None,
            updated_at: request.updated_at,
        });
    }
}

/// Leaves each lane its newest create. An older one was forgotten or withdrawn before the newer one came (Q09).
fn keep_one_create(lanes: &mut BTreeMap<LanePath, Lane>, requests: &mut BTreeMap<RequestId, Request>) {
    let mut newest: BTreeMap<LanePath, (Timestamp, u64, RequestId)> = BTreeMap::new();
    for (id, request) in requests.iter().filter(|(_, request)| request.kind == RequestKind::Create) {
        let create = (request.submitted_at, request.number, *id);
        newest.entry(request.lane.clone()).and_modify(|newest| *newest = create.max(*newest)).or_insert(create);
    }
    requests.retain(|id, request| {
        request.kind == RequestKind::Update || newest.get(&request.lane).is_some_and(|(_, _, newest)| newest == id)
    });
    for (path, lane) in lanes {
        lane.create = newest.get(path).map(|(_, _, id)| *id);
    }
}

/// Returns the requests of each lane that are not settled, in the order of their numbers.
fn open_requests(requests: &BTreeMap<RequestId, Request>) -> BTreeMap<LanePath, Open> {
    let mut open: BTreeMap<LanePath, Vec<(u64, Timestamp, RequestId)>> = BTreeMap::new();
    for (id, request) in requests.iter().filter(|(_, request)| !request.is_settled()) {
        let place = (request.number, request.submitted_at, *id);
        open.entry(request.lane.clone()).or_default().push(place);
    }
    let in_order = |(path, mut places): (LanePath, Vec<(u64, Timestamp, RequestId)>)| {
        places.sort_unstable();
        (path, places.into_iter().map(|(_, _, id)| id).collect())
    };
    open.into_iter().map(in_order).collect()
}

/// Gives the second of two requests with one place, and all behind it, new places in the same order.
fn give_places(lane: &mut Lane, open: &Open, requests: &mut BTreeMap<RequestId, Request>) {
    let mut last = 0;
    for id in open {
        if let Some(request) = requests.get_mut(id) {
            request.number = request.number.max(last + 1);
            last = request.number;
        }
    }
    lane.last_number = lane.last_number.max(last);
}

/// Ends the hold of a lane if the requests in progress are not those that were taken.
fn end_lost_hold(lane: &mut Lane, open: &Open, requests: &mut BTreeMap<RequestId, Request>) {
    if lane.hold().is_some_and(|hold| is_whole(hold, open, requests)) {
        return;
    }
    if lane.hold().is_some() {
        lane.state = LaneState::Idle;
    }
    for id in open {
        if let Some(request) = requests.get_mut(id).filter(|request| request.state == RequestState::InProgress) {
            let is_last = request.attempts >= request.max_attempts;
            request.state = if is_last { RequestState::Error } else { RequestState::New };
        }
    }
}

/// True if the requests in progress can be those that the hold has taken: the first of the lane, up to the last one.
fn is_whole(hold: &LaneHold, open: &Open, requests: &BTreeMap<RequestId, Request>) -> bool {
    let open: Vec<_> = open.iter().filter_map(|id| requests.get(id)).collect();
    let taken: Vec<_> = open.iter().take_while(|request| request.state == RequestState::InProgress).collect();
    let others = open.iter().skip(taken.len()).any(|request| request.state == RequestState::InProgress);
    let bytes: usize = taken.iter().map(|request| request.body.bytes as usize).sum();
    let is_bounded = (1..=MAX_BATCH_REQUESTS).contains(&taken.len()) && bytes <= MAX_BATCH_BYTES;
    let is_alone = taken.len() == 1 || taken.iter().all(|request| request.kind == RequestKind::Update);
    let is_to_the_last = taken.last().is_some_and(|request| request.number == hold.last_number);
    is_to_the_last && !others && is_bounded && is_alone
}

/// Counts the requests that wait in a lane, and orders a lane that no worker holds by the first of them.
fn put_state(lane: &mut Lane, open: &Open, requests: &BTreeMap<RequestId, Request>) {
    let mut waiting = open.iter().filter_map(|id| requests.get(id)).filter(|request| request.is_new());
    let first = waiting.next();
    lane.waiting = u32::try_from(waiting.count() + usize::from(first.is_some())).unwrap_or(u32::MAX);
    if lane.hold().is_none() {
        lane.state = first.map_or(LaneState::Idle, |request| LaneState::Waiting(Head::of(request)));
    }
}

/// Counts the lanes that were taken under the limit of their queue (Q17). Lanes of a queue whose row is lost do not
/// count.
fn count_taken(queues: &mut BTreeMap<QueuePath, Queue>, lanes: &mut BTreeMap<LanePath, Lane>) {
    queues.values_mut().for_each(|queue| queue.taken = 0);
    for (path, lane) in lanes {
        if let LaneState::Taken(hold) = &mut lane.state {
            match queues.get_mut(path.queue()) {
                Some(queue) if hold.is_counted => queue.taken = queue.taken.saturating_add(1),
                _ => hold.is_counted = false,
            }
        }
    }
    queues.retain(|_, queue| *queue != Queue::default());
}
