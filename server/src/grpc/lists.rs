//! Lists of leases and records: how many run, for whom, and for how long.
//!
//! A list runs in a task of its own, which has the permit. A list whose caller is gone stops at its
//! next part, and returns its permit then: the part that a store has begun can't be stopped.

use std::sync::{Arc, Weak};

use leasehold_core::claim::SourceType;
use leasehold_core::query::{RecordPage, RecordQuery};
use leasehold_core::time::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Response, Status};

use super::{Services, errors};
use crate::committer::{CommitterRefusal, LimitReached};
use crate::store::{StoreError, StoreReader};

/// The response metadata that carries the server's time of a list. A cell compares it with the
/// leases' times, which are from the same clock (R03).
const SERVER_TIME: &str = "leasehold-server-time-micros";
/// The response metadata that carries the server's version, with a list.
const SERVER_VERSION: &str = "leasehold-server-version";

/// The permits of lists.
pub(super) struct ListPermits {
    concurrent: usize,
    queued: usize,
    running: Arc<Semaphore>,
    // The permits for lists that run and for those that wait.
    admitted: Arc<Semaphore>,
    // The limit that a refused list has reached.
    limit: LimitReached,
}

impl ListPermits {
    /// The permits for `concurrent` lists that run and `queued` that wait.
    pub(super) fn new(concurrent: usize, queued: usize) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let limit = LimitReached::OfServer { setting: "limits.queued_lists", max: queued };
        let admitted = semaphore(concurrent.saturating_add(queued));
        Self { concurrent, queued, running: semaphore(concurrent), admitted, limit }
    }

    /// True if these are the numbers of permits.
    pub(super) fn are(&self, concurrent: usize, queued: usize) -> bool {
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
    fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// The reason for which a list has no answer.
pub(super) enum ListFailure {
    /// The store could not be read.
    Store(StoreError),
    /// The records of one source id in this table have more bytes than a page may.
    SourceTooLarge(SourceType),
    /// The caller is gone.
    CallerGone,
}

impl From<StoreError> for ListFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Returns a response with a page of a list, the server's version, and the server's time
/// `read_at`. This time must be taken before the page is read: a lease begun in between would
/// otherwise look older than it is, and could be taken for stale.
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
        let part = store.records(list.scan().clone()).await?;
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
            // The panic goes on in the call, which the middleware answers.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return Err(errors::refused(&CommitterRefusal::Stopping)),
        };
        drop(waits);
        answer.map_err(|failure| match failure {
            ListFailure::Store(error) => self.unreadable(&error),
            ListFailure::SourceTooLarge(table) => errors::source_too_large(table),
            ListFailure::CallerGone => errors::deadline_exceeded(),
        })
    }
}
