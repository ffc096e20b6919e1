//! The gRPC services: each handler converts a request, calls the committer or the store, and
//! converts the answer.
//!
//! This module has no rule of the protocol; those are in `leasehold_core`. Only this module has
//! gRPC codes: the layers below it return typed failures.

mod admin;
mod cells;
mod claims;
mod classify;
mod convert;
mod delivery;
mod errors;
mod lists;
mod message;
mod middleware;
mod protocol;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::Claim;
use leasehold_core::rejection::Rejection;
use leasehold_core::rules::Rules;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::types::v1 as types;
use leasehold_proto::gitlab::cells::topology_service::{CellInfo, GetCellsResponse, SequenceRange};
use tonic::{Request, Status};
use uuid::Uuid;

use crate::audit::AuditSink;
use crate::budget::ServerBudget;
use crate::committer::{Committer, Refusal};
use crate::config::{self, BusyCreateCode, CellConfig, Config};
use crate::identity::{Denied, Permit};
use crate::metrics::Metrics;
use crate::store::{Backend, StoreError, StoreReader};

use lists::ListPermits;

pub use admin::AdminHandler;
pub use cells::CellHandler;
pub use claims::ClaimsHandler;
pub use classify::{ClassifyHandler, http_router};
pub use errors::store_code;
pub use message::MAX_SMALL_REQUEST_BYTES;
pub use middleware::{MiddlewareLayer, MiddlewareState};
pub use protocol::is_grpc;

/// The name of the limit on a request's size, in the refusal of a larger request.
const REQUEST_BYTES: &str = "request_bytes";
/// The path of `Classify` over HTTP.
const CLASSIFY_HTTP: &str = "/v1/classify";

/// The state that all services of the server share.
pub struct Services {
    rules: Rules,
    cells: BTreeMap<CellId, CellInfo>,
    // The addresses at which cells serve Pages, for those that do.
    pages: BTreeMap<CellId, String>,
    default_cell: Option<CellId>,
    busy_create_code: BusyCreateCode,
    store: Arc<dyn StoreReader>,
    /// The id of the store, which each answer tells.
    pub store_id: Uuid,
    committer: Committer,
    lists: ListPermits,
    /// The metrics of the server.
    pub metrics: Arc<Metrics>,
    /// The audit trail of the server.
    pub audit: Arc<AuditSink>,
    /// The bytes of requests that the server holds.
    pub budget: Arc<ServerBudget>,
    // A read has failed in a way that only a restart can mend.
    has_failed: AtomicBool,
}

impl Services {
    /// Returns the shared state of services that read from `store` and write through `committer`.
    pub fn new(
        config: &Config,
        store: &dyn Backend,
        committer: Committer,
        metrics: Arc<Metrics>,
        audit: Arc<AuditSink>,
    ) -> Self {
        Self {
            rules: config.rules(),
            pages: config.cells().into_iter().filter_map(|(id, cell)| Some((id, cell.pages_address?))).collect(),
            cells: config.cells().into_iter().map(|(id, cell)| (id, cell_info(cell))).collect(),
            default_cell: config.default_cell(),
            busy_create_code: config.busy_create_code,
            store: store.reader(),
            store_id: store.identity().id,
            committer,
            lists: ListPermits::new(config.limits.concurrent_lists, config.limits.queued_lists),
            metrics,
            audit,
            budget: ServerBudget::new(mib(config.limits.request_mib), mib(config.limits.request_mib_per_connection)),
            has_failed: AtomicBool::new(false),
        }
    }

    /// The committer, which decides and writes commands.
    pub fn committer(&self) -> &Committer {
        &self.committer
    }

    /// The reader of the store.
    pub fn store(&self) -> &dyn StoreReader {
        &*self.store
    }

    /// True if a write or a read of the store failed in a way that only a restart can mend.
    pub fn has_failed(&self) -> bool {
        self.committer.has_failed() || self.has_failed.load(Ordering::Relaxed)
    }

    fn cell_info(&self, cell: CellId) -> Option<CellInfo> {
        self.cells.get(&cell).cloned()
    }

    fn all_cells(&self) -> GetCellsResponse {
        GetCellsResponse { cells: self.cells.values().cloned().collect() }
    }

    /// Returns the bucket type and the value that a request names, or the gRPC status for a request
    /// that names none, or two.
    fn bucket(
        &self,
        bucket: Option<wire::Bucket>,
        claim: Option<&types::Claim>,
    ) -> Result<(BucketType, String), Status> {
        convert::bucket(bucket, claim, &self.rules.catalogue).map_err(errors::invalid)
    }

    fn record(&self, key: &BucketKey, claim: Claim) -> wire::Record {
        convert::record(key, claim, &self.rules.catalogue)
    }

    /// Returns the key of the bucket with this type and value, or the gRPC status for a value that
    /// the type does not allow.
    fn bucket_key(&self, bucket_type: BucketType, value: String) -> Result<BucketKey, Status> {
        let bucket = self.rules.catalogue.bucket(bucket_type, value.into());
        bucket.map(|bucket| bucket.key).map_err(|error| {
            let rejection = Rejection::whole(error.reason, error.detail);
            self.metrics.rejected(&rejection);
            errors::rejected(&rejection)
        })
    }

    /// Reads the claims on buckets as they were at one moment, in the order of `keys` (B30).
    async fn claims(&self, keys: &[BucketKey]) -> Result<Vec<Option<Claim>>, Status> {
        self.store.claims(keys).await.map_err(|error| self.unreadable(&error))
    }

    /// Counts a rejection in the metrics, and returns the gRPC status for it.
    fn reject(&self, rejection: &Rejection) -> Status {
        self.metrics.rejected(rejection);
        errors::rejected_command(rejection, self.busy_create_code)
    }

    fn unreadable(&self, error: &StoreError) -> Status {
        tracing::error!(%error, "a row can't be read");
        if matches!(error, StoreError::Damaged(_)) {
            self.metrics.damaged(1);
        }
        if self.store.is_lost_by(error) {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        errors::refused(&Refusal::StoreUnavailable(error.to_string().into()))
    }
}

/// The bytes of so many MiB.
fn mib(count: usize) -> usize {
    count.saturating_mul(1024 * 1024)
}

fn cell_info(cell: CellConfig) -> CellInfo {
    let range = |range: &config::SequenceRange| SequenceRange { minval: range.minval, maxval: range.maxval };
    let sequence_ranges: Vec<_> = cell.ranges().iter().map(range).collect();
    CellInfo {
        id: cell.id,
        name: cell.name,
        address: cell.address,
        session_prefix: cell.session_prefix,
        sequence_range: sequence_ranges.first().copied(),
        sequence_ranges,
    }
}

/// Returns the permit that the middleware added to the request. A request without a permit, on a
/// path without access rules, is denied.
fn permit<T>(request: &Request<T>) -> Result<Permit, Status> {
    request.extensions().get::<Permit>().copied().ok_or_else(|| errors::denied(Denied::NoIdentity))
}
