//! `leasehold import`: reads the lines of an export into a new store. A person may have
//! changed the lines, so the import refuses every row that the engine could not have made.
//!
//! The import keeps in memory: claims under leases, the rows of one batch, the fence of each lease,
//! and the rows of sessions, locks and queues but for the bodies of requests. To find duplicate rows,
//! it needs no index. An export is in the order of its store, so a row that sorts after all earlier
//! rows is new. Only rows out of order are looked up in the store.

use std::io::BufRead;
use std::path::Path;

use leasehold_core::batch::record_key;
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::catalogue::ValueError;
use leasehold_core::cell::CellId;
use leasehold_core::claim::Claim;
use leasehold_core::invariant::{self, FenceCheck, Violation};
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, Replay};
use leasehold_core::lock::AskId;
use leasehold_core::queue::RequestId;
use leasehold_core::rows::{AnyRow, Keys, NetChanges, RowChange, RowKind, Workspace};
use leasehold_core::rules::Rules;
use leasehold_core::session::SessionId;
use leasehold_core::transaction::Transaction;
use rustc_hash::FxHashMap;

use super::kept_rows::KeptRows;
use super::{Line, StorePlace, TransferError, report};
use crate::store::{EmbeddedStore, ImportTarget, OrderedImport, PostgresImport, StoreError, stored};

/// The number of rows that the import writes in one batch.
const BATCH_ROWS: usize = 2_000;

/// The reason why a line is not a line of an export.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not JSON, or has a field that is unknown or of another type.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The first line is the header of a format that this program does not know.
    #[error("format {0} is not known here: import with the version that exported it")]
    Format(u64),
    /// The first line is not a header, a second header follows, or a line follows the line that
    /// ends the export.
    #[error("a row must be between the header and the end")]
    OutOfPlace,
}

/// The reason why a row of an export can't be imported.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The row breaks an invariant of the engine's state.
    #[error(transparent)]
    Broken(#[from] Violation),
    /// An earlier line of the export has a row with the same key.
    #[error("the {0} is in the export twice")]
    Duplicate(&'static str),
    /// The bucket type of the claim is neither built in nor configured.
    #[error("bucket type {0} is neither built in nor configured: pass the file that has it with `--config`")]
    BucketType(BucketType),
    /// The claim's record has a value or subject that no claim can have.
    #[error("no claim can have this record: {}", .0.detail)]
    Record(ValueError),
    /// The claim's key is not the canonical form of its record's value, so lookups of the value
    /// would not find it.
    #[error("the key `{found}` is not the canonical form of the record's value, which is `{canonical}`")]
    NotCanonical {
        /// The key that the claim has in the export.
        found: BucketKey,
        /// The key that follows from the record's value.
        canonical: BucketKey,
    },
    /// The row is one of sessions, locks or queues, which the store does not keep.
    #[error("the store keeps claims only, and no sessions, locks or queues: import into a store of another kind")]
    ClaimsOnly,
    /// The id of the owner or of the lease's cell is less than 1.
    #[error("cell {0} is not 1 or more")]
    CellId(CellId),
    /// The configuration has cells, but not the cell of this row.
    #[error("cell {0} is not among the `[[cells]]` of the configuration: add it, or pass a file without `[[cells]]`")]
    UnknownCell(CellId),
}

/// Reads an export into a new store, and returns the number of rows. If `rules` has no
/// cells, any cell may own claims. A failed import leaves no data behind.
///
/// # Errors
/// The place has a store or files, a line is missing or invalid, or the store can't be written.
pub fn import(place: &StorePlace, from: impl BufRead, rules: Rules) -> Result<u64, TransferError> {
    match place {
        StorePlace::Directory(data) => import_directory(data, from, rules),
        StorePlace::Postgres(settings) => Importer::new(PostgresImport::begin(settings)?, rules).run(from),
        StorePlace::Etcd(settings) => Importer::new(OrderedImport::on_etcd(settings)?, rules).run(from),
    }
}

fn import_directory(data: &Path, from: impl BufRead, rules: Rules) -> Result<u64, TransferError> {
    if EmbeddedStore::is_incomplete(data) {
        return Err(StoreError::ImportIncomplete(data.to_owned()).into());
    }
    let existed = data.is_dir();
    if existed && std::fs::read_dir(data)?.next().is_some() {
        return Err(TransferError::NotEmpty(data.to_owned()));
    }
    let result = EmbeddedStore::import(data, |store| Importer::new(store, rules).run(from));
    if result.is_err() {
        // If the directory existed before the import, it is emptied and stays. An error of the
        // removal is ignored, because the error of the import must be reported.
        let _ = if existed { remove_content(data) } else { std::fs::remove_dir_all(data) };
    }
    result
}

fn remove_content(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Rows of the import that are not written yet.
#[derive(Default)]
struct PendingRows {
    claims: FxHashMap<BucketKey, Claim>,
    leases: FxHashMap<LeaseId, Lease>,
    // Each with its line number.
    replays: FxHashMap<IdempotencyKey, (Replay, u64)>,
}

impl PendingRows {
    fn len(&self) -> usize {
        self.claims.len() + self.leases.len() + self.replays.len()
    }

    fn into_changes(self) -> NetChanges {
        fn new<K: RowKind>(rows: FxHashMap<K::Key, K>) -> Vec<RowChange<K>> {
            rows.into_iter().map(|(key, row)| RowChange { key, before: None, after: Some(row) }).collect()
        }
        let replays = self.replays.into_iter().map(|(key, (replay, _))| (key, replay)).collect();
        let (claims, leases, replays) = (new(self.claims), new(self.leases), new(replays));
        NetChanges { claims, leases, replays, ..NetChanges::default() }
    }
}

/// The state of an import under way.
struct Importer<S> {
    store: S,
    rules: Rules,
    line: u64,
    rows: u64,
    pending: PendingRows,
    // The claims under leases whose lease has not been read yet, each with its line number. The
    // store keeps a lease and its claims in one row, so they must be written together.
    held: FxHashMap<BucketKey, (Claim, u64)>,
    kept: KeptRows,
    fences: FenceCheck,
    // The largest key of the claims read so far: in the order of a data directory, and in that of the other stores.
    last_position: Vec<u8>,
    last_claim: Option<BucketKey>,
    last_lease: Option<LeaseId>,
}

impl<S: ImportTarget> Importer<S> {
    fn new(store: S, rules: Rules) -> Self {
        Self {
            store,
            rules,
            line: 0,
            rows: 0,
            pending: PendingRows::default(),
            held: FxHashMap::default(),
            kept: KeptRows::default(),
            fences: FenceCheck::default(),
            last_position: Vec::new(),
            last_claim: None,
            last_lease: None,
        }
    }

    fn run(mut self, from: impl BufRead) -> Result<u64, TransferError> {
        let mut end = None;
        let mut lines = from.lines().peekable();
        while let Some(line) = lines.next() {
            self.line += 1;
            let invalid = |error: LineError| TransferError::Line { line: self.line, error };
            let line = line?;
            let line = match serde_json::from_str(&line) {
                Err(error) if error.is_eof() && lines.peek().is_none() => return Err(TransferError::CutShort),
                line => line.map_err(|error: serde_json::Error| invalid(error.into()))?,
            };
            match line {
                Line::Header { format } if self.line == 1 && stored::is_known(format) => {}
                Line::Header { format } if self.line == 1 => return Err(invalid(LineError::Format(format))),
                Line::Header { .. } => return Err(invalid(LineError::OutOfPlace)),
                _ if self.line == 1 || end.is_some() => return Err(invalid(LineError::OutOfPlace)),
                Line::End { fence, rows } => end = Some((fence, rows)),
                row => self.take(row)?,
            }
        }
        match end {
            Some((fence, rows)) if rows == self.rows => self.finish(Fence(fence)),
            _ => Err(TransferError::CutShort),
        }
    }

    /// Returns the error of the row that is being imported, with the number of its line.
    fn invalid_row(&self, error: impl Into<RowError>) -> TransferError {
        TransferError::Row { line: self.line, error: error.into() }
    }

    fn take(&mut self, row: Line<'_>) -> Result<(), TransferError> {
        match row {
            Line::Claim { key, claim } => self.take_claim(key.into(), claim.into())?,
            Line::Lease { id, lease } => self.take_lease(LeaseId(id), lease.into())?,
            Line::Replay { key, replay } => self.take_replay(key.into(), replay.into())?,
            Line::Session { id, session } => self.take_kept(AnyRow::Session(SessionId(id), session.into()))?,
            Line::Lock { path, lock } => self.take_kept(AnyRow::Lock(path.into(), lock.into()))?,
            Line::Ask { id, ask } => self.take_kept(AnyRow::Ask(AskId(id), ask.into()))?,
            Line::Turn { key, turn } => self.take_kept(AnyRow::Turn(key.into(), turn.into()))?,
            Line::Queue { path, queue } => self.take_kept(AnyRow::Queue(path, queue.into()))?,
            Line::Lane { path, lane } => self.take_kept(AnyRow::Lane(path.into(), lane.into()))?,
            Line::Request { id, request } => self.take_kept(AnyRow::Request(RequestId(id), request.into()))?,
            Line::Body { id, body } => self.take_kept(AnyRow::RequestBody(RequestId(id), body.into()))?,
            Line::Header { .. } | Line::End { .. } => {}
        }
        self.rows += 1;
        report("imported", self.rows);
        if self.pending.len() >= BATCH_ROWS {
            self.save()?;
        }
        if self.kept.has_many_bodies(BATCH_ROWS) {
            self.kept.save_bodies(&mut self.store)?;
        }
        Ok(())
    }

    fn take_claim(&mut self, key: BucketKey, claim: Claim) -> Result<(), TransferError> {
        self.check_claim(&key, &claim).map_err(|error| self.invalid_row(error))?;
        if self.knows_claim(&key)? {
            return Err(self.invalid_row(RowError::Duplicate("claim")));
        }
        if claim.hold().is_some() {
            self.held.insert(key, (claim, self.line));
        } else {
            self.pending.claims.insert(key, claim);
        }
        Ok(())
    }

    fn check_claim(&self, key: &BucketKey, claim: &Claim) -> Result<(), RowError> {
        self.check_cell(claim.owner)?;
        if self.rules.catalogue.rule(key.bucket_type).is_none() {
            return Err(RowError::BucketType(key.bucket_type));
        }
        invariant::check_claim(key, claim)?;
        for record in claim.records() {
            let canonical = record_key(key.bucket_type, record, &self.rules.catalogue).map_err(RowError::Record)?;
            if canonical != *key {
                return Err(RowError::NotCanonical { found: key.clone(), canonical });
            }
        }
        Ok(())
    }

    fn check_cell(&self, cell: CellId) -> Result<(), RowError> {
        if cell.0 < 1 {
            return Err(RowError::CellId(cell));
        }
        let configured = self.rules.cells.is_empty() || self.rules.cells.contains(&cell);
        if configured { Ok(()) } else { Err(RowError::UnknownCell(cell)) }
    }

    /// True if an earlier line has a claim with this key.
    fn knows_claim(&mut self, key: &BucketKey) -> Result<bool, StoreError> {
        let position = EmbeddedStore::position(key);
        let is_beyond = self.last_claim.as_ref().is_none_or(|last| key > last);
        // A key beyond all earlier ones, in whichever order, is none of them.
        let is_new = is_beyond || position > self.last_position;
        self.last_position = std::mem::take(&mut self.last_position).max(position);
        if is_beyond {
            self.last_claim = Some(key.clone());
        }
        if is_new {
            return Ok(false);
        }
        let is_pending = self.held.contains_key(key) || self.pending.claims.contains_key(key);
        let keys = Keys { claims: vec![key.clone()], ..Keys::default() };
        Ok(is_pending || self.stored(keys)?.claim(key).is_ok_and(|row| row.is_some()))
    }

    fn take_lease(&mut self, id: LeaseId, lease: Lease) -> Result<(), TransferError> {
        if self.knows_lease(id)? {
            return Err(self.invalid_row(RowError::Duplicate("lease")));
        }
        self.check_lease(id, &lease).map_err(|error| self.invalid_row(error))?;
        for key in lease.claims() {
            let held = self.held.remove_entry(key);
            self.pending.claims.extend(held.map(|(key, (claim, _))| (key, claim)));
        }
        self.pending.leases.insert(id, lease);
        Ok(())
    }

    fn check_lease(&mut self, id: LeaseId, lease: &Lease) -> Result<(), RowError> {
        self.check_cell(lease.cell)?;
        invariant::check_lease(lease)?;
        invariant::check_listed_claims(id, lease, |key| self.held.get(key).map(|(claim, _)| claim))?;
        Ok(self.fences.add(id, lease.fence)?)
    }

    /// True if an earlier line has a lease with this id.
    fn knows_lease(&mut self, id: LeaseId) -> Result<bool, StoreError> {
        if self.last_lease.is_none_or(|last| id > last) {
            self.last_lease = Some(id);
            return Ok(false);
        }
        let is_pending = self.pending.leases.contains_key(&id);
        Ok(is_pending
            || self.stored(Keys { leases: vec![id], ..Keys::default() })?.lease(id).is_ok_and(|row| row.is_some()))
    }

    fn take_replay(&mut self, key: IdempotencyKey, replay: Replay) -> Result<(), TransferError> {
        if self.pending.replays.contains_key(&key) {
            return Err(self.invalid_row(RowError::Duplicate("idempotency key")));
        }
        self.pending.replays.insert(key, (replay, self.line));
        Ok(())
    }

    /// Checks the pending replays, whose leases were read before. All are checked at once, because a database takes as
    /// long for one as for hundreds.
    fn check_replays(&mut self) -> Result<(), TransferError> {
        if self.pending.replays.is_empty() {
            return Ok(());
        }
        let replays = self.pending.replays.keys().cloned().collect();
        let leases = self.pending.replays.values().map(|(replay, _)| replay.lease);
        let leases = leases.filter(|id| !self.pending.leases.contains_key(id)).collect();
        let stored = self.stored(Keys { leases, replays, ..Keys::default() })?;
        for (key, (replay, line)) in &self.pending.replays {
            let invalid = |error: RowError| TransferError::Row { line: *line, error };
            if stored.replay(key).is_ok_and(|row| row.is_some()) {
                return Err(invalid(RowError::Duplicate("idempotency key")));
            }
            let lease = self.pending.leases.get(&replay.lease).or_else(|| stored.lease(replay.lease).ok().flatten());
            invariant::check_replay(key, replay, lease).map_err(|error| invalid(error.into()))?;
        }
        Ok(())
    }

    fn take_kept(&mut self, row: AnyRow) -> Result<(), TransferError> {
        if self.store.keeps_claims_only() {
            return Err(self.invalid_row(RowError::ClaimsOnly));
        }
        self.kept.take(row).map_err(|error| self.invalid_row(error))
    }

    /// Loads the rows with these keys that the import has already written to the store.
    fn stored(&mut self, keys: Keys) -> Result<Workspace, StoreError> {
        let mut workspace = Workspace::default();
        self.store.load(keys, &mut workspace)?;
        Ok(workspace)
    }

    fn save(&mut self) -> Result<(), TransferError> {
        self.check_replays()?;
        let pending = std::mem::take(&mut self.pending);
        Ok(self.store.save(&pending.into_changes())?)
    }

    /// Checks that the lease of every claim under a lease was read, and that sessions, locks and
    /// queues fit together. Then writes the remaining rows.
    /// Returns the number of all rows.
    fn finish(mut self, fence: Fence) -> Result<u64, TransferError> {
        if let Some((key, (claim, line))) = self.held.iter().min_by_key(|(_, (_, line))| *line)
            && let Err(error) = invariant::check_hold(key, claim, None)
        {
            return Err(TransferError::Row { line: *line, error: error.into() });
        }
        self.save()?;
        self.fences.finish(fence).map_err(|error| self.invalid_row(error))?;
        self.kept.check(fence, &self.fences).map_err(|error| self.invalid_row(error))?;
        let Self { mut store, kept, rules, rows, .. } = self;
        kept.save(&mut store, BATCH_ROWS)?;
        store.complete(fence, &rules.catalogue.differs_from(&[]).added)?;
        Ok(rows)
    }
}
