//! The kinds of row of queues, a family of their own beside [`crate::rows`]: a store may keep sessions
//! and locks without queues. Sessions and fences belong to the other family.

use std::collections::BTreeMap;

use crate::lease::Fence;
use crate::queue::{Lane, LanePath, LaneState, Queue, QueuePath, Request, RequestBody, RequestId, RequestState};
use crate::rows::{Key, Loaded, OrderedRead, RowChange, RowKind, Table, WrittenRow};
use crate::session::SessionId;
use crate::time::Timestamp;

crate::row_family! {
    /// Rows of the kind `Queue`: a queue that an operator has paused or limited.
    queues: Queue,
    /// Rows of the kind `Lane`: the requests of one key, as a whole.
    lanes: Lane,
    /// Rows of the kind `Request`: a request, waiting, taken or settled.
    requests: Request,
    /// Rows of the kind `RequestBody`: the body of a request.
    bodies: RequestBody,
    ;
    /// The first requests of a lane: see [`waiting_of`](super::reads::waiting_of) and
    /// [`taken_of`](super::reads::taken_of).
    requests_of_lane: Request
}

impl RowKind for Queue {
    const NAME: &'static str = "queues";
    type Key = QueuePath;
    type Position = QueuePath;

    fn position(path: &QueuePath, _: &Self) -> Option<QueuePath> {
        Some(path.clone())
    }
}

/// The position of a lane in one of the five lists of lanes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneOrder {
    /// The position of a lane that a worker can take: by its queue, then by the rank of its first
    /// request. A lane that waits for anything else is not in this list, so the first lanes of it are
    /// found at the same cost whatever else waits (Q16), and a stuck lane is in nobody's way (Q07).
    Ready(QueuePath, Timestamp, LanePath),
    /// The position of a lane whose first request was not due yet at the last write of the lane's row: by
    /// its queue, then by the time at which it is due (Q12).
    Delayed(QueuePath, Timestamp, LanePath),
    /// The position of a lane that a worker holds: by the worker's session, so that all that it held is
    /// found when it has ended (Q11), then by the fence.
    Taken(SessionId, Fence, LanePath),
    /// The position of a lane that is paused and that no worker holds: by path (Q19).
    Paused(LanePath),
    /// The position of an idle lane: by the time of the last write, so that the oldest are forgotten
    /// first.
    Idle(Timestamp, LanePath),
}

impl RowKind for Lane {
    const NAME: &'static str = "lanes";
    type Key = LanePath;
    type Position = LaneOrder;

    fn position(path: &LanePath, lane: &Self) -> Option<LaneOrder> {
        let queue = || path.queue().clone();
        Some(match &lane.state {
            LaneState::Taken(hold) => LaneOrder::Taken(hold.session, hold.fence, path.clone()),
            _ if lane.is_paused => LaneOrder::Paused(path.clone()),
            LaneState::Idle => LaneOrder::Idle(lane.updated_at, path.clone()),
            LaneState::Waiting(head) if head.not_before > lane.updated_at => {
                LaneOrder::Delayed(queue(), head.not_before, path.clone())
            }
            LaneState::Waiting(head) => LaneOrder::Ready(queue(), head.rank, path.clone()),
        })
    }
}

/// The position of a request in one of the three lists of requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestOrder {
    /// The position of a request that waits: by its place in the lane (Q07).
    Waiting(LanePath, u64),
    /// The position of a request that a worker has taken: by its place in the lane.
    Taken(LanePath, u64),
    /// The position of a request that is complete or failed: by the time of the end, so that the oldest
    /// are forgotten first.
    Settled(Timestamp, RequestId),
}

impl RowKind for Request {
    const NAME: &'static str = "requests";
    type Key = RequestId;
    type Position = RequestOrder;

    fn position(id: &RequestId, request: &Self) -> Option<RequestOrder> {
        Some(match request.state {
            RequestState::New => RequestOrder::Waiting(request.lane.clone(), request.number),
            RequestState::InProgress => RequestOrder::Taken(request.lane.clone(), request.number),
            RequestState::Complete | RequestState::Error => RequestOrder::Settled(request.updated_at, *id),
        })
    }
}

impl RowKind for RequestBody {
    const NAME: &'static str = "bodies";
    type Key = RequestId;
    type Position = std::convert::Infallible;

    fn position(_: &RequestId, _: &Self) -> Option<Self::Position> {
        None
    }
}

impl Tables {
    /// Returns the row with this key, `None` if the store has none.
    pub fn row<K: Kind>(&self, key: &K::Key) -> Option<&K> {
        K::table(self).row(key)
    }

    /// Returns the first rows of a range with their keys, in order.
    pub fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Vec<(K::Key, K)> {
        K::table(self).first(read)
    }

    /// Writes the changes of one command.
    pub fn write(&mut self, changes: Changes) {
        self.write_rows(changes);
    }

    /// Loads the rows with these keys into a workspace, or the fact that a row is absent.
    pub fn load(&self, keys: Keys, into: &mut Workspace) {
        self.load_rows(keys, into);
    }

    /// Writes the net effect of a group of commands.
    pub fn save(&mut self, changes: &NetChanges) {
        self.save_rows(changes);
    }

    /// Returns every row, in the order of keys.
    pub fn state(&self) -> State {
        self.sorted()
    }
}

impl Workspace {
    /// Returns the row with this key as the commands so far have left it, `None` if there is no such
    /// row.
    ///
    /// # Errors
    /// The host has not loaded the row.
    pub fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, crate::rows::NotLoaded> {
        K::loaded(self).row(key)
    }

    /// Returns the keys of the first rows of a range, in order, as the commands so far have left the
    /// rows.
    ///
    /// # Errors
    /// The store may have rows of the range that the host has not loaded.
    pub fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, crate::rows::NotLoaded> {
        K::loaded(self).first(read)
    }

    /// Removes the keys of loaded rows from `keys`, so that only rows that are still to be loaded remain.
    pub fn retain_missing(&self, keys: &mut Keys) {
        self.drop_loaded(keys);
    }

    /// Returns true if a command of this group has written one of the rows with these keys.
    pub fn has_written(&self, keys: &Keys) -> bool {
        self.is_any_written(keys)
    }

    /// Applies the changes of one command to the loaded rows.
    pub fn write(&mut self, changes: Changes) {
        self.write_rows(changes);
    }

    /// Returns the net effect of all commands on the rows, for the store to write.
    pub fn into_changes(self) -> NetChanges {
        self.net()
    }
}

impl State {
    /// Adds a row to the state.
    pub fn insert(&mut self, row: AnyRow) {
        self.insert_row(row);
    }
}

impl Keys {
    /// Returns true if these keys name no row to load.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
