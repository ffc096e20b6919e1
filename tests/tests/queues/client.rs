//! The Rust client's queues.

use std::time::Duration;

use leasehold_client::{Batch, Client, Error, LockSession, NewRequest, RequestKind, SessionTerms, TakeTerms};
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_tests::server::Server;
use uuid::Uuid;

use super::QUEUE;

/// Terms under which no session is lost while a server restarts on a busy machine.
pub(super) const LONG: SessionTerms =
    SessionTerms { duration: Duration::from_secs(60), grace: Duration::from_secs(10) };

pub(super) fn client(server: &Server) -> Client {
    Client::builder(format!("http://{}", server.address())).timeout(Duration::from_secs(60)).build().unwrap()
}

async fn worker(client: &Client) -> LockSession {
    client.lock_session(LONG).await.unwrap()
}

pub(super) fn bodies(batch: &Batch) -> Vec<String> {
    batch.requests().iter().map(|request| String::from_utf8(request.body.clone()).unwrap()).collect()
}

async fn state(server: &Server, id: Uuid) -> wire::RequestState {
    let request = wire::GetRequestRequest { request_id: id.as_bytes().to_vec(), with_body: false };
    let mut queues = super::Client::of(server).await.queues;
    queues.get_request(request).await.unwrap().into_inner().request.unwrap().state()
}

#[tokio::test(flavor = "multi_thread")]
async fn q02_a_create_is_taken_alone_and_updates_as_one() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let requests = [NewRequest::create("7", "new"), NewRequest::update("7", "B"), NewRequest::update("7", "C")];
    let submitted = client.submit(QUEUE, &requests).await.unwrap();
    assert!(submitted.iter().zip(&requests).all(|(submitted, new)| submitted.is_new && submitted.id == new.id()));
    // A repeated submit gets the same requests (Q09).
    let again = client.submit(QUEUE, &requests).await.unwrap();
    assert!(again.iter().all(|submitted| !submitted.is_new));
    let session = worker(&client).await;
    let mut batches = session.take(QUEUE, TakeTerms::default());
    let first = batches.next().await.unwrap();
    assert_eq!((first.kind(), bodies(&first), first.key()), (RequestKind::Create, vec!["new".to_owned()], "7"));
    first.complete().await.unwrap();
    // A repeated settle succeeds (Q10).
    first.complete().await.unwrap();
    let second = batches.next().await.unwrap();
    assert_eq!((second.kind(), bodies(&second)), (RequestKind::Update, vec!["B".to_owned(), "C".to_owned()]));
    assert!(second.fence() > first.fence() && second.progress().is_none());
    second.complete().await.unwrap();
    assert_eq!(state(&server, requests[2].id()).await, wire::RequestState::Complete);
    let text = format!("{:?} {first:?} {second:?}", requests);
    assert!(!text.contains("new") && !text.contains("\"7\""), "Q22: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn q13_q20_a_failed_batch_comes_again_with_its_progress_until_it_ends_in_error() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let request = NewRequest::update("7", "B").with_max_attempts(2);
    client.submit(QUEUE, std::slice::from_ref(&request)).await.unwrap();
    let session = worker(&client).await;
    let mut batches = session.take(QUEUE, TakeTerms { credit: 1, max_requests: 1 });
    let first = batches.next().await.unwrap();
    first.give_back().await.unwrap();
    let first = batches.next().await.unwrap();
    assert_eq!(first.requests()[0].attempt, 1, "a batch that is given back counts no attempt (Q11)");
    first.note_progress(b"half").await.unwrap();
    first.fail(Some(Duration::ZERO)).await.unwrap();
    let second = batches.next().await.unwrap();
    assert_eq!((second.requests()[0].attempt, second.progress()), (2, Some(&b"half"[..])));
    second.fail(None).await.unwrap();
    assert_eq!(state(&server, request.id()).await, wire::RequestState::Error);
    let late = first.complete().await.unwrap_err();
    assert_eq!(late.refusal().unwrap().reason, "FENCE_PASSED");
}

/// The batch that the worker holds does not come again, and no other is lost.
#[tokio::test(flavor = "multi_thread")]
async fn q10_a_worker_goes_on_after_a_restart_of_its_server() {
    let mut server = Server::restartable().unwrap();
    let client = client(&server);
    let requests: Vec<_> = (1..=3).map(|key| NewRequest::update(key.to_string(), key.to_string())).collect();
    client.submit(QUEUE, &requests).await.unwrap();
    let session = worker(&client).await;
    let mut batches = session.take(QUEUE, TakeTerms { credit: 2, max_requests: 100 });
    let held = batches.next().await.unwrap();
    assert_eq!(bodies(&held), ["1"]);
    server.restart().unwrap();
    // The second batch may have been on its way to the worker, or not been taken yet.
    let second = batches.next().await.unwrap();
    assert_eq!(bodies(&second), ["2"]);
    held.complete().await.unwrap();
    let third = batches.next().await.unwrap();
    assert_eq!((bodies(&third), third.requests()[0].attempt), (vec!["3".to_owned()], 1));
    for batch in [second, third] {
        batch.complete().await.unwrap();
    }
    session.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_take_of_a_session_ends_the_former_and_sends_no_batch_again() {
    let server = Server::start().unwrap();
    let client = client(&server);
    client.submit(QUEUE, &[NewRequest::update("7", "B"), NewRequest::update("8", "C")]).await.unwrap();
    let session = worker(&client).await;
    let terms = TakeTerms { credit: 2, ..TakeTerms::default() };
    let mut former = session.take(QUEUE, terms);
    let held = former.next().await.unwrap();
    let mut later = session.take(QUEUE, terms);
    assert_eq!(bodies(&later.next().await.unwrap()), ["C"]);
    assert!(matches!(former.next().await, Err(Error::TakeReplaced)));
    held.complete().await.unwrap();
    client.submit(QUEUE, &[NewRequest::update("9", "D")]).await.unwrap();
    assert_eq!(bodies(&later.next().await.unwrap()), ["D"]);
}

/// The worker can't take more before the settle is decided: the batch would stay the session's.
#[tokio::test(flavor = "multi_thread")]
async fn q10_a_settle_without_an_answer_is_repeated() {
    let mut server = Server::restartable().unwrap();
    let client = client(&server).with_timeout(Duration::from_secs(3));
    let request = NewRequest::update("7", "B");
    client.submit(QUEUE, std::slice::from_ref(&request)).await.unwrap();
    let session = worker(&client).await;
    let mut batches = session.take(QUEUE, TakeTerms::default());
    let batch = batches.next().await.unwrap();
    server.kill_9().unwrap();
    let mut settled = tokio::spawn(async move { batch.complete().await });
    // The first call has failed by then.
    assert!(tokio::time::timeout(Duration::from_secs(6), &mut settled).await.is_err());
    server.restart().unwrap();
    settled.await.unwrap().unwrap();
    assert_eq!(state(&server, request.id()).await, wire::RequestState::Complete);
}

/// The server takes a batch for the stream as soon as the worker has settled one.
#[tokio::test(flavor = "multi_thread")]
async fn q11_a_worker_that_stops_counts_no_attempt_of_what_it_has_not_seen() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let request = NewRequest::update("8", "C");
    for _ in 0..20 {
        client.submit(QUEUE, &[NewRequest::update("7", "B").with_priority(9), request.clone()]).await.unwrap();
        let session = worker(&client).await;
        let mut batches = session.take(QUEUE, TakeTerms::default());
        batches.next().await.unwrap().complete().await.unwrap();
        batches.stop().await.unwrap();
        session.close().await.unwrap();
        assert_eq!(state(&server, request.id()).await, wire::RequestState::New);
    }
    let session = worker(&client).await;
    let mut batches = session.take(QUEUE, TakeTerms::default());
    assert_eq!(batches.next().await.unwrap().requests()[0].attempt, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn q11_a_worker_whose_session_has_ended_is_told() {
    let server = Server::start().unwrap();
    let client = client(&server);
    client.submit(QUEUE, &[NewRequest::update("7", "B")]).await.unwrap();
    let session = worker(&client).await;
    let mut batches = session.take(QUEUE, TakeTerms::default());
    let batch = batches.next().await.unwrap();
    assert!(!session.session_remaining().is_zero());
    let evict =
        leasehold_proto::leasehold::sessions::v1::EvictSessionRequest { session_id: session.id().as_bytes().to_vec() };
    super::Client::of(&server).await.sessions.evict_session(evict).await.unwrap();
    assert!(matches!(batches.next().await, Err(Error::SessionLost)));
    assert_eq!(batch.complete().await.unwrap_err().refusal().unwrap().reason, "SESSION_ENDED");
    session.lost().await;
    assert!(session.session_remaining().is_zero());
}
