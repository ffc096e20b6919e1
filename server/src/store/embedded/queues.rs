//! The keyspaces of queues, lanes, requests and bodies.
//!
//! Millions of requests may wait, so only the lanes that were used last are in memory. The first rows of the lists that
//! workers read are found at the same cost whatever was taken before them: see [`ListFronts`].

use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use fjall::{Database, Snapshot};
use leasehold_core::queue::{Lane, LanePath, Queue, Request, RequestBody, RequestId};
use leasehold_core::rows::{AnyRow, Keys, NetChanges, OrderedRead, RowChange, RowKind, Workspace};

use super::Result;
use super::keyed_rows::{all, get, get_cached, places, put};
use super::list_fronts::ListFronts;
use super::open_requests::OpenRequests;
use super::queue_rows::ListedRow;
use super::row_cache::RowCache;
use super::rows::{Keyspace, WriteBatch};
use crate::store::error::StoreError;

/// The names of the keyspaces. A store of a version below `stored::QUEUE_VERSION` may lack them.
pub(super) const KEYSPACES: [&str; 6] = ["queues", "lanes", "lane_order", "requests", "request_order", "bodies"];

/// The keyspaces of queues.
pub(super) struct Queues {
    pub(super) queues: Keyspace,
    pub(super) lanes: Keyspace,
    pub(super) lane_order: Keyspace,
    pub(super) requests: Keyspace,
    pub(super) request_order: Keyspace,
    pub(super) bodies: Keyspace,
    lane_fronts: ListFronts,
    request_fronts: ListFronts,
    // The lanes that commands read or changed last.
    // INVARIANT: only the committer takes this mutex, so nobody waits for it while a row is read from disk.
    recent: Mutex<RowCache<Lane>>,
    // The open requests of such lanes, under the same terms.
    open: Mutex<OpenRequests>,
}

impl Queues {
    /// Opens the keyspaces with `keyspace`, whose arguments are a name, the size of the memtable in MiB, and true if
    /// the keyspace gets a Bloom filter.
    ///
    /// # Errors
    /// A keyspace can't be opened.
    pub(super) fn open(keyspace: impl Fn(&'static str, u64, bool) -> Result<Keyspace>) -> Result<Self> {
        Ok(Self {
            queues: keyspace("queues", 1, false)?,
            lanes: keyspace("lanes", 8, true)?,
            lane_order: keyspace("lane_order", 4, false)?,
            requests: keyspace("requests", 8, true)?,
            request_order: keyspace("request_order", 4, false)?,
            bodies: keyspace("bodies", 8, true)?,
            lane_fronts: ListFronts::default(),
            request_fronts: ListFronts::default(),
            recent: Mutex::default(),
            open: Mutex::default(),
        })
    }

    /// Loads the rows of queues among `keys` into the workspace.
    ///
    /// # Errors
    /// A row could not be read.
    pub(super) fn load(&self, database: &Database, keys: &Keys, into: &mut Workspace) -> Result<()> {
        for path in &keys.queues {
            into.load(path.clone(), get::<Queue>(&self.queues, path)?);
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &keys.lanes {
            into.load(path.clone(), get_cached(&mut recent, &self.lanes, path)?);
        }
        drop(recent);
        for id in &keys.requests {
            into.load(*id, get::<Request>(&self.requests, id)?);
        }
        for id in &keys.bodies {
            into.load(*id, get::<RequestBody>(&self.bodies, id)?);
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for read in &keys.requests_of_lane {
            let known = open.first(read);
            into.load_first(read, known.map_or_else(|| self.first_requests(database, read), Ok)?);
        }
        drop(open);
        Ok(())
    }

    /// Reads the first lanes of a range.
    ///
    /// # Errors
    /// A row could not be read.
    pub(super) fn first_lanes(&self, database: &Database, read: &OrderedRead<Lane>) -> Result<Vec<(LanePath, Lane)>> {
        from_front((&self.lanes, &self.lane_order), &self.lane_fronts, database, read)
    }

    /// Reads the first requests of a range.
    ///
    /// # Errors
    /// A row could not be read.
    pub(super) fn first_requests(
        &self,
        database: &Database,
        read: &OrderedRead<Request>,
    ) -> Result<Vec<(RequestId, Request)>> {
        from_front((&self.requests, &self.request_order), &self.request_fronts, database, read)
    }

    /// Adds the changes of a group to the batch. Returns true if there is at least one new or changed row.
    ///
    /// # Errors
    /// A row can't be encoded.
    pub(super) fn put(&self, batch: &mut WriteBatch, changes: &NetChanges) -> Result<bool> {
        let NetChanges { queues, lanes, requests, bodies, .. } = changes;
        queues.iter().try_for_each(|change| put(batch, &self.queues, None, change))?;
        lanes.iter().try_for_each(|change| put(batch, &self.lanes, Some(&self.lane_order), change))?;
        requests.iter().try_for_each(|change| put(batch, &self.requests, Some(&self.request_order), change))?;
        bodies.iter().try_for_each(|change| put(batch, &self.bodies, None, change))?;
        let is_written = queues.iter().any(|change| change.after.is_some())
            || lanes.iter().any(|change| change.after.is_some())
            || requests.iter().any(|change| change.after.is_some());
        Ok(is_written)
    }

    /// Follows changes that were committed.
    pub(super) fn committed(&self, changes: &NetChanges) {
        if changes.lanes.is_empty() && changes.requests.is_empty() {
            return;
        }
        changes.lanes.iter().for_each(|change| follow(&self.lane_fronts, change));
        changes.requests.iter().for_each(|change| follow(&self.request_fronts, change));
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        changes.lanes.iter().for_each(|change| recent.committed(change));
        drop(recent);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).committed(changes);
    }

    /// Passes the rows of queues, lanes, requests and bodies to `visit`, each kind in the order of keys.
    ///
    /// # Errors
    /// A row could not be read, or `visit` failed.
    pub(super) fn visit<E: From<StoreError>>(
        &self,
        snapshot: &Snapshot,
        visit: &mut impl FnMut(AnyRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for row in all(&self.queues, snapshot) {
            let (path, queue) = row?;
            visit(AnyRow::Queue(path, queue))?;
        }
        for row in all(&self.lanes, snapshot) {
            let (path, lane) = row?;
            visit(AnyRow::Lane(path, lane))?;
        }
        for row in all(&self.requests, snapshot) {
            let (id, request) = row?;
            visit(AnyRow::Request(id, request))?;
        }
        for row in all(&self.bodies, snapshot) {
            let (id, body) = row?;
            visit(AnyRow::RequestBody(id, body))?;
        }
        Ok(())
    }
}

/// Reads the first rows of a range. If it is the beginning of a list, the read begins at the list's front.
fn from_front<K: ListedRow + RowKind>(
    keyspaces: (&Keyspace, &Keyspace),
    fronts: &ListFronts,
    database: &Database,
    read: &OrderedRead<K>,
) -> Result<Vec<(K::Key, K)>> {
    let Some((list, to)) = list_from_its_beginning(read) else {
        let (snapshot, from) = (database.snapshot(), read.from.as_ref().map(K::position_key));
        return places(keyspaces, &snapshot, from, read).map(|row| row.map(|(_, row)| row)).collect();
    };
    let front = fronts.begin(list);
    let (snapshot, from) = (database.snapshot(), Bound::Included(front.from.clone()));
    let rows: Result<Vec<_>> = places(keyspaces, &snapshot, from, read).collect();
    // A read that finds none has looked at the whole range.
    let first = rows.as_ref().ok().map(|rows| rows.first().map_or(&to[..], |(at, _)| at));
    front.end(first);
    Ok(rows?.into_iter().map(|(_, row)| row).collect())
}

/// Returns the list that a range lies in and the end of the range, if the range begins with the list.
fn list_from_its_beginning<K: ListedRow>(read: &OrderedRead<K>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (Bound::Included(from), Bound::Included(to) | Bound::Excluded(to)) = (&read.from, &read.to) else {
        return None;
    };
    let (from, to) = (K::position_key(from), K::position_key(to));
    let list = K::list(&from)?;
    let is_beginning = from.strip_prefix(list)?.iter().all(|byte| *byte == 0);
    let is_whole = is_beginning && read.limit > 0 && K::list(&to) == Some(list);
    is_whole.then(|| (list.to_vec(), to))
}

/// Follows a change that may have added a row to a list.
fn follow<K: ListedRow>(fronts: &ListFronts, change: &RowChange<K>) {
    let place = |row: &Option<K>| K::position(&change.key, row.as_ref()?).map(|position| K::position_key(&position));
    let (old, new) = (place(&change.before), place(&change.after));
    if let Some(new) = new.filter(|new| old.as_ref() != Some(new))
        && let Some(list) = K::list(&new)
    {
        fronts.added(list, &new);
    }
}
