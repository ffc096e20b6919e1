//! `leasehold serve`: composes a server from its parts, runs it, and stops the parts in order.

mod banner;
mod checks;
mod error;
mod hosts;
mod lock_rings;
mod lock_sharing;
mod lock_ticks;
mod maintenance;
#[cfg(feature = "page")]
mod page;
mod partition_shifts;
mod probes;
mod queue_rings;
mod queue_ticks;
mod relays;
mod reload;
mod ring_client;
mod routes;
mod shutdown;
mod stdout;
mod steady_clock;
mod storage;
mod supervisor;
mod unicode;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::Layer;

use self::banner::Banner;
use self::maintenance::Maintenance;
use self::relays::Relays;
use self::reload::Reloader;
use self::routes::Routing;
use self::shutdown::{StopSignal, run_until_stopped};
use self::stdout::Stdout;
use self::storage::Opened;
use self::supervisor::Supervisor;
use crate::active_config::CurrentConfig;
use crate::config::Config;
use crate::descriptors;
use crate::grpc::{MiddlewareLayer, MiddlewareState};
use crate::line_queue::FLUSH_TIMEOUT;
use crate::metrics::Metrics;
use crate::traces::Traces;
use crate::transport::{Certificates, HttpServer, ProbeLimits};

pub use self::error::ServeError;
pub use self::reload::ReadConfig;
pub use self::storage::StoreStart;

/// The bounds on connections to the address of the metrics. They are separate, so that the metrics can
/// be read even if clients use all connections of the main address.
const PROBE_LIMITS: ProbeLimits = ProbeLimits { connections: 64, head: Duration::from_secs(5) };

/// Runs a server until a signal asks it to stop, or its store fails. A reload calls `read` for the
/// new configuration. The operational log must have been started.
///
/// # Errors
/// The server can't start, or its store has failed.
pub async fn serve(config: Config, read: ReadConfig, start: StoreStart) -> Result<(), ServeError> {
    // Signals are caught from here on, because a supervisor that reads the banner may send one at
    // once.
    let stdout = Stdout::start()?;
    let mut signal = StopSignal::listen(stdout.clone())?;
    let certificates = config.tls.as_ref().map(Certificates::load).transpose()?.map(Arc::new);
    config.traces.as_ref().map(Traces::check).transpose()?;
    relays::check(&config.relays)?;
    let current = CurrentConfig::new(config);
    let active = current.load();
    let config = &active.config;
    // A damaged store may take minutes to open. Nothing that its opening writes is lost if it ends
    // half way.
    let opened = tokio::select! {
        opened = storage::open(&current, start) => opened?,
        () = signal.recv() => {
            print_end(&stdout);
            return Ok(());
        }
    };
    let Opened { store, services, description, warning } = opened;
    let services = Arc::new(services);
    let listeners = Listeners::open(config).await?;
    let mut warnings = checks::warnings(config, &*store).await?;
    warnings.extend(warning);
    warnings.extend(connections_warning(config));
    warnings.extend(certificates.iter().flat_map(|certificates| certificates.warnings()));
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let banner = Banner {
        config,
        location: config.store_location()?,
        store: description,
        address: listeners.main.local_addr()?,
        metrics: listeners.metrics.as_ref().map(TcpListener::local_addr).transpose()?,
        certificate_hosts: certificates.as_ref().map(|certificates| certificates.hosts()).unwrap_or_default(),
        warnings,
    };
    banner.lines().iter().for_each(|line| stdout.print(line));
    drop(active);
    let supervisor = Supervisor::of_environment();
    let relays = Arc::new(Relays::new(services.clone(), current.clone()));
    let reloader = Reloader { read, current, store, services, certificates, relays, supervisor, start };
    let end = run(reloader, listeners, signal).await;
    print_end(&stdout);
    end
}

/// Prints the last line of a server that has stopped.
fn print_end(stdout: &Stdout) {
    stdout.print("stopped");
    stdout.flush(FLUSH_TIMEOUT);
}

/// A warning if the limit of open files allows fewer connections than `limits.connections`.
fn connections_warning(config: &Config) -> Option<String> {
    let (connections, limit) = descriptors::max_connections(config);
    limit.map(|limit| {
        format!("the limit of {limit} open files allows {connections} connections only: raise it (`ulimit -n`, `LimitNOFILE`), or lower `limits.connections`")
    })
}

/// The listening sockets of a server: the main address, and the address for metrics if it is
/// configured.
struct Listeners {
    main: TcpListener,
    metrics: Option<TcpListener>,
}

impl Listeners {
    async fn open(config: &Config) -> Result<Self, ServeError> {
        let main = listen("--listen", config.listen).await?;
        let metrics = match config.metrics_listen {
            Some(address) => Some(listen("--metrics-listen", address).await?),
            None => None,
        };
        Ok(Self { main, metrics })
    }
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|error| ServeError::Listen { flag, address, error })
}

/// Starts the background tasks and serves connections until the server stops.
async fn run(parts: Reloader, listeners: Listeners, signal: StopSignal) -> Result<(), ServeError> {
    let Reloader { current, store, services, certificates, .. } = &parts;
    let traces = current.load().config.traces.as_ref().map(Traces::start).transpose()?.map(Arc::new);
    let (stop, stopping) = watch::channel(false);
    let (health, health_service) = tonic_health::server::health_reporter();
    let (active, address) = (current.load(), listeners.main.local_addr()?.ip());
    let retention = active.config.settled_retention_seconds;
    let maintenance = Maintenance::new(services.clone(), store.maintenance(), health.clone(), retention);
    tokio::spawn(maintenance.run(stopping.clone()));
    spawn_until(stopping.clone(), unicode::check_forms(store.clone(), services.metrics.clone()));
    // The server of the metrics and probes has no signal to stop. It answers until the main server
    // has ended, so that a supervisor can follow the stop.
    let (_end, ended) = watch::channel(false);
    let routing = Routing { services: services.clone(), hosts: active.config.http_hosts.clone(), stopping };
    if let Some(listener) = listeners.metrics {
        let service = routing.metrics_address(listener.local_addr()?.ip());
        let server = http_server(&parts, service, None, ended);
        tokio::spawn(HttpServer { probe_limits: Some(PROBE_LIMITS), ..server }.serve(listener));
    }
    let routes = routing.main_address(address, certificates.is_some(), health_service)?;
    let stopping = routing.stopping;
    let middleware = MiddlewareState {
        rules: routes::access_rules()?,
        current: current.clone(),
        metrics: services.metrics.clone(),
        store_id: http::HeaderValue::try_from(services.store_id.to_string()).map_err(io::Error::other)?,
        traces: traces.clone(),
        keeps_claims_only: store.keeps_claims_only(),
        stopping: stopping.clone(),
    };
    let service = MiddlewareLayer { shared: Arc::new(middleware) }.layer(routes);
    let server = http_server(&parts, service, certificates.clone(), stopping.clone());
    spawn_until(stopping.clone(), watch_certificates(certificates.clone(), services.metrics.clone()));
    let (supervisor, watched) = (parts.supervisor.clone(), services.clone());
    let stored = services.clone();
    let failed = async move { stored.committer().failed().await };
    // This task runs until the end of the process, because a writer may also hang during the stop.
    tokio::spawn(supervisor.clone().watch(move || watched.committer().longest_attempt()));
    // This task runs on during the stop, so that a renewal that waits for a decision gets one.
    tokio::spawn(lock_ticks::run(services.clone()));
    tokio::spawn(queue_ticks::run(services.clone()));
    let sharing = services.shared_locks.clone().map(|shared| lock_sharing::start(services, shared, current));
    let relays = parts.relays.clone();
    relays.follow(&active.config).await;
    let reloads = services.clone();
    let reload = parts.run(signal.reload.clone());
    tokio::spawn(async move {
        run_until(stopping, reload).await;
        // A call that waits for a reload would otherwise keep its connection until the end of the drain.
        reloads.reloads.close();
    });
    supervisor.ready();
    let end = run_until_stopped(server.serve(listeners.main), signal, stop, health, supervisor, failed).await;
    relays.stop().await;
    if let Some(sharing) = sharing {
        sharing.stop().await;
    }
    if let Some(traces) = traces {
        tokio::task::spawn_blocking(move || traces.stop()).await.map_err(io::Error::other)?;
    }
    end
}

/// Runs a task until the server stops.
fn spawn_until(stopping: watch::Receiver<bool>, task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(run_until(stopping, task));
}

async fn run_until(mut stopping: watch::Receiver<bool>, task: impl Future<Output = ()>) {
    tokio::select! { () = task => {}, _ = stopping.wait_for(|stop| *stop) => {} }
}

async fn watch_certificates(certificates: Option<Arc<Certificates>>, metrics: Arc<Metrics>) {
    if let Some(certificates) = certificates {
        certificates.watch(&metrics).await;
    }
}

fn http_server<S>(
    parts: &Reloader,
    service: S,
    certificates: Option<Arc<Certificates>>,
    stopping: watch::Receiver<bool>,
) -> HttpServer<S> {
    HttpServer {
        service,
        certificates,
        current: parts.current.clone(),
        probe_limits: None,
        budgets: parts.services.budgets.clone(),
        metrics: parts.services.metrics.clone(),
        stopping,
    }
}
