//! Tests of a server whose standard error nobody reads: neither a call nor a stop waits for a
//! reader.

use std::time::{Duration, Instant};

use leasehold_core::lease::Outcome;
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::server::{Builder, Server};
use leasehold_tests::wire::eventually;
use nix::sys::signal::Signal;
use tokio::task::JoinSet;

use super::metric;

const SAVERS: u64 = 8;

/// Begins and commits this number of updates. A call that waits for the log fails by its deadline.
async fn save(server: &Server, saves: u64) {
    let mut savers = JoinSet::new();
    for saver in 0..SAVERS {
        let mut client = Client::connect(server, 1).await.unwrap();
        savers.spawn(async move {
            for number in (saver..saves).step_by(usize::try_from(SAVERS).unwrap()) {
                let creates = vec![user(format!("name-{number}"), 1 + number, Vec::new())];
                let begun = client.begin(Update { creates, ..Update::default() }).await.unwrap();
                client.settle(&begun.lease, Outcome::Committed).await.unwrap();
            }
        });
    }
    savers.join_all().await;
}

/// Returns the settings of a server whose standard error is a pipe that nobody reads.
fn server() -> Builder {
    Server::builder().leave_stderr_unread()
}

#[tokio::test(flavor = "multi_thread")]
async fn saves_go_on_while_nobody_reads_the_log_and_its_gap_is_told() {
    // With these levels, the log is more than the pipe and the queue of lines take.
    let mut server = server().arg("--log").arg("info,h2=trace").start().unwrap();
    let saves = 1_000;
    save(&server, saves).await;
    assert!(metric(server.address(), "leasehold_log_lines_dropped_total").await > 0.0);
    assert_eq!(metric(server.address(), "leasehold_audit_events_dropped_total").await, 0.0);
    server.read_stderr();
    let told = async || Some(()).filter(|()| server.stderr().contains("lines of the log were dropped"));
    eventually("the gap is told", told).await.unwrap();
    let audited = |word| server.stderr().lines().filter(|line| line.contains(word)).count() as u64;
    let is_whole = async || (audited("lease begun") + audited("lease settled") == 2 * saves).then_some(());
    eventually("the audit trail is whole", is_whole).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_a_server_whose_log_nobody_reads() {
    let mut server = server().start().unwrap();
    save(&server, 2_000).await;
    let signalled = Instant::now();
    assert!(server.terminate().unwrap().success());
    // A stop waits for each queue of lines for a second at most.
    assert!(signalled.elapsed() < Duration::from_secs(5), "{:?}", signalled.elapsed());
}

/// `nohup` has the programs that it starts ignore SIGHUP.
#[tokio::test(flavor = "multi_thread")]
async fn an_ignored_hangup_stays_ignored() {
    let mut server = Server::builder().ignore_hangup().start().unwrap();
    server.signal(Signal::SIGHUP).unwrap();
    save(&server, 100).await;
    assert!(server.terminate().unwrap().success());
    assert_eq!(server.stdout().matches("stopping").count(), 1, "{}", server.stdout());
}
