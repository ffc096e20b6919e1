//! Tells systemd the state of the server (sd_notify(3)), by datagrams with lines `NAME=VALUE` to
//! the socket that `NOTIFY_SOCKET` names. Any supervisor may provide the socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The environment variable with the path of the socket. If the path begins with `@`, it is the
/// name of an abstract socket, and `@` stands for the null byte.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Two environment variables for the watchdog: the longest time in microseconds between two
/// watchdog messages, and the id of the process that must send them.
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// The shortest pause between two watchdog messages.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The supervisor of this process. If there is none, messages are dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Supervisor(Option<Arc<Channel>>);

#[derive(Debug)]
struct Channel {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Supervisor {
    /// Returns the supervisor that the environment names.
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

    /// Reports that the server serves calls, after its start or after a reload.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// Asks for two more minutes for a start that goes on.
    pub(super) fn starting(&self) {
        self.send("EXTEND_TIMEOUT_USEC=120000000");
    }

    /// Reports that a reload begins.
    pub(super) fn reloading(&self) {
        // systemd uses the time to match this message with the signal that it has sent.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// Reports that the server stops.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, message: &str) {
        let Some(channel) = &self.0 else { return };
        // The socket never blocks. If the supervisor does not read its messages, this message is
        // dropped.
        if let Err(error) = channel.socket.send_to_addr(message.as_bytes(), &channel.address) {
            tracing::debug!(%error, "the supervisor is not told");
        }
    }

    /// Sends watchdog messages as long as `longest_attempt` returns less than half of the
    /// supervisor's limit. Returns at once if the supervisor expects no watchdog messages.
    ///
    /// If a writer hangs, for example in a write to a broken disk, the messages stop, even though
    /// the process still answers reads. The supervisor then restarts the server.
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

/// The longest time between two watchdog messages that the supervisor allows; `None` if it expects
/// none of this process.
fn watchdog_interval() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    let is_own = variable(WATCHDOG_PROCESS).is_none_or(|process| process == std::process::id().to_string());
    let micros = variable(WATCHDOG)?.parse().ok().filter(|micros| *micros > 0)?;
    is_own.then(|| Duration::from_micros(micros))
}
