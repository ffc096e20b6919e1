//! A handler that panics fails only its own call. The other calls on the same connection are
//! answered.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::sync::Arc;

use leasehold_proto::AccessRules;
use leasehold_server::active_config::CurrentConfig;
use leasehold_server::budget::ServerBudgets;
use leasehold_server::config::Config;
use leasehold_server::grpc::{MiddlewareLayer, MiddlewareState};
use leasehold_server::metrics::Metrics;
use leasehold_server::transport::HttpServer;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::{Layer, Service, service_fn};

/// Starts a server whose method `Panic` panics, and whose method `Wait` waits for the panic.
async fn start(stopping: watch::Receiver<bool>) -> Channel {
    let panicked = Arc::new(Notify::new());
    let service = service_fn(move |request: http::Request<Body>| {
        let panicked = panicked.clone();
        async move {
            if request.uri().path().ends_with("/Panic") {
                panicked.notify_one();
                panic!("a fault of the handler");
            }
            panicked.notified().await;
            Ok::<_, Infallible>(Status::ok("").into_http())
        }
    });
    let config = Config::development();
    let budgets = ServerBudgets::new(&config);
    let current = CurrentConfig::new(config);
    let middleware = MiddlewareState {
        rules: AccessRules::from_descriptors().unwrap(),
        current: current.clone(),
        metrics: Arc::default(),
        store_id: http::HeaderValue::from_static("any"),
        keeps_claims_only: false,
        traces: None,
        stopping: stopping.clone(),
    };
    let server = HttpServer {
        service: MiddlewareLayer { shared: Arc::new(middleware) }.layer(service),
        certificates: None,
        current,
        probe_limits: None,
        budgets,
        metrics: Arc::<Metrics>::default(),
        stopping,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server.serve(listener));
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// Calls a method and returns the code of its answer.
async fn call(channel: &Channel, path: &str) -> Code {
    let request = http::Request::post(format!("http://localhost{path}"))
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .body(Body::empty());
    let mut channel = channel.clone();
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    match channel.call(request.unwrap()).await {
        Ok(response) => Status::from_header_map(response.headers()).unwrap().code(),
        Err(error) => panic!("{path} is not answered: {error}"),
    }
}

#[tokio::test]
async fn a_panic_is_answered_internal_and_ends_no_other_call() {
    let (_stop, stopping) = watch::channel(false);
    let channel = start(stopping).await;
    let (waited, panicked) = tokio::join!(call(&channel, "/a.B/Wait"), call(&channel, "/a.B/Panic"));
    assert_eq!((waited, panicked), (Code::Ok, Code::Internal));
}
