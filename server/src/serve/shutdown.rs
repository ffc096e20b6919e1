//! The orderly stop of a server: requests under way are finished first. A second signal ends the
//! process at once.

use std::io;
use std::pin::pin;
use std::time::Duration;

use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_server::ClaimServiceServer;
use leasehold_proto::gitlab::cells::topology_service::classify_service_server::ClassifyServiceServer;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::print_line;
use crate::grpc::{ClaimsHandler, ClassifyHandler};

/// The longest time that a stopping server waits for requests under way.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The signals that ask the server to stop: SIGTERM, SIGINT and SIGHUP.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Installs the handlers of the stop signals. From now on they no longer end the process.
    pub(super) fn new() -> io::Result<Self> {
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

/// Runs the server until a signal arrives, then stops it in order: the health status first, so that
/// callers choose another server, then the listener, then the connections.
pub(super) async fn run_until_stopped(
    server: impl Future<Output = ()>,
    mut signals: StopSignals,
    stop: watch::Sender<bool>,
    health: HealthReporter,
) {
    let mut server = pin!(server);
    tokio::select! {
        () = &mut server => return,
        () = signals.recv() => {}
    }
    end_health(health).await;
    stop.send_replace(true);
    print_line("stopping: requests under way are finished first, another signal stops at once");
    tokio::spawn(async move {
        signals.recv().await;
        print_line("stopped at once");
        // No destructor may run: dropping the committer waits for the store, which may be the part
        // that hangs. The exit loses no more than a kill would: the change of every answered
        // command is on disk.
        std::process::exit(0);
    });
    let _ = timeout(DRAIN_TIMEOUT, server).await;
}

/// Reports `NOT_SERVING` to every watcher of the health service, then ends the watchers' streams.
/// An open stream counts as a request under way, and would delay the stop until the drain timeout.
async fn end_health(mut health: HealthReporter) {
    for name in ["", ClaimServiceServer::<ClaimsHandler>::NAME, ClassifyServiceServer::<ClassifyHandler>::NAME] {
        health.set_service_status(name, ServingStatus::NotServing).await;
        health.clear_service_status(name).await;
    }
}
