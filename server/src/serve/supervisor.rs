//! The protocol by which a server tells systemd its state (sd_notify(3)): datagrams of lines
//! `NAME=VALUE` to the socket that `NOTIFY_SOCKET` names. Any supervisor may provide the socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The environment variable with the path of the socket; a first `@` stands for the null byte of an
/// abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The environment variables with the time in microseconds within which the supervisor expects a
/// sign of life, and the process from which.
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// The shortest pause between two signs of life.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The supervisor of this process. Without one, or if it does not listen, nothing is sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Supervisor(Option<Arc<Channel>>);

#[derive(Debug)]
struct Channel {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Supervisor {
    /// The supervisor that the environment names.
    pub(super) fn of_environment() -> Self {
        let path = std::env::var(SOCKET).unwrap_or_default();
        if path.is_empty() {
            return Self::default();
        }
        match Channel::open(&path) {
            Ok(channel) => Self(Some(Arc::new(channel))),
            Err(error) => {
                tracing::warn!(%error, "the socket of `{SOCKET}` can't be used: the supervisor gets no messages");
                Self::default()
            }
        }
    }

    /// Tells that the server serves calls, after its start or after a reload.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// Tells that a reload begins.
    pub(super) fn reloading(&self) {
        // systemd pairs the message with its own signal by this time.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// Tells that the server stops.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, message: &str) {
        let Some(channel) = &self.0 else { return };
        // The socket never blocks. A supervisor that does not read gets no message.
        if let Err(error) = channel.socket.send_to_addr(message.as_bytes(), &channel.address) {
            tracing::debug!(%error, "the supervisor is not told");
        }
    }

    /// Sends signs of life as long as `longest_attempt` of a writer is short. Returns at once if the
    /// supervisor expects none.
    ///
    /// A writer that hangs, for example in a write to a broken disk, ends the signs, although the
    /// process still answers reads. The supervisor then restarts the server.
    pub(super) async fn watch(self, longest_attempt: impl Fn() -> Duration) {
        let Some(interval) = watchdog_interval().filter(|_| self.0.is_some()) else { return };
        let mut ticks = tokio::time::interval((interval / 4).max(SHORTEST_PAUSE));
        loop {
            ticks.tick().await;
            if longest_attempt() < interval / 2 {
                self.send("WATCHDOG=1");
            }
        }
    }
}

impl Channel {
    fn open(path: &str) -> std::io::Result<Self> {
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }
}

/// The time within which the supervisor expects a sign of life of this process; `None` if it expects
/// none.
fn watchdog_interval() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    let is_own = variable(WATCHDOG_PROCESS).is_none_or(|process| process == std::process::id().to_string());
    let micros = variable(WATCHDOG)?.parse().ok().filter(|micros| *micros > 0)?;
    is_own.then(|| Duration::from_micros(micros))
}
