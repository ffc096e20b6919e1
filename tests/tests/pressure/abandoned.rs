//! Begins whose callers are gone hold no name for long (B25).

use leasehold_tests::http2::{HEADERS, begin, grpc_head_with, last_data, prefix, read_until, send};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, eventually, kept};
use prost::Message;
use tokio::net::TcpStream;

use super::{BEGIN, metric};

const CALLS: u32 = 400;
/// A deadline of which the server leaves half a millisecond for the begin: less than a sync takes.
const SHORT: &str = "1500u";
const LONG: &str = "20S";

fn requests(code: &str) -> String {
    format!("leasehold_requests_total{{method=\"BeginUpdate\",code=\"{code}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_a_begin_that_is_answered_too_late_leaves_no_lease() {
    let server = Server::start().unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    begin(&mut stream).await.unwrap();
    for call in 0..CALLS {
        let (id, deadline) = (2 * call + 1, if call % 8 == 0 { LONG } else { SHORT });
        let message = creates(1, &[&format!("name-{call}")]).encode_to_vec();
        let body = [prefix(u32::try_from(message.len()).unwrap()), message].concat();
        let head = grpc_head_with(id, BEGIN, &[("grpc-timeout", deadline)]);
        send(&mut stream, &[head, last_data(id, &body)].concat()).await.unwrap();
        read_until(&mut stream, |frame| frame.stream == id && frame.kind == HEADERS).await.unwrap();
    }
    let late = metric(server.address(), &requests("DeadlineExceeded")).await;
    let begun = metric(server.address(), &requests("Ok")).await;
    assert!(late >= 20.0 && begun >= f64::from(CALLS / 8), "{late} were late, {begun} began");
    assert_eq!(late + begun, f64::from(CALLS));

    let channel = server.connect(None).await.unwrap();
    eventually("only leases that a caller knows are outstanding", async || {
        let leases = kept(&channel, &[1]).await.unwrap().leases.len();
        (leases as f64 == begun).then_some(())
    })
    .await
    .unwrap();
    let effect = |name| format!("leasehold_abandoned_begins_total{{effect=\"{name}\"}}");
    let taken_back = metric(server.address(), &effect("taken_back")).await;
    assert!(taken_back > 0.0 && taken_back <= late, "{taken_back} of {late} were taken back");
    eventually("each rollback is audited", async || {
        let audited = server.stderr().matches("lease settled caller=server cell=1").count();
        (audited as f64 == taken_back).then_some(())
    })
    .await
    .unwrap();
}
