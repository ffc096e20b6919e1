//! `leasehold serve`: puts the parts together, and takes them apart in order.

mod banner;
mod maintenance;
#[cfg(feature = "page")]
mod page;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use leasehold_core::batch::MAX_REQUEST_BYTES;
use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::Difference;
use leasehold_core::claim::CellId;
use leasehold_proto::AccessRules;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_server::ClaimServiceServer;
use leasehold_proto::gitlab::cells::topology_service::classify_service_server::ClassifyServiceServer;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;
use tower::Layer;

use self::banner::Banner;
use self::maintenance::Maintenance;
use crate::client::{USAGE, exit_code_of};
use crate::committer::{Committer, Guard, Refusal, Room, Settings, now};
use crate::config::{Config, ConfigError, PostgresConfig};
use crate::grpc::{Claims, Classify, GuardLayer, Service, http_router};
use crate::logging::LogError;
use crate::metrics::{Metrics, Reading};
use crate::store::{EmbeddedStore, PostgresStore, Reader, StoreError};
use crate::transport::{Certificates, Connections, TlsError};

/// How long requests under way may take to finish at a stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the server can't start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is wrong stands on the command line, or in the environment.
    #[error(transparent)]
    CommandLine(Box<Self>),
    /// What to log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address.
    #[error("can't listen on `{address}`: {error}")]
    Listen {
        /// The flag that names it.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The built-in descriptors.
    #[error("the built-in descriptors can't be used: {0}")]
    Descriptors(String),
    /// The machine.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ServeError {
    /// The process's exit code, of those that [`EXIT_CODES`](crate::client::EXIT_CODES) lists.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::CommandLine(_) | Self::Config(_) | Self::Log(_) | Self::Tls(_) => USAGE,
            Self::Store(error) if error.is_of_settings() => USAGE,
            _ => self.code().map_or(1, exit_code_of),
        }
    }

    /// Says that the command line is what is wrong.
    #[must_use]
    pub fn of_command_line(error: impl Into<Self>) -> Self {
        Self::CommandLine(Box::new(error.into()))
    }

    /// The status code that the store's trouble comes to; none where only a person can mend it.
    pub fn code(&self) -> Option<tonic::Code> {
        let Self::Store(error) = self else { return None };
        error.code()
    }

    /// What to do, where the message does not say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::CommandLine(error) => error.hint(),
            Self::Listen { flag, error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
                Some(format!("another server runs there: stop it, or choose another address with `{flag}`"))
            }
            _ => None,
        }
    }
}

/// Serves until a signal says stop.
///
/// # Errors
/// The server can't start, or its listener fails.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    // Heard from here on: who reads the greeting may signal at once.
    let signals = StopSignals::new()?;
    let certificates = config.tls.clone().map(Certificates::load).transpose()?.map(Arc::new);
    let service = Arc::new(service(&config).await?);
    let listener = listen("--listen", config.listen).await?;
    let metrics_listener = match config.metrics_listen {
        Some(address) => Some(listen("--metrics-listen", address).await?),
        None => None,
    };
    let missing_types = keep_bucket_types(&config, service.store()).await?;
    let warnings = [
        banner::strangers(&strangers(&config, service.store()).await),
        banner::missing_types(&missing_types),
        without_vacuum(service.store()).await?.as_deref().map(banner::without_vacuum),
        certificates.as_ref().and_then(|certificates| certificates.warning()),
    ];
    let warnings: Vec<_> = warnings.into_iter().flatten().collect();
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let banner = Banner {
        config: &config,
        place: config.store_location()?,
        address: listener.local_addr()?,
        metrics: metrics_listener.as_ref().map(TcpListener::local_addr).transpose()?,
        certificate_hosts: certificates.as_ref().map(|certificates| certificates.hosts()).unwrap_or_default(),
        warnings,
    };
    banner.lines().iter().for_each(|line| say(line));

    let (stop, stopping) = watch::channel(false);
    let (health, health_service) = tonic_health::server::health_reporter();
    let maintenance = Maintenance::new(service.clone(), health.clone(), config.settled_retention_seconds);
    tokio::spawn(maintenance.run(stopping.clone()));
    if let Some(listener) = metrics_listener {
        let service = Routes::from(web_router(service.clone())).prepare();
        let connections =
            Connections { service, certificates: None, limits: config.limits, stopping: stopping.clone() };
        tokio::spawn(connections.serve(listener));
    }
    if let Some(certificates) = certificates.clone() {
        let mut stopping = stopping.clone();
        tokio::spawn(async move {
            tokio::select! { () = certificates.watch() => {}, _ = stopping.wait_for(|stop| *stop) => {} }
        });
    }
    let routes = routes(&config, &service, health_service)?;
    let guard = GuardLayer { rules: Arc::new(access_rules()?), metrics: service.metrics.clone() };
    let connections = Connections { service: guard.layer(routes), certificates, limits: config.limits, stopping };
    until_stopped(connections.serve(listener), signals, stop, health).await;
    say("stopped");
    Ok(())
}

async fn until_stopped(
    connections: impl Future<Output = ()>,
    mut signals: StopSignals,
    stop: watch::Sender<bool>,
    health: HealthReporter,
) {
    let mut connections = std::pin::pin!(connections);
    tokio::select! {
        () = &mut connections => return,
        () = signals.recv() => {}
    }
    end_health(health).await;
    stop.send_replace(true);
    say("stopping: requests under way are finished first, another signal stops at once");
    tokio::spawn(async move {
        signals.recv().await;
        // As a kill would, which takes back nothing that was answered: it may be the store that holds everything up.
        say("stopped at once");
        std::process::exit(0);
    });
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, connections).await;
}

/// Tells those who watch the health that it is over, and ends their streams, which would hold up the stop.
async fn end_health(mut health: HealthReporter) {
    for name in ["", ClaimServiceServer::<Claims>::NAME, ClassifyServiceServer::<Classify>::NAME] {
        health.set_service_status(name, tonic_health::ServingStatus::NotServing).await;
        health.clear_service_status(name).await;
    }
}

/// The signals that ask for a stop.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl StopSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn recv(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {}, _ = self.hangup.recv() => {} }
    }
}

/// Writes a line to standard output. Where nobody reads it any more, the server goes on.
fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|error| ServeError::Listen { flag, address, error })
}

async fn service(config: &Config) -> Result<Service, ServeError> {
    let metrics = Arc::new(Metrics::default());
    let (store, committer) = match &config.postgres {
        None => embedded(config, &metrics)?,
        Some(settings) => shared(config, settings, &metrics).await?,
    };
    Ok(Service::new(config, config.rules(), store, committer, metrics))
}

fn embedded(config: &Config, metrics: &Arc<Metrics>) -> Result<(Reader, Committer), ServeError> {
    let data = config.data_dir()?;
    let store = EmbeddedStore::open(&data)?;
    let settings = Settings {
        room: room(config),
        held_claims: store.occupancy().held_claims,
        patience: Duration::ZERO,
        guard: guard(config.min_free_disk_mib, data),
    };
    let committer = Committer::start(vec![store.clone()], settings, metrics.clone())?;
    Ok((Reader::Embedded(store), committer))
}

async fn shared(
    config: &Config,
    postgres: &PostgresConfig,
    metrics: &Arc<Metrics>,
) -> Result<(Reader, Committer), ServeError> {
    let store = PostgresStore::open(postgres).await?;
    let settings = Settings {
        room: room(config),
        held_claims: store.first_occupancy().await?.held_claims,
        patience: Duration::from_secs(postgres.patience_seconds),
        guard: Box::new(|| None),
    };
    let (database, metrics) = (store.clone(), metrics.clone());
    // Where not all of them can be started, what the others have must not be given back by a thread that serves.
    let start = move || Committer::start(database.writers()?, settings, metrics);
    let committer = tokio::task::spawn_blocking(start).await.map_err(io::Error::other)??;
    Ok((Reader::Postgres(store), committer))
}

fn room(config: &Config) -> Room {
    Room { queued_begins: config.limits.queued_begins, held_claims: config.limits.held_claims }
}

/// Keeps begins away from a full disk, where a failing write would stop everything.
fn guard(min_free_mib: u64, data: PathBuf) -> Guard {
    Box::new(move || {
        let disk = nix::sys::statvfs::statvfs(&data).ok()?;
        let free_mib = disk.blocks_available().saturating_mul(disk.fragment_size()) / (1024 * 1024);
        let message =
            format!("the disk has {free_mib} MiB free, less than `min_free_disk_mib` = {min_free_mib}: make room");
        (free_mib < min_free_mib).then(|| Refusal::StoreUnavailable(message.into()))
    })
}

/// The cells that own claims and are not configured: a cell that was taken out too early, mostly.
async fn strangers(config: &Config, store: &Reader) -> Vec<CellId> {
    let known = config.cells();
    let owners = store.owners().await.unwrap_or_else(|error| {
        tracing::error!(%error, "the owners of claims can't be read");
        BTreeSet::new()
    });
    owners.into_iter().filter(|owner| !known.contains_key(owner)).collect()
}

/// The role that serves, where the database does not let it tidy up.
async fn without_vacuum(store: &Reader) -> Result<Option<String>, StoreError> {
    match store {
        Reader::Embedded(_) => Ok(None),
        Reader::Postgres(store) => store.without_vacuum().await,
    }
}

/// Holds the bucket types to the rules under which claims were made, and remembers those of new ones; the types that are
/// not configured any more.
async fn keep_bucket_types(config: &Config, store: &Reader) -> Result<Vec<BucketType>, ServeError> {
    let catalogue = config.rules().catalogue;
    loop {
        let served = store.bucket_types().await?;
        let Difference { changed, missing, added } = catalogue.differs_from(&served);
        if let Some(change) = changed.into_iter().next() {
            return Err(ConfigError::BucketTypeChanged(Box::new(change)).into());
        }
        if added.is_empty() {
            return Ok(missing);
        }
        // Another server may have been quicker, under another rule: look again.
        store.remember_bucket_types(&[served, added].concat()).await?;
    }
}

fn access_rules() -> Result<AccessRules, ServeError> {
    AccessRules::from_descriptors().map_err(|error| ServeError::Descriptors(error.to_string()))
}

fn routes<H>(config: &Config, service: &Arc<Service>, health: H) -> Result<Routes, ServeError>
where
    H: tower::Service<http::Request<tonic::body::Body>, Error = std::convert::Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    H::Response: axum::response::IntoResponse,
    H::Future: Send + 'static,
{
    let descriptors = |error: &dyn std::fmt::Display| ServeError::Descriptors(error.to_string());
    let pool = leasehold_proto::descriptor_pool().map_err(|error| descriptors(&error))?;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(leasehold_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let claims = ClaimServiceServer::new(Claims(service.clone()))
        .max_decoding_message_size(MAX_REQUEST_BYTES)
        .max_encoding_message_size(usize::MAX);
    let classify = ClassifyServiceServer::new(Classify(service.clone())).max_decoding_message_size(MAX_REQUEST_BYTES);
    let mut http = http_router(service.clone(), pool);
    if config.tls.is_none() {
        http = http.merge(web_router(service.clone()));
    }
    Ok(Routes::from(http)
        .add_service(claims)
        .add_service(classify)
        .add_service(health)
        .add_service(reflection().build_v1().map_err(|error| descriptors(&error))?)
        .add_service(reflection().build_v1alpha().map_err(|error| descriptors(&error))?)
        .prepare())
}

/// What is for people and their tools, without TLS.
fn web_router(service: Arc<Service>) -> Router {
    let router = metrics_router(service.clone());
    #[cfg(feature = "page")]
    let router = router.merge(page::router(service));
    router
}

fn metrics_router(service: Arc<Service>) -> Router {
    let headers = [(http::header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    let answer = move || std::future::ready(render_metrics(&service).map(|text| (headers, text)));
    Router::new().route("/metrics", get(answer))
}

fn render_metrics(service: &Service) -> Result<String, http::StatusCode> {
    let occupancy = service.store().occupancy();
    let oldest = occupancy.oldest_lease.map_or(0, |birth| now().micros_since(birth));
    let reading = Reading {
        leases: occupancy.leases,
        held_claims: occupancy.held_claims,
        oldest_lease: Duration::from_micros(oldest),
        waiting: service.committer().waiting(),
        groups_at_once: service.committer().places(),
        disk_bytes: occupancy.disk_bytes,
        store_failed: service.has_failed() || service.committer().is_away(),
        pool: service.store().pool().unwrap_or_default(),
    };
    service.metrics.render(reading).map_err(|_| http::StatusCode::INTERNAL_SERVER_ERROR)
}
