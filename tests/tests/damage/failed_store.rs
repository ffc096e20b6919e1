//! Tests of a store that fails for good: the server ends by itself with an exit code of its own, so that
//! its supervisor starts it again. A failure without a lost write ends no server.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use leasehold_core::invariant;
use leasehold_core::lease::Outcome::Committed;
use leasehold_tests::client::{Client, reason};
use leasehold_tests::server::Server;
use leasehold_tests::transfer::{export, state};
use leasehold_tests::wire::{eventually, get};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpStream;
use tokio::process::Command;
use tonic::Code;

use super::creates;
use super::disk::{Acknowledged, ends_by_itself, everything_is_there, write_until_refused};

/// Starts the server again, and asserts that it has every acknowledged change and takes new ones.
async fn goes_on_after_a_restart(server: &mut Server, all: &[Acknowledged]) {
    server.restart().unwrap();
    let mut client = Client::connect(server, 1).await.unwrap();
    everything_is_there(&mut client, all).await;
    client.begin(creates(1..2, 10)).await.expect("writes are taken again");
    drop(client);
    server.terminate().unwrap();
    invariant::check(&state(&export(server.data()).unwrap()).unwrap()).unwrap();
}

/// Sets the server's limit of open files, or gives it back its hard limit.
async fn limit_open_files(server: &Server, limit: Option<usize>) {
    let limit = limit.map_or_else(|| "1024".into(), |limit| limit.to_string());
    let mut prlimit = Command::new("prlimit");
    prlimit.arg("--pid").arg(server.pid().to_string()).arg(format!("--nofile={limit}:"));
    assert!(prlimit.status().await.unwrap().success());
}

/// Leaves the server no file descriptor to open.
async fn exhaust_descriptors(server: &Server) {
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let numbers = open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse());
    let numbers: BTreeSet<usize> = numbers.collect::<Result<_, _>>().unwrap();
    // A new descriptor gets the lowest free number, which must be below the limit.
    let free = (0..).find(|number| !numbers.contains(number));
    limit_open_files(server, free).await;
}

/// strace fails the syncs of the journal, as a broken disk would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_disk_ends_the_server_and_loses_no_acknowledged_change() {
    let mut server = Server::start().unwrap();
    let client = Client::connect(&server, 1).await.unwrap();
    let fail = ["-f", "-qq", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=40+"];
    let mut strace = Command::new("strace");
    strace.args(fail).arg("-p").arg(server.pid().to_string()).kill_on_drop(true);
    let mut strace = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let all = write_until_refused(&client).await;
    ends_by_itself(&mut server);
    assert!(server.has_logged("Input/output error"), "{}", server.stderr());
    strace.wait().await.unwrap();
    drop(client);
    goes_on_after_a_restart(&mut server, &all).await;
}

/// fjall's worker can't open the file of a table. Its first failure stops all later writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_descriptors_ends_the_server_and_loses_no_acknowledged_change() {
    let mut server = Server::builder().open_files(1024).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    // The server has accepted the connection once it has answered a call.
    client.begin(creates(2..3, 10)).await.unwrap();
    exhaust_descriptors(&server).await;
    let all = write_until_refused(&client).await;
    ends_by_itself(&mut server);
    drop(client);
    goes_on_after_a_restart(&mut server, &all).await;
}

/// Writes the order of lists to a table, which a server reads from disk.
fn flush_to_table(data: &Path) {
    let database = fjall::Database::builder(data.join("fjall")).open().unwrap();
    let sources = database.keyspace("sources", fjall::KeyspaceCreateOptions::default).unwrap();
    sources.rotate_memtable_and_wait().unwrap();
}

/// strace fails the reads of tables, as a disk does that is away for a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_ready_again_once_a_failed_read_succeeds() {
    let mut server = Server::start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    // A start reads the first block of the table. The list has many blocks.
    let begun = client.begin(creates(1..1001, 10)).await.unwrap();
    client.settle(&begun.lease, Committed).await.unwrap();
    drop(client);
    assert!(server.terminate().unwrap().success());
    flush_to_table(server.data());
    server.restart().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let fail = ["-f", "-qq", "-e", "trace=pread64", "-e", "inject=pread64:error=EIO"];
    let mut strace = Command::new("strace");
    strace.args(fail).arg("-p").arg(server.pid().to_string()).kill_on_drop(true);
    let mut strace = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("strace is attached", async || is_traced(&server).then_some(())).await.unwrap();

    let refused = client.page(Vec::new()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"), "{refused:?}");
    let ready = async || get(server.address(), "/readyz").await.unwrap();
    let (code, text) = ready().await;
    assert!(code == 503 && text.contains("[-]reads failed: one has failed, and is tried again"), "{text}");
    assert!(get(server.address(), "/metrics").await.unwrap().1.contains("leasehold_store_failed 1\n"));
    client.begin(creates(1001..1002, 10)).await.expect("writes go on");

    // On this signal, strace detaches from the server.
    kill(Pid::from_raw(strace.id().unwrap().cast_signed()), Signal::SIGTERM).unwrap();
    eventually("strace has detached", async || strace.try_wait().unwrap()).await.unwrap();
    eventually("the server is ready", async || (ready().await.0 == 200).then_some(())).await.unwrap();
    assert!(get(server.address(), "/metrics").await.unwrap().1.contains("leasehold_store_failed 0\n"));
    client.page(Vec::new()).await.unwrap();
    drop(client);
    assert!(server.terminate().unwrap().success());
}

/// True if another process traces all threads of the server.
fn is_traced(server: &Server) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let traced = |thread: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status"));
        status.is_ok_and(|status| !status.contains("TracerPid:\t0\n"))
    };
    threads.all(traced)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_cant_be_accepted_ends_no_server() {
    let mut server = Server::builder().open_files(1024).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    client.begin(creates(1..2, 10)).await.unwrap();
    exhaust_descriptors(&server).await;
    let waiting = TcpStream::connect(server.address()).await.unwrap();
    let said = "a connection can't be accepted";
    eventually(said, async || Some(()).filter(|()| server.stderr().contains(said))).await.unwrap();
    client.begin(creates(2..3, 10)).await.expect("open connections are served");
    limit_open_files(&server, None).await;
    Client::connect(&server, 2).await.expect("new connections are accepted again");
    drop((waiting, client));
    assert!(server.terminate().unwrap().success());
}
