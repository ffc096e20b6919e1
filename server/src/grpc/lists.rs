//! Runs list calls of leases and records: limits how many run and wait, and stops a list whose
//! caller is gone.
//!
//! A list runs in a task of its own, which holds the permits. If the caller is gone, the list stops
//! before its next part and returns its permits then. A part that the store has begun can't be
//! stopped.

use std::sync::{Arc, Weak};

use leasehold_core::claim::SourceType;
use leasehold_core::query::{RecordPage, RecordQuery};
use leasehold_core::time::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Response, Status};

use super::failed_reads::Read;
use super::{Services, errors};
use crate::committer::{CommitterRefusal, LimitReached};
use crate::store::{StoreError, StoreReader};

/// The response metadata that carries the server's time at which a list was read. A cell compares
/// it with the leases' times, which are from the same clock (R03).
const SERVER_TIME: &str = "leasehold-server-time-micros";
/// The response metadata that carries the server's version; lists have it.
const SERVER_VERSION: &str = "leasehold-server-version";

/// Two semaphores that limit list calls: those that run, and those that run or wait.
pub(super) struct ListPermits {
    concurrent: usize,
    queued: usize,
    running: Arc<Semaphore>,
    // One permit for each list that runs or waits.
    admitted: Arc<Semaphore>,
    // The limit that the refusal of a list names.
    limit: LimitReached,
}

impl ListPermits {
    /// The permits for `concurrent` running lists and `queued` waiting ones.
    pub(super) fn new(concurrent: usize, queued: usize) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let limit = LimitReached::OfServer { setting: "limits.queued_lists", max: queued };
        let admitted = semaphore(concurrent.saturating_add(queued));
        Self { concurrent, queued, running: semaphore(concurrent), admitted, limit }
    }

    /// True if the permits were made with these two numbers.
    pub(super) fn has_limits(&self, concurrent: usize, queued: usize) -> bool {
        (self.concurrent, self.queued) == (concurrent, queued)
    }

    /// Waits until a list may run; `None` if too many wait already.
    async fn acquire(&self) -> Option<[OwnedSemaphorePermit; 2]> {
        let admitted = self.admitted.clone().try_acquire_owned().ok()?;
        let running = self.running.clone().acquire_owned().await.ok()?;
        Some([admitted, running])
    }
}

/// The caller of a list, as the list's task sees it.
pub(super) struct ListCaller(Weak<()>);

impl ListCaller {
    pub(super) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// The reason for which a list has no answer.
pub(super) enum ListFailure {
    /// This read of the store failed.
    Store(StoreError, Read),
    /// The records of one source id in this table have more bytes than a page may.
    SourceTooLarge(SourceType),
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
        method: &'static str,
        list: impl FnOnce(Arc<dyn StoreReader>, ListCaller) -> L,
    ) -> Result<T, Status>
    where
        L: Future<Output = Result<T, ListFailure>> + Send + 'static,
    {
        let lists = self.lists.load_full();
        let Some(permits) = lists.acquire().await else {
            self.metrics.shed(method);
            return Err(errors::refused(&CommitterRefusal::overloaded(lists.limit)));
        };
        let waits = Arc::new(());
        let list = list(self.store.clone(), ListCaller(Arc::downgrade(&waits)));
        let task = tokio::spawn(async move {
            let _permits = permits;
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
            ListFailure::CallerGone => errors::deadline_exceeded(),
        })
    }
}
