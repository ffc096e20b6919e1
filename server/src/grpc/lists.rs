//! Runs list calls of leases and records: limits how many run and wait, and stops a list whose
//! caller is gone.
//!
//! A list runs in a task of its own, which holds its permit. If the caller is gone, the list stops
//! before its next part and returns its permit then. A part that the store has begun can't be
//! stopped.

use std::sync::{Arc, Weak};

use leasehold_core::claim::SourceType;
use leasehold_core::query::{RECORD_BYTES_PER_PAGE, RECORD_BYTES_PER_SOURCE, RecordPage, RecordQuery, RecordScan};
use leasehold_core::time::Timestamp;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Request, Response, Status};

use super::failed_reads::Read;
use super::{Services, errors};
use crate::budget::{BudgetExceeded, Charge};
use crate::committer::CommitterRefusal;
use crate::shares::Sharer;
use crate::store::{StoreError, StoreReader};

/// The response metadata that carries the server's time at which a list was read. A cell compares
/// it with the leases' times, which are from the same clock (R03).
const SERVER_TIME: &str = "leasehold-server-time-micros";
/// The response metadata that carries the server's version; lists have it.
const SERVER_VERSION: &str = "leasehold-server-version";

/// The calls whose answers may be large, and the estimate of the bytes of each: a list reserves so
/// much before it reads a page.
///
/// A page of leases or tables has numbers and ids alone. A page of locks has a thousand names and
/// last values of two KiB each. Lanes and requests have names, and no bodies.
pub(super) const PAGES: [(&str, usize); 8] = [
    ("ListLeases", SMALL_PAGE_BYTES),
    ("ListOutstandingLeases", SMALL_PAGE_BYTES),
    ("ListTables", SMALL_PAGE_BYTES),
    ("ListRecords", RECORD_BYTES_PER_PAGE),
    ("ListLocks", 4 * MIB),
    ("ListRequests", MIB),
    ("ListLanes", MIB),
    ("DropClaims", MAX_DROPPED_BYTES),
];

const SMALL_PAGE_BYTES: usize = 64 * 1024;
const MIB: usize = 1024 * 1024;
/// The bytes of records at which one call of `DropClaims` stops. The rest is left to the next call.
pub(super) const MAX_DROPPED_BYTES: usize = 2 * MIB;

/// A list call: its method's label in the metrics, its caller, and the charge for the bytes of its
/// answer, which the middleware has made.
pub(super) struct ListCall {
    method: &'static str,
    sharer: Sharer,
    // The estimate of the answer's bytes, before it is read.
    bytes: usize,
    // `None` without a connection. Only tests call so.
    charge: Option<Arc<Charge>>,
}

impl ListCall {
    /// The call of a method of [`PAGES`] that a request makes.
    pub(super) fn of<T>(method: &'static str, sharer: Sharer, request: &Request<T>) -> Self {
        let page = PAGES.iter().find(|(listed, _)| *listed == method);
        let bytes = page.map_or(RECORD_BYTES_PER_PAGE, |(_, bytes)| *bytes);
        Self { method, sharer, bytes, charge: request.extensions().get().cloned() }
    }

    /// Waits for room for a page.
    async fn reserve(&self) -> Result<(), BudgetExceeded> {
        match &self.charge {
            Some(charge) => charge.reserve(self.bytes).await,
            None => Ok(()),
        }
    }
}

/// The caller of a list, as the list's task sees it.
pub(super) struct ListCaller {
    waits: Weak<()>,
    charge: Option<Arc<Charge>>,
}

impl ListCaller {
    pub(super) fn is_gone(&self) -> bool {
        self.waits.strong_count() == 0
    }

    /// Charges the most that one source id may have, if the next part may exceed a page. The list
    /// does not wait for room, because it has a permit that others wait for.
    fn charge(&self, scan: &RecordScan) -> Result<(), BudgetExceeded> {
        match &self.charge {
            Some(charge) if scan.max_bytes > RECORD_BYTES_PER_PAGE => charge.grow_to(RECORD_BYTES_PER_SOURCE),
            _ => Ok(()),
        }
    }
}

/// The reason for which a list has no answer.
pub(super) enum ListFailure {
    /// This read of the store failed.
    Store(StoreError, Read),
    /// The records of one source id in this table have more bytes than a page may.
    SourceTooLarge(SourceType),
    /// The answer would exceed a bound on the bytes of answers.
    Budget(BudgetExceeded),
    /// The caller is gone.
    CallerGone,
}

/// Returns a response with a page of a list, the server's version, and the server's time `read_at`.
/// This time must be read before the page. Otherwise a lease that is begun in between would look
/// older than it is, and a cell could take it for stale.
pub(super) fn list_response<T>(page: T, read_at: Timestamp) -> Response<T> {
    let mut response = Response::new(page);
    let metadata = response.metadata_mut();
    metadata.insert(SERVER_TIME, read_at.as_micros().into());
    metadata.insert(SERVER_VERSION, AsciiMetadataValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

/// Reads a page of records, part by part.
pub(super) async fn read_records(
    store: Arc<dyn StoreReader>,
    query: RecordQuery,
    caller: ListCaller,
) -> Result<RecordPage, ListFailure> {
    let mut list = query.list();
    let table = list.scan().source_type;
    while !caller.is_gone() {
        let scan = list.scan().clone();
        caller.charge(&scan).map_err(ListFailure::Budget)?;
        let part = store.records(scan.clone()).await.map_err(|error| ListFailure::Store(error, Read::Records(scan)))?;
        if let Some(page) = list.add(part).map_err(|_| ListFailure::SourceTooLarge(table))? {
            return Ok(page);
        }
    }
    Err(ListFailure::CallerGone)
}

impl Services {
    /// Runs a list call as soon as fewer than `limits.concurrent_lists` run. If
    /// `limits.queued_lists` calls wait already, the call is refused at once.
    pub(super) async fn list<T: Send + 'static, L>(
        &self,
        call: &ListCall,
        list: impl FnOnce(Arc<dyn StoreReader>, ListCaller) -> L,
    ) -> Result<T, Status>
    where
        L: Future<Output = Result<T, ListFailure>> + Send + 'static,
    {
        let admitted = self.lists.admit(call.sharer).map_err(|limit| {
            self.metrics.shed(call.method);
            errors::refused(&CommitterRefusal::overloaded(limit))
        })?;
        // The list waits for room before it takes a permit to run, so that a caller who takes no
        // answer keeps nobody else from running.
        call.reserve().await.map_err(|exceeded| self.over_budget(call, exceeded))?;
        let running = admitted.run().await;
        let waits = Arc::new(());
        let list = list(self.store.clone(), ListCaller { waits: Arc::downgrade(&waits), charge: call.charge.clone() });
        let task = tokio::spawn(async move {
            let _running = running;
            list.await
        });
        let answer = match task.await {
            Ok(answer) => answer,
            // The panic continues in the task of the call, where the middleware turns it into an
            // answer.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return Err(errors::refused(&CommitterRefusal::Stopping)),
        };
        drop(waits);
        answer.map_err(|failure| match failure {
            ListFailure::Store(error, read) => self.unreadable(&error, read),
            ListFailure::SourceTooLarge(table) => errors::source_too_large(table),
            ListFailure::Budget(exceeded) => self.over_budget(call, exceeded),
            ListFailure::CallerGone => errors::deadline_exceeded(),
        })
    }

    /// Counts a list that is refused because of the bytes of answers, and returns its status.
    fn over_budget(&self, call: &ListCall, exceeded: BudgetExceeded) -> Status {
        self.metrics.shed(call.method);
        errors::over_budget(exceeded)
    }
}
