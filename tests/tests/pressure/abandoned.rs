//! Begins whose callers are gone hold no name for long (B25).

use std::time::Duration;

use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, eventually, kept};
use tonic::{Code, Request};

use super::metric;

/// The message of the server's own DEADLINE_EXCEEDED. tonic's client has another one.
const BY_SERVER: &str = "the caller's deadline passed before the answer was ready";
/// The least number of begins that the server must answer so.
const ENOUGH: usize = 20;

/// Begins an update with this deadline. Returns true if the server answered that the deadline has
/// passed.
async fn begin_late(server: &Server, name: String, deadline: Duration) -> bool {
    let mut claims = server.claims(None).await.unwrap();
    let mut request = Request::new(creates(1, &[&name]));
    request.set_timeout(deadline);
    let answer = claims.begin_update(request).await;
    answer.is_err_and(|status| status.code() == Code::DeadlineExceeded && status.message() == BY_SERVER)
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_a_begin_that_the_server_answers_too_late_holds_no_name() {
    let server = Server::start().unwrap();
    let mut late = Vec::new();
    for deadline in (1..=10).cycle().take(1000).map(Duration::from_millis) {
        let name = format!("late-{}", deadline.as_millis() + 100 * late.len() as u128);
        if begin_late(&server, name.clone(), deadline).await {
            late.push(name);
        }
        if late.len() == ENOUGH {
            break;
        }
    }
    assert_eq!(late.len(), ENOUGH, "too few begins were late");
    let channel = server.connect(None).await.unwrap();
    eventually("no late begin holds its name", async || {
        let records = kept(&channel, &[1]).await.unwrap().records;
        let held = |name: &String| {
            let is_of = |record: &leasehold_proto::gitlab::cells::topology_service::claims::v1::Record| {
                record.metadata.as_ref().and_then(|data| data.bucket.as_ref()).is_some_and(|it| it.value == *name)
            };
            records.iter().any(is_of)
        };
        (!late.iter().any(held)).then_some(())
    })
    .await
    .unwrap();
    let effect = |name| format!("leasehold_abandoned_begins_total{{effect=\"{name}\"}}");
    let (dropped, taken_back) =
        (metric(server.address(), &effect("dropped")).await, metric(server.address(), &effect("taken_back")).await);
    assert!(dropped + taken_back >= ENOUGH as f64, "{dropped} were dropped and {taken_back} taken back");
    let audited = server.stderr().matches("lease settled caller=server").count();
    assert!(taken_back == 0.0 || audited > 0, "they are audited");
}
