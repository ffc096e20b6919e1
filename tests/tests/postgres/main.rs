//! Tests of the server with PostgreSQL as its store: conformance, startup, outages, contention,
//! monitoring, the stored format, and linearizability.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

mod bloat;
mod book_examples;
mod clocks;
mod conformance;
mod contention;
mod cuts;
mod database_log;
mod epochs;
mod failovers;
mod fences;
mod full_disk;
mod isolation;
mod linearizability;
mod link;
mod list_plan;
mod lists;
mod lock_failover;
mod lock_fight;
mod lock_rings;
mod lock_servers;
mod lock_speculation;
mod locks;
mod lost_answers;
mod monitoring;
mod multiple_hosts;
mod outage;
mod proxy;
mod queue_partitions;
mod queues;
mod schema_comments;
mod startup;
mod stored_format;
mod stores;
mod timeouts;
mod tls;
mod transfer;
mod unicode;

use std::time::{Duration, Instant};

use leasehold_core::rows::State;
use leasehold_core::store::Store;
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{BlockingStore, Creation, PostgresStore};
use leasehold_tests::client::{Client, STORE_UNAVAILABLE, Update, user};
use leasehold_tests::fight::cells;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::get;
use tokio::runtime::Runtime;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Cluster settings for tests that kill processes but simulate no power cut: the operating system
/// keeps the pages that a killed process has written, so PostgreSQL need not sync them.
const NO_SYNC: &[&str] = &["fsync=off"];

/// The version of the database schema that this version of the program creates.
const SCHEMA_VERSION: i32 = 13;

/// Starts a server with three cells on the database of this URL. `settings` are further lines of
/// the configuration's section `[postgres]`.
fn serve(url: &str, settings: &str) -> Server {
    let config = format!("[postgres]\nurl = \"{url}\"\n{settings}\n{}", cells(3));
    Server::builder().config(config).start().unwrap()
}

/// Returns a client that calls this server for cell 1.
fn client_of(runtime: &Runtime, server: &Server) -> Client {
    runtime.block_on(Client::connect(server, 1)).unwrap()
}

/// Returns an update that creates one username. It has no idempotency key.
fn create(name: impl Into<String>) -> Update {
    create_all([name.into()])
}

/// Returns an update that creates these usernames. It has no idempotency key.
fn create_all(names: impl IntoIterator<Item = String>) -> Update {
    Update { creates: names.into_iter().map(|name| user(name, 7, Vec::new())).collect(), ..Update::default() }
}

/// Opens a database session that belongs to no Leasehold server.
fn open_session(runtime: &Runtime, url: &str) -> tokio_postgres::Client {
    let (session, connection) = runtime.block_on(tokio_postgres::connect(url, tokio_postgres::NoTls)).unwrap();
    runtime.spawn(connection);
    session
}

/// Opens the PostgreSQL store on the database of this URL, as a server does at its start.
fn open_store(url: &str) -> BlockingStore {
    BlockingStore::open(PostgresStore::open(&PostgresConfig::at(url), Creation::Allowed)).unwrap()
}

/// Waits until all connections to a database are closed. Returns all rows of the database.
fn final_state(cluster: &Cluster, database: &str) -> State {
    await_no_connections(cluster, database);
    open_store(&cluster.url(database)).state().unwrap()
}

fn await_no_connections(cluster: &Cluster, database: &str) {
    let connected = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
    await_condition("all connections are closed", || cluster.execute("postgres", &connected).unwrap() == ["0"]);
}

/// Polls until a condition is true.
///
/// # Panics
/// The condition is false for two minutes; the message contains `description`.
fn await_condition(description: &str, mut is_met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_met() {
        assert!(Instant::now() < deadline, "not true after two minutes: {description}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Returns the value of a metric as text; `None` if the server's `/metrics` has no metric of this
/// name.
fn metric(runtime: &Runtime, server: &Server, name: &str) -> Option<String> {
    let (_, text) = runtime.block_on(get(server.address(), "/metrics")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
}

/// The state of the store that a server reports by its metric `leasehold_store_unavailable`, its
/// health service and `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreStatus {
    Working,
    Failed,
}

/// True if the server's metric `leasehold_store_unavailable`, its health service and `/readyz`
/// report this status. The metric `leasehold_store_failed` stays 0, because an unreachable database
/// does not count as a failed store.
fn reports(runtime: &Runtime, server: &Server, status: StoreStatus) -> bool {
    let (value, health, ready) = match status {
        StoreStatus::Working => ("0", ServingStatus::Serving, 200),
        StoreStatus::Failed => ("1", ServingStatus::NotServing, 503),
    };
    let channel = runtime.block_on(server.connect(None)).unwrap();
    let answer = runtime.block_on(HealthClient::new(channel).check(HealthCheckRequest::default())).unwrap();
    let (code, text) = runtime.block_on(get(server.address(), "/readyz")).unwrap();
    assert!(!text.contains("[-]store"), "{text}");
    assert_eq!(metric(runtime, server, "leasehold_store_failed").as_deref(), Some("0"));
    let unavailable = metric(runtime, server, "leasehold_store_unavailable");
    unavailable.as_deref() == Some(value) && answer.into_inner().status == health as i32 && code == ready
}

fn await_report(runtime: &Runtime, server: &Server, status: StoreStatus) {
    await_condition(&format!("the server reports the store as {status:?}"), || reports(runtime, server, status));
}
