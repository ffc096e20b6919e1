//! Tests of the partitions that keep the history of queues: they are added ahead, and leave as a whole once all of
//! their requests are forgotten.

use std::process::Command as Program;

use leasehold_core::command::{Command, Reply};
use leasehold_core::queue::RequestId;
use leasehold_core::queueing::forget::ForgetRequest;
use leasehold_core::queueing::submit::Submitted;
use leasehold_core::queueing::{QueueCommand, QueueReply};
use leasehold_core::rows::State;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{BlockingStore, Creation, PostgresStore, StoreError};
use leasehold_tests::postgres::Cluster;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::queues::{complete, decided, open, run, submit_all, take, taken};
use crate::{NO_SYNC, await_condition, open_session, open_store, serve};

/// The time of the tests, in milliseconds since 1970: some minutes after the begin of a partition in the year 2030.
const START: u64 = 1_900_002_000_000;
const MINUTE: u64 = 60 * 1_000;
const HOUR: u64 = 60 * MINUTE;
/// The length of a partition: there are eight for the ids of the next 48 hours.
const LENGTH: u64 = 6 * HOUR;
/// The number of partitions that a first shift adds: that of its time, and those of the next 48 hours.
const AHEAD: u64 = 9;
const REQUESTS: u64 = 3_000;

/// Returns a UUIDv7 of this time.
fn id_at(millis: u64, number: u64) -> RequestId {
    RequestId(Uuid::from_u128(u128::from(millis) << 80 | 7 << 76 | 2 << 62 | u128::from(number)))
}

/// A database with the tables of a store.
struct World {
    cluster: Cluster,
    database: String,
}

impl World {
    fn new(settings: &[&str]) -> Self {
        let cluster = Cluster::start(settings).unwrap();
        let database = cluster.database().unwrap();
        drop(open_store(&cluster.url(&database)));
        Self { cluster, database }
    }

    fn store(&self) -> BlockingStore {
        open_store(&self.cluster.url(&self.database))
    }

    fn query(&self, sql: &str) -> Vec<String> {
        self.cluster.execute(&self.database, sql).unwrap()
    }

    /// Shifts the partitions as at this time. Returns the number of partitions that were added or dropped.
    fn shift(&self, millis: u64) -> u64 {
        self.shift_of(millis, "1 hour")
    }

    /// Shifts as a server does whose partitions have this period.
    fn shift_of(&self, millis: u64, period: &str) -> u64 {
        let sql = shift_of_sql(millis, period);
        let changes = std::iter::repeat_with(|| self.query(&sql)).take_while(|answer| is_change(&answer[0]));
        changes.count() as u64
    }

    /// Creates a procedure that shifts until there is nothing to do, each change in a transaction of its own.
    fn create_shift_all(&self) {
        self.query(
            "CREATE PROCEDURE shift_all(millis bigint, period interval) LANGUAGE plpgsql AS $$ BEGIN
                WHILE shift_request_partitions(to_timestamp(millis / 1000.0), period) IN ('added', 'dropped') LOOP
                    COMMIT;
                END LOOP;
             END $$",
        );
    }

    /// Returns the ends of the names of the partitions but that of ids without a time, by time.
    fn partitions(&self) -> Vec<String> {
        self.query("SELECT suffix FROM request_partitions() WHERE suffix <> 'beyond' ORDER BY first_millis")
    }

    /// Returns the bytes of the settled requests and of all bodies on disk, with indexes.
    fn size(&self) -> u64 {
        let tree = |table| format!("SELECT relid FROM pg_partition_tree('{table}')");
        let (settled, bodies) = (tree("settled_requests"), tree("request_bodies"));
        let sql = format!("SELECT sum(pg_total_relation_size(relid)) FROM ({settled} UNION ALL {bodies}) AS t");
        self.query(&sql)[0].parse().unwrap()
    }

    /// Returns the end of the name of the partition that has the body of a request.
    fn partition_of(&self, id: RequestId) -> String {
        let sql = format!("SELECT substr(tableoid::regclass::text, 16) FROM request_bodies WHERE uuid = '{}'", id.0);
        self.query(&sql).remove(0)
    }
}

fn shift_sql(millis: u64) -> String {
    shift_of_sql(millis, "1 hour")
}

fn shift_of_sql(millis: u64, period: &str) -> String {
    format!("SELECT shift_request_partitions(to_timestamp({millis}::float8 / 1000::float8), interval '{period}')")
}

fn is_change(result: &str) -> bool {
    matches!(result, "added" | "dropped")
}

/// Takes all requests of the lane "7" and completes them.
fn work(store: &mut BlockingStore) {
    while let Some(Reply::Queue(QueueReply::Taken(Some(found)))) = run(store, &[take(1, rand::random(), "7")]) {
        run(store, &[complete(1, found.fence.0)]);
    }
}

fn forget(store: &mut BlockingStore, ids: &[RequestId]) {
    let settled_before = Timestamp::MAX;
    let forget = |request: &RequestId| {
        Command::Queue(QueueCommand::ForgetRequest(ForgetRequest { request: *request, settled_before }))
    };
    let (changes, _) = decided(store, &ids.iter().map(forget).collect::<Vec<_>>());
    store.save(&changes).unwrap();
}

#[test]
fn q16_the_size_returns_once_all_requests_are_forgotten() {
    // Autovacuum could shrink the tables too.
    let world = World::new(&["fsync=off", "autovacuum=off"]);
    let mut store = world.store();
    assert_eq!(world.shift(START), AHEAD);
    let (empty, first) = (world.size(), world.partitions());
    let ids: Vec<_> = (0..REQUESTS).map(|number| id_at(START + number, number)).collect();
    run(&mut store, &[open(1)]);
    ids.chunks(1_000).for_each(|ids| drop(run(&mut store, &[submit_all(ids.iter().copied(), "7")])));
    work(&mut store);
    assert_eq!(world.query("SELECT count(*) FROM settled_requests"), [REQUESTS.to_string()]);

    // The second partition is empty, and all of its time is past. Two are added.
    assert_eq!(world.shift(START + 2 * LENGTH + HOUR), 3);
    assert_eq!(world.partitions()[0], first[0]);
    ids.chunks(500).for_each(|ids| forget(&mut store, ids));
    let full = world.size();
    assert!(full > empty + 100 * REQUESTS, "{full} bytes after {empty}: the requests leave too little");
    assert_eq!(world.shift(START + 2 * LENGTH + HOUR), 1);
    assert_eq!(world.size(), empty);
    println!("{empty} bytes when empty, {full} after {REQUESTS} requests, {empty} after the shift");
}

/// Q09: the id of a request finds it in each partition, whatever the id is, and also if another server decides.
#[test]
fn q09_q16_ids_of_all_kinds_are_unique_across_partitions() {
    let world = World::new(NO_SYNC);
    world.shift(START);
    let mut stores = [world.store(), world.store()];
    run(&mut stores[0], &[open(1)]);
    let random = RequestId("f47ac10b-58cc-4372-a567-0e02b2c3d479".parse().unwrap());
    let (now, later) = (id_at(START, 1), id_at(START + 96 * HOUR, 2));
    let ids = [RequestId(Uuid::nil()), random, now, later, RequestId(Uuid::max())];
    for id in ids {
        let (late, _) = decided(&stores[1], &[submit_all([id], "8")]);
        run(&mut stores[0], &[submit_all([id], "7")]);
        work(&mut stores[0]);
        let refused = stores[1].save(&late);
        assert!(matches!(refused, Err(StoreError::Conflict(_))), "{id:?}: {refused:?}");
    }
    let first = world.partitions().remove(0);
    assert_eq!(ids.map(|id| world.partition_of(id)), ["default", "beyond", first.as_str(), "default", "beyond"]);
    world.shift(START + 96 * HOUR);
    for id in ids {
        let again = run(&mut stores[1], &[submit_all([id], "7")]);
        let known = Submitted { request: id, is_new: false };
        assert_eq!(again, Some(Reply::Queue(QueueReply::Submitted(vec![known]))));
        assert_eq!(world.query(&format!("SELECT uuid FROM read_requests(ARRAY['{}'::uuid])", id.0)).len(), 1);
    }
}

#[test]
fn q16_ids_that_came_before_their_partition_stay_in_the_default_partition() {
    let world = World::new(NO_SYNC);
    let mut store = world.store();
    let (early, late) = (id_at(START, 1), id_at(START + 1, 2));
    run(&mut store, &[submit_all([early], "7")]);
    assert_eq!((world.shift(START), world.shift(START)), (AHEAD, 0));
    run(&mut store, &[submit_all([late], "7")]);
    assert_eq!([early, late].map(|id| world.partition_of(id)), ["default".to_owned(), world.partitions().remove(0)]);
}

#[test]
fn q16_of_two_servers_that_shift_at_once_one_does() {
    let world = World::new(NO_SYNC);
    let runtime = Runtime::new().unwrap();
    let session = open_session(&runtime, &world.cluster.url(&world.database));
    runtime.block_on(session.batch_execute(&format!("BEGIN; {}", shift_sql(START)))).unwrap();
    assert_eq!(world.query(&shift_sql(START)), ["busy"]);
    runtime.block_on(session.batch_execute("COMMIT")).unwrap();
    assert_eq!((world.shift(START), world.partitions().len() as u64), (AHEAD - 1, AHEAD));
    let later = START + 2 * LENGTH + HOUR;
    let mut changed = std::thread::scope(|scope| {
        let shifts = [0; 4].map(|_| scope.spawn(|| world.shift(later)));
        shifts.into_iter().map(|shift| shift.join().unwrap()).sum::<u64>()
    });
    changed += world.shift(later);
    assert_eq!((changed, world.partitions().len() as u64), (4, AHEAD));
}

#[test]
fn q16_a_table_in_use_delays_the_shift_only() {
    let world = World::new(NO_SYNC);
    let (runtime, mut store) = (Runtime::new().unwrap(), world.store());
    let session = open_session(&runtime, &world.cluster.url(&world.database));
    runtime.block_on(session.batch_execute("BEGIN; SELECT FROM request_bodies")).unwrap();
    assert_eq!(world.query(&shift_sql(START)), ["locked"]);
    run(&mut store, &[open(1), submit_all([id_at(START, 1)], "7")]);
    taken(run(&mut store, &[take(1, 1, "7")]));
    runtime.block_on(session.batch_execute("COMMIT")).unwrap();
    assert_eq!(world.shift(START), AHEAD);
}

/// Operators would take an error in the log of the database for a fault.
#[test]
fn q16_a_table_in_use_is_no_error_of_the_database() {
    let world = World::new(NO_SYNC);
    let runtime = Runtime::new().unwrap();
    let session = open_session(&runtime, &world.cluster.url(&world.database));
    let tables = ["settled_requests", "request_bodies_default"];
    for (table, mode) in tables.iter().flat_map(|table| [(table, "ACCESS SHARE"), (table, "SHARE UPDATE EXCLUSIVE")]) {
        runtime.block_on(session.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN {mode} MODE"))).unwrap();
        assert_eq!(world.query(&shift_sql(START)), ["locked"], "{table} {mode}");
        runtime.block_on(session.batch_execute("COMMIT")).unwrap();
    }
    let log = world.cluster.log().unwrap();
    assert!(!log.contains("ERROR"), "{log}");
}

/// Autovacuum often holds the partition whose rows were just deleted. Its lock is that of a VACUUM.
#[test]
fn q16_a_partition_in_use_delays_its_own_drop_only() {
    let world = World::new(NO_SYNC);
    world.shift(START);
    let (runtime, first) = (Runtime::new().unwrap(), world.partitions());
    let session = open_session(&runtime, &world.cluster.url(&world.database));
    let lock = format!("BEGIN; LOCK TABLE request_bodies_{} IN SHARE UPDATE EXCLUSIVE MODE", first[0]);
    runtime.block_on(session.batch_execute(&lock)).unwrap();
    let later = START + 2 * LENGTH + HOUR;
    assert_eq!(world.shift(later), 3);
    let mut left = first.clone();
    left.remove(1);
    assert_eq!(world.partitions()[..left.len()], left);
    runtime.block_on(session.batch_execute("COMMIT")).unwrap();
    assert_eq!((world.shift(later), world.partitions()[0] == first[2]), (1, true));
}

/// Groups must pass between two changes, so each is a transaction of its own. No search of a partition runs under a lock.
#[test]
fn q16_a_call_makes_one_change() {
    let world = World::new(NO_SYNC);
    let count = || world.partitions().len() as u64;
    (1..=AHEAD)
        .for_each(|number| assert_eq!((world.query(&shift_sql(START)), count()), (vec!["added".to_owned()], number)));
    assert_eq!(world.query(&shift_sql(START)), ["done"]);
    let later = START + 2 * LENGTH + HOUR;
    let results: Vec<_> = (0..5).flat_map(|_| world.query(&shift_sql(later))).collect();
    assert_eq!(results, ["added", "added", "dropped", "dropped", "done"]);
}

/// PostgreSQL scans the default partitions under a lock, so large ones keep partitions from being added.
#[test]
fn q16_large_default_partitions_are_told_and_logged() {
    let world = World::new(NO_SYNC);
    world.query(
        "INSERT INTO request_bodies SELECT first_request_id(number), convert_to(repeat(md5(number::text), 60), 'UTF8')
         FROM generate_series(1, 20000) AS number",
    );
    assert_eq!(world.query(&shift_sql(START)), ["full"]);
    let server = serve(&world.cluster.url(&world.database), "");
    await_condition("the server warns", || server.stderr().contains("a larger max_scan"));
    assert_eq!(world.partitions().len(), 0);
    let larger = format!("SELECT shift_request_partitions(to_timestamp({START} / 1000.0), '1 hour', 1000000000)");
    assert_eq!(world.query(&larger), ["added"]);
}

/// The function runs with the rights of the owner, and other roles may create functions that fit better.
#[test]
fn q16_no_function_of_another_role_runs_with_the_rights_of_the_owner() {
    let world = World::new(NO_SYNC);
    world.query("CREATE ROLE mallory; GRANT CREATE ON SCHEMA public TO mallory");
    for (name, arguments, result) in [
        ("substr", "name, integer", "text"),
        ("format", "text, text, text", "text"),
        ("format", "text, text, text, text", "text"),
        ("format", "text, text, text, uuid, uuid", "text"),
        ("to_timestamp", "numeric", "timestamptz"),
        ("pg_relation_size", "text", "bigint"),
        ("num_nonnulls", "uuid, uuid", "integer"),
        ("times", "numeric, integer", "numeric"),
        ("times", "bigint, numeric", "bigint"),
        ("times", "oid, regclass", "boolean"),
        ("times", "name, text", "boolean"),
    ] {
        world.query(&format!(
            "SET ROLE mallory; CREATE FUNCTION {name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'ran as %', current_user; END $$"
        ));
    }
    for (operator, left, right) in
        [("*", "numeric", "integer"), ("/", "bigint", "numeric"), ("=", "oid", "regclass"), ("=", "name", "text")]
    {
        world.query(&format!(
            "SET ROLE mallory; CREATE OPERATOR {operator} (FUNCTION = times, LEFTARG = {left}, RIGHTARG = {right})"
        ));
    }
    assert_eq!((world.shift(START), world.shift(START + 2 * LENGTH + HOUR)), (AHEAD, 4));
}

#[test]
fn q16_servers_with_different_retentions_share_the_partitions() {
    let world = World::new(NO_SYNC);
    assert_eq!((world.shift_of(START + 5 * HOUR, "1 hour"), world.partitions().len() as u64), (AHEAD, AHEAD));
    for period in ["6 hours", "1 hour", "6 hours", "1 hour"] {
        assert_eq!(world.shift_of(START + 5 * HOUR, period), 0, "{period}");
    }
    let later = START + 11 * HOUR;
    let changes = ["1 hour", "6 hours", "180 hours", "1 hour", "6 hours", "180 hours"];
    let changes = changes.map(|period| world.shift_of(later, period));
    assert_eq!(changes[3..], [0, 0, 0], "{changes:?}");
}

/// A partition is added again and again as its first part becomes free, unless short ones are refused.
#[test]
fn q16_no_partition_is_shorter_than_a_quarter() {
    let world = World::new(NO_SYNC);
    let at = START - START % LENGTH;
    let ids = (0..18).map(|number| id_at(at + number * 20 * MINUTE, number));
    ids.for_each(|id| drop(world.query(&format!("INSERT INTO request_bodies VALUES ('{}', 'x')", id.0))));
    for _ in 0..18 {
        world
            .query("DELETE FROM request_bodies WHERE uuid = (SELECT uuid FROM request_bodies ORDER BY 1 DESC LIMIT 1)");
        world.shift(at);
    }
    let shortest = "SELECT min(end_millis - first_millis) FROM request_partitions()";
    assert!(world.query(shortest)[0].parse::<u64>().unwrap() >= LENGTH / 4);
    assert!(world.partitions().len() as u64 <= AHEAD + 3, "{:?}", world.partitions());
}

/// The ids of a client whose clock is ahead must not be in the way of partitions.
#[test]
fn q16_a_clock_ahead_keeps_few_requests_out_of_their_partition() {
    const MINUTES: u64 = 12 * 60;
    let world = World::new(NO_SYNC);
    world.create_shift_all();
    world.query(&format!(
        "DO $$ DECLARE at bigint; BEGIN FOR minute IN 0 .. {MINUTES} LOOP
            at := {START} + minute * {MINUTE}::bigint;
            INSERT INTO request_bodies VALUES (first_request_id(at), 'x'), (first_request_id(at + 13 * {HOUR}), 'x');
            COMMIT;
            CALL shift_all(at, interval '6 hours');
         END LOOP; END $$"
    ));
    // The first id from the future came before its partition, which begins after it. The ids of the part before it, less
    // than a quarter of a partition, have none.
    let outside: u64 = world.query("SELECT count(*) FROM request_bodies_default")[0].parse().unwrap();
    assert!(outside < 2 + LENGTH / 4 / MINUTE, "{outside} requests are in no partition");
    assert!(world.partitions().len() as u64 <= AHEAD + 2, "{:?}", world.partitions());
}

#[test]
fn q16_a_period_below_a_minute_is_refused() {
    let world = World::new(NO_SYNC);
    for period in ["0 seconds", "59 seconds", "-1 hours"] {
        let refused = world.cluster.execute(&world.database, &shift_of_sql(START, period)).unwrap_err();
        assert!(format!("{refused:?}").contains("at least a minute"), "{refused:?}");
    }
}

/// Requests that wait for months keep their partitions. The later ones are longer then, so that there are few.
#[test]
fn q16_requests_that_wait_for_long_leave_few_partitions() {
    const PERIODS: u64 = 200;
    let world = World::new(NO_SYNC);
    world.create_shift_all();
    world.query(&format!(
        "DO $$ DECLARE at bigint; BEGIN FOR number IN 0 .. {PERIODS} - 1 LOOP
            at := {START} + number * {LENGTH}::bigint;
            CALL shift_all(at, interval '6 hours');
            INSERT INTO request_bodies VALUES (first_request_id(at), 'x');
            COMMIT;
         END LOOP; END $$"
    ));
    let partitions = world.partitions();
    assert!((20..=28).contains(&partitions.len()), "{partitions:?}");
    let counted = "SELECT count(*) FROM request_bodies WHERE tableoid <> 'request_bodies_default'::regclass";
    assert_eq!(world.query(counted), [PERIODS.to_string()]);
    world.query("DELETE FROM request_bodies");
    world.shift(START + 10 * PERIODS * LENGTH);
    assert_eq!(world.shift(START + 10 * PERIODS * LENGTH), 0);
    assert!(world.partitions().len() as u64 <= AHEAD + 1, "{:?}", world.partitions());
}

/// The settings of a group make its plans look up each id in the partition that has it, and in no other.
#[test]
fn q16_an_id_is_looked_up_in_one_partition() {
    let world = World::new(NO_SYNC);
    world.shift(START);
    let id = |number: u64| id_at(START + number * LENGTH, 1).0;
    (0..8).for_each(|number| drop(world.query(&format!("INSERT INTO request_bodies VALUES ('{}', 'x')", id(number)))));
    assert_eq!(world.partitions().len() as u64, AHEAD);
    let ids = format!("ARRAY['{}', '{}']::uuid[]", id(0), id(1));
    for statement in [
        "SELECT b.uuid, b.body FROM unnest($1) AS n (u) JOIN request_bodies b ON b.uuid = n.u",
        "SELECT r.* FROM unnest($1) AS n (u) JOIN settled_requests r ON r.uuid = n.u",
        "DELETE FROM settled_requests r USING unnest($1) AS n (u) WHERE r.uuid = n.u",
        "DELETE FROM request_bodies b USING unnest($1) AS n (u) WHERE b.uuid = n.u",
    ] {
        let explained = world.query(&format!(
            "BEGIN; SELECT begin_group(1, 10000); PREPARE statement (uuid[]) AS {statement};
             EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE statement ({ids}); ROLLBACK"
        ));
        let scans: Vec<_> = explained.iter().filter(|line| line.contains(" Scan using ")).collect();
        let executed = scans.iter().filter(|line| !line.contains("never executed")).count();
        assert!(executed == 2 && scans.len() >= 9, "{statement}: {}", explained.join("\n"));
    }
}

/// The function finds its tables after a dump, and the restored partitions leave as others do.
#[test]
fn q16_partitions_survive_a_dump() {
    let world = World::new(NO_SYNC);
    let mut store = world.store();
    world.shift(START);
    run(&mut store, &[submit_all([id_at(START, 1)], "7")]);
    let dump = Program::new("pg_dump").args(["--inserts", &world.cluster.url(&world.database)]).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    // Newer versions of `pg_dump` write commands of psql, which begin with a backslash and are not SQL.
    let sql = String::from_utf8(dump.stdout).unwrap();
    let sql: Vec<_> = sql.lines().filter(|line| !line.starts_with('\\')).collect();
    let restored = World { database: world.cluster.database().unwrap(), cluster: world.cluster };
    restored.query(&sql.join("\n"));
    let settings = PostgresConfig::at(restored.cluster.url(&restored.database));
    let adopted = Runtime::new().unwrap().block_on(PostgresStore::migrate(&settings, Creation::Refused, true)).unwrap();
    assert!(adopted.is_adopted);
    assert_eq!((restored.partitions().len() as u64, restored.shift(START)), (AHEAD, 0));
    let (expected, found) = (store.state().unwrap(), restored.store().state().unwrap());
    assert!(found.fence > expected.fence, "B13: {:?}", found.fence);
    assert_eq!(State { fence: expected.fence, ..found }, expected);
    restored.query("DELETE FROM request_bodies");
    assert_eq!(restored.shift(START + 2 * LENGTH + HOUR), 4);
}

/// The function must see the newest rows before it drops a partition, so it refuses an older snapshot.
#[test]
fn q16_a_server_shifts_at_read_committed_whatever_the_default_is() {
    let world = World::new(NO_SYNC);
    let (database, cluster) = (&world.database, &world.cluster);
    world.query(&format!("ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'"));
    let refused = cluster.execute(database, &shift_sql(START)).unwrap_err();
    assert!(format!("{refused:?}").contains("READ COMMITTED"), "{refused:?}");
    let _server = serve(&cluster.url(database), "");
    await_condition("the server adds partitions", || world.partitions().len() as u64 == AHEAD);
}
