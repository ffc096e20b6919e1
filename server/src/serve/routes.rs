//! The HTTP routes of a server: gRPC services and `POST /v1/classify` on the main address; metrics,
//! probes and the page in plain HTTP.

use std::convert::Infallible;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use leasehold_core::batch::MAX_REQUEST_BYTES;
use leasehold_proto::AccessRules;
use leasehold_proto::gitlab::cells::topology_service::cell_service_server::CellServiceServer;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_server::ClaimServiceServer;
use leasehold_proto::gitlab::cells::topology_service::classify_service_server::ClassifyServiceServer;
use leasehold_proto::leasehold::locks::v1::lock_service_server::LockServiceServer;
use leasehold_proto::leasehold::peers::v1::peer_service_server::PeerServiceServer;
use leasehold_proto::leasehold::queues::v1::queue_service_server::QueueServiceServer;
use leasehold_proto::leasehold::sessions::v1::session_service_server::SessionServiceServer;
use leasehold_proto::leasehold::v1::admin_service_server::AdminServiceServer;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::Service;

use super::{ServeError, hosts, probes};
use crate::grpc::{
    AdminHandler, CellHandler, ClaimsHandler, ClassifyHandler, LockHandler, MAX_SMALL_REQUEST_BYTES, PeerHandler,
    QueueHandler, Services, SessionHandler, http_router, is_grpc,
};
use crate::logging;
use crate::metrics::GaugeValues;

fn invalid_descriptors(error: &dyn Display) -> ServeError {
    ServeError::Descriptors(error.to_string())
}

/// Reads the access rules of every gRPC method from the protobuf descriptors that are built into
/// the program.
pub(super) fn access_rules() -> Result<AccessRules, ServeError> {
    AccessRules::from_descriptors().map_err(|error| invalid_descriptors(&error))
}

/// The routes of the main address. A gRPC call and a plain request never reach each other's routes.
#[derive(Clone)]
pub(super) struct MainRoutes {
    grpc: Routes,
    http: Routes,
}

impl Service<http::Request<Body>> for MainRoutes {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = <Routes as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // An axum `Router` is always ready, and so are both routers.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let routes = if is_grpc(&request) { &mut self.grpc } else { &mut self.http };
        routes.call(request)
    }
}

/// The parts of a server from which its routes are made.
pub(super) struct Routing {
    pub(super) services: Arc<Services>,
    /// The setting `http_hosts`.
    pub(super) hosts: Vec<String>,
    /// Becomes true when the server stops.
    pub(super) stopping: watch::Receiver<bool>,
}

impl Routing {
    /// The routes of the main address. Without TLS they include those of [`plain_http`].
    pub(super) fn main_address<H: Health>(
        &self,
        address: IpAddr,
        has_tls: bool,
        health: HealthServer<H>,
    ) -> Result<MainRoutes, ServeError> {
        let pool = leasehold_proto::descriptor_pool().map_err(|error| invalid_descriptors(&error))?;
        let mut http = http_router(self.services.clone(), pool);
        if !has_tls {
            http = http.merge(plain_http(self.services.clone(), self.stopping.clone()));
        }
        let http = hosts::guard(http, address, &self.hosts);
        Ok(MainRoutes { grpc: self.grpc(health)?, http: Routes::from(http).prepare() })
    }

    /// The gRPC services.
    fn grpc<H: Health>(&self, health: HealthServer<H>) -> Result<Routes, ServeError> {
        let (services, stopping) = (self.services.clone(), self.stopping.clone());
        let sessions = SessionServiceServer::new(SessionHandler { services, stopping });
        let (services, stopping) = (self.services.clone(), self.stopping.clone());
        let locks = LockServiceServer::new(LockHandler { services, stopping });
        let (services, stopping) = (self.services.clone(), self.stopping.clone());
        let queues = QueueServiceServer::new(QueueHandler { services, stopping });
        let routes = grpc(&self.services, health)?;
        Ok(routes
            .add_service(sessions.max_decoding_message_size(MAX_SMALL_REQUEST_BYTES))
            .add_service(locks.max_decoding_message_size(MAX_SMALL_REQUEST_BYTES))
            .add_service(queues.max_decoding_message_size(MAX_REQUEST_BYTES))
            .prepare())
    }

    /// The routes of the address of the metrics.
    pub(super) fn metrics_address(&self, address: IpAddr) -> Routes {
        let router = plain_http(self.services.clone(), self.stopping.clone());
        Routes::from(hosts::guard(router, address, &self.hosts)).prepare()
    }
}

fn grpc<H: Health>(services: &Arc<Services>, health: HealthServer<H>) -> Result<Routes, ServeError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(leasehold_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (v1, v1alpha) = (reflection().build_v1(), reflection().build_v1alpha());
    let (v1, v1alpha) =
        (v1.map_err(|error| invalid_descriptors(&error))?, v1alpha.map_err(|error| invalid_descriptors(&error))?);
    // A response has no limit in bytes: the records of one source id are never divided, and leases
    // contain the cells' own data.
    let claims = ClaimServiceServer::new(ClaimsHandler(services.clone()))
        .max_decoding_message_size(MAX_REQUEST_BYTES)
        .max_encoding_message_size(usize::MAX);
    let classify = ClassifyServiceServer::new(ClassifyHandler(services.clone()));
    let cells = CellServiceServer::new(CellHandler(services.clone()));
    let admin = AdminServiceServer::new(AdminHandler(services.clone()));
    let peers = PeerServiceServer::new(PeerHandler(services.clone()));
    Ok(Routes::default()
        .add_service(claims)
        .add_service(classify.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(admin.max_decoding_message_size(MAX_SMALL_REQUEST_BYTES))
        .add_service(cells.max_decoding_message_size(MAX_SMALL_REQUEST_BYTES))
        .add_service(peers.max_decoding_message_size(MAX_SMALL_REQUEST_BYTES))
        .add_service(health.max_decoding_message_size(MAX_SMALL_REQUEST_BYTES))
        .add_service(v1.max_decoding_message_size(MAX_SMALL_REQUEST_BYTES))
        .add_service(v1alpha.max_decoding_message_size(MAX_SMALL_REQUEST_BYTES)))
}

/// The routes for people and their tools, in plain HTTP: the metrics, the probes, and the web page
/// if the server was built with it.
fn plain_http(services: Arc<Services>, stopping: watch::Receiver<bool>) -> Router {
    let router = metrics(services.clone()).merge(probes::router(services.clone(), stopping));
    #[cfg(feature = "page")]
    let router = router.merge(super::page::router(services));
    router
}

fn metrics(services: Arc<Services>) -> Router {
    let headers = [(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    let answer = move || std::future::ready(render_metrics(&services).map(|text| (headers, text)));
    Router::new().route("/metrics", get(answer))
}

fn render_metrics(services: &Services) -> Result<String, http::StatusCode> {
    let occupancy = services.store().occupancy();
    let oldest = occupancy.oldest_lease.map_or(0, |begun_at| services.committer().clock().now().micros_since(begun_at));
    let values = GaugeValues {
        leases: occupancy.leases,
        held_claims: occupancy.held_claims,
        oldest_lease: Duration::from_micros(oldest),
        locks: services.locks.size(),
        waiting: services.committer().waiting(),
        groups_at_once: services.committer().write_slots(),
        disk_bytes: occupancy.disk_bytes,
        disk_quota_bytes: occupancy.disk_quota_bytes,
        database_alarms: occupancy.alarms,
        store_failed: services.has_failed(),
        store_away: services.committer().is_away(),
        request_bytes: services.budgets.requests.held(),
        answer_bytes: services.budgets.answers.held(),
        log_lines_dropped: logging::dropped_lines(),
        audit_events_dropped: services.audit.dropped(),
        pool: services.store().pool().unwrap_or_default(),
    };
    services.metrics.render(values).map_err(|_| http::StatusCode::INTERNAL_SERVER_ERROR)
}
