//! `leasehold export` and `import`: everything as JSON lines, and back.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId};
use leasehold_core::store::Store;
use leasehold_core::transaction::{NetChanges, Replay, RowChange};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::store::{EmbeddedStore, Row, StoreError};

/// The format of the lines.
const FORMAT: u32 = 1;
/// Rows written at a time.
const BATCH_ROWS: usize = 2_000;
/// Rows between two reports of progress.
const REPORT_ROWS: u64 = 100_000;

/// One line of an export: a header, rows, and an end that tells whether it is whole.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Header { format: u32 },
    Claim { key: BucketKey, claim: Claim },
    Lease { id: LeaseId, lease: Lease },
    Replay { key: IdempotencyKey, replay: Replay },
    End { fence: Fence, rows: u64 },
}

/// Why an export or import failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line that is no row.
    #[error("line {line} is not a row of an export: {error}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// Why.
        error: String,
    },
    /// The end is missing or does not fit.
    #[error("the export is cut short: its last line is missing, or counts other rows")]
    CutShort,
    /// The rows contradict each other.
    #[error("the export contradicts itself: {0}")]
    Broken(String),
    /// The target has data.
    #[error("the data directory `{}` is not empty: import into a new one", .0.display())]
    NotEmpty(PathBuf),
}

/// Writes everything in `data` as JSON lines; the number of rows.
///
/// # Errors
/// The store can't be read (a running server has it open), or the output can't be written.
pub fn export(data: &Path, mut to: impl Write) -> Result<u64, TransferError> {
    if !data.is_dir() {
        let error = format!("there is no data directory `{}`", data.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, error).into());
    }
    let store = EmbeddedStore::open(data)?;
    let mut rows = 0;
    write_line(&mut to, &Line::Header { format: FORMAT })?;
    let fence = store.for_each(|row| {
        rows += 1;
        report("exported", rows);
        write_line(
            &mut to,
            &match row {
                Row::Claim(key, claim) => Line::Claim { key, claim },
                Row::Lease(id, lease) => Line::Lease { id, lease },
                Row::Replay(key, replay) => Line::Replay { key, replay },
            },
        )
    })?;
    write_line(&mut to, &Line::End { fence, rows })?;
    to.flush()?;
    Ok(rows)
}

fn write_line(to: &mut impl Write, line: &Line) -> Result<(), TransferError> {
    serde_json::to_writer(&mut *to, line).map_err(io::Error::from)?;
    Ok(to.write_all(b"\n")?)
}

fn report(done: &str, rows: u64) {
    if rows.is_multiple_of(REPORT_ROWS) {
        eprintln!("{done} {rows} rows");
    }
}

/// Reads an export into a new data directory; the number of rows. A failed import leaves nothing behind.
///
/// # Errors
/// The directory has data, the export is not whole, or the disk failed.
pub fn import(data: &Path, from: impl BufRead) -> Result<u64, TransferError> {
    let existed = data.is_dir();
    if existed && std::fs::read_dir(data)?.next().is_some() {
        return Err(TransferError::NotEmpty(data.to_owned()));
    }
    let result = EmbeddedStore::import(data, |store| Import::new(store).run(from));
    if result.is_err() {
        // What was made here goes again; the first error is the one to tell.
        let _ = std::fs::remove_dir_all(data);
        if existed {
            let _ = std::fs::create_dir(data);
        }
    }
    result
}

struct Import {
    store: EmbeddedStore,
    changes: NetChanges,
    // Held claims wait for the lease that lists them: the store keeps the two as one row.
    held: FxHashMap<BucketKey, Claim>,
    rows: u64,
}

impl Import {
    fn new(store: EmbeddedStore) -> Self {
        Self { store, changes: NetChanges::default(), held: FxHashMap::default(), rows: 0 }
    }

    fn run(mut self, from: impl BufRead) -> Result<u64, TransferError> {
        let mut end = None;
        for (number, line) in (1..).zip(from.lines()) {
            let wrong = |error: String| TransferError::Line { line: number, error };
            let line = serde_json::from_str(&line?).map_err(|error| wrong(error.to_string()))?;
            match line {
                Line::Header { format } if number == 1 && format == FORMAT => {}
                Line::Header { format } => return Err(wrong(format!("format {format} is not known here"))),
                _ if number == 1 || end.is_some() => return Err(wrong("a row outside of header and end".into())),
                Line::End { fence, rows } => end = Some((fence, rows)),
                row => self.take(row)?,
            }
        }
        match end {
            Some((fence, rows)) if rows == self.rows => self.finish(fence),
            _ => Err(TransferError::CutShort),
        }
    }

    fn take(&mut self, row: Line) -> Result<(), TransferError> {
        match row {
            Line::Claim { key, claim } if claim.hold().is_some() => drop(self.held.insert(key, claim)),
            Line::Claim { key, claim } => self.changes.claims.push(new(key, claim)),
            Line::Lease { id, lease } => self.take_lease(id, lease)?,
            Line::Replay { key, replay } => self.changes.replays.push(new(key, replay)),
            Line::Header { .. } | Line::End { .. } => {}
        }
        self.rows += 1;
        report("imported", self.rows);
        if self.changes.claims.len() + self.changes.leases.len() + self.changes.replays.len() >= BATCH_ROWS {
            self.save()?;
        }
        Ok(())
    }

    fn take_lease(&mut self, id: LeaseId, lease: Lease) -> Result<(), TransferError> {
        for key in lease.claims() {
            let held = self.held.remove(key).filter(|claim| claim.hold().is_some_and(|hold| hold.lease == id));
            let claim =
                held.ok_or_else(|| TransferError::Broken(format!("lease {id} lists a claim that it does not hold")))?;
            self.changes.claims.push(new(key.clone(), claim));
        }
        self.changes.leases.push(new(id, lease));
        Ok(())
    }

    fn save(&mut self) -> Result<(), TransferError> {
        let changes = std::mem::take(&mut self.changes);
        Ok(self.store.save(&changes)?)
    }

    fn finish(mut self, fence: Fence) -> Result<u64, TransferError> {
        if !self.held.is_empty() {
            return Err(TransferError::Broken(format!("{} held claims are on no lease's list", self.held.len())));
        }
        self.changes.fence = Some(fence);
        self.save()?;
        Ok(self.rows)
    }
}

fn new<K, V>(key: K, after: V) -> RowChange<K, V> {
    RowChange { key, before: None, after: Some(after) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_export_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        drop(EmbeddedStore::open(&one).unwrap());
        let mut lines = Vec::new();
        assert_eq!(export(&one, &mut lines).unwrap(), 0);
        assert_eq!(import(&two, lines.as_slice()).unwrap(), 0);
        assert!(matches!(import(&two, lines.as_slice()), Err(TransferError::NotEmpty(_))));
        let cut = lines.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let three = dir.path().join("three");
        assert!(matches!(import(&three, &lines[..cut]), Err(TransferError::CutShort)));
        assert!(!three.exists());
    }
}
