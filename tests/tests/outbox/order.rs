//! The order of what is relayed contradicts no commit (Q21).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use super::{ALL, Database, Relayed, Session, keys};

const WRITERS: u64 = 8;
const TRANSACTIONS: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn q21_a_transaction_that_waited_for_a_row_comes_later_though_its_id_is_smaller() {
    let database = Database::new().await;
    let (first, second, relay) = (database.connect().await, database.connect().await, database.connect().await);
    second.run("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    second.submit("second, before its wait").await;
    first.run("BEGIN; UPDATE rows SET version = 1 WHERE id = 1").await.unwrap();
    let waiting = tokio::spawn(async move {
        second.run("UPDATE rows SET version = version + 1 WHERE id = 1").await.unwrap();
        second.submit("second").await;
        second.run("COMMIT").await.unwrap();
    });
    first.submit("first").await;
    first.run("COMMIT").await.unwrap();
    waiting.await.unwrap();
    assert_eq!(relay.relayed_keys().await, ["first", "second, before its wait", "second"]);
}

/// A transaction of a writer, on the test's own clock.
#[derive(Clone, Copy, Debug)]
struct Span {
    begun: i64,
    committed: i64,
}

/// The ticks of the test's own clock, which orders what happens at different connections.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn tick(&self) -> i64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// Writes transactions that change some rows, and submit each change with its row's new version. Returns those that
/// committed.
async fn write(session: &Session, seed: u64, clock: &Clock) -> BTreeMap<String, Span> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut spans = BTreeMap::new();
    for number in 0..TRANSACTIONS {
        let name = format!("{seed}-{number}");
        let begun = clock.tick();
        session.run("BEGIN").await.unwrap();
        if random.random_bool(0.3) {
            session.run("SELECT pg_current_xact_id()").await.unwrap();
        }
        match change_rows(session, &name, &mut random).await {
            Ok(()) if random.random_bool(0.9) => {
                session.run("COMMIT").await.unwrap();
                spans.insert(name, Span { begun, committed: clock.tick() });
            }
            _ => session.run("ROLLBACK").await.unwrap(),
        }
    }
    spans
}

/// Changes one to three rows. Some changes are taken back by a savepoint. A deadlock is an error.
async fn change_rows(session: &Session, name: &str, random: &mut StdRng) -> Result<(), String> {
    for step in 0..random.random_range(1..=3) {
        let change = format!(
            "WITH changed AS (UPDATE rows SET version = version + 1 WHERE id = {} RETURNING id, version) \
             SELECT leasehold_submit('q', id::text, convert_to('{name} {step} ' || version, 'UTF8')) FROM changed",
            random.random_range(1..=6)
        );
        if random.random_bool(0.2) {
            session.run("SAVEPOINT step").await?;
            session.run(&change).await?;
            session.run("ROLLBACK TO SAVEPOINT step").await?;
        }
        session.run(&change).await?;
    }
    Ok(())
}

/// Relays until the writers have ended, and what they have left then.
pub(super) async fn relay_beside(relay: &Session, writers: &AtomicI64) -> Vec<Relayed> {
    let mut rows = Vec::new();
    while writers.load(Ordering::SeqCst) > 0 {
        rows.extend(relay.relay((7, 1_000)).await);
        relay.run("SELECT leasehold_outbox_rotate(20000)").await.unwrap();
    }
    rows.extend(relay.relay(ALL).await);
    rows
}

/// The transaction, the step and the row's version that a request tells of.
fn parse(row: &Relayed) -> (String, i32, i32) {
    let body = String::from_utf8(row.body.clone()).unwrap();
    let words: Vec<_> = body.split(' ').collect();
    (words[0].to_owned(), words[1].parse().unwrap(), words[2].parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn q21_changes_of_eight_writers_arrive_in_an_order_that_contradicts_no_commit() {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let database = Database::with_settings(&["fsync=off", "deadlock_timeout=20ms"]).await;
    let (clock, running) = (Clock::default(), Arc::new(AtomicI64::new(0)));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (session, clock, running) = (database.connect().await, clock.clone(), running.clone());
        running.fetch_add(1, Ordering::SeqCst);
        writers.spawn(async move {
            let spans = write(&session, seed * WRITERS + writer, &clock).await;
            running.fetch_sub(1, Ordering::SeqCst);
            spans
        });
    }
    let relay = database.connect().await;
    let rows = relay_beside(&relay, &running).await;
    let spans: BTreeMap<_, _> = writers.join_all().await.into_iter().flatten().collect();
    check_versions(&rows, &relay).await;
    check_transactions(&rows, &spans);
}

/// Checks that the versions of each row arrive one by one, and all of them.
async fn check_versions(rows: &[Relayed], session: &Session) {
    let mut versions = BTreeMap::new();
    for row in rows {
        let (_, _, version) = parse(row);
        let before = versions.insert(row.key.clone(), version).unwrap_or(0);
        assert_eq!(version, before + 1, "row {}", row.key);
    }
    let total: i64 = session.get("SELECT sum(version) FROM rows").await;
    assert_eq!(usize::try_from(total).unwrap(), rows.len());
    assert!(rows.len() > 500, "the writers got little done: {}", rows.len());
}

/// Checks that each transaction arrives as a whole, its steps in order, and after those that committed before it began.
fn check_transactions(rows: &[Relayed], spans: &BTreeMap<String, Span>) {
    let mut arrived: Vec<(String, Vec<i32>)> = Vec::new();
    for row in rows {
        let (name, step, _) = parse(row);
        match arrived.last_mut() {
            Some((last, steps)) if *last == name => steps.push(step),
            _ => arrived.push((name, vec![step])),
        }
    }
    assert_eq!(arrived.len(), spans.len(), "a transaction is missing, or arrived in parts");
    let mut newest_begun = 0;
    for (name, steps) in &arrived {
        assert!(steps.iter().copied().eq(0..i32::try_from(steps.len()).unwrap()), "{name}: {steps:?}");
        let span = spans[name];
        assert!(newest_begun <= span.committed, "{name} arrived behind one that began after its commit: {span:?}");
        newest_begun = newest_begun.max(span.begun);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q21_statements_of_a_transaction_stay_in_order_on_both_sides_of_a_rotation() {
    let database = Database::new().await;
    let (front, other, relay) = (database.connect().await, database.connect().await, database.connect().await);
    front.run("BEGIN").await.unwrap();
    front.submit("1").await;
    other.submit("other").await;
    assert_eq!(relay.get::<Option<String>>("SELECT leasehold_outbox_rotate(1)").await.as_deref(), Some("switched"));
    front.submit("2").await;
    front.run("COMMIT").await.unwrap();
    other.submit("last").await;
    let rows = relay.relay((1, 1)).await;
    assert_eq!(keys(&rows), ["other", "1", "2", "last"]);
    assert_eq!(relay.get::<i64>("SELECT count(DISTINCT part) FROM leasehold_outbox").await, 2);
}
