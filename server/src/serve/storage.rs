//! Opens the store that the configuration names, and starts the committer that writes to it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::ServeError;
use crate::audit::AuditSink;
use crate::committer::{BeginGate, Capacity, Committer, CommitterSettings, Refusal};
use crate::config::{Config, PostgresConfig};
use crate::grpc::Services;
use crate::metrics::Metrics;
use crate::store::{Backend, EmbeddedStore, PostgresStore};

/// Opens the configured store. Returns the store, and the state of the services that read it and
/// write through its committer.
pub(super) async fn open(config: &Config) -> Result<(Arc<dyn Backend>, Services), ServeError> {
    // The audit file is opened first: if that fails, no new data directory must be left behind.
    let audit = Arc::new(AuditSink::open(config)?);
    let kind = if config.postgres.is_some() { "postgres" } else { "embedded" };
    let metrics = Arc::new(Metrics::of_store(kind));
    let (backend, committer) = match &config.postgres {
        None => embedded(config, &metrics, &audit)?,
        Some(postgres) => shared(config, postgres, &metrics, &audit).await?,
    };
    let services = Services::new(config, backend.reader(), committer, metrics, audit);
    Ok((backend, services))
}

fn embedded(
    config: &Config,
    metrics: &Arc<Metrics>,
    audit: &Arc<AuditSink>,
) -> Result<(Arc<dyn Backend>, Committer), ServeError> {
    let data = config.data_dir()?;
    let store = EmbeddedStore::open(&data)?;
    let settings = CommitterSettings {
        capacity: capacity(config),
        held_claims: store.held_claims(),
        patience: Duration::ZERO,
        clock: store.clock(),
        begin_gate: disk_gate(config.min_free_disk_mib, data),
        audit: audit.clone(),
    };
    let committer = Committer::start(store.writers()?, settings, metrics.clone())?;
    Ok((Arc::new(store), committer))
}

async fn shared(
    config: &Config,
    postgres: &PostgresConfig,
    metrics: &Arc<Metrics>,
    audit: &Arc<AuditSink>,
) -> Result<(Arc<dyn Backend>, Committer), ServeError> {
    let store = PostgresStore::open(postgres).await?;
    let settings = CommitterSettings {
        capacity: capacity(config),
        held_claims: store.first_occupancy().await?,
        patience: Duration::from_secs(postgres.patience_seconds),
        clock: store.clock(),
        begin_gate: Box::new(|| None),
        audit: audit.clone(),
    };
    let (database, metrics) = (store.clone(), metrics.clone());
    // Each writer of the database owns a tokio runtime. If one writer can't be started, the others
    // are dropped, and tokio panics if a runtime is dropped on a thread that drives tasks. So they
    // start on a blocking thread.
    let start = move || Committer::start(database.writers()?, settings, metrics);
    let committer = tokio::task::spawn_blocking(start).await.map_err(io::Error::other)??;
    Ok((Arc::new(store), committer))
}

fn capacity(config: &Config) -> Capacity {
    Capacity {
        cells: config.cells().into_keys().collect(),
        queued_begins: config.limits.queued_begins,
        held_claims: config.limits.held_claims,
    }
}

/// Returns a gate that refuses begins while the disk has less than `min_free_mib` MiB free. A write
/// that fails for lack of space would stop all writes until a restart; with this reserve, commits
/// and rollbacks still succeed.
fn disk_gate(min_free_mib: u64, data: PathBuf) -> BeginGate {
    Box::new(move || {
        let disk = nix::sys::statvfs::statvfs(&data).ok()?;
        let free_mib = disk.blocks_available().saturating_mul(disk.fragment_size()) / (1024 * 1024);
        let message =
            format!("the disk has {free_mib} MiB free, less than `min_free_disk_mib` = {min_free_mib}: make room");
        (free_mib < min_free_mib).then(|| Refusal::StoreUnavailable(message.into()))
    })
}
