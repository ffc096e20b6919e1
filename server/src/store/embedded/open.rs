//! Opens a data directory. The checks of `journal` and `manifest` come first, because fjall repairs
//! some damage without an error and loses rows.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use fjall::compaction::Leveled;
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy};
use fjall::{CompressionType, Database, KeyspaceCreateOptions};
use leasehold_core::unicode_version::{UNICODE_VERSION, UnicodeVersion};
use uuid::Uuid;

use super::ack_watermark::AckWatermark;
use super::directories::{create_private, sync, sync_entry, sync_tree};
use super::lease_salvage::HeldRow;
use super::locks::{self, Locks};
use super::outstanding::Outstanding;
use super::queues::{self, Queues};
use super::rows::Keyspace;
use super::salvage::DamagedStore;
use super::salvage_copy::{Remains, SalvageCopy};
use super::scan_threads::ScanThreads;
use super::search::{SEARCH_TIME, Search};
use super::settled_position::SettledPosition;
use super::{
    CorrectedByte, EmbeddedStore, FORMAT, Inner, Result, UNICODE, ack_watermark, correction, journal, keys, manifest,
};
use crate::descriptors;
use crate::store::error::StoreError;
use crate::store::identity::{Creation, Identity};
use crate::store::stored;

const MIB: u64 = 1024 * 1024;
/// The name of the file that marks a data directory while an import fills it.
const IMPORTING: &str = "importing";
/// The name of the file that marks a data directory while the keyspaces of a later version are
/// added to it.
const ADDING_KEYSPACES: &str = "adding-keyspaces";
/// The folder of journals that were truncated, until the store has shown that no write is missing.
const KEPT_JOURNALS: &str = "kept-journals";
/// The key of the store's id in the keyspace `meta`.
const IDENTITY: &str = "identity";
const KEYSPACES: [&str; 7] = ["claims", "sources", "outstanding", "settled", "settled_order", "replays", "meta"];

/// Returns the options of a keyspace. A memtable is flushed to a file when it has `memtable_bytes`.
/// With `bloom`, a Bloom filter answers most lookups of absent keys without a read.
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

/// The purpose for which a data directory is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Reads and writes. If there is no store, makes one, provided that the creation allows it.
    Use(Creation),
    /// Reads of a store that may be damaged. Outstanding leases, asks and turns are not read into
    /// memory. No worker of fjall runs, because a compaction would end at a damaged block.
    Inspection,
    /// Reads of a copy whose journals lack entries.
    Salvage,
}

impl Purpose {
    fn creation(self) -> Creation {
        match self {
            Self::Use(creation) => creation,
            Self::Inspection | Self::Salvage => Creation::Refused,
        }
    }

    fn is_use(self) -> bool {
        matches!(self, Self::Use(_))
    }

    fn workers(self) -> usize {
        usize::from(self.is_use())
    }
}

/// The keyspaces that a database lacks.
struct MissingKeyspaces {
    first: Option<&'static str>,
    // The first of the keyspaces that each later version of the rows has added, with the version.
    later: [(u64, Option<&'static str>); 2],
}

impl MissingKeyspaces {
    fn of(database: &Database) -> Self {
        let missing = |names: &[&'static str]| names.iter().copied().find(|name| !database.keyspace_exists(name));
        let later =
            [(stored::LOCK_VERSION, missing(&locks::KEYSPACES)), (stored::QUEUE_VERSION, missing(&queues::KEYSPACES))];
        Self { first: missing(&KEYSPACES), later }
    }

    fn any(&self) -> bool {
        self.first.is_some() || self.later.iter().any(|(_, name)| name.is_some())
    }

    /// Returns the first missing keyspace that a store of a version must have.
    fn of_version(&self, version: u64) -> Option<&'static str> {
        let mut later = self.later.iter().filter(|(since, _)| *since <= version);
        self.first.or_else(|| later.find_map(|(_, name)| *name))
    }
}

/// Checks that the last acknowledged write is in the database, and that no keyspace is missing;
/// then raises the watermark to the last write. This must run before missing keyspaces are created.
fn check_complete(dir: &Path, meta: &Keyspace, watermark: &AckWatermark, missing: &MissingKeyspaces) -> Result<()> {
    let sequence = meta.number(journal::SEQUENCE)?.unwrap_or(0);
    if sequence == 0 && dir.join(KEPT_JOURNALS).is_dir() {
        return Err(StoreError::JournalDamaged("no entry of the journal can be read, and no table has a row".into()));
    }
    if sequence < watermark.sequence() {
        return Err(StoreError::JournalDamaged("the last acknowledged write is missing".into()));
    }
    if sequence > 0 && watermark.sequence() == 0 {
        // Only the watermark shows that a journal has lost its end.
        tracing::warn!(
            file = ack_watermark::FILE,
            "the file was missing or empty, so this start can't tell if the last writes are there: if it was not removed by \
             hand, compare the cells by `verify`"
        );
    }
    // INVARIANT: all keyspaces are created before the first sequence number is written. The
    // exception are those of later versions in a store of an earlier one, which gets them before
    // the first row of the later version is written.
    let version = meta.number(FORMAT)?.unwrap_or(stored::FIRST_VERSION);
    if let Some(name) = missing.of_version(version).filter(|_| sequence > 0) {
        return Err(StoreError::Damaged(format!("`{name}` is missing")));
    }
    watermark.begin(sequence).map_err(|error| StoreError::Failed(error.to_string()))
}

/// Removes the journals that were kept, after the watermark has shown that no write is missing.
/// Without a watermark, they stay for a person.
fn forget_kept(dir: &Path, watermark: &AckWatermark) -> std::io::Result<()> {
    let kept = dir.join(KEPT_JOURNALS);
    if watermark.known().is_some() {
        return journal::forget_kept(&kept);
    }
    let aside = dir.join(format!("cut-journals-{}", watermark.sequence()));
    if journal::set_aside(&kept, &aside)? {
        tracing::warn!(
            path = %aside.display(),
            "the end of a journal could not be read, and is kept there: remove it when `verify` has compared the cells"
        );
    }
    Ok(())
}

/// Marks a data directory before keyspaces are added to it. If the creation of a keyspace is cut
/// short, the next start finds the mark and does not take the rest of the keyspace for damage.
fn mark_adding(dir: &Path) -> Result<()> {
    let marked = std::fs::write(dir.join(ADDING_KEYSPACES), "").and_then(|()| sync(dir));
    marked.map_err(|error| StoreError::Failed(format!("`{}`: {error}", dir.display())))
}

/// Removes the mark after all keyspaces were added and synced.
fn unmark_adding(dir: &Path) -> Result<()> {
    match std::fs::remove_file(dir.join(ADDING_KEYSPACES)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed
            .and_then(|()| sync(dir))
            .map_err(|error| StoreError::Failed(format!("`{}`: {error}", dir.display()))),
    }
}

/// True if the directory has a file of a store, even if others are missing.
fn has_files_of_a_store(dir: &Path) -> Result<bool> {
    let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
    let has = |name: &str| dir.join(name).try_exists().map_err(failed);
    Ok(has("fjall")? || has(ack_watermark::FILE)?)
}

impl EmbeddedStore {
    /// Opens the store in a data directory. If there is no store, makes one, provided that
    /// `creation` allows it.
    ///
    /// # Errors
    /// The directory holds no store, is in use, in another format, damaged or incompletely imported,
    /// or the disk failed.
    pub fn open(dir: &Path, creation: Creation) -> Result<Self> {
        if Self::is_incomplete(dir) {
            return Err(StoreError::ImportIncomplete(dir.to_owned()));
        }
        Self::open_any(dir, Purpose::Use(creation))
    }

    /// Opens a store that may be damaged, to read it only.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), except those of a damaged row.
    pub(super) fn inspect(dir: &Path) -> Result<Self> {
        if Self::is_incomplete(dir) {
            return Err(StoreError::ImportIncomplete(dir.to_owned()));
        }
        Self::open_any(dir, Purpose::Inspection)
    }

    /// Checks that there is a store in a data directory, without opening it.
    ///
    /// # Errors
    /// The directory holds no store, is incompletely imported, or can't be read.
    pub fn check(dir: &Path) -> Result<()> {
        match (Self::is_incomplete(dir), has_files_of_a_store(dir)?) {
            (true, _) => Err(StoreError::ImportIncomplete(dir.to_owned())),
            (false, false) => Err(StoreError::NoStore(dir.to_owned())),
            (false, true) => Ok(()),
        }
    }

    /// True if an import into the directory has begun and did not finish.
    pub fn is_incomplete(dir: &Path) -> bool {
        dir.join(IMPORTING).exists()
    }

    /// Creates a data directory and runs `import` on its store. Until `import` has returned without
    /// an error, [`open`](Self::open) refuses the directory.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and those of `import`.
    pub fn import<T, E: From<StoreError>>(
        dir: &Path,
        import: impl FnOnce(Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
        create_private(dir).map_err(failed)?;
        let marker = dir.join(IMPORTING);
        std::fs::write(&marker, "").and_then(|()| sync(dir)).map_err(failed)?;
        let imported = import(Self::open_any(dir, Purpose::Use(Creation::Allowed))?)?;
        std::fs::remove_file(&marker).and_then(|()| sync(dir)).map_err(failed)?;
        Ok(imported)
    }

    /// Opens the store. If its files are damaged, corrects them as far as possible, and tries again.
    fn open_any(dir: &Path, purpose: Purpose) -> Result<Self> {
        let error = match Self::open_once(dir, purpose, false) {
            Err(error) if error.damage().is_some() => error,
            opened => return opened,
        };
        tracing::warn!(damage = error.damage(), "the store is damaged: its files are searched for changed bytes");
        let mut search = Search::of_start();
        if let Err(failed) = Self::correct_bytes(dir, &mut search) {
            tracing::error!(%failed, "the search for changed bytes failed");
            return Err(error);
        }
        match Self::open_once(dir, purpose, !search.is_cut()) {
            Err(StoreError::Damaged(damage) | StoreError::JournalDamaged(damage)) if search.is_cut() => {
                Err(StoreError::SearchCut { dir: dir.to_owned(), damage, seconds: SEARCH_TIME.as_secs() })
            }
            Err(StoreError::Damaged(error)) => Err(StoreError::Unsalvageable(error)),
            Err(StoreError::JournalDamaged(faults)) => Err(StoreError::RowsDamaged { dir: dir.to_owned(), faults }),
            opened => opened,
        }
    }

    /// Corrects changed bytes in the files of the store, and returns their places.
    ///
    /// # Errors
    /// A server uses the directory, or the disk failed.
    pub(super) fn correct_bytes(dir: &Path, search: &mut Search) -> Result<Vec<CorrectedByte>> {
        let Some(_lock) = Self::lock(dir)? else { return Ok(Vec::new()) };
        let database = dir.join("fjall");
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", database.display()));
        journal::put_back(&database, &dir.join(KEPT_JOURNALS)).map_err(failed)?;
        let acknowledged = AckWatermark::open(dir).map_err(failed)?.known();
        let corrected = correction::correct(&database, acknowledged, search).map_err(failed)?;
        for CorrectedByte { path, at } in &corrected {
            tracing::warn!(path = %path.display(), at, "a byte had changed: the checksum shows which, and it is corrected");
        }
        Ok(corrected)
    }

    /// Opens the store. `is_searched` is true if its files were searched for changed bytes.
    fn open_once(dir: &Path, purpose: Purpose, is_searched: bool) -> Result<Self> {
        if purpose.creation() == Creation::Refused && !has_files_of_a_store(dir)? {
            return Err(StoreError::NoStore(dir.to_owned()));
        }
        let database = dir.join("fjall");
        create_private(&database)
            .map_err(|error| StoreError::from(fjall::Error::from(error)).of(database.display()))?;
        let open = std::panic::AssertUnwindSafe(|| Self::open_database(dir, purpose, is_searched));
        // fjall panics on some damaged files. A damaged directory must be reported as an error, not
        // end the program with a panic.
        std::panic::catch_unwind(open)
            .unwrap_or_else(|_| Err(StoreError::Damaged(format!("`{}` can't be opened", dir.display()))))
    }

    fn open_database(dir: &Path, purpose: Purpose, is_searched: bool) -> Result<Self> {
        let watermark = match purpose {
            Purpose::Salvage => Self::watermark(dir)?,
            Purpose::Use(_) | Purpose::Inspection => Self::recover(dir, is_searched)?,
        };
        // The journal is kept short, so that a restart after a crash is quick. Persistence is
        // manual because the store syncs each batch itself.
        let builder = Database::builder(dir.join("fjall"))
            .cache_size(16 * MIB)
            .max_cached_files(Some(descriptors::cached_files()))
            .max_journaling_size(64 * MIB)
            .worker_threads_unchecked(purpose.workers())
            // The journal has the bytes of which the sums of a batch's pieces were made.
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true);
        let database = builder.open().map_err(|error| match error {
            fjall::Error::Locked => StoreError::InUse(dir.to_owned()),
            other => StoreError::from(other).of(dir.display()),
        })?;
        Self::open_keyspaces(dir, database, watermark, purpose).map_err(|error| error.of(dir.display()))
    }

    fn open_keyspaces(dir: &Path, database: Database, watermark: AckWatermark, purpose: Purpose) -> Result<Self> {
        let missing = MissingKeyspaces::of(&database);
        let keyspace = |name, memtable_mib, bloom| {
            let rows = database.keyspace(name, || options(memtable_mib * MIB, bloom));
            rows.map(|rows| Keyspace { name, rows }).map_err(|error| StoreError::from(error).of(name))
        };
        let meta = keyspace("meta", 1, false)?;
        if purpose != Purpose::Salvage {
            check_complete(dir, &meta, &watermark, &missing)?;
        }
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
        forget_kept(dir, &watermark).map_err(failed)?;
        if missing.any() && watermark.sequence() > 0 {
            mark_adding(dir)?;
        }
        let inner = Inner {
            dir: dir.to_owned(),
            claims: keyspace("claims", 8, true)?,
            // A list reads past the rows of claims that were given up, until a flush removes them. So
            // this memtable is small.
            sources: keyspace("sources", 4, false)?,
            outstanding: keyspace("outstanding", 4, false)?,
            settled: keyspace("settled", 4, true)?,
            settled_order: keyspace("settled_order", 4, false)?,
            replays: keyspace("replays", 4, true)?,
            locks: Locks::open(keyspace)?,
            queues: Queues::open(keyspace)?,
            meta,
            watermark,
            committing: Mutex::default(),
            settled_position: SettledPosition::default(),
            held: RwLock::default(),
            scan_threads: ScanThreads::new().map_err(|error| StoreError::Failed(error.to_string()))?,
            database,
        };
        if missing.any() {
            // fjall syncs the files that it creates, but not all of their directories.
            let synced = sync_entry(dir).and_then(|()| sync_tree(dir));
            synced.map_err(|error| StoreError::Failed(error.to_string()))?;
        }
        unmark_adding(dir)?;
        let identity = match purpose {
            // The entry that made the store may be missing.
            Purpose::Salvage => Identity::random(),
            Purpose::Use(_) | Purpose::Inspection => inner.identify(dir, purpose.creation())?,
        };
        if purpose.is_use() {
            let read = inner.read_outstanding();
            read.and_then(|()| inner.locks.read_waits(&inner.database.snapshot())).map_err(|error| match error {
                StoreError::Damaged(faults) => StoreError::RowsDamaged { dir: dir.to_owned(), faults },
                other => other,
            })?;
        }
        Ok(Self { inner: Arc::new(inner), identity })
    }

    fn watermark(dir: &Path) -> Result<AckWatermark> {
        AckWatermark::open(dir).map_err(|error| StoreError::Failed(format!("`{}`: {error}", dir.display())))
    }

    /// Opens a store whose journals lack entries, by a copy with the rest.
    ///
    /// # Errors
    /// The rest can't be opened either, a server uses the directory, or the disk failed.
    pub(super) fn open_rest(dir: &Path) -> Result<DamagedStore> {
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
        let Some(lock) = Self::lock(dir)? else { return Err(StoreError::NoStore(dir.to_owned())) };
        let (database, acknowledged) = (dir.join("fjall"), Self::watermark(dir)?.known());
        journal::put_back(&database, &dir.join(KEPT_JOURNALS)).map_err(failed)?;
        let remains = Remains::read(&database).map_err(failed)?;
        let copy = SalvageCopy::make(dir, &remains, lock).map_err(failed)?;
        let store = Self::open_once(copy.dir(), Purpose::Salvage, true)?;
        let in_tables = store.inner.meta.number(journal::SEQUENCE)?.unwrap_or(0);
        Ok(DamagedStore { store, lost_entries: remains.lost(acknowledged, in_tables), _copy: Some(copy) })
    }

    /// Locks fjall's lock file; `None` if there is no database yet.
    fn lock(dir: &Path) -> Result<Option<File>> {
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
        let database = dir.join("fjall");
        let lock = match OpenOptions::new().read(true).write(true).open(database.join("lock")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::NotFound && database.join("version").exists() => {
                return Err(StoreError::LockFileMissing(database.join("lock")));
            }
            // fjall creates the lock file first, so without it the database does not exist yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::InUse(dir.to_owned()),
            TryLockError::Error(error) => failed(error),
        })?;
        Ok(Some(lock))
    }

    /// Checks the journals and manifests before fjall opens them, while it locks fjall's lock file.
    /// Returns the watermark.
    fn recover(dir: &Path, is_searched: bool) -> Result<AckWatermark> {
        let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", dir.display()));
        let lock = Self::lock(dir)?;
        let watermark = Self::watermark(dir)?;
        if lock.is_none() {
            return Ok(watermark);
        }
        let database = dir.join("fjall");
        let finished = watermark.sequence() > 0 && !dir.join(ADDING_KEYSPACES).exists();
        if finished && !correction::is_version_right(&database).map_err(failed)? {
            let path = database.join("version");
            return Err(StoreError::Damaged(format!(
                "`{}` is missing, or is not the file that was written",
                path.display()
            )));
        }
        manifest::check(&database, finished)?;
        let kept = dir.join(KEPT_JOURNALS);
        journal::put_back(&database, &kept).map_err(failed)?;
        journal::recover(&database, &kept, watermark.known(), is_searched)?;
        Ok(watermark)
    }
}

impl Inner {
    /// Checks the format, and returns the identity. The first write to a new store has its format
    /// and identity. So a store whose creation was cut short has neither, and counts as no store.
    fn identify(&self, dir: &Path, creation: Creation) -> Result<Identity> {
        match self.meta.number(FORMAT)? {
            Some(version) if stored::is_known(version) => match self.meta.get(IDENTITY)? {
                Some(id) => self.read_identity(&id),
                // An old version of this program, which knew no identities, has made the store.
                None => self.write_identity(Identity { is_new: false, ..Identity::random() }),
            },
            Some(found) => Err(StoreError::Format { dir: dir.to_owned(), found, known: stored::NEWEST_VERSION }),
            None if self.meta.number(journal::SEQUENCE)?.is_some() || self.has_rows()? => {
                Err(StoreError::JournalDamaged("the entry that made the store is missing".into()))
            }
            None if creation == Creation::Refused => Err(StoreError::NoStore(dir.to_owned())),
            None => self.write_identity(Identity::random()),
        }
    }

    /// True if a keyspace has a row. Each is written to its table at a time of its own, so `meta` may
    /// be empty if the journal is lost.
    fn has_rows(&self) -> Result<bool> {
        let Self { claims, outstanding, settled, .. } = self;
        let (Locks { sessions, locks, .. }, Queues { lanes, requests, .. }) = (&self.locks, &self.queues);
        for keyspace in [claims, outstanding, settled, sessions, locks, lanes, requests] {
            if keyspace.range::<&[u8]>(&self.database.snapshot(), ..).next().transpose()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read_identity(&self, id: &[u8]) -> Result<Identity> {
        let id = Uuid::from_slice(id).map_err(|_| self.meta.damaged().of(IDENTITY))?;
        let Some(version) = self.meta.get(UNICODE)? else {
            // A version of this program that knew no versions of Unicode has made the store.
            let mut batch = self.batch();
            self.meta.insert(&mut batch, UNICODE, UNICODE_VERSION.to_string());
            self.commit(batch)?;
            return Ok(Identity { id, is_new: false, unicode: UNICODE_VERSION });
        };
        let unicode = std::str::from_utf8(&version).ok().and_then(UnicodeVersion::parse);
        Ok(Identity { id, is_new: false, unicode: unicode.ok_or_else(|| self.meta.damaged().of(UNICODE))? })
    }

    fn write_identity(&self, identity: Identity) -> Result<Identity> {
        let mut batch = self.batch();
        self.meta.insert(&mut batch, FORMAT, stored::FIRST_VERSION.to_be_bytes());
        self.meta.insert(&mut batch, IDENTITY, *identity.id.as_bytes());
        self.meta.insert(&mut batch, UNICODE, identity.unicode.to_string());
        self.commit(batch)?;
        Ok(identity)
    }

    fn read_outstanding(&self) -> Result<()> {
        let mut held = self.held_mut();
        for row in self.outstanding.range::<&[u8]>(&self.database.snapshot(), ..) {
            let (key, value) = row?;
            self.put_outstanding(&mut held, &key, &value)?;
        }
        Ok(())
    }

    /// Adds a row of the keyspace `outstanding` to the leases in memory.
    ///
    /// # Errors
    /// The bytes are not such a row.
    fn put_outstanding(&self, held: &mut Outstanding, key: &[u8], value: &[u8]) -> Result<()> {
        let row = self.held_row(key, value)?;
        held.put_lease(row.id, Some(&row.lease));
        row.claims.iter().for_each(|(key, claim)| held.put_claim(key, Some(claim)));
        Ok(())
    }

    /// Decodes a row of the keyspace `outstanding`.
    ///
    /// # Errors
    /// The bytes are not such a row.
    pub(super) fn held_row(&self, key: &[u8], value: &[u8]) -> Result<HeldRow> {
        let id = keys::read_lease(key).ok_or_else(|| self.outstanding.damaged())?;
        let row: stored::OutstandingLease<'_> = self.outstanding.decode(value)?;
        let claims = row.claims.into_iter().map(|(key, claim)| (key.into(), claim.into()));
        Ok(HeldRow { id, lease: row.lease.into(), claims: claims.collect() })
    }
}
