//! The replication of the seed article: 17 tables are captured into one queue, and a worker copies them into another
//! database.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_client::{Client, LockSession, SessionTerms, TakeTerms};
use leasehold_tests::book::{blocks, document};
use leasehold_tests::server::Server;
use leasehold_tests::wire::eventually;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::{Database, Session};

const TABLES: [&str; 17] = [
    "customers",
    "addresses",
    "phones",
    "emails",
    "orders",
    "order_lines",
    "order_notes",
    "items",
    "item_texts",
    "prices",
    "warranties",
    "warranty_notes",
    "invoices",
    "payments",
    "shipments",
    "returns",
    "coupons",
];
const WRITERS: u64 = 8;
const ROUNDS: u64 = 60;

/// Returns the SQL that makes the tables. Every third one has a key of two columns.
fn tables() -> String {
    let table = |(number, name): (usize, &&str)| match number % 3 {
        0 => {
            format!("CREATE TABLE {name} (owner text, id integer, body text, amount numeric, PRIMARY KEY (owner, id));")
        }
        _ => format!("CREATE TABLE {name} (id integer PRIMARY KEY, owner text, body jsonb, amount numeric(12, 2));"),
    };
    TABLES.iter().enumerate().map(table).collect()
}

/// Returns the SQL that captures a table with all of its columns.
fn capture((number, name): (usize, &&str)) -> String {
    let columns = if number.is_multiple_of(3) { "body,amount" } else { "owner,body,amount" };
    format!("SELECT leasehold_capture('{name}', 'orders', string_to_array('{columns}', ','), 'changes');")
}

/// The next of a sequence of numbers that look random.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// Returns a statement on one of the tables, as legacy programs and people write them.
fn statement(random: &mut u64) -> String {
    let table = TABLES[usize::try_from(next(random)).unwrap() % TABLES.len()];
    let (id, amount) = (next(random) % 40, next(random) % 1_000);
    match next(random) % 16 {
        0..=4 => {
            format!(
                "INSERT INTO {table} (owner, id, body, amount) VALUES ('o', {id}, '{{\"n\": {amount}}}', {amount}.5) ON CONFLICT DO NOTHING"
            )
        }
        5..=8 => format!("UPDATE {table} SET amount = {amount}, body = NULL WHERE id = {id}"),
        9..=10 => format!("DELETE FROM {table} WHERE id = {id}"),
        11..=12 => format!("UPDATE {table} SET amount = amount + 1 WHERE id % 3 = {}", id % 3),
        13 => format!(
            "INSERT INTO {table} (owner, id) SELECT 'many', n FROM generate_series({id}, {id} + 20) AS n ON CONFLICT DO NOTHING"
        ),
        14 => format!("UPDATE {table} SET id = id + 1000 WHERE id = {id}"),
        _ if amount < 100 => format!("TRUNCATE {table}"),
        _ => format!("DELETE FROM {table} WHERE id >= 1000"),
    }
}

/// Writes transactions of one to three statements. Some are rolled back, and some fail.
async fn write(session: Session, mut random: u64) {
    for _ in 0..ROUNDS {
        session.run("BEGIN").await.unwrap();
        let mut end = if next(&mut random).is_multiple_of(5) { "ROLLBACK" } else { "COMMIT" };
        for _ in 0..=next(&mut random) % 3 {
            if session.run(&statement(&mut random)).await.is_err() {
                end = "ROLLBACK";
                break;
            }
        }
        session.run(end).await.unwrap();
    }
}

/// Applies the changes in transactions of the copy.
async fn apply(session: LockSession, copy: Session, mut stopping: watch::Receiver<bool>) {
    let mut batches = session.take("orders", TakeTerms::default());
    loop {
        let batch =
            tokio::select! { batch = batches.next() => batch.unwrap(), _ = stopping.wait_for(|stop| *stop) => break };
        copy.run("BEGIN").await.unwrap();
        for request in batch.requests() {
            let change = std::str::from_utf8(&request.body).unwrap();
            copy.0.query("SELECT apply_change($1::text::json)", &[&change]).await.unwrap();
        }
        copy.run("COMMIT").await.unwrap();
        batch.complete().await.unwrap();
    }
    session.close().await.unwrap();
}

/// Starts a worker on a server.
async fn worker(server: &Server, copy: Session) -> (watch::Sender<bool>, JoinHandle<()>) {
    let client =
        Client::builder(format!("http://{}", server.address())).timeout(Duration::from_secs(60)).build().unwrap();
    let terms = SessionTerms { duration: Duration::from_secs(60), grace: Duration::from_secs(10) };
    let (stop, stopping) = watch::channel(false);
    let session = client.lock_session(terms).await.unwrap();
    (stop, tokio::spawn(apply(session, copy, stopping)))
}

/// All rows of each table, as text.
async fn contents(session: &Session) -> BTreeMap<&'static str, String> {
    let mut contents = BTreeMap::new();
    for table in TABLES {
        let rows = format!("SELECT coalesce(json_agg(row_to_json(t) ORDER BY owner, id)::text, '') FROM {table} AS t");
        contents.insert(table, session.get(&rows).await);
    }
    contents
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_q15_q21_seventeen_tables_are_copied_row_for_row_while_programs_write_and_servers_die() {
    let database = Database::new().await;
    let source = database.connect().await;
    source.run("DROP TABLE rows").await.unwrap();
    source.run("CREATE DATABASE copy").await.unwrap();
    source.run(leasehold_core::outbox::CAPTURE_SQL).await.unwrap();
    source.run(&tables()).await.unwrap();
    source.run(&TABLES.iter().enumerate().map(capture).collect::<String>()).await.unwrap();
    let copy = database.connect_to("copy").await;
    copy.run(&tables()).await.unwrap();
    let apply_change = blocks(&document("docs/src/concepts/queues.md").unwrap(), "sql").pop().unwrap();
    copy.run(&apply_change).await.unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!("[[relays]]\nname = \"orders\"\nurl = \"{}\"\n", database.0.url("postgres"));
    let mut server = Server::builder().config(config).listen(format!("127.0.0.1:{port}")).start().unwrap();
    let (stop, working) = worker(&server, database.connect_to("copy").await).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(database.connect().await, writer));
    }
    let is_copied = async || (contents(&copy).await == contents(&source).await).then_some(());
    writers.join_next().await.unwrap().unwrap();
    server.restart().unwrap();
    writers.join_all().await;
    let (before, after) = (contents(&source).await, eventually("the tables are copied", is_copied).await);
    after.unwrap_or_else(|error| panic!("{error}\n{}", server.stderr()));
    assert!(before.values().filter(|rows| !rows.is_empty()).count() > 10, "the tables have rows: {before:?}");
    stop.send_replace(true);
    working.await.unwrap();
}
