//! Tests of the messages to a supervisor such as systemd, over a real socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use leasehold_tests::server::Server;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(30);

/// The next message, which must begin like this. Signs of life before it are left out.
fn expect(socket: &UnixDatagram, start: &str) -> String {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let message = receive(socket, deadline).unwrap_or_else(|| panic!("no `{start}` came"));
        if message.starts_with(start) {
            return message;
        }
        assert_eq!(message, "WATCHDOG=1", "`{start}` is due");
    }
}

/// The next message before the deadline.
fn receive(socket: &UnixDatagram, deadline: Instant) -> Option<String> {
    let mut buffer = [0; 256];
    let left = deadline.saturating_duration_since(Instant::now());
    socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
    let length = socket.recv(&mut buffer).ok()?;
    Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_is_told_of_start_reload_and_stop() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("notify");
    let name = format!("leasehold-test-{}", std::process::id());
    let sockets = [
        (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
        (UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(), format!("@{name}")),
    ];
    for (socket, address) in sockets {
        let mut server = Server::builder().config("").env("NOTIFY_SOCKET", &address).start().unwrap();
        assert_eq!(expect(&socket, "READY"), "READY=1", "{address}");
        let micros = || Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap()).as_micros();
        let before = micros();
        server.signal(Signal::SIGHUP).unwrap();
        let reloading = expect(&socket, "RELOADING");
        let at: u128 = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!((before..=micros()).contains(&at), "{before} {at}");
        assert_eq!(expect(&socket, "READY"), "READY=1");
        assert!(server.terminate().unwrap().success());
        assert_eq!(expect(&socket, "STOPPING"), "STOPPING=1");
    }
}
