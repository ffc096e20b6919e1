//! Repairs a store at the start of a server, after a worker of fjall has ended: see `check_mark`.
//!
//! 1. Changed bytes in the files are corrected.
//! 2. Every row is read, while no worker of fjall runs.
//! 3. A damaged index is emptied, and made anew from the rows that it lists.
//! 4. The mark is removed.
//!
//! Rows without a copy can't be made anew. If a block of them is damaged, the start is refused: a
//! name whose claim is lost must not be given out again without a person's decision.
//!
//! Each step may be repeated, so a start that was cut short is followed by one that begins again.

use std::path::Path;

use fjall::Snapshot;
use leasehold_core::lock::Lock;
use leasehold_core::queue::{Lane, Request};
use leasehold_core::session::Session;

use super::keyed_rows::{KeyedRow, all};
use super::locks::Locks;
use super::queues::Queues;
use super::rows::{Keyspace, WriteBatch, resting};
use super::search::{SEARCH_TIME, Search};
use super::{EmbeddedStore, Inner, Result, check_mark, keys};
use crate::store::error::StoreError;
use crate::store::identity::Creation;

/// The number of keys that are written to an index at once.
const BATCH_KEYS: u64 = 10_000;

/// The keys of an index, each with its value.
type Entries<'a> = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> + 'a>;

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The number of rows that were read.
    pub rows: u64,
    /// The number of bytes that were corrected.
    pub corrected: usize,
    /// The indexes that were made anew, each with the number of its keys.
    pub indexes: Vec<(&'static str, u64)>,
}

impl Inner {
    /// Returns the keyspaces that can be made anew, because each lists the rows of another one.
    fn indexes(&self) -> [&Keyspace; 6] {
        let Locks { session_order, lock_order, .. } = &self.locks;
        let Queues { lane_order, request_order, .. } = &self.queues;
        [&self.sources, &self.settled_order, session_order, lock_order, lane_order, request_order]
    }

    /// Returns the keys that an index must have, with their values.
    fn entries_of<'a>(&'a self, index: &str, snapshot: &'a Snapshot) -> Entries<'a> {
        match index {
            name if name == self.sources.name => Box::new(self.claims.range::<&[u8]>(snapshot, ..).map(|row| {
                let (key, value) = row?;
                let bucket = keys::read_claim(&key).ok_or_else(|| self.claims.damaged())?;
                let claim = self.decode_claim(&value)?;
                let (owner, record) = resting(&claim).ok_or_else(|| self.claims.damaged())?;
                Ok((keys::source_claim(owner, record.source.source_type, &record.source.id, &bucket), Vec::new()))
            })),
            name if name == self.settled_order.name => Box::new(self.settled.range::<&[u8]>(snapshot, ..).map(|row| {
                let (key, value) = row?;
                let id = keys::read_lease(&key).ok_or_else(|| self.settled.damaged())?;
                Ok((keys::settled(self.decode_lease(&value)?.updated_at, id), Vec::new()))
            })),
            name if name == self.locks.session_order.name => positions::<Session>(&self.locks.sessions, snapshot),
            name if name == self.locks.lock_order.name => positions::<Lock>(&self.locks.locks, snapshot),
            name if name == self.queues.lane_order.name => positions::<Lane>(&self.queues.lanes, snapshot),
            _ => positions::<Request>(&self.queues.requests, snapshot),
        }
    }

    /// Writes the keys of an empty index. Returns their number.
    fn fill(&self, index: &Keyspace, progress: &mut impl FnMut(u64)) -> Result<u64> {
        let (snapshot, mut batch, mut rows) = (self.database.snapshot(), self.batch(), 0);
        for entry in self.entries_of(index.name, &snapshot) {
            let (key, value) = entry?;
            index.insert(&mut batch, key, value);
            rows += 1;
            if rows % BATCH_KEYS == 0 {
                self.commit(std::mem::replace(&mut batch, self.batch()))?;
                progress(rows);
            }
        }
        self.commit_rest(batch)?;
        Ok(rows)
    }

    fn commit_rest(&self, batch: WriteBatch) -> Result<()> {
        if batch.is_empty() { Ok(()) } else { self.commit(batch) }
    }
}

/// Returns the keys in the order's keyspace of the rows of a kind, with their values.
fn positions<'a, K: KeyedRow>(rows: &'a Keyspace, snapshot: &'a Snapshot) -> Entries<'a> {
    let entry = |row: Result<(K::Key, K)>| {
        let entry = row
            .map(|(key, row)| K::position(&key, &row).map(|at| (K::position_key(&at), K::position_value(&at, &key))));
        entry.transpose()
    };
    Box::new(all::<K>(rows, snapshot).filter_map(entry))
}

impl EmbeddedStore {
    /// Repairs the store in a data directory, if a server has marked it. Returns what was done;
    /// `None` without a mark. Passes the number of rows so far to `progress` now and then.
    ///
    /// # Errors
    /// Rows without a copy are damaged, the store can't be opened, or the disk failed.
    pub fn repair(dir: &Path, mut progress: impl FnMut(u64)) -> Result<Option<Repaired>> {
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
        let Some(unfinished) = check_mark::read(dir).map_err(failed)? else { return Ok(None) };
        tracing::warn!("the last server stopped because its store failed: every row is read before this one serves");
        let mut search = Search::of_start();
        let mut repaired = Repaired { corrected: Self::correct_bytes(dir, &mut search)?.len(), ..Repaired::default() };
        let inspected = Self::inspect(dir)?;
        let check = inspected.check_deeply(&mut progress)?;
        let inner = &*inspected.inner;
        let is_bad = |name: &str| check.damaged.contains(name) || unfinished.iter().any(|index| index == name);
        let indexes: Vec<_> = inner.indexes().into_iter().filter(|index| is_bad(index.name)).collect();
        let names: Vec<_> = indexes.iter().map(|index| index.name).collect();
        if check.damaged.iter().any(|name| !names.contains(name)) {
            let (dir, faults) = (dir.to_owned(), check.faults.join(", "));
            return Err(match search.is_cut() {
                true => StoreError::SearchCut { dir, damage: faults, seconds: SEARCH_TIME.as_secs() },
                false => StoreError::RowsDamaged { dir, faults },
            });
        }
        repaired.rows = check.rows;
        if !names.is_empty() {
            tracing::warn!(
                faults = check.faults.join(", "),
                "damaged indexes are made anew from the rows that they list"
            );
            check_mark::write(dir, &names).map_err(failed)?;
            indexes.into_iter().try_for_each(|index| index.rows.clear())?;
            // The numbers of later batches must be above that of the one that has emptied an index, and
            // fjall reads the highest number from the rows.
            inner.commit(inner.batch())?;
            drop(inspected);
            repaired.indexes = Self::fill_indexes(dir, &names, &mut progress)?;
        }
        check_mark::remove(dir).map_err(failed)?;
        Ok(Some(repaired))
    }

    /// Fills the empty indexes with these names. Returns each with the number of its keys.
    fn fill_indexes(
        dir: &Path,
        names: &[&'static str],
        progress: &mut impl FnMut(u64),
    ) -> Result<Vec<(&'static str, u64)>> {
        let store = Self::open(dir, Creation::Refused)?;
        let indexes = store.inner.indexes().into_iter().filter(|index| names.contains(&index.name));
        indexes.map(|index| Ok((index.name, store.inner.fill(index, progress)?))).collect()
    }
}
