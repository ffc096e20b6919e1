//! `leasehold serve`: composes a server from its parts, runs it, and stops the parts in order.

mod banner;
mod checks;
mod error;
mod hosts;
mod maintenance;
#[cfg(feature = "page")]
mod page;
mod probes;
mod routes;
mod shutdown;
mod stdout;
mod steady_clock;
mod storage;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::Layer;

use self::banner::Banner;
use self::maintenance::Maintenance;
use self::shutdown::{StopSignal, run_until_stopped};
use self::stdout::Stdout;
use self::storage::Opened;
use crate::config::Config;
use crate::descriptors;
use crate::grpc::{MiddlewareLayer, MiddlewareState, Services};
use crate::identity::Caller;
use crate::line_queue::FLUSH_TIMEOUT;
use crate::store::StoreMaintenance;
use crate::transport::{Certificates, HttpServer};

pub use self::error::ServeError;
pub use self::storage::StoreStart;

/// The most connections to the address of the metrics. They have a number of their own: a server
/// whose clients take all connections can still be looked at.
const METRICS_CONNECTIONS: usize = 64;

/// Runs a server until a signal asks it to stop. The operational log must have been started.
///
/// # Errors
/// The server can't start.
pub async fn serve(config: Config, start: StoreStart) -> Result<(), ServeError> {
    // Signals are caught from here on, because a supervisor that reads the banner may send one at
    // once.
    let stdout = Stdout::start()?;
    let signal = StopSignal::listen(stdout.clone())?;
    let certificates =
        config.tls.clone().map(|tls| Certificates::load(tls, config.subjects.clone())).transpose()?.map(Arc::new);
    let Opened { store, services, description, warning } = storage::open(&config, start).await?;
    let listeners = Listeners::open(&config).await?;
    let mut warnings = checks::warnings(&config, &*store).await?;
    warnings.extend(warning);
    warnings.extend(connections_warning(&config));
    warnings.extend(certificates.as_ref().and_then(|certificates| certificates.warning()));
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let banner = Banner {
        config: &config,
        location: config.store_location()?,
        store: description,
        address: listeners.main.local_addr()?,
        metrics: listeners.metrics.as_ref().map(TcpListener::local_addr).transpose()?,
        certificate_hosts: certificates.as_ref().map(|certificates| certificates.hosts()).unwrap_or_default(),
        warnings,
    };
    banner.lines().iter().for_each(|line| stdout.print(line));
    run(config, store.maintenance(), Arc::new(services), certificates, listeners, signal).await?;
    stdout.print("stopped");
    stdout.flush(FLUSH_TIMEOUT);
    Ok(())
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
async fn run(
    config: Config,
    store: StoreMaintenance,
    services: Arc<Services>,
    certificates: Option<Arc<Certificates>>,
    listeners: Listeners,
    signal: StopSignal,
) -> Result<(), ServeError> {
    let (stop, stopping) = watch::channel(false);
    let (health, health_service) = tonic_health::server::health_reporter();
    let maintenance = Maintenance::new(services.clone(), store, health.clone(), config.settled_retention_seconds);
    tokio::spawn(maintenance.run(stopping.clone()));
    // The probes are answered until the last request is, so that a supervisor sees a stop under way.
    let (_end, ended) = watch::channel(false);
    if let Some(listener) = listeners.metrics {
        let address = listener.local_addr()?.ip();
        let service = routes::metrics_address(&config, services.clone(), stopping.clone(), address);
        let server = http_server(&config, &services, service, None, ended);
        tokio::spawn(HttpServer { max_connections: METRICS_CONNECTIONS, ..server }.serve(listener));
    }
    if let Some(certificates) = certificates.clone() {
        let mut stopping = stopping.clone();
        tokio::spawn(async move {
            tokio::select! { () = certificates.watch() => {}, _ = stopping.wait_for(|stop| *stop) => {} }
        });
    }
    let routes = routes::main_address(&config, &services, stopping.clone(), health_service)?;
    let middleware = MiddlewareState {
        rules: routes::access_rules()?,
        subjects: config.subjects.clone(),
        metrics: services.metrics.clone(),
        body_timeout: Duration::from_secs(config.limits.body_seconds.into()),
        store_id: http::HeaderValue::try_from(services.store_id.to_string()).map_err(io::Error::other)?,
        stopping: stopping.clone(),
    };
    let service = MiddlewareLayer { shared: Arc::new(middleware) }.layer(routes);
    let server = http_server(&config, &services, service, certificates, stopping);
    run_until_stopped(server.serve(listeners.main), signal, stop, health).await;
    Ok(())
}

fn http_server<S>(
    config: &Config,
    services: &Services,
    service: S,
    certificates: Option<Arc<Certificates>>,
    stopping: watch::Receiver<bool>,
) -> HttpServer<S> {
    HttpServer {
        service,
        certificates,
        plaintext_caller: if config.subjects.loopback_balancer { Caller::Balancer } else { Caller::Trusted },
        limits: config.limits,
        max_connections: descriptors::max_connections(config).0,
        budget: services.budget.clone(),
        metrics: services.metrics.clone(),
        stopping,
    }
}
