//! The HTTP routes of a server: gRPC services and `POST /v1/classify` on the main address; metrics
//! and the page in plain HTTP.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use leasehold_core::batch::MAX_REQUEST_BYTES;
use leasehold_proto::AccessRules;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_server::ClaimServiceServer;
use leasehold_proto::gitlab::cells::topology_service::classify_service_server::ClassifyServiceServer;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;

use super::ServeError;
use crate::committer::now;
use crate::config::Config;
use crate::grpc::{ClaimsHandler, ClassifyHandler, Services, http_router};
use crate::metrics::GaugeValues;

fn invalid_descriptors(error: &dyn Display) -> ServeError {
    ServeError::Descriptors(error.to_string())
}

/// Reads the access rules of every gRPC method from the protobuf descriptors that are built into
/// the program.
pub(super) fn access_rules() -> Result<AccessRules, ServeError> {
    AccessRules::from_descriptors().map_err(|error| invalid_descriptors(&error))
}

/// Returns the routes of the main address: the gRPC services, and `POST /v1/classify`. Without TLS
/// they include those of [`plain_http`].
pub(super) fn main_address<H>(config: &Config, services: &Arc<Services>, health: H) -> Result<Routes, ServeError>
where
    H: tower::Service<http::Request<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
    H::Response: IntoResponse,
    H::Future: Send + 'static,
{
    let pool = leasehold_proto::descriptor_pool().map_err(|error| invalid_descriptors(&error))?;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(leasehold_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // A response with 1,000 leases or 2,000 records has no bound in bytes, because records contain
    // the cells' own data.
    let claims = ClaimServiceServer::new(ClaimsHandler(services.clone()))
        .max_decoding_message_size(MAX_REQUEST_BYTES)
        .max_encoding_message_size(usize::MAX);
    let classify = ClassifyServiceServer::new(ClassifyHandler(services.clone()));
    let mut http = http_router(services.clone(), pool);
    if config.tls.is_none() {
        http = http.merge(plain_http(services.clone()));
    }
    Ok(Routes::from(http)
        .add_service(claims)
        .add_service(classify.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(health)
        .add_service(reflection().build_v1().map_err(|error| invalid_descriptors(&error))?)
        .add_service(reflection().build_v1alpha().map_err(|error| invalid_descriptors(&error))?)
        .prepare())
}

/// Returns the routes that are served in plain HTTP: the metrics, and the page in a server built
/// with it.
pub(super) fn plain_http(services: Arc<Services>) -> Router {
    let router = metrics(services.clone());
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
    let oldest = occupancy.oldest_lease.map_or(0, |begun_at| now().micros_since(begun_at));
    let values = GaugeValues {
        leases: occupancy.leases,
        held_claims: occupancy.held_claims,
        oldest_lease: Duration::from_micros(oldest),
        waiting: services.committer().waiting(),
        groups_at_once: services.committer().write_slots(),
        disk_bytes: occupancy.disk_bytes,
        store_failed: services.has_failed() || services.committer().is_away(),
        pool: services.store().pool().unwrap_or_default(),
    };
    services.metrics.render(values).map_err(|_| http::StatusCode::INTERNAL_SERVER_ERROR)
}
