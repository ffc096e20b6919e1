//! Tests of hostile and careless clients: their memory, time, connections and rights stay bounded,
//! and other callers are served meanwhile.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod abandoned;
mod answers;
mod arrival;
mod connections;
mod lists;
mod memory;
mod output;
mod protocol;
mod rights;
mod shares;
mod soak;

use std::path::Path;

use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::server::{Builder, Server};
use leasehold_tests::wire::{eventually, get};

const BEGIN: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/BeginUpdate";
const COMMIT: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/CommitUpdate";
const GET_CELLS: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/GetCells";
const LIST_RECORDS: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/ListRecords";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// Returns a field of `/proc/PID/status` in bytes: `VmRSS` is the resident memory, `VmHWM` its
/// highest value so far.
fn memory(server: &Server, field: &str) -> u64 {
    status(server, field) * 1024
}

/// Returns the number of bytes by which the highest resident memory has grown since it was
/// `before`. The kernel adds up counters that lag behind, so the value can even fall a little,
/// which counts as 0.
fn growth(server: &Server, before: u64) -> u64 {
    memory(server, "VmHWM").saturating_sub(before)
}

/// Returns the number of the server's threads.
fn thread_count(server: &Server) -> u64 {
    status(server, "Threads")
}

/// Returns the number in a field of `/proc/PID/status`.
fn status(server: &Server, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches([':', ' ', '\t']).split(' ').next().unwrap().trim().parse().unwrap()
}

/// Returns how many calls of a method the server has answered, whatever their codes.
async fn answered(address: std::net::SocketAddr, method: &str) -> f64 {
    let (_, text) = get(address, "/metrics").await.unwrap();
    let prefix = format!("leasehold_requests_total{{method=\"{method}\",");
    let lines = text.lines().filter(|line| line.starts_with(&prefix));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Waits for the banner of a server with `metrics_listen`, and returns the address of its metrics.
async fn metrics_address(server: &Server) -> std::net::SocketAddr {
    let address = async || server.stdout().split("http://").nth(1)?.split("/metrics").next()?.parse().ok();
    eventually("the banner names the address of the metrics", address).await.unwrap()
}

/// Returns the value of one of the server's metrics.
async fn metric(address: std::net::SocketAddr, name: &str) -> f64 {
    let (_, text) = get(address, "/metrics").await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("there is no {name}")).parse().unwrap()
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// Returns a server with TLS whose files lie in `directory`.
fn tls_server(directory: &Path, authority: &Authority, settings: &str) -> Builder {
    let Pair { certificate, key, .. } = authority.server().unwrap();
    write(&directory.join("server.pem"), &certificate);
    write(&directory.join("server.key"), &key);
    write(&directory.join("ca.pem"), &authority.pem());
    let at = |name: &str| directory.join(name).display().to_string();
    let tls = format!(
        "[tls]\ncertificate = '{}'\nkey = '{}'\nclient_ca = '{}'\nreload_interval_seconds = 1\n",
        at("server.pem"),
        at("server.key"),
        at("ca.pem")
    );
    Server::builder().config(format!("{settings}\n{tls}"))
}
