//! The open requests of the lanes that were used last, in memory. A lane whose requests are submitted, taken and
//! settled soon after each other is then worked without a read from disk.

use std::collections::BTreeMap;
use std::mem::take;
use std::ops::Bound;

use leasehold_core::queue::{Lane, LanePath, LaneState, Request, RequestId};
use leasehold_core::rows::{NetChanges, OrderedRead, RequestOrder, RowChange, RowKind};
use rustc_hash::FxHashMap;

/// The number of rows and lanes after which a generation is complete. Two generations are kept.
const GENERATION: usize = 8_192;
/// The most open requests of a lane that is kept.
const MAX_REQUESTS: usize = 256;

/// All requests of one lane that wait or are taken, in the order of both lists.
type OpenOfLane = BTreeMap<RequestOrder, (RequestId, Request)>;

/// A bounded cache of lanes, each with all of its open requests.
#[derive(Default)]
pub(super) struct OpenRequests {
    newer: FxHashMap<LanePath, OpenOfLane>,
    // The number of rows and lanes that were added to the newer generation.
    added: usize,
    older: FxHashMap<LanePath, OpenOfLane>,
}

impl OpenRequests {
    /// Returns the first rows of a read of one lane's requests; `None` if the cache does not have the lane.
    pub(super) fn first(&mut self, read: &OrderedRead<Request>) -> Option<Vec<(RequestId, Request)>> {
        let (Bound::Included(from), Bound::Included(to)) = (&read.from, &read.to) else { return None };
        let ((RequestOrder::Waiting(lane, _), RequestOrder::Waiting(other, _))
        | (RequestOrder::Taken(lane, _), RequestOrder::Taken(other, _))) = (from, to)
        else {
            return None;
        };
        let open = self.lane(lane).filter(|_| lane == other && from <= to)?;
        Some(open.range(from..=to).take(read.limit).map(|(_, row)| row.clone()).collect())
    }

    fn lane(&mut self, lane: &LanePath) -> Option<&mut OpenOfLane> {
        if let Some(open) = self.older.remove(lane) {
            self.put(lane, open);
        }
        self.newer.get_mut(lane)
    }

    fn put(&mut self, lane: &LanePath, open: OpenOfLane) {
        if self.added >= GENERATION {
            (self.older, self.added) = (take(&mut self.newer), 0);
        }
        self.added += 1 + open.len();
        self.newer.insert(lane.clone(), open);
    }

    fn remove(&mut self, lane: &LanePath) {
        self.newer.remove(lane);
        self.older.remove(lane);
    }

    /// Follows changes that were committed. A lane is known from the time at which it has no open request.
    pub(super) fn committed(&mut self, changes: &NetChanges) {
        for RowChange { key, before, .. } in changes.lanes.iter().filter(|change| !has_open(change.before.as_ref())) {
            // A lane that was known and idle is an empty entry already.
            if before.is_none() || self.lane(key).is_none() {
                self.remove(key);
                self.put(key, OpenOfLane::new());
            }
        }
        changes.requests.iter().for_each(|change| self.follow(change));
        changes.lanes.iter().filter(|change| change.after.is_none()).for_each(|change| self.remove(&change.key));
    }

    fn follow(&mut self, RowChange { key, before, after }: &RowChange<Request>) {
        let Some(lane) = before.as_ref().or(after.as_ref()).map(|row| row.lane.clone()) else { return };
        let place = |row: &Option<Request>| Request::position(key, row.as_ref()?).filter(is_open);
        let Some(open) = self.lane(&lane) else { return };
        place(before).iter().for_each(|at| _ = open.remove(at));
        if let (Some(at), Some(row)) = (place(after), after) {
            open.insert(at, (*key, row.clone()));
        }
        if open.len() > MAX_REQUESTS {
            self.remove(&lane);
        } else {
            self.added += usize::from(before.is_none());
        }
    }
}

fn has_open(lane: Option<&Lane>) -> bool {
    lane.is_some_and(|lane| lane.waiting > 0 || lane.state != LaneState::Idle)
}

fn is_open(order: &RequestOrder) -> bool {
    matches!(order, RequestOrder::Waiting(..) | RequestOrder::Taken(..))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::queue::{BodyDigest, Head, Priority, QueuePath, RequestKind, RequestState};
    use leasehold_core::queueing::reads::{taken_of, waiting_of};
    use leasehold_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn path(number: usize) -> LanePath {
        LanePath::parse(QueuePath::parse("sheets").unwrap(), &number.to_string()).unwrap()
    }

    fn id(number: u64) -> RequestId {
        RequestId(Uuid::from_u128(number.into()))
    }

    fn lane(waiting: u32) -> Lane {
        let head = Head { not_before: Timestamp::MIN, rank: Timestamp::MIN };
        let state = if waiting == 0 { LaneState::Idle } else { LaneState::Waiting(head) };
        let (create, note, last) = (None, None, None);
        let updated_at = Timestamp::MIN;
        Lane { state, is_paused: false, waiting, last_number: 9, create, note, last, updated_at }
    }

    fn request(lane: usize, number: u64, state: RequestState) -> Request {
        Request {
            lane: path(lane),
            number,
            kind: RequestKind::Update,
            priority: Priority::default(),
            not_before: Timestamp::MIN,
            attempts: 0,
            max_attempts: 1,
            body: BodyDigest { bytes: 0, hash: 0 },
            submitted_at: Timestamp::MIN,
            updated_at: Timestamp::MIN,
            state,
        }
    }

    fn change<K: RowKind>(key: K::Key, before: Option<K>, after: Option<K>) -> RowChange<K> {
        RowChange { key, before, after }
    }

    /// Submits requests to a lane that had `before`.
    fn submitted(at: usize, before: Option<Lane>, numbers: std::ops::Range<u64>) -> NetChanges {
        let new = |number| change(id(number), None, Some(request(at, number, RequestState::New)));
        let after = Some(lane(numbers.end as u32));
        let lanes = vec![change(path(at), before, after)];
        NetChanges { lanes, requests: numbers.map(new).collect(), ..NetChanges::default() }
    }

    #[test]
    fn a_lane_is_known_from_the_time_at_which_it_was_empty() {
        let mut open = OpenRequests::default();
        let waiting = |open: &mut OpenRequests, at, limit| {
            let found = open.first(&waiting_of(&path(at), limit));
            found.map(|rows| rows.iter().map(|(_, request)| request.number).collect::<Vec<_>>())
        };
        open.committed(&submitted(1, None, 1..4));
        open.committed(&submitted(2, Some(lane(7)), 8..9));
        open.committed(&submitted(3, Some(lane(0)), 5..6));
        assert_eq!(waiting(&mut open, 1, 2), Some(vec![1, 2]));
        assert_eq!((waiting(&mut open, 2, 9), waiting(&mut open, 3, 9)), (None, Some(vec![5])));
        let [new, taken] = [RequestState::New, RequestState::InProgress].map(|state| Some(request(1, 1, state)));
        let take = NetChanges { requests: vec![change(id(1), new, taken.clone())], ..NetChanges::default() };
        open.committed(&take);
        assert_eq!(waiting(&mut open, 1, 9), Some(vec![2, 3]));
        assert_eq!(open.first(&taken_of(&path(1))), Some(vec![(id(1), taken.unwrap())]));
        let forgotten = NetChanges { lanes: vec![change(path(3), Some(lane(0)), None)], ..NetChanges::default() };
        open.committed(&forgotten);
        assert_eq!(waiting(&mut open, 3, 9), None);
    }

    #[test]
    fn the_rows_have_a_bound() {
        let mut open = OpenRequests::default();
        for at in 0..3 * GENERATION {
            open.committed(&submitted(at, None, 0..2));
        }
        let rows = |lanes: &FxHashMap<_, OpenOfLane>| lanes.values().map(|open| 1 + open.len()).sum::<usize>();
        assert!(rows(&open.newer) + rows(&open.older) <= 2 * (GENERATION + 3));
        open.committed(&submitted(1, None, 0..MAX_REQUESTS as u64 + 1));
        assert_eq!(open.first(&taken_of(&path(1))), None);
    }
}
