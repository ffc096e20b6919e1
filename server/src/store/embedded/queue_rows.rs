//! The keys and values of queues, lanes, requests and bodies. The byte order of two keys is the order of their
//! parts.

use std::convert::Infallible;

use leasehold_core::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use leasehold_core::rows::{LaneOrder, RequestOrder, RowKind};
use uuid::Uuid;

use super::Result;
use super::keyed_rows::{END, KeyedRow, time, without_time};
use super::rows::{Keyspace, encode};
use crate::store::stored;

/// The first byte of the keys of ready lanes in their order.
const READY: u8 = 0;
/// The first byte of the keys of delayed lanes.
const DELAYED: u8 = 1;
/// The first byte of the keys of lanes that a worker holds.
const TAKEN: u8 = 2;
/// The first byte of the keys of paused lanes.
const PAUSED: u8 = 3;
/// The first byte of the keys of idle lanes.
const IDLE: u8 = 4;
/// The first byte of the keys of waiting requests in their order.
const WAITING: u8 = 0;
/// The first byte of the keys of requests that a worker has taken.
const IN_PROGRESS: u8 = 1;
/// The first byte of the keys of settled requests.
const SETTLED: u8 = 2;

impl KeyedRow for Queue {
    fn key(path: &QueuePath) -> Vec<u8> {
        path.as_str().as_bytes().into()
    }

    fn position_key(path: &QueuePath) -> Vec<u8> {
        Self::key(path)
    }

    fn read_key(bytes: &[u8]) -> Option<QueuePath> {
        QueuePath::parse(std::str::from_utf8(bytes).ok()?).ok()
    }

    fn read_position(bytes: &[u8], _: &[u8]) -> Option<QueuePath> {
        Self::read_key(bytes)
    }

    fn value(&self) -> Result<Vec<u8>> {
        encode(&stored::Queue::from(self))
    }

    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self> {
        rows.decode::<stored::Queue>(bytes).map(Into::into)
    }
}

impl KeyedRow for Lane {
    fn key(path: &LanePath) -> Vec<u8> {
        [path.queue().as_str().as_bytes(), &[END], path.key().as_bytes()].concat()
    }

    fn position_key(position: &LaneOrder) -> Vec<u8> {
        let of_queue = |list, queue: &QueuePath, at, path| {
            [&[list], queue.as_str().as_bytes(), &[END], &time(at)[..], &Self::key(path)].concat()
        };
        match position {
            LaneOrder::Ready(queue, rank, path) => of_queue(READY, queue, *rank, path),
            LaneOrder::Delayed(queue, due, path) => of_queue(DELAYED, queue, *due, path),
            LaneOrder::Taken(session, fence, path) => {
                [&[TAKEN], &session.0.as_bytes()[..], &fence.0.to_be_bytes(), &Self::key(path)].concat()
            }
            LaneOrder::Paused(path) => [&[PAUSED][..], &Self::key(path)].concat(),
            LaneOrder::Idle(at, path) => [&[IDLE], &time(*at)[..], &Self::key(path)].concat(),
        }
    }

    fn read_key(bytes: &[u8]) -> Option<LanePath> {
        let (queue, key) = std::str::from_utf8(bytes).ok()?.split_once(char::from(END))?;
        LanePath::parse(QueuePath::parse(queue).ok()?, key).ok()
    }

    fn read_position(bytes: &[u8], _: &[u8]) -> Option<LanePath> {
        match bytes.split_first()? {
            (&(READY | DELAYED), place) => {
                let end = place.iter().position(|byte| *byte == END)?;
                Self::read_key(without_time(place.get(end + 1..)?)?)
            }
            (&TAKEN, place) => Self::read_key(without_time(place.split_first_chunk::<16>()?.1)?),
            (&PAUSED, path) => Self::read_key(path),
            (&IDLE, place) => Self::read_key(without_time(place)?),
            _ => None,
        }
    }

    fn value(&self) -> Result<Vec<u8>> {
        encode(&stored::Lane::from(self))
    }

    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self> {
        rows.decode::<stored::Lane>(bytes).map(Into::into)
    }
}

impl KeyedRow for Request {
    fn key(id: &RequestId) -> Vec<u8> {
        id.0.as_bytes().into()
    }

    fn position_key(position: &RequestOrder) -> Vec<u8> {
        let of_lane = |list, lane, number: u64| [&[list], &Lane::key(lane)[..], &[END], &number.to_be_bytes()].concat();
        match position {
            RequestOrder::Waiting(lane, number) => of_lane(WAITING, lane, *number),
            RequestOrder::Taken(lane, number) => of_lane(IN_PROGRESS, lane, *number),
            RequestOrder::Settled(at, id) => [&[SETTLED], &time(*at)[..], id.0.as_bytes()].concat(),
        }
    }

    fn position_value(position: &RequestOrder, id: &RequestId) -> Vec<u8> {
        match position {
            RequestOrder::Waiting(..) | RequestOrder::Taken(..) => Self::key(id),
            RequestOrder::Settled(..) => Vec::new(),
        }
    }

    fn read_key(bytes: &[u8]) -> Option<RequestId> {
        Uuid::from_slice(bytes).ok().map(RequestId)
    }

    fn read_position(bytes: &[u8], value: &[u8]) -> Option<RequestId> {
        match bytes.split_first()? {
            (&(WAITING | IN_PROGRESS), _) => Self::read_key(value),
            (&SETTLED, place) => Self::read_key(without_time(place)?),
            _ => None,
        }
    }

    fn value(&self) -> Result<Vec<u8>> {
        encode(&stored::Request::from(self))
    }

    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self> {
        rows.decode::<stored::Request>(bytes).map(Into::into)
    }
}

impl KeyedRow for RequestBody {
    fn key(id: &RequestId) -> Vec<u8> {
        Request::key(id)
    }

    fn position_key(position: &Infallible) -> Vec<u8> {
        match *position {}
    }

    fn read_key(bytes: &[u8]) -> Option<RequestId> {
        Request::read_key(bytes)
    }

    fn read_position(_: &[u8], _: &[u8]) -> Option<RequestId> {
        None
    }

    fn value(&self) -> Result<Vec<u8>> {
        encode(&stored::RequestBody::from(self))
    }

    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self> {
        rows.decode::<stored::RequestBody>(bytes).map(Into::into)
    }
}

/// A kind of row with lists whose first rows come and go: see [`ListFronts`](super::list_fronts::ListFronts).
pub(super) trait ListedRow: KeyedRow + RowKind {
    /// Returns the first bytes of a key in the kind's order, which all keys of the same list have; `None` if the
    /// bytes are not such a key.
    fn list(key: &[u8]) -> Option<&[u8]>;
}

impl ListedRow for Lane {
    fn list(key: &[u8]) -> Option<&[u8]> {
        match key.split_first()? {
            (&(READY | DELAYED), place) => key.get(..place.iter().position(|byte| *byte == END)? + 2),
            (&TAKEN, _) => key.get(..17),
            (&(PAUSED | IDLE), _) => key.get(..1),
            _ => None,
        }
    }
}

impl ListedRow for Request {
    fn list(key: &[u8]) -> Option<&[u8]> {
        match *key.first()? {
            WAITING | IN_PROGRESS => key.get(..key.len().checked_sub(8)?),
            SETTLED => key.get(..1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::Fence;
    use leasehold_core::session::SessionId;
    use leasehold_core::time::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn queue() -> impl Strategy<Value = QueuePath> {
        "[a-c\u{e9}]{1,3}".prop_filter_map("a queue", |name| QueuePath::parse(&name).ok())
    }

    fn lane() -> impl Strategy<Value = LanePath> {
        (queue(), "[ -c\u{e9}\u{1f600}]{1,3}")
            .prop_filter_map("a lane", |(queue, key)| LanePath::parse(queue, &key).ok())
    }

    fn lane_order() -> impl Strategy<Value = LaneOrder> {
        (0..5, queue(), any::<[u64; 2]>(), lane()).prop_map(|(list, queue, [at, session], path)| match list {
            0 => LaneOrder::Ready(queue, Timestamp::from_micros(at), path),
            1 => LaneOrder::Delayed(queue, Timestamp::from_micros(at), path),
            2 => LaneOrder::Taken(SessionId(Uuid::from_u128(session.into())), Fence(at), path),
            3 => LaneOrder::Paused(path),
            _ => LaneOrder::Idle(Timestamp::from_micros(at), path),
        })
    }

    fn request_order() -> impl Strategy<Value = RequestOrder> {
        (0..3, lane(), any::<u64>(), any::<u128>()).prop_map(|(list, lane, number, id)| match list {
            0 => RequestOrder::Waiting(lane, number),
            1 => RequestOrder::Taken(lane, number),
            _ => RequestOrder::Settled(Timestamp::from_micros(number), RequestId(Uuid::from_u128(id))),
        })
    }

    fn path_of(order: &LaneOrder) -> LanePath {
        match order {
            LaneOrder::Ready(_, _, path)
            | LaneOrder::Delayed(_, _, path)
            | LaneOrder::Taken(_, _, path)
            | LaneOrder::Paused(path)
            | LaneOrder::Idle(_, path) => path.clone(),
        }
    }

    proptest! {
        #[test]
        fn q07_byte_order_is_the_order_of_positions(
            lanes in (lane_order(), lane_order()), requests in (request_order(), request_order()), queues in (queue(), queue()),
        ) {
            fn in_order<K: KeyedRow>(a: &K::Position, b: &K::Position) -> bool {
                K::position_key(a).cmp(&K::position_key(b)) == a.cmp(b)
            }
            prop_assert!(in_order::<Queue>(&queues.0, &queues.1));
            prop_assert!(in_order::<Lane>(&lanes.0, &lanes.1));
            prop_assert!(in_order::<Request>(&requests.0, &requests.1));
        }

        #[test]
        fn keys_of_queues_read_back(lane in lane_order(), request in request_order(), queue in queue(), id: u128) {
            prop_assert_eq!(Queue::read_key(&Queue::key(&queue)), Some(queue));
            let path = path_of(&lane);
            prop_assert_eq!(Lane::read_key(&Lane::key(&path)), Some(path.clone()));
            prop_assert_eq!(Lane::read_position(&Lane::position_key(&lane), &[]), Some(path));
            let id = match request {
                RequestOrder::Settled(_, id) => id,
                _ => RequestId(Uuid::from_u128(id)),
            };
            let (key, value) = (Request::position_key(&request), Request::position_value(&request, &id));
            prop_assert_eq!(Request::read_position(&key, &value), Some(id));
        }

        /// All keys of one list begin alike, and so do no others.
        #[test]
        fn q16_the_keys_of_a_list_begin_alike(lanes in (lane_order(), lane_order()), requests in (request_order(), request_order())) {
            fn is_right<K: ListedRow>(a: &K::Position, b: &K::Position, is_same: bool) -> bool {
                let (a, b) = (K::position_key(a), K::position_key(b));
                let list = K::list(&a).unwrap();
                (K::list(&b) == Some(list)) == is_same && b.starts_with(list) == is_same
            }
            let is_same = match (&lanes.0, &lanes.1) {
                (LaneOrder::Ready(a, ..), LaneOrder::Ready(b, ..)) | (LaneOrder::Delayed(a, ..), LaneOrder::Delayed(b, ..)) => a == b,
                (LaneOrder::Taken(a, ..), LaneOrder::Taken(b, ..)) => a == b,
                (LaneOrder::Paused(_), LaneOrder::Paused(_)) | (LaneOrder::Idle(..), LaneOrder::Idle(..)) => true,
                _ => false,
            };
            prop_assert!(is_right::<Lane>(&lanes.0, &lanes.1, is_same));
            let is_same = match (&requests.0, &requests.1) {
                (RequestOrder::Waiting(a, _), RequestOrder::Waiting(b, _)) | (RequestOrder::Taken(a, _), RequestOrder::Taken(b, _)) => a == b,
                (RequestOrder::Settled(..), RequestOrder::Settled(..)) => true,
                _ => false,
            };
            prop_assert!(is_right::<Request>(&requests.0, &requests.1, is_same));
        }
    }
}
