//! Opens the store that the configuration names, and starts the committer that writes to it. Before
//! the committer starts, the fences of a restored copy are raised.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::supervisor::Supervisor;
use super::{ServeError, lock_ticks};
use crate::active_config::CurrentConfig;
use crate::audit::{AuditEvent, AuditSink};
use crate::committer::{BeginGate, Capacity, CellLimits, Committer, CommitterRefusal, CommitterSettings};
use crate::config::{CellConfig, Config, EtcdConfig, PostgresConfig};
use crate::grpc::Services;
use crate::locks::LockHost;
use crate::metrics::Metrics;
use crate::store::{
    Backend, Creation, EmbeddedStore, Occupancy, OrderedStore, PostgresStore, Repaired, SharedMaintenance, StoreReader,
};

/// The time after which a start that still opens its store first asks the supervisor for patience.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The time between two such messages.
const STARTING_EVERY: Duration = Duration::from_secs(10);

/// The settings with which a server opens its store.
#[derive(Clone, Copy, Debug)]
pub struct StoreStart {
    /// The permission to make a store if there is none.
    pub creation: Creation,
    /// True if the store is a copy that was brought back from a backup.
    pub is_restored: bool,
}

/// The opened store of a server.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Backend>,
    /// The state of the services that read the store and write through its committer.
    pub(super) services: Services,
    /// The identity and contents of the store, as text for people.
    pub(super) description: String,
    /// The warning that the fences were raised, at a start with `--restored`.
    pub(super) warning: Option<String>,
}

/// Opens the configured store.
pub(super) async fn open(current: &Arc<CurrentConfig>, start: StoreStart) -> Result<Opened, ServeError> {
    let active = current.load();
    let config = &active.config;
    // The audit file is opened first: if that fails, no new data directory must be left behind.
    let audit = Arc::new(AuditSink::open(config)?);
    let kind = match (&config.postgres, &config.etcd) {
        (Some(_), _) => "postgres",
        (None, Some(_)) => "etcd",
        (None, None) => "embedded",
    };
    let metrics = Arc::new(Metrics::of_store(kind));
    let parts = Parts { config, current, metrics: &metrics, audit: &audit, start };
    let prepared = match (&config.postgres, &config.etcd) {
        (Some(postgres), _) => shared(parts, postgres).await?,
        (None, Some(etcd)) => ordered(parts, etcd).await?,
        (None, None) => embedded(parts).await?,
    };
    let Prepared { store, committer, locks, warning } = prepared;
    let services = Services::new(config, &*store, committer, locks, metrics, audit);
    let description = describe(&*store).await;
    Ok(Opened { store, services, description, warning })
}

/// The parts of the server that a store's committer uses.
#[derive(Clone, Copy)]
struct Parts<'a> {
    config: &'a Config,
    current: &'a Arc<CurrentConfig>,
    metrics: &'a Arc<Metrics>,
    audit: &'a Arc<AuditSink>,
    start: StoreStart,
}

/// An open store with its committer.
struct Prepared {
    store: Arc<dyn Backend>,
    committer: Committer,
    locks: Arc<LockHost>,
    warning: Option<String>,
}

/// Returns the identity and contents of a store, as text for people.
async fn describe(store: &dyn Backend) -> String {
    let identity = store.identity();
    match store.contents().await {
        _ if identity.is_new => format!("{} (made just now)", identity.id),
        Ok(contents) => format!("{} ({contents})", identity.id),
        // A damaged row is no reason to stop, because the server can serve the other rows.
        Err(error) => {
            tracing::error!(%error, "the rows of the store can't be counted");
            identity.id.to_string()
        }
    }
}

/// Raises the fences of a restored copy, and records this in the audit trail. Returns a warning for
/// the operator; `None` if the store is no restored copy.
async fn raise_fences(store: &dyn Backend, start: StoreStart, audit: &AuditSink) -> Result<Option<String>, ServeError> {
    if !start.is_restored {
        return Ok(None);
    }
    let fences = store.raise_fences().await?;
    audit.record(vec![AuditEvent::of_restore(store.clock().now(), store.identity().id, fences)]);
    let (from, to) = (fences.from.0, fences.to.0);
    Ok(Some(format!(
        "the store is a restored copy: its fences were raised from {from} to {to}; leave `--restored` out at the next start"
    )))
}

/// Repairs the store after a server has stopped because a worker of the store had ended.
fn repair(data: &Path) -> Result<(), ServeError> {
    let repaired = EmbeddedStore::repair(data, |rows| tracing::info!(rows, "the store is being checked"))?;
    if let Some(Repaired { rows, corrected, indexes }) = repaired {
        tracing::warn!(rows, corrected, ?indexes, "the store was checked, and what was damaged is repaired");
    }
    Ok(())
}

/// Opens the embedded store on a thread of its own. A stop does not wait for this thread.
async fn open_embedded(data: PathBuf, creation: Creation) -> Result<EmbeddedStore, ServeError> {
    let (sender, mut opened) = oneshot::channel();
    let open = move || {
        let store = repair(&data).and_then(|()| Ok(EmbeddedStore::open(&data, creation)?));
        // The send fails if the server was stopped.
        let _ = sender.send(store);
    };
    std::thread::Builder::new().name("open-store".into()).spawn(open)?;
    let (supervisor, mut pause) = (Supervisor::of_environment(), FIRST_PAUSE);
    loop {
        match timeout(pause, &mut opened).await {
            Ok(Ok(store)) => return store,
            Ok(Err(_)) => return Err(io::Error::other("the thread that opens the store has ended").into()),
            Err(_) => supervisor.starting(),
        }
        pause = STARTING_EVERY;
    }
}

async fn embedded(Parts { config, current, metrics, audit, start }: Parts<'_>) -> Result<Prepared, ServeError> {
    let data = config.data_dir()?;
    let store = open_embedded(data.clone(), start.creation).await?;
    let warning = raise_fences(&store, start, audit).await?;
    let host = Arc::new(LockHost::default());
    let settings = CommitterSettings {
        capacity: capacity(config),
        held_claims: store.held_claims(),
        patience: Duration::ZERO,
        clock: store.clock(),
        begin_gate: disk_gate(current.clone(), data),
        locks: host.clone(),
        audit: audit.clone(),
    };
    let committer = Committer::start(store.writers()?, settings, metrics.clone())?;
    lock_ticks::load(&*store.reader(), &host).await?;
    Ok(Prepared { store: Arc::new(store), committer, locks: host, warning })
}

async fn shared(parts: Parts<'_>, postgres: &PostgresConfig) -> Result<Prepared, ServeError> {
    let Parts { config, metrics, audit, start, .. } = parts;
    let store = PostgresStore::open(postgres, start.creation).await?;
    let warning = raise_fences(&store, start, audit).await?;
    let host = Arc::new(LockHost::shared());
    let settings = CommitterSettings {
        capacity: capacity(config),
        held_claims: store.first_occupancy().await?,
        patience: Duration::from_secs(postgres.patience_seconds),
        clock: store.clock(),
        begin_gate: Box::new(|| None),
        locks: host.clone(),
        audit: audit.clone(),
    };
    let (database, metrics) = (store.clone(), metrics.clone());
    // Each writer of the database owns a tokio runtime. If one writer can't be started, the others
    // are dropped, and tokio panics if a runtime is dropped on a thread that drives tasks. So they
    // start on a blocking thread.
    let start_committer = move || Committer::start(database.writers()?, settings, metrics);
    let committer = tokio::task::spawn_blocking(start_committer).await.map_err(io::Error::other)??;
    Ok(Prepared { store: Arc::new(store), committer, locks: host, warning })
}

async fn ordered(parts: Parts<'_>, etcd: &EtcdConfig) -> Result<Prepared, ServeError> {
    let Parts { config, current, metrics, audit, start } = parts;
    let store = OrderedStore::on_etcd(etcd, start.creation).await?;
    store.keep_state().await?;
    let warning = raise_fences(&store, start, audit).await?;
    let host = Arc::new(LockHost::default());
    let settings = CommitterSettings {
        capacity: capacity(config),
        held_claims: store.refresh_occupancy().await?,
        patience: Duration::from_secs(etcd.patience_seconds),
        clock: store.clock(),
        begin_gate: quota_gate(current.clone(), store.clone()),
        locks: host.clone(),
        audit: audit.clone(),
    };
    let committer = Committer::start(store.writers()?, settings, metrics.clone())?;
    Ok(Prepared { store: Arc::new(store), committer, locks: host, warning })
}

/// The limits of the committer in this configuration.
pub(super) fn capacity(config: &Config) -> Capacity {
    let of_cell = |cell: CellConfig| CellLimits {
        begins_per_second: cell.begins_per_second.or(config.limits.cell_begins_per_second),
        held_claims: cell.held_claims.or(config.limits.cell_held_claims).map(|claims| claims.get() as usize),
    };
    Capacity {
        cells: config.cells().into_iter().map(|(id, cell)| (id, of_cell(cell))).collect(),
        queued_begins: config.limits.queued_begins,
        held_claims: config.limits.held_claims,
    }
}

/// Returns a gate that refuses begins while the disk has less than `min_free_disk_mib` free. A write
/// that fails for lack of space would stop all writes until a restart; with this reserve, commits
/// and rollbacks still succeed.
fn disk_gate(current: Arc<CurrentConfig>, data: PathBuf) -> BeginGate {
    Box::new(move || {
        let min_free_mib = current.load().config.min_free_disk_mib;
        let disk = nix::sys::statvfs::statvfs(&data).ok()?;
        let free_mib = disk.blocks_available().saturating_mul(disk.fragment_size()) / (1024 * 1024);
        let message =
            format!("the disk has {free_mib} MiB free, less than `min_free_disk_mib` = {min_free_mib}: make room");
        (free_mib < min_free_mib).then(|| CommitterRefusal::StoreUnavailable(message.into()))
    })
}

/// Returns a gate that refuses begins while less than `min_free_disk_mib` is left of the engine's quota, or
/// while the engine refuses all writes. With this reserve, commits and rollbacks still succeed.
fn quota_gate(current: Arc<CurrentConfig>, store: OrderedStore) -> BeginGate {
    Box::new(move || {
        let Occupancy { disk_bytes, disk_quota_bytes, alarms, .. } = store.occupancy();
        let min_free_mib = current.load().config.min_free_disk_mib;
        let free_mib = disk_quota_bytes.saturating_sub(disk_bytes) / (1024 * 1024);
        let message = match alarms > 0 {
            true => "etcd has raised an alarm, and refuses writes: see `etcdctl alarm list`".to_owned(),
            false if free_mib < min_free_mib => format!(
                "etcd has {free_mib} MiB left of its quota, less than `min_free_disk_mib` = {min_free_mib}: `etcdctl \
                 defrag` each member, or raise `--quota-backend-bytes` and `etcd.quota_mib`"
            ),
            false => return None,
        };
        Some(CommitterRefusal::StoreUnavailable(message.into()))
    })
}
