//! The gRPC services: translate, call the committer or the store, translate back. No rule of the protocol lives here.

mod claims;
mod classify;
mod convert;
mod errors;
mod middleware;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::claim::{CellId, Claim};
use leasehold_core::rejection::Rejection;
use leasehold_core::rules::Rules;
use leasehold_proto::gitlab::cells::topology_service::{CellInfo, GetCellsResponse, SequenceRange};
use tokio::sync::Semaphore;
use tonic::{Request, Status};

use crate::committer::{Committer, Refusal};
use crate::config::{CellConfig, Config};
use crate::identity::{Denied, Permit};
use crate::metrics::Metrics;
use crate::store::{Reader, StoreError};

pub use claims::Claims;
pub use classify::{Classify, http_router};
pub use middleware::GuardLayer;

/// The name of the limit of a request's size.
const REQUEST_BYTES: &str = "request_bytes";

/// What the services share.
pub struct Service {
    rules: Rules,
    cells: BTreeMap<CellId, CellInfo>,
    store: Reader,
    committer: Committer,
    running_lists: Semaphore,
    admitted_lists: Semaphore,
    /// What operators watch.
    pub metrics: Arc<Metrics>,
    failing: AtomicBool,
}

impl Service {
    /// The services' shared part.
    pub fn new(config: &Config, rules: Rules, store: Reader, committer: Committer, metrics: Arc<Metrics>) -> Self {
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
    pub fn store(&self) -> &Reader {
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

    /// A bucket's claim (B30).
    async fn claim(&self, key: &BucketKey) -> Result<Option<Claim>, Status> {
        self.store.claim(key).await.map_err(|error| self.unreadable(&error))
    }

    /// Runs a list, or sheds it where too many wait.
    async fn list<T>(
        &self,
        method: &'static str,
        list: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Status> {
        let shed = || {
            self.metrics.shed(method);
            errors::refused(&Refusal::overloaded())
        };
        let _admitted = self.admitted_lists.try_acquire().map_err(|_| shed())?;
        let _running = self.running_lists.acquire().await.map_err(|_| shed())?;
        list.await.map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &StoreError) -> Status {
        tracing::error!(%error, "a row could not be read");
        if self.store.is_lost_by(error) {
            self.failing.store(true, Ordering::Relaxed);
        }
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
