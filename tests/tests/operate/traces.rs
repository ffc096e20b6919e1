//! Traces of calls: a collector receives one span a call, linked to the caller's span.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use leasehold_core::lease::Outcome::Committed;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::BeginUpdateRequest;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::server::Server;
use leasehold_tests::wire::eventually;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tonic::{Code, Request, Response, Status};

/// A collector that keeps the spans which it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts a collector, and returns its address.
    async fn start() -> (Self, SocketAddr) {
        let (collector, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let service = TraceServiceServer::new(collector.clone());
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        (collector, address)
    }

    /// Waits for a span with this name, and returns it.
    async fn span(&self, name: &str) -> Span {
        let found = || self.0.lock().unwrap().iter().find(|span| span.name == name).cloned();
        eventually(name, async || found()).await.unwrap()
    }
}

/// Returns the value of an attribute of a span, `None` if the span does not have the attribute.
fn attribute(span: &Span, key: &str) -> Option<Value> {
    span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value
}

fn text(span: &Span, key: &str) -> String {
    let Some(Value::StringValue(text)) = attribute(span, key) else { panic!("{key}: {span:?}") };
    text
}

fn milliseconds(span: &Span, key: &str) -> f64 {
    let Some(Value::DoubleValue(number)) = attribute(span, key) else { panic!("{key}: {span:?}") };
    number
}

fn config(endpoint: &str, more: &str) -> String {
    format!("[traces]\nendpoint = \"{endpoint}\"\n{more}\n")
}

/// Begins an update with one name in the context of a caller's span.
async fn begin(server: &Server, name: &str, traceparent: &str) -> Result<(), Code> {
    let mut claims = ClaimServiceClient::new(server.connect(None).await.unwrap());
    let create_records = vec![user(name, 7, Vec::new())];
    let mut request = Request::new(BeginUpdateRequest { cell_id: 1, create_records, ..Default::default() });
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    claims.begin_update(request).await.map(|_| ()).map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_span_in_the_trace_of_its_caller() {
    let (collector, address) = Collector::start().await;
    let mut server =
        Server::builder().config(config(&format!("http://{address}"), "sample_ratio = 0")).start().unwrap();
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    begin(&server, "alice", &format!("00-{trace}-{parent}-01")).await.unwrap();
    let untraced = format!("00-{trace}-{parent}-00");
    assert_eq!(begin(&server, "alice", &untraced).await, Err(Code::FailedPrecondition));
    Client::connect(&server, 1).await.unwrap().get("alice").await.unwrap();
    // When the server stops, it sends the spans that are still queued.
    assert!(server.terminate().unwrap().success());

    let span = collector.span("BeginUpdate").await;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!((hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()), (trace, parent));
    assert_eq!(text(&span, "rpc.system.name"), "grpc");
    assert_eq!(text(&span, "rpc.response.status_code"), "OK");
    let took = (span.end_time_unix_nano - span.start_time_unix_nano) as f64 / 1e6;
    let inner = milliseconds(&span, "leasehold.queue_wait_ms") + milliseconds(&span, "leasehold.store_time_ms");
    assert!(inner > 0.0 && inner <= took, "{inner} of {took}");
    assert_eq!(attribute(&span, "leasehold.group_commands"), Some(Value::IntValue(1)));
    assert!(!format!("{span:?}").contains("alice"), "V09: {span:?}");
    assert_eq!(collector.0.lock().unwrap().len(), 1, "calls that are not sampled have no span");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_goes_on_while_its_collector_is_away() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut server = Server::builder().config(config(&format!("http://{closed}"), "")).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    for number in 0..100 {
        let creates = vec![user(format!("name-{number}"), 1 + number, Vec::new())];
        let begun = client.begin(Update { creates, ..Update::default() }).await.unwrap();
        client.settle(&begun.lease, Committed).await.unwrap();
    }
    assert!(server.terminate().unwrap().success());
    assert!(server.has_logged("BatchSpanProcessor.ExportError"), "{}", server.stderr());
}
