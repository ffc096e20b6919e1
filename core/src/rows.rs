//! The kinds of row that a store keeps. Each kind is declared in this file, once. All types that
//! handle every kind follow from this declaration:
//!
//! | type | contents, per kind |
//! |---|---|
//! | [`Keys`] | the keys of the rows that commands read |
//! | [`Changes`] | the rows that one command writes |
//! | [`Workspace`] | the rows loaded for a group of commands, as the commands have left them |
//! | [`NetChanges`] | each row that the group changed, before and after |
//! | [`Tables`] | all rows of the reference store |
//! | [`State`] | all rows in the order of keys, for invariants and dumps |
//! | [`AnyRow`] | one row of any kind, for dumps |
//!
//! **To add a kind of row**, define its type and the type's rules in a new file. To this file, add
//! an `impl RowKind` and a line in `row_family!`. In `Command::add_keys`, name the rows that
//! commands read. In `invariant.rs`, check the rows, and in `conformance.rs`, let the random
//! commands use them. Then load and write the rows in each store: the conformance suite fails for a
//! store that lacks the kind. A command then reads a row by key with
//! [`Transaction::row`](crate::transaction::Transaction::row) or several in order with
//! [`Transaction::first`](crate::transaction::Transaction::first).
//!
//! All these types are generic, so a read costs one hash look-up: no row is boxed, and no call is
//! dynamic.

mod family;
mod kind;
mod loaded;
mod sorted;
mod table;

use std::collections::BTreeMap;
use std::convert::Infallible;

use crate::bucket::BucketKey;
use crate::cell::CellId;
use crate::claim::{Claim, SourceId, SourceType};
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState, Replay};
use crate::lock::{Ask, AskId, Lock, LockPath, LockState, Turn, TurnKey};
use crate::queue::{Lane, LanePath, LaneState, Queue, QueuePath, Request, RequestBody, RequestId, RequestState};
use crate::session::{Session, SessionId, SessionState};
use crate::time::Timestamp;

pub use kind::{Key, NotLoaded, OrderedRead, RowChange, RowKind, WrittenRow};
pub use loaded::Loaded;
pub use sorted::SortedRows;
pub use table::Table;

crate::row_family! {
    /// Rows of the kind `Claim`: the claim of a bucket.
    claims: Claim,
    /// Rows of the kind `Lease`: a lease, outstanding or settled.
    leases: Lease,
    /// Rows of the kind `Replay`: the answer to a begin with an idempotency key.
    replays: Replay,
    /// Rows of the kind `Session`: a session, live or ended.
    sessions: Session,
    /// Rows of the kind `Lock`: a lock that is held, withheld or orphaned, or was held lately.
    locks: Lock,
    /// Rows of the kind `Ask`: an acquire that waits or holds its lock.
    asks: Ask,
    /// Rows of the kind `Turn`: a place in the queue of a lock.
    turns: Turn,
    /// Rows of the kind `Queue`: a queue that an operator has paused or limited.
    queues: Queue,
    /// Rows of the kind `Lane`: the requests of one key, as a whole.
    lanes: Lane,
    /// Rows of the kind `Request`: a request, waiting, taken or settled.
    requests: Request,
    /// Rows of the kind `RequestBody`: the body of a request.
    bodies: RequestBody,
    ;
    /// The asks of a session: see [`asks_of`](crate::locking::reads::asks_of).
    asks_of_session: Ask;
    /// The first turns of a lock: see [`queue_of`](crate::locking::reads::queue_of).
    turns_of_lock: Turn;
    /// The first requests of a lane: see [`waiting_of`](crate::queueing::reads::waiting_of) and
    /// [`taken_of`](crate::queueing::reads::taken_of).
    requests_of_lane: Request
}

impl RowKind for Claim {
    const NAME: &'static str = "claims";
    type Key = BucketKey;
    /// The list of records has the order of cell, source type, source id and bucket (B32).
    type Position = (CellId, SourceType, SourceId, BucketKey);

    fn position(key: &BucketKey, claim: &Self) -> Option<Self::Position> {
        let source = &claim.record().source;
        Some((claim.owner, source.source_type, source.id.clone(), key.clone()))
    }
}

/// The position of a lease in one of the two lists of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseOrder {
    /// The position of an outstanding lease: by its cell, then by the time of its begin (B31).
    Outstanding(CellId, Timestamp, LeaseId),
    /// The position of a settled lease: by the time of its settle, so that the oldest are forgotten
    /// first.
    Settled(Timestamp, LeaseId),
}

impl RowKind for Lease {
    const NAME: &'static str = "leases";
    type Key = LeaseId;
    type Position = LeaseOrder;

    fn position(id: &LeaseId, lease: &Self) -> Option<LeaseOrder> {
        Some(match lease.state {
            LeaseState::Outstanding(_) => LeaseOrder::Outstanding(lease.cell, lease.created_at, *id),
            LeaseState::Settled(_) => LeaseOrder::Settled(lease.updated_at, *id),
        })
    }
}

impl RowKind for Replay {
    const NAME: &'static str = "replays";
    type Key = IdempotencyKey;
    type Position = Infallible;

    fn position(_: &IdempotencyKey, _: &Self) -> Option<Infallible> {
        None
    }
}

impl RowKind for Session {
    const NAME: &'static str = "sessions";
    type Key = SessionId;
    type Position = SessionOrder;

    fn position(id: &SessionId, session: &Self) -> Option<SessionOrder> {
        Some(match session.state {
            SessionState::Live => SessionOrder::Live(*id),
            SessionState::Ended(_) => SessionOrder::Ended(session.updated_at, *id),
        })
    }
}

/// The position of a session in one of the two lists of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionOrder {
    /// The position of a live session: by id. A host that starts observes all of them (K07).
    Live(SessionId),
    /// The position of an ended session: by the time of its end, so that the oldest are forgotten
    /// first.
    Ended(Timestamp, SessionId),
}

impl RowKind for Lock {
    const NAME: &'static str = "locks";
    type Key = LockPath;
    type Position = LockOrder;

    fn position(path: &LockPath, lock: &Self) -> Option<LockOrder> {
        Some(match lock.state {
            LockState::Held(_) | LockState::Divided(_) => LockOrder::Held(path.clone()),
            LockState::Withheld(_) => LockOrder::Withheld(path.clone()),
            LockState::Free => LockOrder::Free(lock.updated_at, path.clone()),
            LockState::Orphaned if lock.is_exhausted() => LockOrder::SetAside(path.clone()),
            LockState::Orphaned => LockOrder::Orphaned(path.clone()),
        })
    }
}

/// The position of a lock in one of the five lists of locks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockOrder {
    /// The position of a lock that is held or divided: by path (K16).
    Held(LockPath),
    /// The position of a withheld lock: by path. A host that starts observes all of them.
    Withheld(LockPath),
    /// The position of a free lock: by the time at which it became free, so that the oldest are
    /// forgotten first.
    Free(Timestamp, LockPath),
    /// The position of a lock that waits for a cleanup: by path, so that the cleaner of a namespace
    /// finds those of its namespace.
    Orphaned(LockPath),
    /// The position of an orphaned lock that is set aside: by path.
    SetAside(LockPath),
}

impl RowKind for Ask {
    const NAME: &'static str = "asks";
    type Key = AskId;
    /// Asks are listed by session, since the end of a session ends all its asks.
    type Position = (SessionId, AskId);

    fn position(id: &AskId, ask: &Self) -> Option<(SessionId, AskId)> {
        Some((ask.session, *id))
    }
}

impl RowKind for Turn {
    const NAME: &'static str = "turns";
    type Key = TurnKey;
    /// Asks are served in the order of their turns (K08).
    type Position = TurnKey;

    fn position(key: &TurnKey, _: &Self) -> Option<TurnKey> {
        Some(key.clone())
    }
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
    type Position = Infallible;

    fn position(_: &RequestId, _: &Self) -> Option<Infallible> {
        None
    }
}

impl Keys {
    /// Returns true if these keys name no row to load.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl NetChanges {
    /// Returns true if the group has changed no row and given out no fence.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl State {
    /// Adds a row to the state.
    pub fn insert(&mut self, row: AnyRow) {
        self.insert_row(row);
    }
}

impl Workspace {
    /// Returns an empty workspace. `fence` is the newest fence that the store has given out.
    pub fn new(fence: Fence) -> Self {
        Self { fence, ..Self::default() }
    }

    /// Adds a row as the store has it, or the fact that the store has no such row. A row that was
    /// loaded before is kept: a command may have changed it.
    pub fn load<K: Kind>(&mut self, key: K::Key, row: Option<K>) {
        K::loaded_mut(self).load(key, row);
    }

    /// Adds a store's answer to an ordered read: at most `read.limit` rows, in order.
    pub fn load_first<K: Kind>(&mut self, read: &OrderedRead<K>, rows: Vec<(K::Key, K)>) {
        K::loaded_mut(self).load_first(read, rows);
    }

    /// Returns the row with this key as the commands so far have left it, `None` if there is no
    /// such row.
    ///
    /// # Errors
    /// The host has not loaded the row.
    pub fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, NotLoaded> {
        K::loaded(self).row(key)
    }

    /// Returns the keys of the first rows of a range, in order, as the commands so far have left
    /// the rows.
    ///
    /// # Errors
    /// The store may have rows of the range that the host has not loaded: see [`Loaded::first`].
    pub fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, NotLoaded> {
        K::loaded(self).first(read)
    }

    /// Returns the newest fence given out, by a command of this group or before.
    pub fn fence(&self) -> Fence {
        self.new_fence.unwrap_or(self.fence)
    }

    /// Removes the keys of loaded rows from `keys`, so that only rows that are still to be loaded
    /// remain.
    pub fn retain_missing(&self, keys: &mut Keys) {
        self.drop_loaded(keys);
    }

    /// Returns true if a command of this group has written one of the rows with these keys.
    pub fn has_written(&self, keys: &Keys) -> bool {
        self.is_any_written(keys)
    }

    /// Applies the changes of one command to the loaded rows.
    pub fn write(&mut self, changes: Changes) {
        self.new_fence = changes.fence.or(self.new_fence);
        self.write_rows(changes);
    }

    /// Returns the net effect of all commands on the rows, for the store to write.
    pub fn into_changes(self) -> NetChanges {
        self.net()
    }
}

impl Tables {
    /// Returns the row with this key, `None` if the store has none.
    pub fn row<K: Kind>(&self, key: &K::Key) -> Option<&K> {
        K::table(self).row(key)
    }

    /// Returns all rows of a kind, by key.
    pub fn rows<K: Kind>(&self) -> BTreeMap<K::Key, K> {
        K::table(self).sorted()
    }

    /// Returns all rows of a kind in the order of their keys, without copies.
    pub fn sorted_rows<K: Kind>(&self) -> SortedRows<'_, K> {
        SortedRows::new(K::table(self).iter())
    }

    /// Returns the first rows of a range with their keys, in order.
    pub fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Vec<(K::Key, K)> {
        K::table(self).first(read)
    }

    /// Returns the newest fence given out.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Loads the rows with these keys into a workspace, or the fact that a row is absent.
    pub fn load(&self, keys: Keys, into: &mut Workspace) {
        self.load_rows(keys, into);
    }

    /// Writes the changes of one command.
    pub fn write(&mut self, changes: Changes) {
        self.fence = changes.fence.unwrap_or(self.fence);
        self.write_rows(changes);
    }

    /// Writes the net effect of a group of commands.
    pub fn save(&mut self, changes: &NetChanges) {
        self.fence = changes.fence.unwrap_or(self.fence);
        self.save_rows(changes);
    }

    /// Returns every row of the store, in the order of keys.
    pub fn state(&self) -> State {
        self.sorted()
    }
}
