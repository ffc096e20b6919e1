//! Tests of queues over the network: a real server, which is killed and restarted, and several workers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod client;
mod commands;
mod input;
mod kills;
mod lost;
mod operate;
mod rights;
mod rings;
mod spreadsheets;
mod streams;

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::queue_service_client::QueueServiceClient;
use leasehold_proto::leasehold::sessions::v1::OpenSessionRequest;
use leasehold_proto::leasehold::sessions::v1::session_service_client::SessionServiceClient;
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;
use tonic::transport::Channel;
use tonic::{Response, Status};
use wire::settle_request::Outcome;

const QUEUE: &str = "sheets.refresh";
const HOUR_MICROS: u64 = 3_600_000_000;

/// A client of one server, with names for what tests do over and over.
#[derive(Clone)]
struct Client {
    queues: QueueServiceClient<Channel>,
    sessions: SessionServiceClient<Channel>,
}

fn id(number: u128) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn update(number: u128, key: &str) -> wire::NewRequest {
    wire::NewRequest {
        request_id: id(number),
        key: key.into(),
        kind: wire::RequestKind::Update.into(),
        max_attempts: 3,
        body: format!("body {number}").into_bytes(),
        ..Default::default()
    }
}

fn create(number: u128, key: &str) -> wire::NewRequest {
    wire::NewRequest { kind: wire::RequestKind::Create.into(), ..update(number, key) }
}

/// The numbers of the requests of a batch, each with that of its attempt.
fn numbers(batch: &wire::Batch) -> Vec<(u128, u32)> {
    let number = |id: &[u8]| u128::from_be_bytes(id.try_into().unwrap());
    batch.requests.iter().map(|taken| (number(&taken.request_id), taken.attempt)).collect()
}

fn reason<T: std::fmt::Debug>(result: Result<Response<T>, Status>) -> String {
    Refusal::of(&result.unwrap_err()).reason
}

impl Client {
    async fn of(server: &Server) -> Self {
        let channel = server.connect(None).await.unwrap();
        Self { queues: QueueServiceClient::new(channel.clone()), sessions: SessionServiceClient::new(channel) }
    }

    /// Opens a session that lasts for an hour.
    async fn worker(&self, number: u128) -> Vec<u8> {
        self.worker_for(number, HOUR_MICROS).await
    }

    async fn worker_for(&self, number: u128, micros: u64) -> Vec<u8> {
        let open =
            OpenSessionRequest { session_id: id(number), duration_micros: micros, grace_micros: micros.min(1_000_000) };
        self.sessions.clone().open_session(open).await.unwrap();
        id(number)
    }

    async fn submit(&self, requests: Vec<wire::NewRequest>) -> Vec<(Vec<u8>, bool)> {
        self.submit_to(QUEUE, requests).await
    }

    async fn submit_to(&self, queue: &str, requests: Vec<wire::NewRequest>) -> Vec<(Vec<u8>, bool)> {
        let request = wire::SubmitRequest { queue: queue.into(), requests };
        let submitted = self.queues.clone().submit(request).await.unwrap().into_inner().requests;
        submitted.into_iter().map(|submitted| (submitted.request_id, submitted.is_new)).collect()
    }

    async fn take(&self, session: &[u8], take: u128) -> Option<wire::Batch> {
        let request = wire::TakeNowRequest {
            session_id: session.to_vec(),
            queue: QUEUE.into(),
            take_id: id(take),
            max_requests: 0,
        };
        self.queues.clone().take_now(request).await.unwrap().into_inner().batch
    }

    async fn settle(
        &self,
        session: &[u8],
        batch: &wire::Batch,
        outcome: Outcome,
    ) -> Result<Response<wire::SettleResponse>, Status> {
        let request = wire::SettleRequest {
            session_id: session.to_vec(),
            queue: QUEUE.into(),
            key: batch.key.clone(),
            fence: batch.fence,
            outcome: outcome.into(),
            retry_micros: (outcome == Outcome::Failed).then_some(0),
        };
        self.queues.clone().settle(request).await
    }

    async fn get(&self, number: u128) -> Option<wire::Request> {
        let request = wire::GetRequestRequest { request_id: id(number), with_body: false };
        self.queues.clone().get_request(request).await.unwrap().into_inner().request
    }

    async fn state(&self, number: u128) -> wire::RequestState {
        self.get(number).await.map(|request| request.state()).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q01_q02_updates_wait_for_their_create_and_are_taken_as_one() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    assert_eq!(client.take(&worker, 1).await, None);
    let mut updates: Vec<_> = (2..=4).map(|number| update(number, "7")).collect();
    updates.insert(0, create(1, "7"));
    assert!(client.submit(updates).await.iter().all(|(_, is_new)| *is_new));
    let first = client.take(&worker, 1).await.unwrap();
    assert_eq!((numbers(&first), first.kind()), (vec![(1, 1)], wire::RequestKind::Create));
    assert_eq!((&*first.key, &first.requests[0].body[..]), ("7", &b"body 1"[..]));
    // The lane has one worker at a time, and a repeated take gets the same.
    let other = client.worker(2).await;
    assert_eq!(client.take(&other, 2).await, None);
    assert_eq!(client.take(&worker, 1).await.as_ref(), Some(&first));
    client.settle(&worker, &first, Outcome::Completed).await.unwrap();
    let second = client.take(&other, 2).await.unwrap();
    assert_eq!((numbers(&second), second.kind()), (vec![(2, 1), (3, 1), (4, 1)], wire::RequestKind::Update));
    assert!(second.fence > first.fence);
    // A request that is submitted meanwhile is in the next batch (Q08).
    client.submit(vec![update(5, "7")]).await;
    client.settle(&other, &second, Outcome::Completed).await.unwrap();
    assert_eq!(numbers(&client.take(&worker, 3).await.unwrap()), [(5, 1)]);
    assert_eq!(client.state(2).await, wire::RequestState::Complete);
    assert_eq!(client.state(5).await, wire::RequestState::InProgress);
}

#[tokio::test(flavor = "multi_thread")]
async fn q09_q10_repeated_submits_and_settles_change_nothing() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let (worker, other) = (client.worker(1).await, client.worker(2).await);
    assert_eq!(client.submit(vec![create(1, "7")]).await, [(id(1), true)]);
    assert_eq!(client.submit(vec![create(1, "7")]).await, [(id(1), false)]);
    // A second create of the resource gets the first.
    assert_eq!(client.submit(vec![create(2, "7"), update(3, "7")]).await, [(id(1), false), (id(3), true)]);
    let reused = wire::SubmitRequest { queue: QUEUE.into(), requests: vec![update(1, "8")] };
    assert_eq!(reason(client.queues.clone().submit(reused).await), "IDEMPOTENCY_KEY_REUSED");
    let batch = client.take(&worker, 1).await.unwrap();
    assert_eq!(reason(client.settle(&other, &batch, Outcome::Completed).await), "FENCE_PASSED");
    for _ in 0..2 {
        client.settle(&worker, &batch, Outcome::Completed).await.unwrap();
    }
    assert_eq!(reason(client.settle(&worker, &batch, Outcome::Failed).await), "FENCE_PASSED");
    assert_eq!(numbers(&client.take(&worker, 2).await.unwrap()), [(3, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q11_q13_a_failure_counts_its_attempt_and_a_batch_that_is_given_back_does_not() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit(vec![update(1, "7")]).await;
    for (take, attempt, outcome) in
        [(1, 1, Outcome::GivenBack), (2, 1, Outcome::Failed), (3, 2, Outcome::Failed), (4, 3, Outcome::Failed)]
    {
        let batch = client.take(&worker, take).await.unwrap();
        assert_eq!(numbers(&batch), [(1, attempt)]);
        client.settle(&worker, &batch, outcome).await.unwrap();
    }
    assert_eq!((client.take(&worker, 5).await, client.state(1).await), (None, wire::RequestState::Error));
    let resubmit = wire::ResubmitRequest { request_id: id(1) };
    let found = client.queues.clone().resubmit(resubmit).await.unwrap().into_inner().found();
    assert_eq!(found, wire::RequestState::Error);
    assert_eq!(numbers(&client.take(&worker, 6).await.unwrap()), [(1, 1)]);
    let (_, metrics) = leasehold_tests::wire::get(server.address(), "/metrics").await.unwrap();
    for (change, count) in [("submitted", 1), ("taken", 5), ("returned", 3), ("failed", 1)] {
        let line = format!("\nleasehold_queue_requests_total{{change=\"{change}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q02_a_worker_takes_no_more_requests_than_it_asks_for() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit((1..=3).map(|number| update(number, "7")).collect()).await;
    for (take, max_requests, expected) in [(1, 1, vec![(1, 1)]), (2, 0, vec![(2, 1), (3, 1)])] {
        let request =
            wire::TakeNowRequest { session_id: worker.clone(), queue: QUEUE.into(), take_id: id(take), max_requests };
        let batch = client.queues.clone().take_now(request).await.unwrap().into_inner().batch.unwrap();
        assert_eq!(numbers(&batch), expected);
        client.settle(&worker, &batch, Outcome::Completed).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q13_without_a_time_of_its_own_a_failure_has_a_backoff() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit(vec![update(1, "7")]).await;
    let batch = client.take(&worker, 1).await.unwrap();
    let settle = wire::SettleRequest {
        session_id: worker,
        queue: QUEUE.into(),
        key: "7".into(),
        fence: batch.fence,
        outcome: Outcome::Failed.into(),
        retry_micros: None,
    };
    client.queues.clone().settle(settle).await.unwrap();
    let failed = client.get(1).await.unwrap();
    let [due, failed_at] = [failed.not_before, failed.updated_at].map(Option::unwrap);
    assert_eq!((due.seconds - failed_at.seconds, due.nanos - failed_at.nanos), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn q20_noted_progress_is_handed_to_the_next_worker() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let (worker, other) = (client.worker(1).await, client.worker(2).await);
    client.submit(vec![update(1, "7")]).await;
    let batch = client.take(&worker, 1).await.unwrap();
    assert_eq!(batch.progress, None);
    let note = |session: &[u8], fence| wire::NoteProgressRequest {
        session_id: session.to_vec(),
        queue: QUEUE.into(),
        key: "7".into(),
        fence,
        progress: b"half".to_vec(),
    };
    let mut queues = client.queues.clone();
    queues.note_progress(note(&worker, batch.fence)).await.unwrap();
    assert_eq!(reason(queues.note_progress(note(&other, batch.fence)).await), "FENCE_PASSED");
    client.settle(&worker, &batch, Outcome::Failed).await.unwrap();
    let again = client.take(&other, 2).await.unwrap();
    assert_eq!((numbers(&again), again.progress.as_deref()), (vec![(1, 2)], Some(&b"half"[..])));
}
