//! The page that shows the protocol, and what was begun and settled lately for it to show: where the server was built with
//! the feature `page`, after `cargo xtask web`.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use rust_embed::RustEmbed;

use crate::grpc::Service;

/// What a page of ours may do: run itself and its wasm file, and ask its own server.
const POLICY: &str = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(RustEmbed)]
#[folder = "../wasm/visualiser/dist"]
struct Files;

/// `/` is the page, `/assets/` what it is made of, `/audit` the last leases as JSON lines.
pub(crate) fn router(service: Arc<Service>) -> Router {
    let audit = move || std::future::ready(audit(&service));
    Router::new()
        .route("/", get(async || file("index.html")))
        .route("/assets/{*name}", get(async |Path(name): Path<String>| file(&format!("assets/{name}"))))
        .route("/audit", get(audit))
}

fn file(name: &str) -> Response {
    let Some(found) = Files::get(name) else { return StatusCode::NOT_FOUND.into_response() };
    // Names of assets change with what is in them.
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

fn audit(service: &Service) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/jsonl; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    match service.committer().recent().json_lines() {
        Ok(lines) => (headers, lines).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
