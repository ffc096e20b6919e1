//! The stop of a server, and its signals. SIGTERM and SIGINT stop it: requests under way are finished
//! first, and a second signal ends the process at once. SIGHUP reloads its configuration.
//!
//! A server whose store has failed stops in the same way by itself. Only a new process reads from the
//! disk what the failed write has left there.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_server::ClaimServiceServer;
use leasehold_proto::gitlab::cells::topology_service::classify_service_server::ClassifyServiceServer;
use nix::sys::signal::Signal as SignalNumber;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::error::ServeError;
use super::stdout::Stdout;
use super::supervisor::Supervisor;
use crate::grpc::{ClaimsHandler, ClassifyHandler};

/// The longest time that a stopping server waits for requests under way.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// After a second signal to stop, the longest time to print the last line before the process ends.
const LAST_LINE_TIMEOUT: Duration = Duration::from_millis(200);

/// The signals that ask the server to stop, SIGTERM and SIGINT, and to reload its configuration: SIGHUP
/// unless it is ignored.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Installs handlers for the signals, so that a signal alone does not end the process.
    fn install() -> io::Result<Self> {
        // `nohup` starts a program with SIGHUP ignored, and a handler would undo that.
        let hangup = if is_ignored(SignalNumber::SIGHUP) { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, hangup })
    }

    /// Waits for a signal to stop. While it waits, each signal to reload notifies `reload`.
    async fn recv_stop(&mut self, reload: &Notify) {
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = hangup => reload.notify_one(),
            }
        }
    }
}

/// True if the process ignores this signal. Without unsafe code this can be read on Linux only: see
/// `SigIgn` in proc_pid_status(5). On other systems the result is false.
fn is_ignored(signal: SignalNumber) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as u32 - 1)) != 0)
}

/// The first signal that asks the server to stop, and all signals that ask for a reload.
pub(super) struct StopSignal {
    first: oneshot::Receiver<()>,
    /// Notified by each signal to reload. Several signals at the same time may cause one
    /// notification.
    pub(super) reload: Arc<Notify>,
}

impl StopSignal {
    /// Starts a thread that waits for the signals. The second signal to stop ends the process at
    /// once.
    ///
    /// The thread has a runtime of its own, so that it notices signals even if all other threads
    /// are busy or blocked.
    pub(super) fn listen(stdout: Stdout) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _entered = runtime.enter();
            Signals::install()?
        };
        let (sender, first) = oneshot::channel();
        let reload = Arc::new(Notify::new());
        let reloads = reload.clone();
        let watch = async move {
            signals.recv_stop(&reloads).await;
            stdout.print("stopping: requests under way are finished first, another signal stops at once");
            // The send fails if the server has ended by itself.
            let _ = sender.send(());
            signals.recv_stop(&reloads).await;
            stdout.print("stopped at once");
            stdout.flush(LAST_LINE_TIMEOUT);
            // `exit` runs no destructors. Dropping the committer would wait for the store, which
            // may be the part that hangs. The exit loses no more than a kill would, because the
            // changes of every answered command are on disk.
            std::process::exit(0);
        };
        std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(watch))?;
        Ok(Self { first, reload })
    }

    /// Returns at the first signal to stop. Must not be called again after it has returned.
    pub(super) async fn recv(&mut self) {
        if (&mut self.first).await.is_err() {
            // INVARIANT: the thread of the signals drops the sender only after it has sent, so this
            // branch is never reached.
            std::future::pending().await
        }
    }
}

/// Runs the server until a signal arrives or `failed` returns the failure of the store, then stops it
/// in three steps. First the health status becomes `NOT_SERVING`, so that callers choose another
/// server. Then the listener closes, and last the connections end.
///
/// # Errors
/// The store has failed.
pub(super) async fn run_until_stopped(
    server: impl Future<Output = ()>,
    mut signal: StopSignal,
    stop: watch::Sender<bool>,
    health: HealthReporter,
    supervisor: Supervisor,
    failed: impl Future<Output = Arc<str>>,
) -> Result<(), ServeError> {
    let mut server = pin!(server);
    let end = tokio::select! {
        () = &mut server => return Ok(()),
        () = signal.recv() => Ok(()),
        reason = failed => Err(ServeError::StoreFailed(reason)),
    };
    supervisor.stopping();
    end_health(health).await;
    stop.send_replace(true);
    let _ = timeout(DRAIN_TIMEOUT, server).await;
    end
}

/// Reports `NOT_SERVING` to every watcher of the health service, then ends the watchers' streams.
/// An open stream counts as a request under way, and would delay the stop until the drain timeout.
async fn end_health(mut health: HealthReporter) {
    for name in ["", ClaimServiceServer::<ClaimsHandler>::NAME, ClassifyServiceServer::<ClassifyHandler>::NAME] {
        health.set_service_status(name, ServingStatus::NotServing).await;
        health.clear_service_status(name).await;
    }
}
