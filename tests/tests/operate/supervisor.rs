//! Tests of the messages to a supervisor such as systemd, over a real socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;
use std::time::{Duration, Instant};

use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, eventually};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::process::Command;

use super::{begin, commit};

const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the next message that begins with `start`. Skips the signs of life (`WATCHDOG=1`) before it, and those of
/// a start that takes long on a busy machine.
fn expect(socket: &UnixDatagram, start: &str) -> String {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let message = receive(socket, deadline).unwrap_or_else(|| panic!("no `{start}` came"));
        if message.starts_with(start) {
            return message;
        }
        let is_alive = ["WATCHDOG=1", "EXTEND_TIMEOUT_USEC=120000000"].contains(&&*message);
        assert!(is_alive, "`{start}` is due, and {message} came");
    }
}

/// Returns the next message, `None` if the deadline passes first.
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

/// True if every thread of the server has a tracer.
fn is_traced(server: &Server) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    // A thread may end between the two reads, and its file is then missing.
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    status.into_iter().all(|status| !status.contains("TracerPid:\t0"))
}

/// strace delays each sync of the disk until strace is killed, as a broken disk would.
#[tokio::test(flavor = "multi_thread")]
async fn signs_of_life_end_while_a_writer_hangs_and_come_back_with_it() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let watchdog = Duration::from_secs(2);
    let server = Server::builder().env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", watchdog.as_micros().to_string());
    let server = server.start().unwrap();
    expect(&socket, "READY");
    for _ in 0..3 {
        expect(&socket, "WATCHDOG=1");
    }
    let claims = server.claims(None).await.unwrap();
    let uuid = begin(&claims, creates(1, &["before"])).await.unwrap();
    commit(&claims, &uuid).await.unwrap();

    let hang = ["-f", "-qq", "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=300000000"];
    let mut strace = Command::new("strace");
    strace.args(hang).arg("-p").arg(server.pid().to_string()).kill_on_drop(true);
    let mut strace = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("strace traces every thread", async || is_traced(&server).then_some(())).await.unwrap();
    let hanging = tokio::spawn(async move { begin(&claims, creates(1, &["hanging"])).await });
    // After the writer hangs, signs of life continue for half of the watchdog's time. Then they
    // must stop for longer than the supervisor waits.
    let hangs_until = Instant::now() + DEADLINE;
    while receive(&socket, Instant::now() + watchdog + watchdog / 2).is_some() {
        assert!(Instant::now() < hangs_until, "the writer hangs, and the signs of life go on");
    }
    assert!(!hanging.is_finished());
    strace.kill().await.unwrap();
    hanging.await.unwrap().unwrap();
    expect(&socket, "WATCHDOG=1");
}
