//! The gRPC services: translate, call the committer or the store, translate back. No rule of the protocol lives here.

mod claims;
mod classify;
mod convert;
mod errors;
mod layer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::claim::CellId;
use leasehold_core::rejection::Rejection;
use leasehold_core::rules::Rules;
use leasehold_proto::gitlab::cells::topology_service::{CellInfo, GetCellsResponse, SequenceRange};
use tokio::sync::Semaphore;
use tonic::{Request, Status};

use crate::committer::{Committer, Refusal};
use crate::config::{CellConfig, Config};
use crate::identity::{Denied, Permit};
use crate::metrics::Metrics;
use crate::store::{EmbeddedStore, StoreError};

pub use claims::Claims;
pub use classify::{Classify, http_router};
pub use layer::GuardLayer;

/// The name of the limit of a request's size.
const REQUEST_BYTES: &str = "request_bytes";

/// What the services share.
pub struct Service {
    rules: Rules,
    cells: BTreeMap<CellId, CellInfo>,
    store: EmbeddedStore,
    committer: Committer,
    running_lists: Semaphore,
    admitted_lists: Semaphore,
    /// What operators watch.
    pub metrics: Arc<Metrics>,
    failing: AtomicBool,
}

impl Service {
    /// The services' shared part.
    pub fn new(
        config: &Config,
        rules: Rules,
        store: EmbeddedStore,
        committer: Committer,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            rules,
            cells: config.cells().into_iter().map(|(id, cell)| (id, cell_info(cell))).collect(),
            store,
            committer,
            running_lists: semaphore(config.limits.concurrent_lists),
            admitted_lists: semaphore(config.limits.concurrent_lists.saturating_add(config.limits.queued_lists)),
            metrics,
            failing: AtomicBool::new(false),
        }
    }

    /// The way to the writer.
    pub fn committer(&self) -> &Committer {
        &self.committer
    }

    /// The store, for reading.
    pub fn store(&self) -> &EmbeddedStore {
        &self.store
    }

    /// Whether the store can no longer be relied on.
    pub fn has_failed(&self) -> bool {
        self.committer.has_failed() || self.failing.load(Ordering::Relaxed)
    }

    fn cell_info(&self, cell: CellId) -> Option<CellInfo> {
        self.cells.get(&cell).cloned()
    }

    fn all_cells(&self) -> GetCellsResponse {
        GetCellsResponse { cells: self.cells.values().cloned().collect() }
    }

    /// The key of a bucket to read.
    fn bucket_key(&self, bucket_type: BucketType, value: String) -> Result<BucketKey, Status> {
        let bucket = self.rules.catalogue.bucket(bucket_type, value.into());
        bucket.map(|bucket| bucket.key).map_err(|error| {
            let rejection = Rejection::whole(error.reason, error.detail);
            self.metrics.rejected(&rejection);
            errors::rejected(&rejection)
        })
    }

    /// Reads one row: from memory mostly, so on the thread at hand.
    fn read<T>(&self, read: impl FnOnce(&EmbeddedStore) -> Result<T, StoreError>) -> Result<T, Status> {
        read(&self.store).map_err(|error| self.unreadable(&error))
    }

    /// Runs a list on a thread for blocking work, or sheds it where too many wait.
    async fn list<T: Send + 'static>(
        &self,
        method: &'static str,
        read: impl FnOnce(&EmbeddedStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Status> {
        let shed = || {
            self.metrics.shed(method);
            errors::refused(&Refusal::overloaded())
        };
        let _admitted = self.admitted_lists.try_acquire().map_err(|_| shed())?;
        let _running = self.running_lists.acquire().await.map_err(|_| shed())?;
        let store = self.store.clone();
        let result = tokio::task::spawn_blocking(move || read(&store)).await;
        result.map_err(|_| errors::refused(&Refusal::Stopping))?.map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &StoreError) -> Status {
        tracing::error!(%error, "a row could not be read");
        self.failing.store(true, Ordering::Relaxed);
        errors::refused(&Refusal::StoreUnavailable(error.to_string().into()))
    }
}

fn semaphore(permits: usize) -> Semaphore {
    Semaphore::new(permits.min(Semaphore::MAX_PERMITS))
}

fn cell_info(cell: CellConfig) -> CellInfo {
    CellInfo {
        id: cell.id,
        name: cell.name,
        address: cell.address,
        session_prefix: cell.session_prefix,
        sequence_range: cell.sequence_range.map(|range| SequenceRange { minval: range.minval, maxval: range.maxval }),
    }
}

/// The permit that the layer in front gave the request; without one, nothing is allowed.
fn permit<T>(request: &Request<T>) -> Result<Permit, Status> {
    request.extensions().get::<Permit>().copied().ok_or_else(|| errors::denied(Denied::NoIdentity))
}
