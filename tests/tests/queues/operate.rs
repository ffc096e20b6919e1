//! The calls of operators: pauses, limits, withdrawals and lists.

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_tests::server::Server;
use leasehold_tests::wire::get;
use wire::list_lanes_request::List as Lanes;
use wire::list_requests_request::List as Requests;
use wire::settle_request::Outcome;

use super::{Client, HOUR_MICROS, QUEUE, id, numbers, update};

impl Client {
    async fn pause(&self, key: &str, resume: bool) {
        let request = wire::PauseRequest { queue: QUEUE.into(), key: key.into(), resume };
        self.queues.clone().pause(request).await.unwrap();
    }

    /// Lists the keys of lanes, page by page.
    async fn lanes(&self, list: Lanes, limit: u32) -> Vec<String> {
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let request = wire::ListLanesRequest { queue: QUEUE.into(), list: list.into(), limit, after };
            let page = self.queues.clone().list_lanes(request).await.unwrap().into_inner();
            assert!(page.lanes.len() <= limit as usize);
            keys.extend(page.lanes.into_iter().map(|lane| lane.key));
            after = page.next;
            if after.is_none() {
                return keys;
            }
        }
    }

    /// Lists requests by their numbers in the lane, page by page.
    async fn requests(&self, list: Requests, key: &str) -> Vec<(u64, wire::RequestState)> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (queue, key, list) = (QUEUE.into(), key.into(), list.into());
            let request = wire::ListRequestsRequest { queue, key, list, limit: 2, after };
            let page = self.queues.clone().list_requests(request).await.unwrap().into_inner();
            found.extend(page.requests.iter().map(|request| (request.number, request.state())));
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q19_a_paused_queue_or_lane_keeps_its_order() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit(vec![update(1, "7"), update(2, "8")]).await;
    client.pause("", false).await;
    assert_eq!(client.take(&worker, 1).await, None);
    let queue = client.queues.clone().get_queue(wire::GetQueueRequest { queue: QUEUE.into() }).await.unwrap();
    assert!(queue.into_inner().is_paused);
    client.pause("7", false).await;
    client.pause("", true).await;
    assert_eq!(client.lanes(Lanes::Paused, 1).await, ["7"]);
    client.submit(vec![update(3, "7")]).await;
    let other = client.take(&worker, 2).await.unwrap();
    assert_eq!((numbers(&other), client.take(&worker, 3).await), (vec![(2, 1)], None));
    client.pause("7", true).await;
    assert_eq!(numbers(&client.take(&worker, 4).await.unwrap()), [(1, 1), (3, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q17_a_limit_is_exact() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit((1..=4).map(|number| update(number, &number.to_string())).collect()).await;
    client.queues.clone().set_limit(wire::SetLimitRequest { queue: QUEUE.into(), limit: 2 }).await.unwrap();
    let takes = (0..8).map(|take| {
        let (client, worker) = (client.clone(), worker.clone());
        tokio::spawn(async move { client.take(&worker, 10 + take).await })
    });
    let mut taken = Vec::new();
    for take in takes.collect::<Vec<_>>() {
        taken.extend(take.await.unwrap());
    }
    assert_eq!(taken.len(), 2);
    let queue = client.queues.clone().get_queue(wire::GetQueueRequest { queue: QUEUE.into() }).await.unwrap();
    assert_eq!((queue.get_ref().limit, queue.get_ref().taken), (2, 2));
    client.settle(&worker, &taken[0], Outcome::Completed).await.unwrap();
    assert!(client.take(&worker, 20).await.is_some());
    assert_eq!(client.take(&worker, 21).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_lanes_are_listed_page_by_page_and_a_request_that_waits_is_withdrawn() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit((1..=3).map(|number| update(number, "7")).collect()).await;
    let batch = client.take(&worker, 1).await.unwrap();
    let later = |number, key: &str| wire::NewRequest { delay_micros: HOUR_MICROS, ..update(number, key) };
    client.submit(vec![update(4, "8"), update(5, "9"), update(6, "7"), later(7, "d"), later(8, "e")]).await;
    assert_eq!(client.lanes(Lanes::Ready, 1).await, ["8", "9"]);
    assert_eq!(client.lanes(Lanes::Delayed, 1).await, ["d", "e"]);
    assert_eq!(client.lanes(Lanes::Taken, 1).await, ["7"]);
    let taken = client.requests(Requests::Taken, "7").await;
    assert_eq!(taken, [1, 2, 3].map(|number| (number, wire::RequestState::InProgress)));
    assert_eq!(client.requests(Requests::Waiting, "7").await, [(4, wire::RequestState::New)]);
    client.settle(&worker, &batch, Outcome::Completed).await.unwrap();
    let settled = client.requests(Requests::Settled, "").await;
    assert_eq!(settled, [1, 2, 3].map(|number| (number, wire::RequestState::Complete)));
    for expected in [wire::RequestState::New, wire::RequestState::Unspecified] {
        let withdraw = wire::WithdrawRequest { request_id: id(6) };
        assert_eq!(client.queues.clone().withdraw(withdraw).await.unwrap().into_inner().found(), expected);
    }
    assert_eq!(client.get(6).await, None);
    let with_body = wire::GetRequestRequest { request_id: id(4), with_body: true };
    let found = client.queues.clone().get_request(with_body).await.unwrap().into_inner();
    assert_eq!((found.body, found.request.unwrap().body_bytes), (b"body 4".to_vec(), 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn q22_no_key_and_no_body_is_in_the_log_and_the_metrics() {
    let mut server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    let secret = wire::NewRequest { body: b"secret-body".to_vec(), ..update(1, "secret-key") };
    client.submit(vec![secret.clone()]).await;
    let batch = client.take(&worker, 1).await.unwrap();
    let reused = wire::NewRequest { key: "secret-key-2".into(), ..secret };
    let request = wire::SubmitRequest { queue: QUEUE.into(), requests: vec![reused] };
    let refused = client.queues.clone().submit(request).await.unwrap_err();
    client.settle(&worker, &batch, Outcome::Completed).await.unwrap();
    let refused_settle = client.settle(&worker, &batch, Outcome::Failed).await.unwrap_err();
    let (_, metrics) = get(server.address(), "/metrics").await.unwrap();
    assert!(metrics.contains("method=\"TakeNow\""), "{metrics}");
    server.terminate().unwrap();
    let texts = [format!("{refused:?}"), format!("{refused_settle:?}"), metrics, server.stdout(), server.stderr()];
    assert!(texts.iter().all(|text| !text.contains("secret")), "{texts:?}");
}
