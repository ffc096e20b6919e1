//! The lists of `QueueService`: requests and lanes, page by page.

use std::ops::Bound;

use leasehold_core::lease::Fence;
use leasehold_core::lock::MAX_KEY_BYTES;
use leasehold_core::queue::{Lane, LanePath, QueuePath, Request as QueueRequest, RequestId};
use leasehold_core::queueing::reads::{all_taken, delayed_of, ready_of, settled_before, taken_of, waiting_of};
use leasehold_core::rejection::Rejection;
use leasehold_core::rows::{LaneOrder, OrderedRead, RequestOrder, RowKind};
use leasehold_core::session::SessionId;
use leasehold_core::time::Timestamp;
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::list_lanes_request::List as Lanes;
use leasehold_proto::leasehold::queues::v1::list_requests_request::List as Requests;
use tonic::{Request, Status};
use uuid::Uuid;

use super::failed_reads::Read;
use super::list_permits::lock_list_sharer;
use super::lists::{ListCall, ListFailure};
use super::queue_wire::{wire_lane, wire_request};
use super::queues::{QueueHandler, read_request, reader};
use super::sessions::read_id;
use super::{admitted, errors};
use crate::identity::Caller;

/// The most rows of a page, and their number if the request names none.
const PAGE: (usize, usize) = (1_000, 100);

fn page_limit(limit: u32) -> Result<usize, Status> {
    let (most, usual) = PAGE;
    match limit as usize {
        0 => Ok(usual),
        limit if limit <= most => Ok(limit),
        limit => Err(errors::over_limit("limit", most, Some(limit))),
    }
}

/// Returns a read that begins behind a position.
fn behind<R: RowKind>(read: OrderedRead<R>, after: Option<R::Position>) -> OrderedRead<R> {
    match after {
        Some(after) => OrderedRead { from: Bound::Excluded(after), ..read },
        None => read,
    }
}

impl QueueHandler {
    pub(super) async fn requests_page(
        &self,
        request: Request<wire::ListRequestsRequest>,
    ) -> Result<wire::ListRequestsResponse, Status> {
        let (permit, config) = admitted(&request)?;
        let (caller, list) = (permit.caller(), request.get_ref().list());
        let call = ListCall::of("ListRequests", lock_list_sharer(&caller), &request);
        let wire::ListRequestsRequest { queue, key, limit, after, .. } = request.into_inner();
        let limit = page_limit(limit)?;
        let queue = match queue.is_empty() && list == Requests::Settled && *reader(&caller) == Caller::Trusted {
            true => None,
            false => Some(self.services.readable_queue(&config, &caller, &queue)?),
        };
        let reject = |rejection: Rejection| self.services.reject(&config, &rejection);
        let lane = match (&queue, key.is_empty()) {
            (Some(queue), false) => Some(LanePath::parse(queue.clone(), &key).map_err(reject)?),
            (None, false) => return Err(errors::invalid("`queue` is empty, and `key` is not")),
            (_, true) => None,
        };
        let read = requests_read(list, lane.as_ref(), limit, after)?;
        let rows = self.services.list(&call, async move |store, _| {
            store.requests(read.clone()).await.map_err(|error| ListFailure::Store(error, Read::Requests(read)))
        });
        let rows: Vec<(RequestId, QueueRequest)> = rows.await?;
        let place = |(id, request): &(RequestId, QueueRequest)| wire::RequestPlace {
            number: request.number,
            settled_micros: request.updated_at.as_micros(),
            request_id: id.0.as_bytes().to_vec(),
        };
        let next = rows.get(limit - 1).filter(|_| rows.len() > limit).map(place);
        let is_meant = |request: &QueueRequest| {
            lane.as_ref().is_none_or(|lane| request.lane == *lane)
                && queue.as_ref().is_none_or(|queue| request.lane.queue() == queue)
        };
        let page = rows.iter().take(limit).filter(|(_, request)| is_meant(request));
        Ok(wire::ListRequestsResponse { requests: page.map(|(id, row)| wire_request(*id, row)).collect(), next })
    }

    pub(super) async fn lanes_page(
        &self,
        request: Request<wire::ListLanesRequest>,
    ) -> Result<wire::ListLanesResponse, Status> {
        let (permit, config) = admitted(&request)?;
        let (caller, list) = (permit.caller(), request.get_ref().list());
        let call = ListCall::of("ListLanes", lock_list_sharer(&caller), &request);
        let wire::ListLanesRequest { queue, limit, after, .. } = request.into_inner();
        let limit = page_limit(limit)?;
        let queue = self.services.readable_queue(&config, &caller, &queue)?;
        let after = after.map(|after| lane_position(list, after)).transpose()?;
        let after = after.transpose().map_err(|rejection| self.services.reject(&config, &rejection))?;
        let read = behind(lanes_read(list, &queue, limit)?, after);
        let rows = self.services.list(&call, async move |store, _| {
            store.lanes(read.clone()).await.map_err(|error| ListFailure::Store(error, Read::Lanes(read)))
        });
        let rows: Vec<(LanePath, Lane)> = rows.await?;
        let next = rows.get(limit - 1).filter(|_| rows.len() > limit).map(|(path, lane)| lane_place(path, lane));
        let page = rows.iter().take(limit).filter(|(path, _)| *path.queue() == queue);
        Ok(wire::ListLanesResponse { lanes: page.map(|(path, lane)| wire_lane(path, lane)).collect(), next })
    }
}

/// Returns the read of a page of requests, and of one more.
fn requests_read(
    list: Requests,
    lane: Option<&LanePath>,
    limit: usize,
    after: Option<wire::RequestPlace>,
) -> Result<OrderedRead<QueueRequest>, Status> {
    let of_lane = || lane.ok_or_else(|| errors::invalid("`key` is empty: name the lane"));
    let number = after.as_ref().map_or(0, |after| after.number);
    let read = match list {
        Requests::Taken => {
            let lane = of_lane()?;
            behind(taken_of(lane), after.map(|_| RequestOrder::Taken(lane.clone(), number)))
        }
        Requests::Waiting => {
            let lane = of_lane()?;
            behind(waiting_of(lane, 0), after.map(|_| RequestOrder::Waiting(lane.clone(), number)))
        }
        Requests::Settled => {
            let settled = |after: wire::RequestPlace| {
                let at = Timestamp::from_micros(after.settled_micros);
                Ok::<_, Status>(RequestOrder::Settled(at, read_request(&after.request_id)?))
            };
            behind(settled_before(Timestamp::MAX, 0), after.map(settled).transpose()?)
        }
        Requests::Unspecified => return Err(errors::invalid("`list` is none of TAKEN, WAITING and SETTLED")),
    };
    Ok(OrderedRead { limit: limit + 1, ..read })
}

/// Returns the read of the first page of lanes, and of one more.
fn lanes_read(list: Lanes, queue: &QueuePath, limit: usize) -> Result<OrderedRead<Lane>, Status> {
    match list {
        Lanes::Ready => Ok(ready_of(queue, limit + 1)),
        Lanes::Delayed => Ok(delayed_of(queue, Timestamp::MAX, limit + 1)),
        Lanes::Taken => Ok(all_taken(limit + 1)),
        Lanes::Paused => {
            // No key has a control character, and each character of the last one has four bytes.
            let last = char::MAX.to_string().repeat(MAX_KEY_BYTES / char::MAX.len_utf8());
            let at = |key: &str| {
                let path = LanePath::parse(queue.clone(), key).map_err(|error| errors::rejected(&error))?;
                Ok::<_, Status>(Bound::Included(LaneOrder::Paused(path)))
            };
            Ok(OrderedRead { from: at(" ")?, to: at(&last)?, limit: limit + 1 })
        }
        Lanes::Unspecified => Err(errors::invalid("`list` is none of READY, DELAYED, TAKEN and PAUSED")),
    }
}

/// Parses the position of a lane in a list.
fn lane_position(list: Lanes, place: wire::LanePlace) -> Result<Result<LaneOrder, Rejection>, Status> {
    let wire::LanePlace { queue, key, micros, session_id, fence } = place;
    let session = match list {
        Lanes::Taken => SessionId(read_id("session_id", &session_id)?),
        Lanes::Unspecified | Lanes::Ready | Lanes::Delayed | Lanes::Paused => SessionId(Uuid::nil()),
    };
    let at = Timestamp::from_micros(micros);
    let position = || {
        let queue = QueuePath::parse(&queue)?;
        let path = LanePath::parse(queue.clone(), &key)?;
        Ok(match list {
            Lanes::Ready => LaneOrder::Ready(queue, at, path),
            Lanes::Delayed => LaneOrder::Delayed(queue, at, path),
            Lanes::Taken => LaneOrder::Taken(session, Fence(fence), path),
            Lanes::Paused | Lanes::Unspecified => LaneOrder::Paused(path),
        })
    };
    Ok(position())
}

/// Returns the place of a lane in its list.
fn lane_place(path: &LanePath, lane: &Lane) -> wire::LanePlace {
    let (queue, key) = (path.queue().as_str().to_owned(), path.key().to_owned());
    let place = wire::LanePlace { queue, key, ..wire::LanePlace::default() };
    match Lane::position(path, lane) {
        Some(LaneOrder::Ready(_, at, _) | LaneOrder::Delayed(_, at, _)) => {
            wire::LanePlace { micros: at.as_micros(), ..place }
        }
        Some(LaneOrder::Taken(session, fence, _)) => {
            wire::LanePlace { session_id: session.0.as_bytes().to_vec(), fence: fence.0, ..place }
        }
        Some(LaneOrder::Paused(_) | LaneOrder::Idle(..)) | None => place,
    }
}
