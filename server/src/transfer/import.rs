//! `leasehold import`: lines that an export wrote, or a person changed, into a new data directory. Nothing gets in that
//! the engine could not have made.
//!
//! In memory are held claims, the rows of one batch, and the fence of each lease. What stands twice is seen without more:
//! an export is in the store's order, and a row beyond all before it is new. One that is not is looked up.

use std::io::BufRead;
use std::path::Path;

use leasehold_core::batch::record_key;
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::catalogue::ValueError;
use leasehold_core::claim::{CellId, Claim};
use leasehold_core::invariant::{self, Fences, Violation};
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId};
use leasehold_core::rules::Rules;
use leasehold_core::transaction::{Keys, NetChanges, Replay, RowChange, Transaction, Workspace};
use rustc_hash::FxHashMap;

use super::{Line, TransferError, report};
use crate::store::{EmbeddedStore, StoreError, stored};

/// Rows written at a time.
const BATCH_ROWS: usize = 2_000;

/// Why a row can't be imported.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// It breaks an invariant.
    #[error(transparent)]
    Broken(#[from] Violation),
    /// It was there before.
    #[error("the {0} stands in the export twice")]
    Twice(&'static str),
    /// A bucket type that is not known.
    #[error("bucket type {0} is neither built in nor configured: give the file that has it with `--config`")]
    BucketType(BucketType),
    /// A record that no claim can have.
    #[error("the record is none that a claim can have: {}", .0.detail)]
    Record(ValueError),
    /// A key under which the record would not be found.
    #[error("the key `{found}` is not the canonical form of the record's value, which is `{canonical}`")]
    NotCanonical {
        /// The row's key.
        found: BucketKey,
        /// The right one.
        canonical: BucketKey,
    },
    /// A cell that can't be.
    #[error("cell {0} is not 1 or more")]
    CellId(CellId),
    /// A cell that is not configured.
    #[error("cell {0} is not among the `[[cells]]` of the configuration: add it there, or give a file without any")]
    UnknownCell(CellId),
}

/// Reads an export into a new data directory; the number of rows. Where `rules` name no cells, any may own claims. A
/// failed import leaves nothing behind.
///
/// # Errors
/// The directory has data, the export is not whole or not sound, or the disk failed.
pub fn import(data: &Path, from: impl BufRead, rules: Rules) -> Result<u64, TransferError> {
    if EmbeddedStore::is_incomplete(data) {
        return Err(StoreError::ImportIncomplete(data.to_owned()).into());
    }
    let existed = data.is_dir();
    if existed && std::fs::read_dir(data)?.next().is_some() {
        return Err(TransferError::NotEmpty(data.to_owned()));
    }
    let result = EmbeddedStore::import(data, |store| Import::new(store, rules).run(from));
    if result.is_err() {
        // What was made here goes again, and no more than that; the first error is the one to tell.
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

/// Rows on their way to the store.
#[derive(Default)]
struct Batch {
    claims: FxHashMap<BucketKey, Claim>,
    leases: FxHashMap<LeaseId, Lease>,
    replays: FxHashMap<IdempotencyKey, Replay>,
}

impl Batch {
    fn len(&self) -> usize {
        self.claims.len() + self.leases.len() + self.replays.len()
    }

    fn into_changes(self) -> NetChanges {
        fn new<K, V>(rows: FxHashMap<K, V>) -> Vec<RowChange<K, V>> {
            rows.into_iter().map(|(key, row)| RowChange { key, before: None, after: Some(row) }).collect()
        }
        NetChanges { claims: new(self.claims), leases: new(self.leases), replays: new(self.replays), fence: None }
    }
}

struct Import {
    store: EmbeddedStore,
    rules: Rules,
    line: u64,
    rows: u64,
    batch: Batch,
    // Held claims wait, each with its line, for the lease that lists them: the store keeps the two as one row.
    held: FxHashMap<BucketKey, (Claim, u64)>,
    fences: Fences,
    // No claim and no lease so far is beyond these.
    last_claim: Vec<u8>,
    last_lease: Option<LeaseId>,
}

impl Import {
    fn new(store: EmbeddedStore, rules: Rules) -> Self {
        Self {
            store,
            rules,
            line: 0,
            rows: 0,
            batch: Batch::default(),
            held: FxHashMap::default(),
            fences: Fences::default(),
            last_claim: Vec::new(),
            last_lease: None,
        }
    }

    fn run(mut self, from: impl BufRead) -> Result<u64, TransferError> {
        let mut end = None;
        for line in from.lines() {
            self.line += 1;
            let wrong = |error: String| TransferError::Line { line: self.line, error };
            let line = line?;
            let line = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
            match line {
                Line::Header { format } if self.line == 1 && format == stored::VERSION => {}
                Line::Header { format } => return Err(wrong(format!("format {format} is not known here"))),
                _ if self.line == 1 || end.is_some() => return Err(wrong("a row outside of header and end".into())),
                Line::End { fence, rows } => end = Some((fence, rows)),
                row => self.take(row)?,
            }
        }
        match end {
            Some((fence, rows)) if rows == self.rows => self.finish(Fence(fence)),
            _ => Err(TransferError::CutShort),
        }
    }

    fn wrong(&self, error: impl Into<RowError>) -> TransferError {
        TransferError::Row { line: self.line, error: error.into() }
    }

    fn take(&mut self, row: Line<'_>) -> Result<(), TransferError> {
        match row {
            Line::Claim { key, claim } => self.take_claim(key.into(), claim.into())?,
            Line::Lease { id, lease } => self.take_lease(LeaseId(id), lease.into())?,
            Line::Replay { key, replay } => self.take_replay(key.into(), replay.into())?,
            Line::Header { .. } | Line::End { .. } => {}
        }
        self.rows += 1;
        report("imported", self.rows);
        if self.batch.len() >= BATCH_ROWS {
            self.save()?;
        }
        Ok(())
    }

    fn take_claim(&mut self, key: BucketKey, claim: Claim) -> Result<(), TransferError> {
        self.check_claim(&key, &claim).map_err(|error| self.wrong(error))?;
        if self.knows_claim(&key)? {
            return Err(self.wrong(RowError::Twice("claim")));
        }
        if claim.hold().is_some() {
            self.held.insert(key, (claim, self.line));
        } else {
            self.batch.claims.insert(key, claim);
        }
        Ok(())
    }

    fn check_claim(&self, key: &BucketKey, claim: &Claim) -> Result<(), RowError> {
        self.check_cell(claim.owner)?;
        if self.rules.catalogue.rule(key.bucket_type).is_none() {
            return Err(RowError::BucketType(key.bucket_type));
        }
        invariant::lone_claim(key, claim)?;
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

    fn knows_claim(&mut self, key: &BucketKey) -> Result<bool, StoreError> {
        let place = EmbeddedStore::position(key);
        if place > self.last_claim {
            self.last_claim = place;
            return Ok(false);
        }
        let here = self.held.contains_key(key) || self.batch.claims.contains_key(key);
        Ok(here || self.store.claim(key)?.is_some())
    }

    fn take_lease(&mut self, id: LeaseId, lease: Lease) -> Result<(), TransferError> {
        if self.knows_lease(id)? {
            return Err(self.wrong(RowError::Twice("lease")));
        }
        self.check_lease(id, &lease).map_err(|error| self.wrong(error))?;
        for key in lease.claims() {
            let held = self.held.remove_entry(key);
            self.batch.claims.extend(held.map(|(key, (claim, _))| (key, claim)));
        }
        self.batch.leases.insert(id, lease);
        Ok(())
    }

    fn check_lease(&mut self, id: LeaseId, lease: &Lease) -> Result<(), RowError> {
        self.check_cell(lease.cell)?;
        invariant::lone_lease(lease)?;
        invariant::lease_holds(id, lease, |key| self.held.get(key).map(|(claim, _)| claim))?;
        Ok(self.fences.take(id, lease.fence)?)
    }

    fn knows_lease(&mut self, id: LeaseId) -> Result<bool, StoreError> {
        if self.last_lease.is_none_or(|last| id > last) {
            self.last_lease = Some(id);
            return Ok(false);
        }
        let here = self.batch.leases.contains_key(&id);
        Ok(here || self.stored(Keys { leases: vec![id], ..Keys::default() })?.lease(id).is_ok_and(|row| row.is_some()))
    }

    fn take_replay(&mut self, key: IdempotencyKey, replay: Replay) -> Result<(), TransferError> {
        let keys = Keys { leases: vec![replay.lease], replays: vec![key.clone()], ..Keys::default() };
        let stored = self.stored(keys)?;
        if self.batch.replays.contains_key(&key) || stored.replay(&key).is_ok_and(|row| row.is_some()) {
            return Err(self.wrong(RowError::Twice("idempotency key")));
        }
        let lease = self.batch.leases.get(&replay.lease).or_else(|| stored.lease(replay.lease).ok().flatten());
        invariant::replay(&key, &replay, lease).map_err(|error| self.wrong(error))?;
        self.batch.replays.insert(key, replay);
        Ok(())
    }

    /// Rows as the store has them.
    fn stored(&self, keys: Keys) -> Result<Workspace, StoreError> {
        let mut workspace = Workspace::default();
        self.store.load(keys, &mut workspace)?;
        Ok(workspace)
    }

    fn save(&mut self) -> Result<(), TransferError> {
        let batch = std::mem::take(&mut self.batch);
        self.store.save(&batch.into_changes())?;
        Ok(())
    }

    fn finish(mut self, fence: Fence) -> Result<u64, TransferError> {
        if let Some((key, (claim, line))) = self.held.iter().min_by_key(|(_, (_, line))| *line)
            && let Err(error) = invariant::held_claim(key, claim, None)
        {
            return Err(TransferError::Row { line: *line, error: error.into() });
        }
        self.fences.check_newest(fence).map_err(|error| self.wrong(error))?;
        let batch = std::mem::take(&mut self.batch);
        self.store.save(&NetChanges { fence: Some(fence), ..batch.into_changes() })?;
        self.store.remember_bucket_types(&self.rules.catalogue.differs_from(&[]).added)?;
        Ok(self.rows)
    }
}
