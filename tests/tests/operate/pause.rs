//! A test of a server process that is suspended for a while, as may happen on an overloaded
//! machine.

use std::time::Duration;

use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::server::Server;
use nix::sys::signal::Signal;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The number of calls on one connection, which is less than the limit `streams_per_connection`.
const CALLS: usize = 100;
/// The time after which the impatient callers give up. It is long enough to send all calls.
const DEADLINE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_call_is_answered_although_others_on_its_connection_were_cancelled() {
    let server = Server::start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    assert!(client.leases().await.unwrap().is_empty());
    server.suspend().unwrap();
    let mut patient = client.clone();
    let update = Update { creates: vec![user("alice", 7, Vec::new())], ..Update::default() };
    let waiting = tokio::spawn(async move { patient.begin(update).await });
    let mut hasty = JoinSet::new();
    for _ in 0..CALLS {
        let mut client = client.clone();
        hasty.spawn(async move { timeout(DEADLINE, client.get("bob")).await.is_err() });
    }
    assert!(hasty.join_all().await.iter().all(|gave_up| *gave_up));
    server.signal(Signal::SIGCONT).unwrap();
    assert!(waiting.await.unwrap().is_ok());
    assert_eq!(client.leases().await.unwrap().len(), 1);
}
