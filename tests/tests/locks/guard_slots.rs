//! The guard of shared locks: holders of two slots write side by side, and a transaction under a fence
//! that a holder it excludes has passed can't commit.

use std::time::Duration;

use leasehold_tests::wire::eventually;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::guard::{Database, FENCE_PASSED, Holder, MINUTE, SESSION_LOST, printed_guard, refused};

/// The slot of a holder that has the lock alone.
const ALONE: u32 = 0;
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const STALE_SNAPSHOT: &str = "40001";
const LOCK_TIMEOUT: &str = "55P03";
/// The guard of the version before shared locks.
const FORMER_GUARD: &str = include_str!("former/guard.sql");

/// Returns the error of a transaction that began before the write of a newer holder that it excludes.
fn passed_after_its_snapshot(level: &str) -> Result<(), String> {
    refused(if level == LEVELS[0] { FENCE_PASSED } else { STALE_SNAPSHOT })
}

impl Holder {
    /// Begins a transaction and takes its snapshot.
    async fn begin_at(&self, level: &str) {
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT 1");
        self.run(&begin).await.unwrap();
    }

    async fn guard_and_write(&self, fence: u64, slot: u32) -> Result<(), String> {
        self.guard_slot(fence, slot, MINUTE).await?;
        self.write(fence).await
    }

    /// Guards, writes and commits in a transaction of its own. A refused transaction is rolled back.
    async fn commit(&self, fence: u64, slot: u32) -> Result<(), String> {
        self.run("BEGIN").await?;
        self.finish(fence, slot).await
    }

    /// Guards, writes and commits in the open transaction. A refused transaction is rolled back.
    async fn finish(&self, fence: u64, slot: u32) -> Result<(), String> {
        let done = self.guard_and_write(fence, slot).await;
        self.run(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
        done
    }

    /// Waits until the deadlines in a table have passed, as far as the holder sees them.
    async fn await_deadline(&self, table: &str) {
        let live = format!("SELECT FROM {table} WHERE commit_before BETWEEN clock_timestamp() AND '9999-01-01'");
        let is_passed = async || self.0.query(&live, &[]).await.unwrap().is_empty().then_some(());
        eventually("the deadline has passed", is_passed).await.unwrap();
    }

    /// Finishes the open transaction in a task, since its guard waits.
    fn spawn_finish(self, fence: u64, slot: u32) -> JoinHandle<Result<(), String>> {
        tokio::spawn(async move { self.finish(fence, slot).await })
    }
}

impl Database {
    async fn connect_two(&self) -> (Holder, Holder) {
        (self.connect().await, self.connect().await)
    }

    /// Returns a holder whose statements fail where they wait for another transaction.
    async fn connect_impatient(&self) -> Holder {
        let holder = self.connect().await;
        holder.run("SET lock_timeout = 300").await.unwrap();
        holder
    }

    /// Removes all guards and writes, then writes under slots 1 to `slots`, so that no later use of them
    /// is the first.
    async fn reset(&self, slots: u32) {
        let holder = self.connect().await;
        holder.run("TRUNCATE leasehold_guards, leasehold_guard_slots, writes").await.unwrap();
        for slot in 1..=slots {
            holder.commit(slot.into(), slot).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k13_holders_of_two_slots_commit_side_by_side() {
    let database = Database::new().await;
    database.reset(2).await;
    database.connect().await.run("ANALYZE leasehold_guards, leasehold_guard_slots").await.unwrap();
    let (one, other) = (database.connect_impatient().await, database.connect_impatient().await);
    for level in LEVELS {
        one.begin_at(level).await;
        other.begin_at(level).await;
        // The order of fences binds no two slots.
        one.guard_slot(6, 1, MINUTE).await.unwrap();
        other.guard_slot(5, 2, MINUTE).await.unwrap();
        one.guard_slot(6, 1, MINUTE).await.unwrap();
        for (holder, fence) in [(&one, 6), (&other, 5)] {
            holder.write(fence).await.unwrap();
            assert_eq!(holder.run("COMMIT").await, Ok(()), "{level}, {fence}");
        }
    }
    assert_eq!(database.writes().await, [1, 2, 6, 5, 6, 5, 6, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k13_the_first_use_of_a_slot_does_not_wait_for_a_slot_in_use() {
    let database = Database::new().await;
    database.reset(1).await;
    let (one, other) = (database.connect_impatient().await, database.connect_impatient().await);
    one.run("BEGIN").await.unwrap();
    one.guard_and_write(3, 1).await.unwrap();
    other.commit(4, 2).await.unwrap();
    one.run("COMMIT").await.unwrap();
    // Nor does a slot in use wait for the first use of another one.
    other.run("BEGIN").await.unwrap();
    other.guard_and_write(6, 3).await.unwrap();
    one.commit(5, 1).await.unwrap();
    other.run("COMMIT").await.unwrap();
    assert_eq!(database.writes().await, [1, 3, 4, 6, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_passed_holder_of_a_slot_can_not_commit_after_a_newer_one_of_the_slot() {
    let database = Database::new().await;
    for level in LEVELS {
        for used in [0, 1] {
            database.reset(used).await;
            let (former, later) = database.connect_two().await;
            former.begin_at(level).await;
            later.commit(6, 1).await.unwrap();
            assert_eq!(former.finish(5, 1).await, passed_after_its_snapshot(level), "{level}, used {used}");
            former.begin_at(level).await;
            assert_eq!(former.finish(5, 1).await, refused(FENCE_PASSED), "{level}, used {used}");
            assert_eq!(database.writes().await.last(), Some(&6));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_passed_holder_of_a_slot_can_not_commit_after_a_newer_one_that_holds_the_lock_alone() {
    let database = Database::new().await;
    for level in LEVELS {
        for used in [0, 1] {
            database.reset(used).await;
            let (former, later) = database.connect_two().await;
            former.begin_at(level).await;
            later.commit(6, ALONE).await.unwrap();
            assert_eq!(former.finish(5, 1).await, passed_after_its_snapshot(level), "{level}, used {used}");
            former.begin_at(level).await;
            assert_eq!(former.finish(5, 1).await, refused(FENCE_PASSED), "{level}, used {used}");
            later.commit(7, 1).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_passed_holder_that_had_the_lock_alone_can_not_commit_after_a_newer_one_of_a_slot() {
    let database = Database::new().await;
    for level in LEVELS {
        for used in [0, 1, 2] {
            database.reset(used).await;
            let (former, later) = database.connect_two().await;
            former.begin_at(level).await;
            later.commit(6, 2).await.unwrap();
            assert_eq!(former.finish(5, ALONE).await, passed_after_its_snapshot(level), "{level}, used {used}");
            former.begin_at(level).await;
            assert_eq!(former.finish(5, ALONE).await, refused(FENCE_PASSED), "{level}, used {used}");
            former.begin_at(level).await;
            former.guard(5, MINUTE).await.unwrap_err();
            former.run("ROLLBACK").await.unwrap();
            later.commit(7, ALONE).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_newer_holder_with_an_older_snapshot_than_the_write_of_one_it_excludes_fails() {
    let database = Database::new().await;
    for level in &LEVELS[1..] {
        for used in [0, 1] {
            for (former_slot, later_slot) in [(1, 1), (1, ALONE), (2, ALONE), (ALONE, 1), (ALONE, ALONE)] {
                database.reset(used).await;
                let (former, later) = database.connect_two().await;
                later.begin_at(level).await;
                former.commit(5, former_slot).await.unwrap();
                let done = later.finish(6, later_slot).await;
                assert_eq!(done, refused(STALE_SNAPSHOT), "{level}, used {used}, {former_slot}, {later_slot}");
                later.commit(6, later_slot).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_newer_holder_waits_for_the_open_transaction_of_one_that_it_excludes() {
    let database = Database::new().await;
    for level in LEVELS {
        for used in [0, 1] {
            for (former_slot, later_slot) in [(1, 1), (1, ALONE), (ALONE, 1)] {
                database.reset(used).await;
                let (former, later) = database.connect_two().await;
                former.begin_at(level).await;
                former.guard_and_write(5, former_slot).await.unwrap();
                later.run("BEGIN").await.unwrap();
                let later = later.spawn_finish(6, later_slot);
                database.await_a_waiting_statement().await;
                // A repeated call does not wait behind the later holder.
                former.guard_slot(5, former_slot, MINUTE).await.unwrap();
                former.run("COMMIT").await.unwrap();
                assert_eq!(later.await.unwrap(), Ok(()), "{level}, used {used}, {former_slot}, {later_slot}");
                assert!(database.writes().await.ends_with(&[5, 6]));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_passed_holder_that_waits_for_a_newer_one_is_refused() {
    let database = Database::new().await;
    for level in LEVELS {
        for used in [0, 1] {
            for (former_slot, later_slot) in [(1, 1), (1, ALONE), (ALONE, 1)] {
                database.reset(used).await;
                let (former, later) = database.connect_two().await;
                former.begin_at(level).await;
                later.run("BEGIN").await.unwrap();
                later.guard_and_write(6, later_slot).await.unwrap();
                let former = former.spawn_finish(5, former_slot);
                database.await_a_waiting_statement().await;
                later.run("COMMIT").await.unwrap();
                let expected = passed_after_its_snapshot(level);
                assert_eq!(former.await.unwrap(), expected, "{level}, used {used}, {former_slot}, {later_slot}");
                assert_eq!(database.writes().await.last(), Some(&6));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_one_that_wants_all_slots_and_those_that_hold_them_end_in_no_deadlock() {
    let database = Database::new().await;
    database.reset(2).await;
    let (first, second) = (database.connect().await, database.connect_impatient().await);
    first.run("BEGIN").await.unwrap();
    first.guard_and_write(5, 2).await.unwrap();
    let alone = database.connect().await;
    alone.run("BEGIN").await.unwrap();
    let alone = alone.spawn_finish(7, ALONE);
    database.await_a_waiting_statement().await;
    // The one that waits has locked no slot. Else it would wait for this holder, and this holder for it.
    second.commit(6, 1).await.unwrap();
    first.run("COMMIT").await.unwrap();
    assert_eq!(alone.await.unwrap(), Ok(()));
    assert_eq!(database.writes().await, [1, 2, 5, 6, 7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_guard_of_a_slot_in_a_savepoint_ends_with_the_savepoint() {
    let database = Database::new().await;
    for used in [0, 1] {
        for later_slot in [1, ALONE] {
            database.reset(used).await;
            let (former, later) = (database.connect().await, database.connect_impatient().await);
            former.run("BEGIN; SAVEPOINT step").await.unwrap();
            former.guard_slot(5, 1, MINUTE).await.unwrap();
            former.run("ROLLBACK TO SAVEPOINT step").await.unwrap();
            later.commit(6, later_slot).await.unwrap();
            assert_eq!(former.guard_slot(5, 1, MINUTE).await, refused(FENCE_PASSED));
            former.run("ROLLBACK TO SAVEPOINT step; COMMIT").await.unwrap();
            // A guard before the savepoint stays, also if it is repeated in the savepoint.
            former.run("BEGIN").await.unwrap();
            former.guard_and_write(7, 1).await.unwrap();
            former.run("SAVEPOINT step").await.unwrap();
            former.guard_slot(7, 1, MINUTE).await.unwrap();
            former.run("ROLLBACK TO SAVEPOINT step").await.unwrap();
            assert_eq!(later.commit(8, later_slot).await, refused(LOCK_TIMEOUT), "used {used}, {later_slot}");
            former.run("COMMIT").await.unwrap();
            assert!(database.writes().await.ends_with(&[6, 7]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_the_order_of_slots_holds_when_the_deadline_is_checked_early() {
    let database = Database::new().await;
    let (former, later) = (database.connect().await, database.connect_impatient().await);
    for (fence, later_slot) in [(5, 1), (7, ALONE)] {
        former.run("BEGIN").await.unwrap();
        former.guard_slot(fence, 1, Duration::from_secs(8)).await.unwrap();
        former.run("SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
        assert_eq!(later.commit(fence + 1, later_slot).await, refused(LOCK_TIMEOUT));
        former.await_deadline("leasehold_guard_slots").await;
        former.write(fence).await.unwrap();
        former.run("COMMIT").await.unwrap();
        later.commit(fence + 1, later_slot).await.unwrap();
        assert_eq!(former.commit(fence, 1).await, refused(FENCE_PASSED));
    }
    assert_eq!(database.writes().await, [5, 6, 7, 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_holder_of_a_slot_can_not_commit_after_its_session_is_lost() {
    let database = Database::new().await;
    for used in [0, 1] {
        database.reset(used).await;
        let holder = database.connect().await;
        for end in ["COMMIT", "PREPARE TRANSACTION 'late'"] {
            holder.run("BEGIN").await.unwrap();
            holder.guard_slot(5, 1, Duration::from_millis(200)).await.unwrap();
            holder.await_deadline("leasehold_guard_slots").await;
            assert_eq!(holder.run(end).await, refused(SESSION_LOST), "used {used}, {end}");
        }
        // The newest call of the transaction has the deadline after a renewal.
        holder.run("BEGIN").await.unwrap();
        holder.guard_slot(5, 1, Duration::from_millis(200)).await.unwrap();
        holder.await_deadline("leasehold_guard_slots").await;
        holder.guard_slot(5, 1, MINUTE).await.unwrap();
        holder.run("COMMIT").await.unwrap();
        // The deadline of a former holder binds no later one.
        holder.guard(6, Duration::from_secs(2)).await.unwrap();
        holder.await_deadline("leasehold_guards").await;
        holder.commit(7, 1).await.unwrap();
        holder.commit(8, 2).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_prepared_transaction_of_a_slot_keeps_its_place() {
    let database = Database::new().await;
    for used in [0, 1] {
        for later_slot in [1, ALONE] {
            database.reset(used).await;
            let (former, later) = database.connect_two().await;
            former.run("BEGIN").await.unwrap();
            former.guard_and_write(5, 1).await.unwrap();
            former.run("PREPARE TRANSACTION 'in time'").await.unwrap();
            later.run("BEGIN").await.unwrap();
            let later = later.spawn_finish(6, later_slot);
            database.await_a_waiting_statement().await;
            former.run("COMMIT PREPARED 'in time'").await.unwrap();
            assert_eq!(later.await.unwrap(), Ok(()));
            assert!(database.writes().await.ends_with(&[5, 6]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_the_guard_is_installed_over_the_former_one_with_its_fences() {
    let database = Database::with_guard(FORMER_GUARD).await;
    let (owner, former) = database.connect_two().await;
    let writer = database.connect().await;
    owner.run("CREATE ROLE writer; GRANT SELECT, INSERT, UPDATE ON leasehold_guards TO writer").await.unwrap();
    owner.run("GRANT ALL ON writes, writes_number_seq TO writer").await.unwrap();
    writer.run("SET ROLE writer; SET search_path = pg_catalog, public").await.unwrap();
    writer.guard(5, MINUTE).await.unwrap();
    // Open transactions of the former version keep their places and deadlines.
    former.begin(6, Duration::from_millis(200)).await.unwrap();
    owner.run("SET lock_timeout = 300").await.unwrap();
    owner.run(&printed_guard().await).await.unwrap();
    writer.run("SET lock_timeout = 300").await.unwrap();
    assert_eq!(writer.commit(7, 1).await, refused(LOCK_TIMEOUT));
    former.await_deadline("leasehold_guards").await;
    assert_eq!(former.run("COMMIT").await, refused(SESSION_LOST));
    // The fences and the rights of the former version count in the present one.
    assert_eq!(writer.commit(4, 1).await, refused(FENCE_PASSED));
    assert_eq!(writer.guard(4, MINUTE).await, refused(FENCE_PASSED));
    writer.commit(7, 1).await.unwrap();
    assert_eq!(writer.guard(6, MINUTE).await, refused(FENCE_PASSED));
    owner.run(&printed_guard().await).await.unwrap();
    assert_eq!(writer.commit(6, 1).await, refused(FENCE_PASSED));
    writer.commit(8, ALONE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_the_owner_of_a_former_guard_may_call_the_one_that_another_role_installs_over_it() {
    let database = Database::with_guard(FORMER_GUARD).await;
    let (installer, owner) = database.connect_two().await;
    installer.run("CREATE ROLE former; ALTER TABLE leasehold_guards OWNER TO former").await.unwrap();
    installer.run(&printed_guard().await).await.unwrap();
    owner.run("SET ROLE former").await.unwrap();
    assert_eq!((owner.guard(5, MINUTE).await, owner.guard_slot(6, 1, MINUTE).await), (Ok(()), Ok(())));
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_malformed_guards_of_slots_are_refused_and_change_nothing() {
    let database = Database::new().await;
    let holder = database.connect().await;
    holder.commit(7, 256).await.unwrap();
    for (arguments, code) in [
        ("'user/7', 7, interval '0', 1", SESSION_LOST),
        ("'user/7', 7, NULL, 1", "23502"),
        ("'user/7', NULL, interval '1 second', 1", "23502"),
        ("'user/7', 7, interval '1 second', NULL", "23502"),
        ("'user/7', 7, interval '1 second', -1", "23514"),
        ("'user/7', 7, interval '1 second', 257", "23514"),
        ("NULL, 7, interval '1 second', 1", "23502"),
        ("'', 7, interval '1 second', 1", "23514"),
        ("repeat('a', 4097), 7, interval '1 second', 1", "23514"),
        ("'user/8', 0, interval '1 second', 1", "23514"),
        ("'user/8', -1, interval '1 second', 1", "23514"),
        ("'user/7', 6, interval '1 second', 256", FENCE_PASSED),
    ] {
        assert_eq!(holder.run(&format!("SELECT leasehold_guard({arguments})")).await, refused(code), "{arguments}");
    }
    // A temporary table of the same name hides the fences from the caller alone.
    let hide = "CREATE TEMPORARY TABLE leasehold_guard_slots (LIKE public.leasehold_guard_slots INCLUDING ALL)";
    holder.run(hide).await.unwrap();
    assert_eq!(holder.guard_slot(6, 256, MINUTE).await, refused(FENCE_PASSED));
    let rows = "SELECT slot, fence FROM public.leasehold_guard_slots ORDER BY slot";
    let rows = holder.0.query(rows, &[]).await.unwrap();
    let rows: Vec<(i32, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [(0, 1), (256, 7)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_deleted_row_of_slot_0_is_made_again() {
    let database = Database::new().await;
    database.reset(1).await;
    let (former, later) = database.connect_two().await;
    later.run("DELETE FROM leasehold_guard_slots WHERE slot = 0").await.unwrap();
    later.commit(6, ALONE).await.unwrap();
    assert_eq!(former.commit(5, 1).await, refused(FENCE_PASSED));
    former.commit(7, 1).await.unwrap();
    later.commit(8, ALONE).await.unwrap();
    assert_eq!(former.commit(7, 1).await, refused(FENCE_PASSED));
}

/// A committed write of the random holders: its slot, its fence, and the newest fence that it saw of a
/// holder that it excludes.
type Write = (i32, i64, i64);

const RANDOM_WRITES: &str = "CREATE TABLE random_writes
    (number bigserial PRIMARY KEY, slot integer, fence bigint, seen bigint)";

/// The number of holders in a round of random holders.
const HOLDERS: usize = 30;

/// A holder that stops after its snapshot until this number of holders of its round have settled.
struct RandomHolder {
    connection: Holder,
    level: &'static str,
    slot: u32,
    fence: u64,
    stops_for: usize,
}

impl RandomHolder {
    /// Writes once in the open transaction, with the newest fence that it sees.
    async fn write_seen(&self) -> Result<(), String> {
        let Self { connection, slot, fence, .. } = self;
        connection.guard_slot(*fence, *slot, MINUTE).await?;
        let write = format!(
            "INSERT INTO random_writes (slot, fence, seen) SELECT {slot}, {fence}, coalesce(max(fence), 0)
             FROM random_writes WHERE {slot} = 0 OR slot IN (0, {slot}); COMMIT"
        );
        connection.run(&write).await
    }

    /// Repeats the transaction until it is committed, or is refused because the fence has passed.
    async fn settle(self, settled: watch::Sender<usize>) {
        loop {
            self.connection.begin_at(self.level).await;
            settled.subscribe().wait_for(|count| *count >= self.stops_for).await.unwrap();
            let done = self.write_seen().await;
            if done.is_err() {
                self.connection.run("ROLLBACK").await.unwrap();
            }
            match done.as_ref().map_err(String::as_str) {
                Err(STALE_SNAPSHOT) => {}
                Ok(()) | Err(FENCE_PASSED) => return settled.send_modify(|count| *count += 1),
                Err(code) => panic!("{code} of {}, fence {}, slot {}", self.level, self.fence, self.slot),
            }
        }
    }
}

/// Plays a round of holders, of which each has a larger fence than those before it.
async fn play_round(database: &Database, rng: &mut SmallRng, first_fence: u64) {
    let (settled, mut holders) = (watch::Sender::new(0), JoinSet::new());
    for (fence, later) in (first_fence..).zip((0..HOLDERS).rev()) {
        // No holder stops for more holders than are later, so all of them come to their end.
        let stops_for = if rng.random() { rng.random_range(0..=later) } else { 0 };
        let slot = if rng.random_ratio(1, 4) { ALONE } else { rng.random_range(1..=4) };
        let (level, connection) = (LEVELS[rng.random_range(0..LEVELS.len())], database.connect().await);
        holders.spawn(RandomHolder { connection, level, slot, fence, stops_for }.settle(settled.clone()));
    }
    tokio::time::timeout(MINUTE, holders.join_all()).await.unwrap();
}

/// Panics unless the writes of holders that exclude each other are in the order of their fences, and
/// each saw those before it.
fn check(writes: &[Write]) {
    for (number, &(slot, fence, seen)) in writes.iter().enumerate() {
        let excluded = |&&(other, _, _): &&Write| other == slot || other == 0 || slot == 0;
        let before = writes[..number].iter().filter(excluded).map(|&(_, fence, _)| fence).max().unwrap_or(0);
        assert!(before == seen && before <= fence, "{number} of {writes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k13_k18_random_holders_commit_in_the_order_of_their_fences() {
    let seed = std::env::var("SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let (mut rng, database) = (SmallRng::seed_from_u64(seed), Database::new().await);
    database.connect().await.run(RANDOM_WRITES).await.unwrap();
    for first_fence in (1..=271).step_by(HOLDERS) {
        play_round(&database, &mut rng, first_fence).await;
    }
    let observer = database.connect().await;
    let rows = observer.0.query("SELECT slot, fence, seen FROM random_writes ORDER BY number", &[]).await.unwrap();
    let writes: Vec<Write> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    println!("{} of 300 holders have written", writes.len());
    check(&writes);
    // The newest holder is never refused. Some that have stopped are.
    assert!(writes.len() < 300 && writes.iter().any(|&(_, fence, _)| fence == 300), "{writes:?}");
}
