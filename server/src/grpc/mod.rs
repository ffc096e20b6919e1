//! The gRPC services: each handler converts a request, calls the committer or the store, and
//! converts the answer.
//!
//! This module has no rule of the protocol; those are in `leasehold_core`. Only this module has
//! gRPC codes: the layers below it return typed failures.

mod acquire_locks;
mod admin;
mod cells;
mod circles;
mod claims;
mod classify;
mod convert;
mod delivery;
mod errors;
mod failed_reads;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod leases;
mod list_permits;
mod lists;
mod locks;
mod message;
mod middleware;
mod peers;
mod protocol;
mod queue_lists;
mod queue_take;
mod queue_wire;
mod queues;
mod reap;
mod sessions;

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::Claim;
use leasehold_core::rejection::Rejection;
use leasehold_core::rules::Rules;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::types::v1 as types;
use tonic::{Request, Status};
use uuid::Uuid;

use crate::active_config::ActiveConfig;
use crate::audit::AuditSink;
use crate::budget::ServerBudgets;
use crate::committer::{Committer, CommitterRefusal};
use crate::config::Config;
use crate::identity::{Denied, Permit};
use crate::locks::LockHost;
use crate::metrics::Metrics;
use crate::reloads::Reloads;
use crate::shares::Sharer;
use crate::store::{Backend, SharedLocks, StoreError, StoreReader};

use failed_reads::{FailedReads, Read};
use list_permits::ListPermits;

pub use admin::AdminHandler;
pub use cells::CellHandler;
pub use claims::ClaimsHandler;
pub use classify::{ClassifyHandler, http_router};
pub use errors::store_code;
pub use locks::LockHandler;
pub use message::MAX_SMALL_REQUEST_BYTES;
pub use middleware::{MiddlewareLayer, MiddlewareState};
pub use peers::{MAX_RUNG_QUEUES, PeerHandler};
pub use protocol::is_grpc;
pub use queues::QueueHandler;
pub use sessions::SessionHandler;

/// The name of the limit on a request's size, in the refusal of a larger request.
const REQUEST_BYTES: &str = "request_bytes";
/// The path of `Classify` over HTTP.
const CLASSIFY_HTTP: &str = "/v1/classify";

/// The state that all services of the server share.
pub struct Services {
    store: Arc<dyn StoreReader>,
    /// The id of the store, which each response carries.
    pub store_id: Uuid,
    committer: Committer,
    /// The server's memory of sessions and locks.
    pub locks: Arc<LockHost>,
    /// The part of the store by which servers share sessions; `None` if no other server uses it.
    pub shared_locks: Option<Arc<dyn SharedLocks>>,
    lists: Arc<ListPermits>,
    /// The metrics of the server.
    pub metrics: Arc<Metrics>,
    /// The audit trail of the server.
    pub audit: Arc<AuditSink>,
    /// The bytes of requests and answers that the server holds.
    pub budgets: ServerBudgets,
    /// The reads that failed, and that the maintenance tries again.
    pub(crate) failed_reads: FailedReads,
    /// The calls that wait for a reload of the configuration.
    pub(crate) reloads: Reloads,
}

impl Services {
    /// Returns the shared state of services that read from `store` and write through `committer`.
    pub fn new(
        config: &Config,
        store: &dyn Backend,
        committer: Committer,
        locks: Arc<LockHost>,
        metrics: Arc<Metrics>,
        audit: Arc<AuditSink>,
    ) -> Self {
        let limits = &config.limits;
        Self {
            store: store.reader(),
            store_id: store.identity().id,
            committer,
            locks,
            shared_locks: store.shared_locks(),
            lists: ListPermits::new(limits.concurrent_lists, limits.queued_lists, listers(config)),
            metrics,
            audit,
            budgets: ServerBudgets::new(config),
            failed_reads: FailedReads::default(),
            reloads: Reloads::default(),
        }
    }

    /// Changes the limits of lists, and of the bytes of requests and answers.
    pub fn set_limits(&self, config: &Config) {
        let limits = &config.limits;
        self.budgets.set_bounds(config);
        self.lists.resize(limits.concurrent_lists, limits.queued_lists, listers(config));
    }

    /// The committer, which decides and writes commands.
    pub fn committer(&self) -> &Committer {
        &self.committer
    }

    /// The reader of the store.
    pub fn store(&self) -> &dyn StoreReader {
        &*self.store
    }

    /// True if a write has failed, so that only a restart can help, or if a read fails.
    pub fn has_failed(&self) -> bool {
        self.committer.has_failed() || !self.failed_reads.is_empty()
    }

    /// Returns the key of the bucket with this type and value, or the gRPC status for a value that
    /// the type does not allow.
    fn bucket_key(&self, rules: &Rules, bucket_type: BucketType, value: String) -> Result<BucketKey, Status> {
        let bucket = rules.catalogue.bucket_of_existing(bucket_type, value.into());
        bucket.map(|bucket| bucket.key).map_err(|error| {
            let rejection = Rejection::whole(error.reason, error.detail);
            self.metrics.rejected(&rejection);
            errors::rejected(&rejection)
        })
    }

    /// Reads the claims on buckets as they were at one moment, in the order of `keys` (B30).
    async fn claims(&self, keys: &[BucketKey]) -> Result<Vec<Option<Claim>>, Status> {
        let read = |error| self.unreadable(&error, Read::Claims(keys.to_vec()));
        self.store.claims(keys).await.map_err(read)
    }

    /// Counts a rejection in the metrics, and returns the gRPC status for it.
    fn reject(&self, config: &ActiveConfig, rejection: &Rejection) -> Status {
        self.metrics.rejected(rejection);
        errors::rejected_command(rejection, config.config.busy_create_code)
    }

    /// Logs and counts the failure of a read, and returns the gRPC status for it. If the failure is
    /// not that of a damaged row, the read is kept for another attempt.
    fn unreadable(&self, error: &StoreError, read: Read) -> Status {
        match error {
            // An outage is logged when it begins and ends. Each of its reads would be a line more.
            StoreError::Unreachable(_) => tracing::debug!(%error, "a row can't be read"),
            _ => tracing::error!(%error, "a row can't be read"),
        }
        if matches!(error, StoreError::Damaged(_)) {
            self.metrics.damaged(1);
        }
        if self.store.is_lost_by(error) {
            self.failed_reads.add(read);
            self.committer.recheck_health();
        }
        errors::refused(&CommitterRefusal::StoreUnavailable(error.to_string().into()))
    }
}

/// Returns the cells and services that share the places for lists.
fn listers(config: &Config) -> BTreeSet<CellId> {
    config.cells.iter().map(|cell| CellId(cell.id)).chain(Sharer::services(config)).collect()
}

/// Returns the bucket type and the value that a request names, or the gRPC status of a request that
/// names no bucket or two.
fn bucket(
    config: &ActiveConfig,
    bucket: Option<wire::Bucket>,
    claim: Option<&types::Claim>,
) -> Result<(BucketType, String), Status> {
    convert::bucket(bucket, claim, &config.rules.catalogue).map_err(errors::invalid)
}

fn record(config: &ActiveConfig, key: &BucketKey, claim: Claim) -> wire::Record {
    convert::record(key, claim, &config.rules.catalogue)
}

/// Returns the cell that a request names, or the status `RULE_DENIED` if the permit does not allow
/// this cell.
fn allowed_cell(permit: &Permit, cell_id: i64) -> Result<CellId, Status> {
    let cell = CellId(cell_id);
    permit.check(cell).map_err(errors::denied)?;
    Ok(cell)
}

/// Returns the permit and the configuration that the middleware added to the request. A request
/// without a permit, on a path without access rules, is denied.
fn admitted<T>(request: &Request<T>) -> Result<(Permit, Arc<ActiveConfig>), Status> {
    let permit = request.extensions().get::<Permit>().cloned();
    let config = request.extensions().get::<Arc<ActiveConfig>>().cloned();
    permit.zip(config).ok_or_else(|| errors::denied(Denied::NoIdentity))
}
