//! Workers that die, and servers that are killed: what was taken comes back.

use std::time::Instant;

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::sessions::v1::{CloseSessionRequest, EvictSessionRequest};
use leasehold_tests::server::Server;
use leasehold_tests::wire::eventually;
use wire::settle_request::Outcome;

use super::{Client, create, id, numbers, update};

/// Takes a batch as soon as there is one.
async fn take_soon(client: &Client, session: &[u8], take: u128) -> wire::Batch {
    eventually("a batch comes back", async || client.take(session, take).await).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn q03_a_dead_workers_requests_come_back_with_a_counted_attempt_until_they_end_in_error() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let poison = wire::NewRequest { max_attempts: 2, ..update(1, "7") };
    client.submit(vec![poison, update(2, "8")]).await;
    // One worker is silent until its session expires, the other closes its session.
    let silent = client.worker_for(1, 1_000_000).await;
    assert_eq!(numbers(&client.take(&silent, 1).await.unwrap()), [(1, 1)]);
    let closing = client.worker(2).await;
    let taken = take_soon(&client, &closing, 2).await;
    assert_eq!(numbers(&taken), [(2, 1)], "a stuck key holds back only itself");
    client.settle(&closing, &taken, Outcome::Completed).await.unwrap();
    assert_eq!(numbers(&take_soon(&client, &closing, 3).await), [(1, 2)]);
    client.sessions.clone().close_session(CloseSessionRequest { session_id: closing }).await.unwrap();
    let in_error = async || (client.state(1).await == wire::RequestState::Error).then_some(());
    eventually("the poison request ends in error", in_error).await.unwrap();
    let healthy = client.worker(3).await;
    assert_eq!(client.take(&healthy, 4).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn q11_an_evicted_workers_requests_are_withheld_for_its_time() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    client.submit(vec![update(1, "7")]).await;
    let (evicted, other) = (client.worker_for(1, 2_000_000).await, client.worker(2).await);
    client.take(&evicted, 1).await.unwrap();
    client.sessions.clone().evict_session(EvictSessionRequest { session_id: evicted }).await.unwrap();
    let since = Instant::now();
    assert_eq!(numbers(&take_soon(&client, &other, 2).await), [(1, 2)]);
    assert!(since.elapsed().as_secs() >= 2, "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn q11_a_restarted_server_keeps_what_is_taken_and_looks_at_all_of_it() {
    let mut server = Server::start().unwrap();
    let client = Client::of(&server).await;
    client.submit(vec![create(1, "7"), update(2, "7"), update(3, "8")]).await;
    let (living, evicted) = (client.worker(1).await, client.worker_for(2, 1_000_000).await);
    let batch = client.take(&living, 1).await.unwrap();
    assert_eq!(numbers(&batch), [(1, 1)]);
    assert_eq!(numbers(&client.take(&evicted, 2).await.unwrap()), [(3, 1)]);
    // The server dies while it withholds the lane of the evicted worker.
    client.sessions.clone().evict_session(EvictSessionRequest { session_id: evicted }).await.unwrap();
    server.kill_9().unwrap();
    server.restart().unwrap();
    let client = Client::of(&server).await;
    assert_eq!(client.take(&living, 1).await, Some(batch.clone()));
    assert_eq!(numbers(&take_soon(&client, &living, 3).await), [(3, 2)]);
    client.settle(&living, &batch, Outcome::Completed).await.unwrap();
    assert_eq!(numbers(&client.take(&living, 4).await.unwrap()), [(2, 1)]);
    assert_eq!(client.get(1).await.unwrap().request_id, id(1));
}
