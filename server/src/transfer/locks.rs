//! The rows of sessions and locks of an import. They are kept in memory until all are read, because
//! each of them must fit to others.

use leasehold_core::invariant::{self, FenceCheck};
use leasehold_core::lease::Fence;
use leasehold_core::rows::{AnyRow, NetChanges, RowChange, RowKind, State};

use super::import::RowError;
use crate::store::{EmbeddedStore, StoreError};

/// The sessions, locks, asks and turns that an import has read.
#[derive(Default)]
pub(super) struct LockRows(State);

impl LockRows {
    /// Adds a row of sessions and locks.
    ///
    /// # Errors
    /// An earlier line has a row with the same key.
    pub(super) fn take(&mut self, row: AnyRow) -> Result<(), RowError> {
        let Self(State { sessions, locks, asks, turns, .. }) = self;
        let (kind, is_new) = match row {
            AnyRow::Session(id, session) => ("session", sessions.insert(id, session).is_none()),
            AnyRow::Lock(path, lock) => ("lock", locks.insert(path, lock).is_none()),
            AnyRow::Ask(id, ask) => ("ask", asks.insert(id, ask).is_none()),
            AnyRow::Turn(key, turn) => ("turn", turns.insert(key, turn).is_none()),
            AnyRow::Claim(..) | AnyRow::Lease(..) | AnyRow::Replay(..) => return Ok(()),
        };
        if is_new { Ok(()) } else { Err(RowError::Duplicate(kind)) }
    }

    /// Checks that the rows fit together, and that no grant has the fence of a lease. `newest` is the
    /// newest fence given out, and `leases` has the fences of all leases.
    ///
    /// # Errors
    /// A row breaks an invariant.
    pub(super) fn check(&mut self, newest: Fence, leases: &FenceCheck) -> Result<(), RowError> {
        self.0.fence = newest;
        Ok(invariant::check_locks(&invariant::LockRows::from(&self.0), leases)?)
    }

    /// Writes the rows in batches of at most `batch_rows` rows.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn save(self, store: &EmbeddedStore, batch_rows: usize) -> Result<(), StoreError> {
        let State { sessions, locks, asks, turns, .. } = self.0;
        for sessions in batches(sessions, batch_rows) {
            store.save(&NetChanges { sessions, ..NetChanges::default() })?;
        }
        for locks in batches(locks, batch_rows) {
            store.save(&NetChanges { locks, ..NetChanges::default() })?;
        }
        for asks in batches(asks, batch_rows) {
            store.save(&NetChanges { asks, ..NetChanges::default() })?;
        }
        for turns in batches(turns, batch_rows) {
            store.save(&NetChanges { turns, ..NetChanges::default() })?;
        }
        Ok(())
    }
}

/// Returns the rows as new rows, in batches of at most `batch_rows` rows.
fn batches<K: RowKind>(
    rows: impl IntoIterator<Item = (K::Key, K)>,
    batch_rows: usize,
) -> impl Iterator<Item = Vec<RowChange<K>>> {
    let mut rows = rows.into_iter().map(|(key, row)| RowChange { key, before: None, after: Some(row) });
    std::iter::from_fn(move || {
        let batch: Vec<_> = rows.by_ref().take(batch_rows).collect();
        (!batch.is_empty()).then_some(batch)
    })
}
