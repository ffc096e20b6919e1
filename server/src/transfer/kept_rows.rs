//! The rows of sessions, locks and queues of an import. They are kept in memory until all are read, because each of
//! them must fit to others. Of the bodies of requests, only the digests are kept.

use std::collections::BTreeMap;

use leasehold_core::invariant::{self, FenceCheck, Violation};
use leasehold_core::lease::Fence;
use leasehold_core::queue::{BodyDigest, RequestBody, RequestId};
use leasehold_core::rows::{AnyRow, NetChanges, RowChange, RowKind, State};

use super::import::RowError;
use crate::store::{ImportTarget, StoreError};

/// The largest number of bytes of bodies that wait to be written.
const PENDING_BYTES: usize = 4 * 1_048_576;

/// The sessions, locks, asks, turns, queues, lanes and requests that an import has read.
#[derive(Default)]
pub(super) struct KeptRows {
    state: State,
    // The digests of the bodies that were read.
    digests: BTreeMap<RequestId, BodyDigest>,
    // Bodies that are not written yet, and the number of their bytes.
    bodies: Vec<(RequestId, RequestBody)>,
    body_bytes: usize,
}

impl KeptRows {
    /// Adds a row of sessions, locks or queues.
    ///
    /// # Errors
    /// An earlier line has a row with the same key.
    pub(super) fn take(&mut self, row: AnyRow) -> Result<(), RowError> {
        let State { sessions, locks, asks, turns, queues, lanes, requests, .. } = &mut self.state;
        let (kind, is_new) = match row {
            AnyRow::Session(id, session) => ("session", sessions.insert(id, session).is_none()),
            AnyRow::Lock(path, lock) => ("lock", locks.insert(path, lock).is_none()),
            AnyRow::Ask(id, ask) => ("ask", asks.insert(id, ask).is_none()),
            AnyRow::Turn(key, turn) => ("turn", turns.insert(key, turn).is_none()),
            AnyRow::Queue(path, queue) => ("queue", queues.insert(path, queue).is_none()),
            AnyRow::Lane(path, lane) => ("lane", lanes.insert(path, lane).is_none()),
            AnyRow::Request(id, request) => ("request", requests.insert(id, request).is_none()),
            AnyRow::RequestBody(id, body) => ("body", self.take_body(id, body)),
            AnyRow::Claim(..) | AnyRow::Lease(..) | AnyRow::Replay(..) => return Ok(()),
        };
        if is_new { Ok(()) } else { Err(RowError::Duplicate(kind)) }
    }

    /// Adds the body of a request. Returns false if an earlier line has it too.
    fn take_body(&mut self, id: RequestId, body: RequestBody) -> bool {
        let is_new = self.digests.insert(id, body.digest()).is_none();
        self.body_bytes += body.as_bytes().len();
        self.bodies.push((id, body));
        is_new
    }

    /// True if so many bodies wait to be written that [`save_bodies`](Self::save_bodies) is due.
    pub(super) fn has_many_bodies(&self, batch_rows: usize) -> bool {
        self.bodies.len() >= batch_rows || self.body_bytes >= PENDING_BYTES
    }

    /// Writes the bodies that wait to be written.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn save_bodies(&mut self, store: &mut impl ImportTarget) -> Result<(), StoreError> {
        self.body_bytes = 0;
        let bodies = std::mem::take(&mut self.bodies).into_iter().map(new_row).collect();
        store.save(&NetChanges { bodies, ..NetChanges::default() })
    }

    /// Checks that the rows fit together, and that no grant and no hold has the fence of a lease. `newest` is the
    /// newest fence given out, and `leases` has the fences of all leases.
    ///
    /// # Errors
    /// A row breaks an invariant.
    pub(super) fn check(&mut self, newest: Fence, leases: &FenceCheck) -> Result<(), RowError> {
        self.state.fence = newest;
        invariant::check_locks(&invariant::LockRows::from(&self.state), leases)?;
        invariant::check_queues(&invariant::QueueRows::from(&self.state), leases)?;
        Ok(invariant::check_bodies(&self.state.requests, &self.digests).map_err(Violation::from)?)
    }

    /// Writes the rows in batches of at most `batch_rows` rows.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn save(mut self, store: &mut impl ImportTarget, batch_rows: usize) -> Result<(), StoreError> {
        self.save_bodies(store)?;
        let State { sessions, locks, asks, turns, queues, lanes, requests, .. } = self.state;
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
        for queues in batches(queues, batch_rows) {
            store.save(&NetChanges { queues, ..NetChanges::default() })?;
        }
        for lanes in batches(lanes, batch_rows) {
            store.save(&NetChanges { lanes, ..NetChanges::default() })?;
        }
        for requests in batches(requests, batch_rows) {
            store.save(&NetChanges { requests, ..NetChanges::default() })?;
        }
        Ok(())
    }
}

fn new_row<K: RowKind>((key, row): (K::Key, K)) -> RowChange<K> {
    RowChange { key, before: None, after: Some(row) }
}

/// Returns the rows as new rows, in batches of at most `batch_rows` rows.
fn batches<K: RowKind>(
    rows: impl IntoIterator<Item = (K::Key, K)>,
    batch_rows: usize,
) -> impl Iterator<Item = Vec<RowChange<K>>> {
    let mut rows = rows.into_iter().map(new_row);
    std::iter::from_fn(move || {
        let batch: Vec<_> = rows.by_ref().take(batch_rows).collect();
        (!batch.is_empty()).then_some(batch)
    })
}
