//! A store in an ordered, replicated key-value engine, which any number of servers use together.
//!
//! Any engine with multi-key transactions will do: [`engine`] is its port, and `store/etcd` the first
//! driver. [`keys`] has the layout, [`rows`] the values and the fences, [`base`] the row that every group
//! of commands is guarded by.
//!
//! **Linearizability.** A writer loads the rows of a group at one revision, decides the group, and writes
//! its changes in one transaction. The transaction is guarded: each row that was loaded is as it was, and
//! each absent row is still absent. So all commands of the group, also those that change nothing, have
//! their place in the order of all commands at the transaction. If a guard fails, the group is decided
//! again. [`proof`] shows why no read is stale.
//!
//! **Lost answers.** A transaction also writes the id of its group, and demands that there is none yet.
//! If its answer is lost, a second transaction writes the same id as abandoned, under the same demand.
//! One of the two finds the other's, whenever they arrive. So the outcome is known for good before the
//! callers are refused or the group is decided again. A writer deletes the row of its last group in its
//! next transaction, under the guard that it is still there: a restored copy may lack it. What else is
//! left goes an hour later, together with a change of the base row. All transactions that were sent
//! before then fail at its guard, however late they arrive.
//!
//! Sessions, locks and queues are not kept in this store.

mod base;
pub(super) mod engine;
mod horizon;
mod keys;
mod maintenance;
mod proof;
mod reader;
mod rows;
mod state_file;
mod transfer;
mod widening;
mod writer;

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::unicode_version::UnicodeVersion;
use uuid::{Builder, Uuid};

use self::base::{Base, OpenedBase};
use self::engine::{Engine, Entry, KeyRange, KeyRead, MAX_OPERATIONS, Moment, RowGuard, RowWrite};
use self::horizon::Horizon;
use self::keys::{Layout, Space};
use self::proof::Proofs;
use self::state_file::{Seen, StateFile};
use self::widening::{Depths, Widening};
use self::writer::OrderedWriter;
use super::error::StoreError;
use super::identity::{Contents, Count, Creation, Identity, RaisedFences};
use super::port::{Backend, GroupStore, Occupancy, StoreFuture, StoreMaintenance, StoreReader};
use super::preflight::{PreflightError, Problem};
use super::remedies::Remedy;
use super::stored;

pub use self::transfer::OrderedImport;

type Result<T> = std::result::Result<T, StoreError>;

/// The number of writers, each with a thread of its own. While one waits for the acknowledgement of its
/// group, the others decide and send theirs.
const WRITERS: usize = 4;

/// The text with which commands of sessions, locks and queues are refused.
const CLAIMS_ONLY: &str = "this store keeps claims only, and no sessions, locks or queues";

/// The store in an ordered engine. Clones refer to the same store.
#[derive(Clone)]
pub struct OrderedStore {
    inner: Arc<Inner>,
    identity: Identity,
}

struct Inner {
    engine: Arc<dyn Engine>,
    layout: Layout,
    proofs: Proofs,
    horizon: Horizon,
    depths: Depths,
    state_file: StateFile,
    adoptions: u64,
    occupancy: ArcSwap<Occupancy>,
}

/// The rows of the store as they were at one revision.
#[derive(Clone, Copy)]
struct Snapshot<'a> {
    inner: &'a Inner,
    revision: u64,
}

impl Inner {
    /// Returns the rows as they are now: with every change that was acknowledged before this call.
    async fn snapshot(&self) -> Result<Snapshot<'_>> {
        if Remedy::EngineProof.is_out() {
            let read = KeyRead::Row(self.layout.absent());
            let revision = self.engine.load(Moment::Newest, vec![read]).await?.revision;
            return Ok(Snapshot { inner: self, revision });
        }
        let revision = self.proofs.wait(&*self.engine, self.layout.absent()).await?;
        Ok(Snapshot { inner: self, revision })
    }

    /// Writes changes under guards. The acknowledgement also serves as a proof for reads.
    async fn write(&self, guards: Vec<RowGuard>, writes: Vec<RowWrite>) -> Result<engine::Guarded> {
        self.proofs.check()?;
        let write = self.proofs.begin();
        let guarded = self.engine.write(guards, writes).await?;
        self.proofs.acknowledge(write, guarded.revision)?;
        Ok(guarded)
    }
}

impl Snapshot<'_> {
    /// Reads rows by their keys, in the order of `keys`; `None` for an absent row.
    async fn rows(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Entry>>> {
        let mut rows = Vec::with_capacity(keys.len());
        for part in keys.chunks(MAX_OPERATIONS) {
            let reads = part.iter().cloned().map(KeyRead::Row).collect();
            let loaded = self.inner.engine.load(Moment::Revision(self.revision), reads).await?;
            rows.extend(loaded.entries.into_iter().map(|found| found.into_iter().next()));
        }
        Ok(rows)
    }

    async fn row(&self, key: Bytes) -> Result<Option<Entry>> {
        Ok(self.rows(vec![key]).await?.into_iter().next().flatten())
    }

    /// Reads the first rows of a range.
    async fn first(&self, range: KeyRange, limit: usize, keys_only: bool) -> Result<Vec<Entry>> {
        let known = self.inner.depths.of(self.inner.layout.letter(&range.from));
        let (mut parts, mut entries) = (Widening::of(&range, known), Vec::new());
        while entries.len() < limit
            && let Some(range) = parts.next_part()
        {
            let read = KeyRead::Range { range, limit: limit - entries.len(), keys_only };
            let loaded = self.inner.engine.load(Moment::Revision(self.revision), vec![read]).await?;
            entries.extend(loaded.entries.into_iter().flatten());
        }
        parts.end();
        Ok(entries)
    }
}

impl OrderedStore {
    /// Opens the store with this prefix in an engine. `directory` has the state file of this machine.
    ///
    /// # Errors
    /// There is no store and `creation` allows none, or the store can't be used;
    /// [`StoreError::Preflight`] has the problem.
    pub(super) async fn open(
        engine: Arc<dyn Engine>,
        prefix: &str,
        creation: Creation,
        directory: &Path,
    ) -> Result<Self> {
        let layout = Layout::new(prefix);
        let opened = base::open(&*engine, &layout, creation).await;
        let opened = opened.and_then(|OpenedBase { identity, seen }| {
            let state_file = StateFile::of(directory, identity.id);
            check_revision(&state_file, seen)?;
            Ok((identity, seen, state_file))
        });
        let (identity, seen, state_file) = opened.map_err(|problem| preflight(&*engine, problem))?;
        let (proofs, horizon, depths, occupancy) = Default::default();
        let adoptions = seen.adoptions;
        let inner = Inner { engine, layout, proofs, horizon, depths, state_file, adoptions, occupancy };
        Ok(Self { inner: Arc::new(inner), identity })
    }

    /// Accepts the store in an engine although it is a restored copy: its fences are raised beyond those of
    /// the original (B13). No server may use the original any more.
    ///
    /// # Errors
    /// There is no store, or it can't be written.
    pub(super) async fn adopt(engine: &dyn Engine, prefix: &str) -> Result<(Identity, RaisedFences)> {
        let layout = Layout::new(prefix);
        let (identity, [from, to], revision) = base::adopt(engine, &layout).await?;
        let [from, to] = [from, to].map(|base| rows::newest_fence(base, revision));
        Ok((identity, RaisedFences { from, to }))
    }

    /// Raises the state file to the newest acknowledged revision.
    ///
    /// # Errors
    /// The file can't be written.
    pub async fn keep_state(&self) -> Result<()> {
        let inner = self.inner.clone();
        let revision = inner.snapshot().await?.revision.max(inner.proofs.newest());
        let seen = Seen { adoptions: inner.adoptions, revision };
        let raised = tokio::task::spawn_blocking(move || inner.state_file.raise(seen)).await;
        raised.map_err(std::io::Error::other).flatten().map_err(|error| StoreError::Failed(error.to_string()))
    }

    async fn read_contents(&self) -> Result<Contents> {
        let Inner { engine, layout, .. } = &*self.inner;
        let revision = self.inner.snapshot().await?.revision;
        let base = base::read(&**engine, layout).await?.base;
        let claims = usize::try_from(engine.count(layout.space(Space::Claims)).await?).unwrap_or(usize::MAX);
        let leases = usize::try_from(engine.count(layout.space(Space::Outstanding)).await?).unwrap_or(usize::MAX);
        let claims = Count { number: claims, is_exact: true };
        Ok(Contents { claims, leases, fence: rows::newest_fence(base.fence, revision) })
    }

    async fn raise(&self) -> Result<RaisedFences> {
        let Inner { engine, layout, .. } = &*self.inner;
        let revision = self.inner.snapshot().await?.revision;
        let raised = |base: Base| base.raised_by(base::COPY_JUMP);
        let (before, after) = base::change(&**engine, layout, raised).await?;
        let [from, to] = [before.base.fence, after.fence].map(|base| rows::newest_fence(base, revision));
        Ok(RaisedFences { from, to })
    }

    /// Stores rules of bucket types. A rule that is stored already is not replaced.
    async fn add_bucket_types(&self, rules: &[BucketRule]) -> Result<()> {
        let layout = &self.inner.layout;
        loop {
            let entry = self.inner.snapshot().await?.row(layout.bucket_types()).await?;
            let mut all = entry.as_ref().map(reader::bucket_rules).transpose()?.unwrap_or_default();
            let added = rules.iter().filter(|rule| all.iter().all(|known| known.number != rule.number));
            let added: Vec<_> = added.cloned().collect();
            all.extend(added);
            let value = stored::bucket_rules_to_json(&all).map_err(|error| StoreError::Failed(error.to_string()))?;
            let write = RowWrite::Put { key: layout.bucket_types(), value: value.into() };
            if self.inner.write(vec![guard_of(layout.bucket_types(), entry.as_ref())], vec![write]).await?.is_written {
                return Ok(());
            }
        }
    }
}

/// Checks that the engine has what it has acknowledged to servers of this machine.
fn check_revision(file: &StateFile, found: Seen) -> std::result::Result<(), Problem> {
    let known = file.read().map_err(|error| Problem::Settings(error.to_string()))?.unwrap_or_default();
    match known > found {
        true => Err(Problem::WentBack { seen: known.revision, found: found.revision }),
        false => Ok(()),
    }
}

fn preflight(engine: &dyn Engine, problem: Problem) -> StoreError {
    StoreError::Preflight(Box::new(PreflightError { database: engine.place().to_owned(), problem }))
}

fn random_id() -> Uuid {
    Builder::from_random_bytes(rand::random()).into_uuid()
}

/// Returns the guard that a row is as it was read, or still absent.
fn guard_of(key: Bytes, entry: Option<&Entry>) -> RowGuard {
    match entry {
        Some(entry) => RowGuard::Written { key, revision: entry.revision },
        None => RowGuard::Absent(key),
    }
}

impl Backend for OrderedStore {
    fn writers(&self) -> std::io::Result<Vec<Box<dyn GroupStore>>> {
        Ok((0..WRITERS).map(|_| Box::new(OrderedWriter::new(self.inner.clone())) as Box<dyn GroupStore>).collect())
    }

    fn reader(&self) -> Arc<dyn StoreReader> {
        Arc::new(self.clone())
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn contents(&self) -> StoreFuture<'_, Contents> {
        Box::pin(self.read_contents())
    }

    fn raise_fences(&self) -> StoreFuture<'_, RaisedFences> {
        Box::pin(self.raise())
    }

    fn maintenance(&self) -> StoreMaintenance {
        StoreMaintenance::Shared(Arc::new(self.clone()))
    }

    fn keeps_claims_only(&self) -> bool {
        true
    }

    fn remember_bucket_types<'a>(&'a self, rules: &'a [BucketRule]) -> StoreFuture<'a, ()> {
        Box::pin(self.add_bucket_types(rules))
    }

    fn set_unicode_version(&self, version: UnicodeVersion) -> StoreFuture<'_, ()> {
        let found = self.identity.unicode;
        Box::pin(async move {
            let Inner { engine, layout, .. } = &*self.inner;
            base::change(&**engine, layout, |base| base.with_unicode(found, version)).await.map(drop)
        })
    }
}
