//! Tests of a database whose disk is full: calls are refused in time, and the store is back only once
//! it accepts writes.

use std::time::{Duration, Instant};

use leasehold_tests::client::{Client, Update};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::wire::{Refusal, leasehold};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::{
    NO_SYNC, STORE_UNAVAILABLE, StoreStatus, await_condition, await_report, client_of, create, create_all, reports,
    serve,
};

/// The longest time that a refusal may take in addition to `patience_seconds`.
const SLACK: Duration = Duration::from_secs(4);

/// A function that stands for a full disk: it fails with the SQLSTATE of a full disk, and counts its
/// calls in a sequence, which no rollback resets.
const FULL_DISK: &str = "CREATE SEQUENCE tries;
    CREATE FUNCTION fail() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        PERFORM nextval('tries');
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END $$;
    CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM fail();
    END $$";
/// No lease is written.
const NO_LEASES: &str = "CREATE TRIGGER full_disk BEFORE INSERT ON claim_leases
    FOR EACH STATEMENT EXECUTE FUNCTION full_disk()";
/// No lease of more than a hundred claims is written.
const NO_LARGE_LEASES: &str = "CREATE TRIGGER full_disk BEFORE INSERT ON claim_leases
    FOR EACH ROW WHEN (cardinality(NEW.bucket_types) > 100) EXECUTE FUNCTION full_disk()";
/// No table is filled. A server fills one to see if the disk has room.
const NO_ROOM: &str = "CREATE FUNCTION no_room() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM fail();
    END $$;
    CREATE EVENT TRIGGER no_room ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION no_room()";

fn tries(cluster: &Cluster, database: &str) -> u64 {
    cluster.execute(database, "SELECT last_value FROM tries").unwrap()[0].parse().unwrap()
}

/// Returns an update that the triggers take for a large one.
fn large(round: usize) -> Update {
    create_all((0..1_000).map(|number| format!("large-{round}-{number}")))
}

/// Begins an update, which is refused as the disk is full. Returns the time that this took.
async fn refused(mut client: Client, update: Update) -> Duration {
    let start = Instant::now();
    let refusal = Refusal::of(&client.begin(update).await.unwrap_err());
    assert_eq!(refusal.code_and_reason(), STORE_UNAVAILABLE, "{}", refusal.message);
    assert!(refusal.message.contains("(53100)"), "{}", refusal.message);
    start.elapsed()
}

#[test]
fn a_full_disk_of_the_database_is_reported_at_once_and_no_group_is_split() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), "patience_seconds = 1");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    cluster.execute(&database, FULL_DISK).unwrap();
    cluster.execute(&database, NO_LEASES).unwrap();
    let mut begins = JoinSet::new();
    for number in 0..400 {
        let mut client = client.clone();
        begins.spawn_on(async move { client.begin(create(format!("full-{number}"))).await }, runtime.handle());
    }
    let refused = runtime.block_on(begins.join_all());
    assert!(reports(&runtime, &server, StoreStatus::Failed), "the health follows the first refusal");
    for answer in refused {
        let refusal = Refusal::of(&answer.unwrap_err());
        assert_eq!(refusal.code_and_reason(), STORE_UNAVAILABLE, "{}", refusal.message);
        assert!(refusal.message.contains("(53100)"), "{}", refusal.message);
    }
    let tries = tries(&cluster, &database);
    assert!(tries < 100, "400 commands were tried {tries} times");
    cluster.execute(&database, "DROP TRIGGER full_disk ON claim_leases").unwrap();
    await_report(&runtime, &server, StoreStatus::Working);
    runtime.block_on(client.begin(create("with-room"))).unwrap();
}

/// The patience is longer than the time after which a writer checks if the disk has room.
#[test]
fn a_lone_large_begin_is_answered_and_the_store_stays_away_until_it_has_room() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let patience = Duration::from_secs(7);
    let server = serve(&cluster.url(&database), "patience_seconds = 7");
    let (runtime, back) = (Runtime::new().unwrap(), || server.stderr().matches("the store is back").count());
    let client = client_of(&runtime, &server);
    [FULL_DISK, NO_LARGE_LEASES, NO_ROOM].iter().for_each(|sql| drop(cluster.execute(&database, sql).unwrap()));
    let took = runtime.block_on(refused(client.clone(), large(0)));
    assert!(took < patience + SLACK, "the begin took {took:?}");

    // Small writes are possible, but a writer finds no room.
    let before = tries(&cluster, &database);
    await_condition("a writer looks for room", || tries(&cluster, &database) > before);
    assert!(reports(&runtime, &server, StoreStatus::Failed));
    assert_eq!(back(), 0, "{}", server.stderr());
    let examined = runtime.block_on(leasehold(["doctor", "--store", &cluster.url(&database)])).unwrap();
    let examined = String::from_utf8(examined.stdout).unwrap();
    let line = examined.lines().find(|line| line.starts_with("fail  durable write  "));
    assert!(line.is_some_and(|line| line.contains("No space left on device (53100)")), "{examined}");
    cluster.execute(&database, "DROP EVENT TRIGGER no_room; DROP TRIGGER full_disk ON claim_leases").unwrap();
    await_report(&runtime, &server, StoreStatus::Working);
    assert!(server.has_logged("the store is back"), "{}", server.stderr());
    assert_eq!(back(), 1, "{}", server.stderr());
    runtime.block_on(client.clone().begin(large(1))).unwrap();
}

#[test]
fn the_store_stays_away_while_small_begins_succeed_beside_large_ones_that_fail() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let patience = Duration::from_secs(1);
    let server = serve(&cluster.url(&database), "patience_seconds = 1");
    let (runtime, back) = (Runtime::new().unwrap(), || server.stderr().matches("the store is back").count());
    let client = client_of(&runtime, &server);
    [FULL_DISK, NO_LARGE_LEASES].iter().for_each(|sql| drop(cluster.execute(&database, sql).unwrap()));
    runtime.block_on(refused(client.clone(), large(0)));
    let mut small = 0;
    for round in 1..4 {
        let failing = runtime.spawn(refused(client.clone(), large(round)));
        while !failing.is_finished() {
            small += 1;
            let start = Instant::now();
            // A small begin in one group with a large one may be refused with it.
            let _ = runtime.block_on(client.clone().begin(create(format!("small-{small}"))));
            assert!(start.elapsed() < patience + SLACK, "a small begin took {:?}", start.elapsed());
        }
        let took = runtime.block_on(failing).unwrap();
        assert!(took < patience + SLACK, "the begin took {took:?}");
        assert!(reports(&runtime, &server, StoreStatus::Failed), "the store is back after {round} large begins");
    }
    assert_eq!(back(), 0, "{}", server.stderr());
    await_report(&runtime, &server, StoreStatus::Working);
    runtime.block_on(client.clone().begin(create("after"))).unwrap();
}
