//! Refused input: each refusal has its own reason, and nothing changes.

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_tests::server::Server;
use wire::settle_request::Outcome;

use super::{Client, QUEUE, id, reason, update};

#[tokio::test(flavor = "multi_thread")]
async fn malformed_submits_are_refused_as_a_whole() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    let valid = || update(1, "7");
    let long = "k".repeat(513);
    let year = 365 * 86_400_000_000;
    let cases: Vec<(&str, wire::NewRequest)> = vec![
        ("INVALID_UPDATE", wire::NewRequest { request_id: vec![1; 15], ..valid() }),
        ("INVALID_UPDATE", wire::NewRequest { key: String::new(), ..valid() }),
        ("LIMIT_EXCEEDED", wire::NewRequest { key: long, ..valid() }),
        ("INVALID_UPDATE", wire::NewRequest { kind: 0, ..valid() }),
        ("INVALID_UPDATE", wire::NewRequest { kind: 9, ..valid() }),
        ("LIMIT_EXCEEDED", wire::NewRequest { priority: 10, ..valid() }),
        ("LIMIT_EXCEEDED", wire::NewRequest { priority: 256, ..valid() }),
        ("LIMIT_EXCEEDED", wire::NewRequest { delay_micros: year + 1_000_000_000, ..valid() }),
        ("LIMIT_EXCEEDED", wire::NewRequest { delay_micros: u64::MAX, ..valid() }),
        ("INVALID_UPDATE", wire::NewRequest { max_attempts: 0, ..valid() }),
        ("LIMIT_EXCEEDED", wire::NewRequest { max_attempts: 1_001, ..valid() }),
        ("LIMIT_EXCEEDED", wire::NewRequest { body: vec![0; 65_537], ..valid() }),
    ];
    let submit = async |queue: &str, requests: Vec<wire::NewRequest>| {
        let request = wire::SubmitRequest { queue: queue.into(), requests };
        reason(client.queues.clone().submit(request).await)
    };
    for (expected, malformed) in cases {
        assert_eq!(submit(QUEUE, vec![update(2, "8"), malformed.clone()]).await, expected, "{malformed:?}");
    }
    assert_eq!(submit(QUEUE, Vec::new()).await, "INVALID_UPDATE");
    assert_eq!(submit(QUEUE, vec![valid(), valid()]).await, "INVALID_UPDATE");
    assert_eq!(submit("a..b", vec![valid()]).await, "INVALID_UPDATE");
    let many = (0..1_001).map(|number| update(number, "7")).collect();
    assert_eq!(submit(QUEUE, many).await, "LIMIT_EXCEEDED");
    let large = |number| wire::NewRequest { body: vec![0; 65_536], ..update(number, "7") };
    assert_eq!(submit(QUEUE, (0..65).map(large).collect()).await, "LIMIT_EXCEEDED");
    assert_eq!(client.take(&worker, 1).await, None, "a refused submit leaves nothing");
    assert_eq!(client.submit((0..64).map(large).collect()).await.len(), 64);
    assert_eq!(client.take(&worker, 1).await.unwrap().requests.len(), 16, "a batch has at most 1 MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_takes_and_settles_are_refused() {
    let server = Server::start().unwrap();
    let client = Client::of(&server).await;
    let worker = client.worker(1).await;
    client.submit(vec![update(1, "7")]).await;
    let mut queues = client.queues.clone();
    let take = |session_id: Vec<u8>, take_id: Vec<u8>| wire::TakeNowRequest {
        session_id,
        queue: QUEUE.into(),
        take_id,
        max_requests: 0,
    };
    assert_eq!(reason(queues.take_now(take(worker.clone(), vec![1])).await), "INVALID_UPDATE");
    assert_eq!(reason(queues.take_now(take(id(9), id(1))).await), "SESSION_NOT_FOUND");
    let stream = |credit, held_fences| wire::TakeRequest {
        session_id: worker.clone(),
        queue: QUEUE.into(),
        credit,
        held_fences,
        max_requests: 0,
    };
    for (request, expected) in [
        (stream(257, Vec::new()), "LIMIT_EXCEEDED"),
        (stream(1, vec![1; 257]), "LIMIT_EXCEEDED"),
        (wire::TakeRequest { max_requests: 101, ..stream(1, Vec::new()) }, "LIMIT_EXCEEDED"),
        (wire::TakeRequest { session_id: id(9), ..stream(1, Vec::new()) }, "SESSION_ENDED"),
    ] {
        assert_eq!(reason(queues.take(request).await), expected);
    }
    let batch = client.take(&worker, 1).await.unwrap();
    let settle = |outcome: i32, retry_micros| wire::SettleRequest {
        session_id: worker.clone(),
        queue: QUEUE.into(),
        key: "7".into(),
        fence: batch.fence,
        outcome,
        retry_micros,
    };
    for (request, expected) in [
        (settle(0, None), "INVALID_UPDATE"),
        (settle(9, None), "INVALID_UPDATE"),
        (settle(Outcome::Completed.into(), Some(0)), "INVALID_UPDATE"),
        (settle(Outcome::Failed.into(), Some(u64::MAX)), "LIMIT_EXCEEDED"),
        (wire::SettleRequest { fence: batch.fence + 1, ..settle(Outcome::Completed.into(), None) }, "FENCE_PASSED"),
        (wire::SettleRequest { key: "8".into(), ..settle(Outcome::Completed.into(), None) }, "FENCE_PASSED"),
    ] {
        assert_eq!(reason(queues.settle(request).await), expected);
    }
    // A take that arrives after its own settle must not take others.
    client.submit(vec![update(2, "7")]).await;
    queues.settle(settle(Outcome::Completed.into(), None)).await.unwrap();
    assert_eq!(reason(queues.take_now(take(worker.clone(), id(1))).await), "ASK_REUSED");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_lists_are_refused() {
    let server = Server::start().unwrap();
    let mut queues = Client::of(&server).await.queues;
    let lanes = |list, limit| wire::ListLanesRequest { queue: QUEUE.into(), list, limit, after: None };
    assert_eq!(reason(queues.list_lanes(lanes(0, 0)).await), "INVALID_UPDATE");
    assert_eq!(reason(queues.list_lanes(lanes(1, 1_001)).await), "LIMIT_EXCEEDED");
    let requests = |queue: &str, key: &str, list| wire::ListRequestsRequest {
        queue: queue.into(),
        key: key.into(),
        list,
        ..Default::default()
    };
    for (queue, key, list) in [(QUEUE, "7", 0), (QUEUE, "", 1), (QUEUE, "", 2), ("", "7", 2), ("", "7", 3)] {
        let refused = queues.list_requests(requests(queue, key, list)).await;
        assert_eq!(reason(refused), "INVALID_UPDATE", "{queue} {key} {list}");
    }
    assert_eq!(queues.list_requests(requests("", "", 3)).await.unwrap().into_inner().requests, []);
}
