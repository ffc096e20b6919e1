//! The embedded store: fjall, a log-structured store in this process. One journal append and one sync a group.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `claims` | hash, bucket | a claim at rest: its owner and record |
//! | `sources` | cell, table, row, bucket | nothing: the order of lists (B32) |
//! | `outstanding` | lease | a lease and the claims that it holds, whole |
//! | `settled` | lease | a settled lease |
//! | `settled_order` | time of settling, lease | nothing: the order of forgetting |
//! | `replays` | idempotency key | what it was used for |
//! | `meta` | `format`, `fence`, `sequence` | a number |
//! | `meta` | `bucket_types` | the rules of the bucket types that were configured, in JSON |
//!
//! A begin writes one row, whatever it holds: claims reach their own rows when they come to rest. What is outstanding is
//! kept in memory too, read from its rows at opening.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::{DirBuilder, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::ops::{Bound, RangeBounds};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use fjall::compaction::Leveled;
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Slice, Snapshot,
};
use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::claim::{CellId, Claim, ClaimState, Record, SourceId};
use leasehold_core::invariant::State;
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use leasehold_core::store::{Fences, Store};
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{Keys, NetChanges, Replay, RowChange, Workspace};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::error::StoreError;
use super::held::Held;
use super::witness::Witness;
use super::{journal, keys, manifest};
use crate::committer::{Failure, Writable};

/// The format that this version reads and writes.
const FORMAT: u64 = 1;
const MIB: u64 = 1024 * 1024;
/// Stands in a data directory while an import fills it.
const IMPORTING: &str = "importing";
/// The key of the bucket types that were configured.
const BUCKET_TYPES: &str = "bucket_types";
/// What most rows fit in.
const ROW_BYTES: usize = 256;

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Storage(
                inner @ (fjall::LsmError::ChecksumMismatch { .. } | fjall::LsmError::Unrecoverable),
            ) => Self::Damaged(inner.to_string()),
            fjall::Error::JournalRecovery(_)
            | fjall::Error::InvalidTrailer
            | fjall::Error::InvalidTag(_)
            | fjall::Error::Decompress(_)
            | fjall::Error::Unrecoverable => Self::Damaged(error.to_string()),
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
                Self::Failed(error.to_string())
            }
            fjall::Error::Poisoned => {
                Self::Failed("an earlier write failed, so no more are taken; see the first error, then restart".into())
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

impl StoreError {
    /// The same, of a file, directory or keyspace.
    fn of(self, what: impl Display) -> Self {
        match self {
            Self::Damaged(error) => Self::Damaged(format!("`{what}`: {error}")),
            Self::Failed(error) => Self::Failed(format!("`{what}`: {error}")),
            other => other,
        }
    }
}

type Result<T> = std::result::Result<T, StoreError>;

/// A claim at rest, as its row has it.
#[derive(Serialize, Deserialize)]
struct RestingRow<'a> {
    owner: CellId,
    record: std::borrow::Cow<'a, Record>,
}

/// A lease and what it holds, as its row has it.
#[derive(Serialize, Deserialize)]
struct OutstandingRow<'a> {
    lease: std::borrow::Cow<'a, Lease>,
    claims: Vec<(std::borrow::Cow<'a, BucketKey>, std::borrow::Cow<'a, Claim>)>,
}

/// A keyspace whose errors have its name.
struct Table {
    name: &'static str,
    rows: Keyspace,
}

struct Inner {
    database: Database,
    claims: Table,
    sources: Table,
    outstanding: Table,
    settled: Table,
    settled_order: Table,
    replays: Table,
    meta: Table,
    witness: Witness,
    held: RwLock<Held>,
}

/// The embedded store. Clones share it: any number read, and one, the committer's, writes.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

/// How full the store is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    /// Leases that are outstanding.
    pub leases: usize,
    /// Claims that they hold.
    pub held_claims: usize,
    /// When the oldest of them was begun.
    pub oldest_lease: Option<Timestamp>,
    /// Bytes on disk.
    pub disk_bytes: u64,
}

const KEYSPACES: [&str; 7] = ["claims", "sources", "outstanding", "settled", "settled_order", "replays", "meta"];

fn options(memtable_bytes: u64, bloom: bool) -> KeyspaceCreateOptions {
    let filter = if bloom {
        FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0))
    } else {
        FilterPolicyEntry::None
    };
    KeyspaceCreateOptions::default()
        .max_memtable_size(memtable_bytes)
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .filter_policy(FilterPolicy::all(filter))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(8 * MIB)))
}

impl Table {
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.rows.get(key).map_err(|error| StoreError::from(error).of(self.name))
    }

    fn get_in(&self, snapshot: &Snapshot, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        snapshot.get(&self.rows, key).map_err(|error| StoreError::from(error).of(self.name))
    }

    /// Keys and values in order.
    fn range<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        range: impl RangeBounds<K>,
    ) -> impl Iterator<Item = Result<(Slice, Slice)>> {
        let told = |error| StoreError::from(error).of(self.name);
        snapshot.range(&self.rows, range).map(move |item| item.into_inner().map_err(told))
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T> {
        postcard::from_bytes(bytes).map_err(|_| self.damaged())
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(bytes) = self.get(name)? else { return Ok(None) };
        let bytes = <[u8; 8]>::try_from(&bytes[..]).map_err(|_| self.damaged().of(name))?;
        Ok(Some(u64::from_be_bytes(bytes)))
    }

    fn damaged(&self) -> StoreError {
        StoreError::Damaged(format!("a row of `{}` can't be read", self.name))
    }
}

/// Whether all is there that has been acknowledged, as far as numbers tell. Asked before what is missing is made anew.
fn check_complete(meta: &Table, witness: &Witness, lost_keyspace: Option<&&str>) -> Result<()> {
    let sequence = meta.number(journal::SEQUENCE)?.unwrap_or(0);
    if sequence < witness.sequence() {
        return Err(StoreError::Damaged("what was acknowledged last is missing".into()));
    }
    // All are made before the first number is written.
    if let Some(name) = lost_keyspace.filter(|_| sequence > 0) {
        return Err(StoreError::Damaged(format!("`{name}` is missing")));
    }
    note(witness, sequence)
}

fn note(witness: &Witness, sequence: u64) -> Result<()> {
    witness.write(sequence).map_err(|error| StoreError::Failed(error.to_string()))
}

/// Makes a directory that nobody else may look into; one that is there keeps its mode.
fn make_private(dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

impl Writable for EmbeddedStore {
    fn failure(_: &StoreError, saving: bool) -> Failure {
        // What the journal holds after a failed write is known only when it has been read again.
        if saving { Failure::Final } else { Failure::Row }
    }
}

impl EmbeddedStore {
    /// Opens the data directory, made where it is missing.
    ///
    /// # Errors
    /// It is in use, of another format, damaged, half imported, or the disk failed.
    pub fn open(dir: &Path) -> Result<Self> {
        if Self::is_incomplete(dir) {
            return Err(StoreError::Incomplete(dir.to_owned()));
        }
        Self::open_any(dir)
    }

    /// Whether an import into the directory has not come to its end.
    pub fn is_incomplete(dir: &Path) -> bool {
        dir.join(IMPORTING).exists()
    }

    /// Opens a new data directory, which is refused to others until `import` is done.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and what `import` returns.
    pub fn import<T, E: From<StoreError>>(
        dir: &Path,
        import: impl FnOnce(Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
        let sync = || std::fs::File::open(dir)?.sync_all();
        make_private(dir).map_err(failed)?;
        let marker = dir.join(IMPORTING);
        std::fs::write(&marker, "").and_then(|()| sync()).map_err(failed)?;
        let imported = import(Self::open_any(dir)?)?;
        std::fs::remove_file(&marker).and_then(|()| sync()).map_err(failed)?;
        Ok(imported)
    }

    fn open_any(dir: &Path) -> Result<Self> {
        let database = dir.join("fjall");
        make_private(&database).map_err(|error| StoreError::from(fjall::Error::from(error)).of(database.display()))?;
        let open = std::panic::AssertUnwindSafe(|| Self::open_database(dir));
        // The library asserts some of what it reads; a damaged directory must not look like our own fault.
        std::panic::catch_unwind(open)
            .unwrap_or_else(|_| Err(StoreError::Damaged(format!("`{}` can't be opened", dir.display()))))
    }

    fn open_database(dir: &Path) -> Result<Self> {
        let witness = Self::recover(dir)?;
        let builder = Database::builder(dir.join("fjall"))
            .cache_size(32 * MIB)
            .max_journaling_size(64 * MIB)
            .worker_threads(1)
            .manual_journal_persist(true);
        let database = builder.open().map_err(|error| match error {
            fjall::Error::Locked => StoreError::Locked(dir.to_owned()),
            other => StoreError::from(other).of(dir.display()),
        })?;
        Self::open_tables(dir, database, witness).map_err(|error| error.of(dir.display()))
    }

    fn open_tables(dir: &Path, database: Database, witness: Witness) -> Result<Self> {
        let lost = KEYSPACES.iter().find(|name| !database.keyspace_exists(name));
        let table = |name, memtable_mib, bloom| {
            let rows = database.keyspace(name, || options(memtable_mib * MIB, bloom));
            rows.map(|rows| Table { name, rows }).map_err(|error| StoreError::from(error).of(name))
        };
        let meta = table("meta", 1, false)?;
        check_complete(&meta, &witness, lost)?;
        let inner = Inner {
            claims: table("claims", 16, true)?,
            sources: table("sources", 16, false)?,
            outstanding: table("outstanding", 4, false)?,
            settled: table("settled", 4, true)?,
            settled_order: table("settled_order", 4, false)?,
            replays: table("replays", 4, true)?,
            meta,
            witness,
            held: RwLock::default(),
            database,
        };
        inner.check_format(dir)?;
        inner.read_outstanding()?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Looks at the journals and at the lists of tables while nobody else does.
    fn recover(dir: &Path) -> Result<Witness> {
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
        let database = dir.join("fjall");
        let lock = match OpenOptions::new().read(true).write(true).open(database.join("lock")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::NotFound && database.join("version").exists() => {
                return Err(StoreError::LockMissing(database.join("lock")));
            }
            // The database's first file: there is none yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return Witness::open(dir).map_err(failed),
            Err(error) => return Err(failed(error)),
        };
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Locked(dir.to_owned()),
            TryLockError::Error(error) => failed(error),
        })?;
        let witness = Witness::open(dir).map_err(failed)?;
        manifest::check(&database, witness.sequence() > 0)?;
        journal::recover(&database, witness.sequence())?;
        Ok(witness)
    }

    /// How full the store is.
    pub fn occupancy(&self) -> Occupancy {
        let held = self.inner.held();
        let (leases, held_claims) = held.counts();
        let disk_bytes = self.inner.database.disk_space().unwrap_or(0);
        Occupancy { leases, held_claims, oldest_lease: held.oldest(), disk_bytes }
    }

    /// The cells that own any claim. Costs a step a cell, whatever they own.
    ///
    /// # Errors
    /// A row could not be read.
    pub fn owners(&self) -> Result<BTreeSet<CellId>> {
        let sources = &self.inner.sources;
        let mut owners: BTreeSet<_> = self.inner.held().cells().collect();
        let snapshot = self.inner.database.snapshot();
        let mut from: Vec<u8> = Vec::new();
        while let Some(row) = sources.range(&snapshot, std::mem::take(&mut from)..).next() {
            let owner = keys::read_cell(&row?.0).ok_or_else(|| sources.damaged())?;
            owners.insert(owner);
            from = keys::beyond_cell(owner);
        }
        Ok(owners)
    }

    /// The rules under which claims of configured bucket types were made.
    ///
    /// # Errors
    /// They could not be read.
    pub fn bucket_types(&self) -> Result<Vec<BucketRule>> {
        let meta = &self.inner.meta;
        let Some(rules) = meta.get(BUCKET_TYPES)? else { return Ok(Vec::new()) };
        serde_json::from_slice(&rules).map_err(|_| meta.damaged().of(BUCKET_TYPES))
    }

    /// Remembers those rules, in the place of the ones before.
    ///
    /// # Errors
    /// They could not be written.
    pub fn remember_bucket_types(&self, rules: &[BucketRule]) -> Result<()> {
        let rules = serde_json::to_vec(rules).map_err(|error| StoreError::Failed(error.to_string()))?;
        let mut batch = self.inner.batch();
        batch.insert(&self.inner.meta.rows, BUCKET_TYPES, rules);
        self.inner.commit(batch)
    }

    /// Where a claim stands in the order of [`for_each`](Self::for_each): no two stand in one place.
    pub fn place(key: &BucketKey) -> Vec<u8> {
        keys::claim(key)
    }

    /// Hands every row to `visit`, in the order of keys, without keeping them: claims, leases, replays.
    ///
    /// # Errors
    /// A row could not be read, or `visit` failed.
    pub fn for_each<E: From<StoreError>>(
        &self,
        visit: impl FnMut(Row) -> std::result::Result<(), E>,
    ) -> std::result::Result<Fence, E> {
        self.inner.for_each(visit)
    }
}

/// A row, for export.
#[derive(Debug)]
pub enum Row {
    /// A claim, at rest or held.
    Claim(BucketKey, Claim),
    /// A lease, outstanding or settled.
    Lease(LeaseId, Lease),
    /// An idempotency key.
    Replay(IdempotencyKey, Replay),
}

impl Inner {
    fn held(&self) -> RwLockReadGuard<'_, Held> {
        // The lock is never held across anything that can panic half-way through a change.
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn batch(&self) -> OwnedWriteBatch {
        self.database.batch().durability(Some(PersistMode::SyncData))
    }

    /// Writes a batch, and witnesses that it is written.
    fn commit(&self, mut batch: OwnedWriteBatch) -> Result<()> {
        let sequence = self.witness.sequence() + 1;
        batch.insert(&self.meta.rows, journal::SEQUENCE, sequence.to_be_bytes());
        batch.commit()?;
        note(&self.witness, sequence)
    }

    fn check_format(&self, dir: &Path) -> Result<()> {
        match self.meta.number("format")? {
            Some(FORMAT) => Ok(()),
            Some(found) => Err(StoreError::Format { dir: dir.to_owned(), found, known: FORMAT }),
            None => {
                let mut batch = self.batch();
                batch.insert(&self.meta.rows, "format", FORMAT.to_be_bytes());
                Ok(batch.commit()?)
            }
        }
    }

    fn fence(&self) -> Result<Fence> {
        Ok(Fence(self.meta.number("fence")?.unwrap_or(0)))
    }

    fn read_outstanding(&self) -> Result<()> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        for row in self.outstanding.range::<&[u8]>(&self.database.snapshot(), ..) {
            let (key, value) = row?;
            let id = keys::read_lease(&key).ok_or_else(|| self.outstanding.damaged())?;
            let row: OutstandingRow<'_> = self.outstanding.decode(&value)?;
            held.put_lease(id, Some(&row.lease));
            row.claims.iter().for_each(|(key, claim)| held.put_claim(key, Some(claim)));
        }
        Ok(())
    }

    fn resting_claim(&self, key: &BucketKey) -> Result<Option<Claim>> {
        let bytes = self.claims.get(keys::claim(key))?;
        bytes.map(|bytes| self.decode_claim(&bytes)).transpose()
    }

    fn decode_claim(&self, bytes: &[u8]) -> Result<Claim> {
        let row: RestingRow<'_> = self.claims.decode(bytes)?;
        Ok(Claim { owner: row.owner, state: ClaimState::Active(row.record.into_owned()) })
    }

    fn claim(&self, held: &Held, key: &BucketKey) -> Result<Option<Claim>> {
        match held.claim(key) {
            Some(claim) => Ok(Some(claim.clone())),
            None => self.resting_claim(key),
        }
    }

    fn lease(&self, held: &Held, id: LeaseId) -> Result<Option<Lease>> {
        if let Some(lease) = held.lease(id) {
            return Ok(Some(lease.clone()));
        }
        self.settled.get(keys::lease(id))?.map(|bytes| self.settled.decode(&bytes)).transpose()
    }

    fn replay(&self, key: &IdempotencyKey) -> Result<Option<Replay>> {
        self.replays.get(encode(key)?)?.map(|bytes| self.replays.decode(&bytes)).transpose()
    }

    fn put_claim(&self, batch: &mut OwnedWriteBatch, change: &RowChange<BucketKey, Claim>) -> Result<()> {
        let (before, after) = (resting(change.before.as_ref()), resting(change.after.as_ref()));
        if before == after {
            return Ok(());
        }
        let place = |(owner, record): (CellId, &Record)| {
            keys::source_claim(owner, record.source.source_type, &record.source.id, &change.key)
        };
        let (old, new) = (before.map(place), after.map(place));
        if old != new {
            old.into_iter().for_each(|place| batch.remove(&self.sources.rows, place));
            new.into_iter().for_each(|place| batch.insert(&self.sources.rows, place, ""));
        }
        let key = keys::claim(&change.key);
        match after {
            Some((owner, record)) => {
                let row = RestingRow { owner, record: std::borrow::Cow::Borrowed(record) };
                batch.insert(&self.claims.rows, key, encode(&row)?);
            }
            None => batch.remove(&self.claims.rows, key),
        }
        Ok(())
    }

    fn put_lease(
        &self,
        batch: &mut OwnedWriteBatch,
        change: &RowChange<LeaseId, Lease>,
        claims: &FxHashMap<&BucketKey, &Claim>,
    ) -> Result<()> {
        let key = keys::lease(change.key);
        if let Some(before) = &change.before {
            match before.state {
                LeaseState::Outstanding(_) => batch.remove(&self.outstanding.rows, key),
                LeaseState::Settled(_) => {
                    batch.remove(&self.settled.rows, key);
                    batch.remove(&self.settled_order.rows, keys::settled(before.updated_at, change.key));
                }
            }
        }
        match &change.after {
            Some(lease) if lease.outcome().is_some() => {
                batch.insert(&self.settled.rows, key, encode(lease)?);
                batch.insert(&self.settled_order.rows, keys::settled(lease.updated_at, change.key), "");
            }
            Some(lease) => batch.insert(&self.outstanding.rows, key, outstanding_row(lease, claims)?),
            None => {}
        }
        Ok(())
    }

    fn for_each<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(Row) -> std::result::Result<(), E>,
    ) -> std::result::Result<Fence, E> {
        let held = self.held();
        let snapshot = self.database.snapshot();
        for row in self.claims.range::<&[u8]>(&snapshot, ..) {
            let (key, value) = row?;
            let key = keys::read_claim(&key).ok_or_else(|| self.claims.damaged())?;
            if held.claim(&key).is_none() {
                visit(Row::Claim(key, self.decode_claim(&value)?))?;
            }
        }
        let sorted: BTreeMap<_, _> = held.claims().collect();
        sorted.into_iter().try_for_each(|(key, claim)| visit(Row::Claim(key.clone(), claim.clone())))?;
        let sorted: BTreeMap<_, _> = held.outstanding().collect();
        sorted.into_iter().try_for_each(|(id, lease)| visit(Row::Lease(*id, lease.clone())))?;
        for row in self.settled.range::<&[u8]>(&snapshot, ..) {
            let (key, value) = row?;
            let id = keys::read_lease(&key).ok_or_else(|| self.settled.damaged())?;
            visit(Row::Lease(id, self.settled.decode(&value)?))?;
        }
        for row in self.replays.range::<&[u8]>(&snapshot, ..) {
            let (key, value) = row?;
            visit(Row::Replay(self.replays.decode(&key)?, self.replays.decode(&value)?))?;
        }
        Ok(self.fence()?)
    }

    /// Claims at rest of a table, in order, at most the scan's limit, without those that `held` shows in its own way.
    fn resting_records(
        &self,
        held: &Held,
        snapshot: &Snapshot,
        scan: &RecordScan,
    ) -> Result<BTreeSet<(SourceId, BucketKey)>> {
        let table = keys::table(scan.cell, scan.source_type);
        let row = |id: &SourceId| keys::source(scan.cell, scan.source_type, id);
        let from =
            if scan.source_id_gt.is_empty() { table.clone() } else { keys::beyond_source(row(&scan.source_id_gt)) };
        let to = if scan.source_id_lte.is_empty() {
            beyond_table(&table)
        } else {
            keys::beyond_source(row(&scan.source_id_lte))
        };
        let mut found = BTreeSet::new();
        if from >= to {
            return Ok(found);
        }
        for row in self.sources.range(snapshot, (Bound::Included(from), Bound::Excluded(to))) {
            let (key, _) = row?;
            let place = key.strip_prefix(table.as_slice()).and_then(keys::read_source_claim);
            let (id, bucket) = place.ok_or_else(|| self.sources.damaged())?;
            if scan.covers(bucket.bucket_type, &id) && held.claim(&bucket).is_none() {
                found.insert((id, bucket));
                if found.len() >= scan.limit {
                    break;
                }
            }
        }
        Ok(found)
    }
}

/// What a claim's own row has: the record at rest, of a replace the old one, of a create none.
fn resting(claim: Option<&Claim>) -> Option<(CellId, &Record)> {
    let claim = claim?;
    let record = match &claim.state {
        ClaimState::Active(record) | ClaimState::Destroying(_, record) => record,
        ClaimState::Replacing(_, both) => &both.old,
        ClaimState::Creating(_, _) => return None,
    };
    Some((claim.owner, record))
}

fn beyond_table(table: &[u8]) -> Vec<u8> {
    // A row's key goes on with a group of nine bytes; the last of eight 0xff bytes and a count is below this.
    [table, &[0xff; 10]].concat()
}

fn outstanding_row(lease: &Lease, claims: &FxHashMap<&BucketKey, &Claim>) -> Result<Vec<u8>> {
    let held = lease.claims().iter().map(|key| match claims.get(key) {
        Some(claim) => Ok((std::borrow::Cow::Borrowed(key), std::borrow::Cow::Borrowed(*claim))),
        None => Err(StoreError::Failed("a lease was written without the claims that it holds".into())),
    });
    encode(&OutstandingRow { lease: std::borrow::Cow::Borrowed(lease), claims: held.collect::<Result<_>>()? })
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_extend(value, Vec::with_capacity(ROW_BYTES)).map_err(|error| StoreError::Failed(error.to_string()))
}

impl Store for EmbeddedStore {
    type Error = StoreError;

    fn workspace(&self) -> Result<Workspace> {
        Ok(Workspace::new(self.inner.fence()?))
    }

    fn load(&self, keys: Keys, into: &mut Workspace) -> Result<()> {
        let held = self.inner.held();
        for id in keys.leases {
            into.load_lease(id, self.inner.lease(&held, id)?);
        }
        for key in keys.claims {
            let claim = self.inner.claim(&held, &key)?;
            into.load_claim(key, claim);
        }
        for key in keys.replays {
            let replay = self.inner.replay(&key)?;
            into.load_replay(key, replay);
        }
        Ok(())
    }

    fn save(&mut self, changes: &NetChanges) -> Result<Fences> {
        if changes.is_empty() {
            return Ok(Fences::default());
        }
        let inner = &*self.inner;
        let mut batch = inner.batch();
        let after = changes.claims.iter().filter_map(|change| Some((&change.key, change.after.as_ref()?)));
        let claims: FxHashMap<_, _> = after.collect();
        changes.claims.iter().try_for_each(|change| inner.put_claim(&mut batch, change))?;
        changes.leases.iter().try_for_each(|change| inner.put_lease(&mut batch, change, &claims))?;
        for change in &changes.replays {
            match &change.after {
                Some(replay) => batch.insert(&inner.replays.rows, encode(&change.key)?, encode(replay)?),
                None => batch.remove(&inner.replays.rows, encode(&change.key)?),
            }
        }
        if let Some(fence) = changes.fence {
            batch.insert(&inner.meta.rows, "fence", fence.0.to_be_bytes());
        }
        inner.commit(batch)?;
        // Readers see a change only once it is durable; those between see the state before it.
        let mut held = inner.held.write().unwrap_or_else(PoisonError::into_inner);
        changes.leases.iter().for_each(|change| held.put_lease(change.key, change.after.as_ref()));
        changes.claims.iter().for_each(|change| held.put_claim(&change.key, change.after.as_ref()));
        Ok(Fences::default())
    }

    fn claim(&self, key: &BucketKey) -> Result<Option<Claim>> {
        if let Some(claim) = self.inner.held().claim(key) {
            return Ok(Some(claim.clone()));
        }
        self.inner.resting_claim(key)
    }

    fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>> {
        Ok(self.inner.held().leases(scan))
    }

    fn records(&self, scan: &RecordScan) -> Result<Vec<RecordRow>> {
        // Both as of one moment: the writer changes what is held under the lock, after the disk.
        let held = self.inner.held();
        let snapshot = self.inner.database.snapshot();
        let mut places = self.inner.resting_records(&held, &snapshot, scan)?;
        places.extend(held.records(scan));
        let mut rows = Vec::with_capacity(places.len().min(scan.limit));
        for (_, key) in places.into_iter().take(scan.limit) {
            let claim = match held.claim(&key) {
                Some(claim) => claim.clone(),
                None => {
                    let bytes = self.inner.claims.get_in(&snapshot, keys::claim(&key))?;
                    self.inner.decode_claim(&bytes.ok_or_else(|| self.inner.sources.damaged())?)?
                }
            };
            rows.push(RecordRow { key, claim });
        }
        Ok(rows)
    }

    fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>> {
        let to = before.as_micros().to_be_bytes();
        let snapshot = self.inner.database.snapshot();
        let order = &self.inner.settled_order;
        let rows = order.range(&snapshot, ..to).take(limit);
        rows.map(|row| keys::read_settled(&row?.0).ok_or_else(|| order.damaged())).collect()
    }

    fn state(&self) -> Result<State> {
        let mut state = State::default();
        state.fence = self.inner.for_each(|row| {
            match row {
                Row::Claim(key, claim) => drop(state.claims.insert(key, claim)),
                Row::Lease(id, lease) => drop(state.leases.insert(id, lease)),
                Row::Replay(key, replay) => drop(state.replays.insert(key, replay)),
            }
            Ok::<_, StoreError>(())
        })?;
        Ok(state)
    }
}
