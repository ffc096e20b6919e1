//! The embedded store: fjall, a log-structured store in this process. A group of commands costs one
//! append to the journal and one sync.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `claims` | hash, bucket | a claim at rest: its owner and record |
//! | `sources` | cell, table, row, bucket | empty; the keys have the order of ListRecords (B32) |
//! | `outstanding` | lease | an outstanding lease with its claims |
//! | `settled` | lease | a settled lease |
//! | `settled_order` | time of the settle, lease | empty; the keys have the order in which leases are forgotten |
//! | `replays` | idempotency key | the begin that used the key |
//! | `sessions` | session | a session, live or ended |
//! | `session_order` | 0 (live), session | empty; the keys have the order of the list of live sessions |
//! | `session_order` | 1 (ended), time of the end, session | empty, likewise for ended sessions |
//! | `locks` | path: namespace and key | a lock |
//! | `lock_order` | 0 (held), 1 (withheld), 3 (orphaned) or 4 (set aside), path | empty; the keys have the order of that list of locks |
//! | `lock_order` | 2 (free), time of the last change, path | empty, likewise for free locks |
//! | `asks` | ask | an ask that waits or holds its lock |
//! | `turns` | path, number | the ask that waits at the turn |
//! | `queues` | queue | a queue that is paused or limited |
//! | `lanes` | path: queue and key | a lane |
//! | `lane_order` | 0 (ready) or 1 (delayed), queue, rank or time when due, path | empty; the keys have the order of that list of lanes |
//! | `lane_order` | 2 (taken), session, fence, path | empty, likewise for lanes that a worker holds |
//! | `lane_order` | 3 (paused), path | empty, likewise for paused lanes |
//! | `lane_order` | 4 (idle), time of the last change, path | empty, likewise for idle lanes |
//! | `requests` | request | a request |
//! | `request_order` | 0 (waiting) or 1 (taken), path, number | the request; the keys have the order of that list of requests |
//! | `request_order` | 2 (settled), time of the settle, request | empty, likewise for settled requests |
//! | `bodies` | request | the body of a request |
//! | `meta` | `format`, `fence`, `sequence` | a number |
//! | `meta` | `bucket_types` | the rules of configured bucket types, as JSON |
//! | `meta` | `identity` | the 16 bytes of the store's id |
//! | `meta` | `unicode` | the version of Unicode of the canonical forms, as text |
//!
//! A begin writes one lease row, however many claims the lease has. A claim gets a row of its own
//! only when its lease is settled. Outstanding leases and their claims are also kept in memory, and
//! are read from disk when the store is opened. So are asks, and the lists of asks and turns.
//!
//! `open` checks and opens a directory, `correction` corrects changed bytes in its files, `repair`
//! makes damaged indexes anew, `rows` encodes rows, and `write` commits groups. `read`
//! answers reads, and `scan_threads` limits the number of threads for long reads. `salvage` reads
//! the intact rows of a damaged store, `salvage_copy` makes a copy of one whose journals lack entries,
//! and `lease_salvage`, `lock_salvage` and `queue_salvage` make the rows fit together. `locks` has the
//! rows of sessions and locks, and `lock_rows` their keys and values; `queues` and `queue_rows` have those
//! of queues. `keyed_rows` reads and writes the rows of both, and `list_fronts` the places where lists
//! begin.

mod ack_watermark;
mod check_mark;
mod correction;
mod damaged_index;
mod deep_check;
mod directories;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod journal;
mod keyed_rows;
mod keys;
mod lease_salvage;
mod list_fronts;
mod lock_rows;
mod lock_salvage;
mod locks;
mod manifest;
mod open;
mod open_requests;
mod outstanding;
mod pieces;
mod queue_rows;
mod queue_salvage;
mod queues;
mod read;
mod repair;
mod row_cache;
mod row_sums;
mod rows;
mod salvage;
mod salvage_copy;
mod scan_threads;
mod search;
mod settled_position;
mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fjall::{Database, PersistMode};
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::lease::Fence;
use leasehold_core::unicode_version::UnicodeVersion;

use self::ack_watermark::AckWatermark;
pub use self::correction::CorrectedByte;
pub use self::deep_check::DeepCheck;
use self::locks::Locks;
use self::outstanding::Outstanding;
use self::queues::Queues;
pub use self::repair::Repaired;
use self::rows::{Keyspace, WriteBatch};
pub use self::salvage::{DamagedStore, Salvaged};
use self::scan_threads::ScanThreads;
use self::settled_position::SettledPosition;
use super::error::StoreError;
use super::identity::{COUNTED_CLAIMS, Contents, Count, Identity, RESTORE_JUMP, RaisedFences};
use super::port::{Backend, GroupStore, StoreFuture, StoreMaintenance, StoreReader};
use super::stored;

type Result<T> = std::result::Result<T, StoreError>;

/// The key of the stored rules of bucket types in the keyspace `meta`.
const BUCKET_TYPES: &str = "bucket_types";
/// The key of the version of the stored rows in the keyspace `meta`.
const FORMAT: &str = "format";
/// The key of the version of Unicode in the keyspace `meta`.
const UNICODE: &str = "unicode";
/// The key of the newest fence in the keyspace `meta`.
const FENCE: &str = "fence";

/// The embedded store. Clones refer to the same store. Any number of threads read; one thread, the
/// committer's, writes groups.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
    identity: Identity,
}

struct Inner {
    dir: PathBuf,
    database: Database,
    claims: Keyspace,
    sources: Keyspace,
    outstanding: Keyspace,
    settled: Keyspace,
    settled_order: Keyspace,
    replays: Keyspace,
    locks: Locks,
    queues: Queues,
    meta: Keyspace,
    watermark: AckWatermark,
    // Locked during a commit. Besides the committer, a reload of the configuration commits too.
    committing: Mutex<()>,
    settled_position: SettledPosition,
    // The rows of the keyspace `outstanding`, kept in memory.
    held: RwLock<Outstanding>,
    scan_threads: ScanThreads,
}

impl Inner {
    fn held(&self) -> RwLockReadGuard<'_, Outstanding> {
        // INVARIANT: no code panics halfway through a change of the value while it has locked it.
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_mut(&self) -> RwLockWriteGuard<'_, Outstanding> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn batch(&self) -> WriteBatch {
        WriteBatch::new(self.database.batch().durability(Some(PersistMode::SyncData)))
    }

    /// Commits a batch with the next sequence number, then raises the watermark to this number. The
    /// order matters: a watermark above the journal's last number would look like a loss of data.
    /// For the same reason, one commit at a time takes a number.
    fn commit(&self, batch: WriteBatch) -> Result<()> {
        // INVARIANT: the lock guards no value, so a panic leaves none half changed.
        let _one_at_a_time = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = self.watermark.sequence() + 1;
        batch.end(&self.meta, sequence).commit().inspect_err(|error| self.mark_if_poisoned(error))?;
        self.watermark.raise(sequence).map_err(|error| StoreError::Failed(error.to_string()))
    }

    /// Returns the version of the stored rows.
    fn format(&self) -> Result<u64> {
        Ok(self.meta.number(FORMAT)?.unwrap_or(stored::FIRST_VERSION))
    }

    fn fence(&self) -> Result<Fence> {
        Ok(Fence(self.meta.number(FENCE)?.unwrap_or(0)))
    }
}

impl EmbeddedStore {
    /// The name of a file in the data directory that every acknowledged write changes.
    pub const WRITTEN: &str = ack_watermark::FILE;

    /// Returns a key that sorts claims in the order in which [`for_each`](Self::for_each) visits
    /// claims at rest. No two claims have the same key.
    pub fn position(key: &BucketKey) -> Vec<u8> {
        keys::claim(key)
    }

    /// Returns the version of the stored rows.
    ///
    /// # Errors
    /// The version could not be read.
    pub fn format(&self) -> Result<u64> {
        self.inner.format()
    }

    /// Returns the number of claims under leases of each cell.
    pub fn held_claims(&self) -> BTreeMap<CellId, usize> {
        let mut held_claims = BTreeMap::new();
        self.inner.held().claims().for_each(|(_, claim)| *held_claims.entry(claim.owner).or_default() += 1);
        held_claims
    }

    /// Counts the claims and outstanding leases.
    ///
    /// # Errors
    /// A row could not be read.
    fn contents(&self) -> Result<Contents> {
        let held = self.inner.held();
        let creating = held.claims().filter(|(_, claim)| rows::resting(claim).is_none()).count();
        let leases = held.leases().count();
        drop(held);
        let (claims, snapshot) = (&self.inner.claims, self.inner.database.snapshot());
        let mut rows = claims.range::<&[u8]>(&snapshot, ..).take(COUNTED_CLAIMS + 1);
        let counted = rows.try_fold(creating, |count, row| row.map(|_| count + 1))?;
        let claims = Count::of(counted, claims.rows.approximate_len() + creating);
        Ok(Contents { claims, leases, fence: self.inner.fence()? })
    }

    /// Raises the newest fence by [`RESTORE_JUMP`].
    ///
    /// # Errors
    /// The fence could not be written.
    fn raise_fences(&self) -> Result<RaisedFences> {
        let from = self.inner.fence()?;
        let to = Fence(from.0.saturating_add(RESTORE_JUMP));
        let mut batch = self.inner.batch();
        self.inner.meta.insert(&mut batch, FENCE, to.0.to_be_bytes());
        self.inner.commit(batch)?;
        Ok(RaisedFences { from, to })
    }

    /// Stores the rules of configured bucket types, and replaces the rules stored before.
    ///
    /// # Errors
    /// The rules could not be written.
    pub fn remember_bucket_types(&self, rules: &[BucketRule]) -> Result<()> {
        let rules = stored::bucket_rules_to_json(rules).map_err(|error| StoreError::Failed(error.to_string()))?;
        let mut batch = self.inner.batch();
        self.inner.meta.insert(&mut batch, BUCKET_TYPES, rules);
        self.inner.commit(batch)
    }

    /// Stores the version of Unicode by whose tables all keys of the store are canonical forms.
    ///
    /// # Errors
    /// The version could not be written.
    pub fn set_unicode_version(&self, version: UnicodeVersion) -> Result<()> {
        let mut batch = self.inner.batch();
        self.inner.meta.insert(&mut batch, UNICODE, version.to_string());
        self.inner.commit(batch)
    }
}

impl Backend for EmbeddedStore {
    fn writers(&self) -> std::io::Result<Vec<Box<dyn GroupStore>>> {
        Ok(vec![Box::new(self.clone())])
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        Arc::new(self.clone())
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn contents(&self) -> StoreFuture<'_, Contents> {
        Box::pin(async move { Self::contents(self) })
    }

    fn raise_fences(&self) -> StoreFuture<'_, RaisedFences> {
        Box::pin(async move { Self::raise_fences(self) })
    }

    fn maintenance(&self) -> StoreMaintenance {
        StoreMaintenance::Exclusive(self.reader())
    }

    fn remember_bucket_types<'a>(&'a self, rules: &'a [BucketRule]) -> StoreFuture<'a, ()> {
        Box::pin(async move { Self::remember_bucket_types(self, rules) })
    }

    fn set_unicode_version(&self, version: UnicodeVersion) -> StoreFuture<'_, ()> {
        Box::pin(async move { Self::set_unicode_version(self, version) })
    }
}
