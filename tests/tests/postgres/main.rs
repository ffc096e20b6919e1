//! PostgreSQL as the store: the suite of every store, servers that share a database, and a database that goes away.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it does not expect"
)]

mod away;
mod bloat;
mod book;
mod comments;
mod discretion;
mod fight;
mod given_up;
mod history;
mod hosts;
mod isolation;
mod neighbours;
mod order;
mod proxy;
mod start;
mod store;
mod stored;
mod tls;
mod watch;

use std::fmt::Write;

use leasehold_core::rows::State;
use leasehold_core::store::Store;
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{BlockingStore, PostgresStore};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::get;
use tokio::runtime::Runtime;

/// Settings of a cluster: its processes may be killed, its machine is not, so that what they have written is not lost.
const NO_SYNC: &[&str] = &["fsync=off"];

/// The version of the tables that this program makes.
const TABLES: i32 = 1;

/// A configuration with the cells from 1 on.
fn cells(count: i64) -> String {
    (1..=count).fold(String::new(), |mut text, id| {
        writeln!(text, "[[cells]]\nid = {id}\nname = \"cell-{id}\"\naddress = \"http://127.0.0.1:{}\"", 3000 + id)
            .unwrap();
        text
    })
}

/// A session of somebody else's.
fn connect(runtime: &Runtime, url: &str) -> tokio_postgres::Client {
    let (database, connection) = runtime.block_on(tokio_postgres::connect(url, tokio_postgres::NoTls)).unwrap();
    runtime.spawn(connection);
    database
}

/// A writer and the reader of a database, as a server has them.
fn writer(url: &str) -> BlockingStore {
    BlockingStore::open(PostgresStore::open(&PostgresConfig::at(url))).unwrap()
}

/// All that is in a database, once nobody is connected to it any more.
fn final_state(cluster: &Cluster, database: &str) -> State {
    await_nobody(cluster, database);
    writer(&cluster.url(database)).state().unwrap()
}

fn await_nobody(cluster: &Cluster, database: &str) {
    let connected = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
    await_condition("nobody is connected", || cluster.execute("postgres", &connected).unwrap() == ["0"]);
}

/// Waits for something that has to come about.
fn await_condition(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "it does not come about that {what}");
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
}

/// The value of a metric, as it is written.
fn metric(runtime: &Runtime, server: &Server, name: &str) -> Option<String> {
    let (_, text) = runtime.block_on(get(server.address(), "/metrics")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
}
