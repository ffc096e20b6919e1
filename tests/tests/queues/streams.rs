//! The stream of takes: its credit, its wake-ups and its repetition.

use std::time::{Duration, Instant};

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::sessions::v1::CloseSessionRequest;
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;
use tokio::task::JoinSet;
use tonic::Streaming;
use wire::settle_request::Outcome;
use wire::take_response::News;

use super::{Client, QUEUE, numbers, update};

impl Client {
    async fn stream(&self, session: &[u8], credit: u32, held_fences: Vec<u64>) -> Streaming<wire::TakeResponse> {
        self.stream_of(QUEUE, session, (credit, held_fences)).await
    }

    pub(super) async fn stream_of(
        &self,
        queue: &str,
        session: &[u8],
        (credit, held_fences): (u32, Vec<u64>),
    ) -> Streaming<wire::TakeResponse> {
        let (session_id, queue) = (session.to_vec(), queue.into());
        let request = wire::TakeRequest { session_id, queue, credit, held_fences, max_requests: 0 };
        self.queues.clone().take(request).await.unwrap().into_inner()
    }
}

pub(super) async fn next(stream: &mut Streaming<wire::TakeResponse>) -> wire::Batch {
    match stream.message().await.unwrap().unwrap().news {
        Some(News::Batch(batch)) => batch,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q18_a_submit_wakes_an_idle_stream() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    let mut stream = client.stream(&worker, 1, Vec::new()).await;
    // A stream that looks by itself does so every ten seconds, so many quick takes come from wake-ups.
    let mut waits = Vec::new();
    for number in 1..=20 {
        let since = Instant::now();
        client.submit(vec![update(number, "7")]).await;
        let batch = next(&mut stream).await;
        waits.push(since.elapsed());
        assert_eq!(numbers(&batch), [(number, 1)]);
        client.settle(&worker, &batch, Outcome::Completed).await.unwrap();
    }
    waits.sort_unstable();
    println!("from a submit to a start: median {:?}, at most {:?}", waits[10], waits[19]);
    assert!(waits[10] < Duration::from_secs(1), "{waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_takes_no_more_batches_than_its_credit_and_the_next_after_a_settle() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let (worker, other) = (client.worker(1).await, client.worker(2).await);
    client.submit((1..=4).map(|number| update(number, &number.to_string())).collect()).await;
    let mut stream = client.stream(&worker, 2, Vec::new()).await;
    let (first, second) = (next(&mut stream).await, next(&mut stream).await);
    assert_eq!((numbers(&first), numbers(&second)), (vec![(1, 1)], vec![(2, 1)]));
    // The third lane is ready, and is another worker's: the stream has no credit.
    let third = client.take(&other, 1).await.unwrap();
    assert_eq!(numbers(&third), [(3, 1)]);
    client.settle(&worker, &first, Outcome::Completed).await.unwrap();
    assert_eq!(numbers(&next(&mut stream).await), [(4, 1)]);
    client.settle(&other, &third, Outcome::Failed).await.unwrap();
    assert_eq!(numbers(&client.take(&other, 2).await.unwrap()), [(3, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q11_a_stream_without_credit_sends_what_its_worker_does_not_know_and_ends() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit((1..=3).map(|number| update(number, &number.to_string())).collect()).await;
    let mut former = client.stream(&worker, 2, Vec::new()).await;
    let (known, lost) = (next(&mut former).await, next(&mut former).await);
    let mut last = client.stream(&worker, 0, vec![known.fence]).await;
    assert_eq!(next(&mut last).await, lost);
    assert_eq!(last.message().await.unwrap(), None);
    assert_eq!(former.message().await.unwrap().unwrap().news, Some(News::Moving(wire::Moving {})));
    client.settle(&worker, &lost, Outcome::GivenBack).await.unwrap();
    let other = client.worker(2).await;
    assert_eq!(numbers(&client.take(&other, 1).await.unwrap()), [(2, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_stream_gets_what_its_worker_does_not_know_and_ends_the_former() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit((1..=3).map(|number| update(number, &number.to_string())).collect()).await;
    let mut former = client.stream(&worker, 2, Vec::new()).await;
    let (known, unknown) = (next(&mut former).await, next(&mut former).await);
    let mut later = client.stream(&worker, 3, vec![known.fence]).await;
    assert_eq!(next(&mut later).await, unknown);
    assert_eq!(numbers(&next(&mut later).await), [(3, 1)]);
    let moving = former.message().await.unwrap().unwrap().news;
    assert_eq!((moving, former.message().await.unwrap()), (Some(News::Moving(wire::Moving {})), None));
    client.sessions.clone().close_session(CloseSessionRequest { session_id: worker }).await.unwrap();
    assert_eq!(Refusal::of(&later.message().await.unwrap_err()).reason, "SESSION_ENDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn q12_a_delayed_request_is_taken_when_it_is_due_and_not_before() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    let mut stream = client.stream(&worker, 1, Vec::new()).await;
    let (delay, since) = (Duration::from_millis(1_500), Instant::now());
    let delay_micros = u64::try_from(delay.as_micros()).unwrap();
    client.submit(vec![wire::NewRequest { delay_micros, ..update(1, "7") }]).await;
    let unready = client.worker(2).await;
    assert_eq!(client.take(&unready, 1).await, None);
    assert_eq!(numbers(&next(&mut stream).await), [(1, 1)]);
    assert!(since.elapsed() >= delay, "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_lane_wakes_one_of_many_streams_and_all_are_served() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let (batches, mut taken) = tokio::sync::mpsc::unbounded_channel();
    // The workers end with the set, before the server does.
    let mut workers = JoinSet::new();
    for number in 1..=8 {
        let (worker, client, batches) = (client.worker(number).await, client.clone(), batches.clone());
        let mut stream = client.stream(&worker, 1, Vec::new()).await;
        workers.spawn(async move {
            loop {
                let batch = next(&mut stream).await;
                client.settle(&worker, &batch, Outcome::Completed).await.unwrap();
                batches.send(numbers(&batch)).unwrap();
            }
        });
    }
    let since = Instant::now();
    client.submit((1..=200).map(|number| update(number, &(number % 50).to_string())).collect()).await;
    let mut all = Vec::new();
    while all.len() < 200 {
        all.extend(taken.recv().await.unwrap().into_iter().map(|(number, _)| number));
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(1..=200));
    assert!(since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
    workers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_moves_its_streams() {
    let mut server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    let mut stream = client.stream(&worker, 1, Vec::new()).await;
    client.submit(vec![update(1, "7")]).await;
    next(&mut stream).await;
    let moving = tokio::spawn(async move { stream.message().await.unwrap().unwrap().news });
    server.terminate().unwrap();
    assert_eq!(moving.await.unwrap(), Some(News::Moving(wire::Moving {})));
}
