//! The command line against a server of an earlier version, which does not serve newer calls.

use std::convert::Infallible;

use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server as GrpcServer};
use tower::{Service, service_fn};

use super::*;

/// The first part of the paths of the service's calls.
const ADMIN_SERVICE: &str = "/leasehold.v1.AdminService/";

/// Starts a proxy of the server that serves no call of `AdminService`, as the versions before that
/// service. Returns its URL.
async fn without_admin_service(server: &Server) -> String {
    let channel = server.connect(None).await.unwrap();
    let proxy = service_fn(move |request: http::Request<axum::body::Body>| forward(channel.clone(), request));
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", incoming.local_addr().unwrap());
    let routes = Routes::from(Routes::default().into_axum_router().fallback_service(proxy));
    tokio::spawn(GrpcServer::builder().add_routes(routes).serve_with_incoming(incoming));
    url
}

async fn forward(
    mut channel: Channel,
    request: http::Request<axum::body::Body>,
) -> Result<http::Response<Body>, Infallible> {
    if request.uri().path().starts_with(ADMIN_SERVICE) {
        return Ok(Status::unimplemented("").into_http());
    }
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    Ok(channel.call(request.map(Body::new)).await.unwrap())
}

/// `ListOutstandingLeases` is newer than `ListLeases`, which has no organizations.
#[tokio::test(flavor = "multi_thread")]
async fn leases_of_a_server_without_the_newer_list_are_listed_without_organizations() {
    let mut world = CliFixture::new();
    let first = world.begin(1, "--create USERNAMES:a --organization-id 300").await;
    let second = world.begin(1, "--create USERNAMES:b").await;
    let newer = world.run("leases --cell 1 --json").await.expect_json_lines();
    world.url = without_admin_service(&world.server).await;
    let text = world.run("leases --cell 1").await.expect_success();
    let rows = table(&text);
    assert_eq!(rows[1..].iter().map(|row| row[0]).collect::<Vec<_>>(), [first.as_str(), second.as_str()]);
    assert!(rows[1..].iter().all(|row| row.len() == 2), "{text}");
    let older = world.run("leases --cell 1 --json").await.expect_json_lines();
    assert_eq!((&newer[0]["organizationId"], older[0].get("organizationId")), (&json!("300"), None));
    assert_eq!(older[0]["createdAt"], newer[0]["createdAt"]);
    assert_eq!(older[1], newer[1]);
    let one = world.run("leases --cell 1 --limit 1").await;
    assert_eq!((one.code, table(&one.stdout).len()), (0, 2));
    assert!(one.stderr.contains("there are more"), "{}", one.stderr);
}
