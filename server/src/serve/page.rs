//! The routes of the web page that visualises the protocol, and of the last audit events, which the
//! page shows. A server serves the page if it was built with the feature `page`, after `cargo xtask
//! web`.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use rust_embed::RustEmbed;

use crate::grpc::Services;

/// The content security policy of the page. It lets the page run its own scripts and WebAssembly,
/// and call its own server.
const POLICY: &str = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(RustEmbed)]
#[folder = "../wasm/visualiser/dist"]
struct Files;

/// Returns the routes of the page: `/` is the page, `/assets/` has its scripts and images, `/audit`
/// returns the last audit events as JSON lines.
pub(super) fn router(services: Arc<Services>) -> Router {
    let audit = move || std::future::ready(audit(&services));
    Router::new()
        .route("/", get(async || file("index.html")))
        .route("/assets/{*name}", get(async |Path(name): Path<String>| file(&format!("assets/{name}"))))
        .route("/audit", get(audit))
}

fn file(name: &str) -> Response {
    let Some(found) = Files::get(name) else { return StatusCode::NOT_FOUND.into_response() };
    // The name of an asset contains a hash of the asset's content, so a cached copy never becomes
    // stale.
    let kept = if name.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = [
        (header::CONTENT_TYPE, found.metadata.mimetype()),
        (header::CACHE_CONTROL, kept),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, found.data.into_owned()).into_response()
}

fn audit(services: &Services) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/jsonl; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (headers, services.audit.recent_json_lines()).into_response()
}
