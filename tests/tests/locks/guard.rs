//! The guard in a user's own PostgreSQL database: a transaction under a passed fence can't commit.

use std::time::Duration;

use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{eventually, leasehold};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use super::{LONG, PATIENT, SHORT, session, take};

/// The SQLSTATE of a fence that has passed.
pub(super) const FENCE_PASSED: &str = "LH001";
/// The SQLSTATE of a transaction that has outlived its session.
pub(super) const SESSION_LOST: &str = "LH002";
/// The time that a session has left in tests in which time plays no part.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// A user's database with the guard and a table of writes, each with the fence of its transaction.
pub(super) struct Database(Cluster);

/// A connection of one holder. A failed statement is its SQLSTATE.
pub(super) struct Holder(pub(super) tokio_postgres::Client);

impl Database {
    pub(super) async fn new() -> Self {
        Self::with_guard(&printed_guard().await).await
    }

    /// A database whose guard is installed by this SQL.
    pub(super) async fn with_guard(sql: &str) -> Self {
        let start = || Cluster::start(&["fsync=off", "max_prepared_transactions=4"]).unwrap();
        let database = Self(tokio::task::spawn_blocking(start).await.unwrap());
        let owner = database.connect().await;
        owner.run(sql).await.unwrap();
        owner.run("CREATE TABLE writes (number bigserial PRIMARY KEY, fence bigint)").await.unwrap();
        database
    }

    pub(super) async fn connect(&self) -> Holder {
        let (client, connection) = tokio_postgres::connect(&self.0.url("postgres"), NoTls).await.unwrap();
        tokio::spawn(connection);
        Holder(client)
    }

    /// The fences of all committed writes, in the order in which their transactions took the guard.
    pub(super) async fn writes(&self) -> Vec<i64> {
        let rows = self.connect().await.0.query("SELECT fence FROM writes ORDER BY number", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Waits until a statement waits for a row that another transaction has locked.
    pub(super) async fn await_a_waiting_statement(&self) {
        self.await_waiting_statements(1).await;
    }

    /// Waits until this number of statements wait for rows that other transactions have locked.
    pub(super) async fn await_waiting_statements(&self, count: usize) {
        let observer = self.connect().await;
        let waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%leasehold_guard%'";
        let is_there = async || (observer.0.query(waiting, &[]).await.unwrap().len() == count).then_some(());
        eventually("guards wait", is_there).await.unwrap();
    }
}

impl Holder {
    pub(super) async fn run(&self, sql: &str) -> Result<(), String> {
        let done = self.0.batch_execute(sql).await;
        done.map_err(|error| error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()))
    }

    pub(super) async fn guard(&self, fence: u64, remaining: Duration) -> Result<(), String> {
        let millis = remaining.as_millis();
        self.run(&format!("SELECT leasehold_guard('user/7', {fence}, interval '{millis} milliseconds')")).await
    }

    /// Guards as the holder of a slot of a shared lock.
    pub(super) async fn guard_slot(&self, fence: u64, slot: u32, remaining: Duration) -> Result<(), String> {
        let millis = remaining.as_millis();
        self.run(&format!("SELECT leasehold_guard('user/7', {fence}, interval '{millis} milliseconds', {slot})")).await
    }

    pub(super) async fn write(&self, fence: u64) -> Result<(), String> {
        self.run(&format!("INSERT INTO writes (fence) VALUES ({fence})")).await
    }

    /// Begins a transaction that guards and writes, and leaves it open.
    pub(super) async fn begin(&self, fence: u64, remaining: Duration) -> Result<(), String> {
        self.run("BEGIN").await?;
        self.guard(fence, remaining).await?;
        self.write(fence).await
    }
}

/// The SQL that installs the guard, as the program prints it.
pub(super) async fn printed_guard() -> String {
    String::from_utf8(leasehold(["guard"]).await.unwrap().stdout).unwrap()
}

pub(super) fn refused(code: &str) -> Result<(), String> {
    Err(code.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_holder_that_stops_in_its_transaction_can_not_commit_after_the_lock_has_passed_on() {
    let (server, database) = (Server::start().unwrap(), Database::new().await);
    let (stopped, next) = (session(&server, SHORT).await, session(&server, LONG).await);
    let first = take(&stopped, "7", PATIENT).await.unwrap();
    let (former, later) = (database.connect().await, database.connect().await);
    let remaining = stopped.remaining(&first);
    assert!(!remaining.is_zero() && remaining < SHORT.duration + SHORT.grace, "{remaining:?}");
    former.begin(first.fence(), remaining).await.unwrap();

    // Without its session the first holder is as good as stopped: nothing renews the session.
    drop(stopped);
    let second = take(&next, "7", PATIENT).await.unwrap();
    assert!(second.fence() > first.fence());
    // The next holder waits until the transaction of the former one has ended.
    let fence = second.fence();
    let guarded = tokio::spawn(async move {
        later.begin(fence, next.remaining(&second)).await?;
        later.run("COMMIT").await
    });
    database.await_a_waiting_statement().await;
    assert_eq!(former.run("COMMIT").await, refused(SESSION_LOST));
    assert_eq!(guarded.await.unwrap(), Ok(()));
    assert_eq!(database.writes().await, [i64::try_from(fence).unwrap()]);

    // The former holder comes back, and does not know that its lock has passed on.
    assert_eq!(former.begin(first.fence(), MINUTE).await, refused(FENCE_PASSED));
    former.run("ROLLBACK").await.unwrap();
    assert_eq!(database.writes().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_the_order_of_fences_holds_when_the_deadline_is_checked_early() {
    let database = Database::new().await;
    let (former, later) = (database.connect().await, database.connect().await);
    former.begin(5, Duration::from_secs(8)).await.unwrap();
    former.run("SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
    later.run("SET lock_timeout = '9s'").await.unwrap();
    assert_eq!(later.begin(6, MINUTE).await, refused("55P03"), "the row is locked until the COMMIT");
    later.run("ROLLBACK; RESET lock_timeout").await.unwrap();
    // Its deadline has passed, but nothing was written under a later fence.
    former.run("COMMIT").await.unwrap();
    later.begin(6, MINUTE).await.unwrap();
    later.run("COMMIT").await.unwrap();
    assert_eq!(former.begin(5, MINUTE).await, refused(FENCE_PASSED));
    assert_eq!(database.writes().await, [5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_guard_in_a_savepoint_ends_with_the_savepoint() {
    let database = Database::new().await;
    let (former, later) = (database.connect().await, database.connect().await);
    former.run("BEGIN; SAVEPOINT step").await.unwrap();
    former.guard(5, MINUTE).await.unwrap();
    former.run("ROLLBACK TO SAVEPOINT step").await.unwrap();
    later.begin(6, MINUTE).await.unwrap();
    later.run("COMMIT").await.unwrap();
    assert_eq!(former.guard(5, MINUTE).await, refused(FENCE_PASSED));
    former.run("ROLLBACK TO SAVEPOINT step; COMMIT").await.unwrap();
    // A guard before the savepoint stays.
    former.begin(7, MINUTE).await.unwrap();
    former.run("SAVEPOINT step; INSERT INTO writes (fence) VALUES (7); ROLLBACK TO SAVEPOINT step").await.unwrap();
    later.run("SET lock_timeout = 300").await.unwrap();
    assert_eq!(later.begin(8, MINUTE).await, refused("55P03"));
    former.run("COMMIT").await.unwrap();
    assert_eq!(database.writes().await, [6, 7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_prepared_transaction_keeps_its_place_and_its_deadline() {
    let database = Database::new().await;
    let (former, later) = (database.connect().await, database.connect().await);
    former.begin(5, Duration::from_millis(1)).await.unwrap();
    let pause = former.run("SELECT pg_sleep(0.01)").await;
    assert_eq!((pause, former.run("PREPARE TRANSACTION 'late'").await), (Ok(()), refused(SESSION_LOST)));
    former.begin(5, MINUTE).await.unwrap();
    former.run("PREPARE TRANSACTION 'in time'").await.unwrap();
    let guarded = tokio::spawn(async move {
        later.begin(6, MINUTE).await?;
        later.run("COMMIT").await
    });
    database.await_a_waiting_statement().await;
    former.run("COMMIT PREPARED 'in time'").await.unwrap();
    assert_eq!(guarded.await.unwrap(), Ok(()));
    assert_eq!(database.writes().await, [5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_transaction_with_an_older_snapshot_fails_instead_of_working_on_old_rows() {
    let database = Database::new().await;
    let (former, later) = (database.connect().await, database.connect().await);
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        former.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM writes")).await.unwrap();
        later.begin(6, MINUTE).await.unwrap();
        later.run("COMMIT").await.unwrap();
        for fence in [5, 6, 7] {
            former.run("SAVEPOINT step").await.unwrap();
            assert_eq!(former.guard(fence, MINUTE).await, refused("40001"), "{level}, fence {fence}");
            former.run("ROLLBACK TO SAVEPOINT step").await.unwrap();
        }
        former.run("ROLLBACK").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_serializable_transactions_of_two_resources_do_not_fail_because_of_each_other() {
    let database = Database::new().await;
    let (one, other) = (database.connect().await, database.connect().await);
    let guard = |fence| format!("SELECT leasehold_guard('user/{fence}', {fence}, interval '1 minute')");
    one.run(&format!("{}; {}; ANALYZE leasehold_guards", guard(7), guard(8))).await.unwrap();
    for (holder, fence) in [(&one, 7), (&other, 8)] {
        holder.run(&format!("BEGIN ISOLATION LEVEL SERIALIZABLE; {}", guard(fence))).await.unwrap();
    }
    assert_eq!((one.run("COMMIT").await, other.run("COMMIT").await), (Ok(()), Ok(())));
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_transactions_of_many_holders_commit_in_the_order_of_their_fences() {
    let database = Database::new().await;
    let mut holders = JoinSet::new();
    for fence in 1..=40 {
        let holder = database.connect().await;
        holders.spawn(async move {
            if holder.begin(fence, MINUTE).await.is_ok() {
                holder.run("COMMIT").await.unwrap();
            }
        });
    }
    holders.join_all().await;
    let writes = database.writes().await;
    assert!(writes.is_sorted() && writes.last() == Some(&40), "{writes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_malformed_guards_are_refused_and_change_nothing() {
    let database = Database::new().await;
    let holder = database.connect().await;
    holder.guard(7, MINUTE).await.unwrap();
    for (arguments, code) in [
        ("'user/7', 7, interval '0'", SESSION_LOST),
        ("'user/7', 7, interval '-1 second'", SESSION_LOST),
        ("'user/7', 7, NULL", "23502"),
        ("'user/7', NULL, interval '1 second'", "23502"),
        ("NULL, 7, interval '1 second'", "23502"),
        ("'', 7, interval '1 second'", "23514"),
        ("repeat('a', 4097), 7, interval '1 second'", "23514"),
        ("'user/8', 0, interval '1 second'", "23514"),
        ("'user/8', -1, interval '1 second'", "23514"),
        ("'user/7', 6, interval '1 second'", FENCE_PASSED),
    ] {
        assert_eq!(holder.run(&format!("SELECT leasehold_guard({arguments})")).await, refused(code), "{arguments}");
    }
    // The installation keeps the fences when it is repeated, and so does another caller's search path.
    holder.run(&printed_guard().await).await.unwrap();
    holder
        .run("SET search_path = pg_catalog; SELECT public.leasehold_guard('user/7', 7, interval '1 second')")
        .await
        .unwrap();
    // A temporary table of the same name hides the fences from the caller alone.
    holder.run("CREATE TEMPORARY TABLE leasehold_guards (LIKE public.leasehold_guards INCLUDING ALL)").await.unwrap();
    let shadowed = holder.run("SELECT public.leasehold_guard('user/7', 6, interval '1 second')").await;
    assert_eq!(shadowed, refused(FENCE_PASSED));
    let rows = database.connect().await.0.query("SELECT resource, fence FROM leasehold_guards", &[]).await.unwrap();
    let rows: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [("user/7".to_owned(), 7)]);
}
