//! A relay misses nothing, whatever commits late or dies, and the outbox stays small (Q09, Q15, Q16).

use leasehold_core::outbox;

use super::{ALL, Database, Relayed, Session, keys, refused};

#[tokio::test(flavor = "multi_thread")]
async fn q15_a_late_commit_is_neither_skipped_nor_waited_for() {
    let database = Database::new().await;
    let (early, late, relay) = (database.connect().await, database.connect().await, database.connect().await);
    late.run("BEGIN").await.unwrap();
    late.submit("late").await;
    for key in ["a", "b"] {
        early.submit(key).await;
        assert_eq!(relay.relayed_keys().await, [key]);
    }
    // The rest of the late transaction is on both sides of a batch.
    late.submit("later").await;
    early.run("SELECT leasehold_submit('q', n::text) FROM generate_series(1, 20000) AS n").await.unwrap();
    assert_eq!(relay.relay((1_000, i32::MAX)).await.len(), 20_000);
    late.run("COMMIT").await.unwrap();
    early.submit("c").await;
    assert_eq!(relay.relayed_keys().await, ["late", "later", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_a_commit_during_a_batch_is_in_the_next_one() {
    let database = Database::new().await;
    let (front, late, relay) = (database.connect().await, database.connect().await, database.connect().await);
    late.run("BEGIN").await.unwrap();
    late.submit("late").await;
    front.submit("a").await;
    let (batch, _) = relay.begin_batch().await.unwrap();
    late.run("COMMIT").await.unwrap();
    front.submit("b").await;
    let rows = relay.read(batch, ALL).await;
    assert_eq!(keys(&rows), ["a"]);
    assert!(relay.acknowledge(batch, rows[0].place, rows[0].number).await);
    assert_eq!(relay.relayed_keys().await, ["late", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_an_idle_relay_draws_no_transaction_id() {
    let database = Database::new().await;
    let relay = database.connect().await;
    relay.submit("a").await;
    assert_eq!(relay.relayed_keys().await, ["a"]);
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
    let before = relay.get::<String>(next).await;
    assert_eq!(relay.begin_batch().await, None);
    assert_eq!(relay.get::<String>(next).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_many_numbers_without_a_row_are_passed_once() {
    let database = Database::new().await;
    let (front, slow, relay) = (database.connect().await, database.connect().await, database.connect().await);
    slow.run("BEGIN").await.unwrap();
    slow.run("SELECT leasehold_submit('q', n::text) FROM generate_series(1, 30000) AS n").await.unwrap();
    front.submit("a").await;
    assert_eq!(relay.relayed_keys().await, ["a"]);
    front.run("SELECT nextval('leasehold_outbox_number') FROM generate_series(1, 10000)").await.unwrap();
    assert_eq!(relay.relayed_keys().await, [""; 0]);
    let passed = relay.get::<i64>("SELECT relayed_number FROM leasehold_outbox_relay").await;
    assert_eq!(passed, 40_001);
    slow.run("COMMIT").await.unwrap();
    let expected: Vec<_> = (1..=30_000).map(|n: i32| n.to_string()).collect();
    assert_eq!(keys(&relay.relay((700, i32::MAX)).await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn q09_a_relay_that_dies_is_followed_by_one_that_reads_the_same_rows_again() {
    let database = Database::new().await;
    let (front, dead, next) = (database.connect().await, database.connect().await, database.connect().await);
    front.run("SELECT leasehold_submit('q', n::text) FROM generate_series(1, 5) AS n").await.unwrap();
    let (batch, epoch) = dead.begin_batch().await.unwrap();
    let rows = dead.read(batch, (3, i32::MAX)).await;
    front.submit("next batch").await;
    assert_eq!(next.begin_batch().await, Some((batch, epoch)));
    assert_eq!(next.read(batch, (3, i32::MAX)).await, rows);
    assert!(!next.acknowledge(batch, rows[2].place, rows[2].number).await);
    // The dead one comes back, and acknowledges less.
    assert!(!dead.acknowledge(batch, rows[0].place, rows[0].number).await);
    let rest = next.read(batch, ALL).await;
    assert_eq!(keys(&rest), ["4", "5"]);
    assert!(next.acknowledge(batch, rest[1].place, rest[1].number).await);
    assert!(dead.acknowledge(batch, rows[0].place, rows[0].number).await, "the batch is done");
    let stale = dead.0.query("SELECT FROM leasehold_outbox_read($1, 1, 1)", &[&batch]).await.unwrap_err();
    assert_eq!(stale.code().unwrap().code(), leasehold_core::outbox::NOT_UNDER_WAY);
    assert_eq!(next.relayed_keys().await, ["next batch"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q09_a_read_has_at_most_the_rows_and_bytes_that_the_relay_wants_and_at_least_one() {
    let database = Database::new().await;
    let (front, relay) = (database.connect().await, database.connect().await);
    let body = "convert_to(repeat('b', 100), 'UTF8')";
    front.run(&format!("SELECT leasehold_submit('q', n::text, {body}) FROM generate_series(1, 5) AS n")).await.unwrap();
    let (batch, _) = relay.begin_batch().await.unwrap();
    for (size, count) in [((2, 1_000), 2), ((5, 250), 2), ((5, 300), 3), ((5, 1), 1), ((9, 1_000), 5)] {
        assert_eq!(relay.read(batch, size).await.len(), count, "{size:?}");
    }
    assert_eq!(keys(&relay.relay((2, 50)).await), ["1", "2", "3", "4", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_what_is_handed_on_survives_a_crash_of_the_database() {
    // Only a commit that waits for the log writes it. Its pages have to be few: full ones are written earlier.
    let mut database = Database::with_settings(&[
        "fsync=off",
        "synchronous_commit=off",
        "wal_writer_delay=10s",
        "wal_writer_flush_after=1GB",
        "full_page_writes=off",
        "autovacuum=off",
    ])
    .await;
    let front = database.connect().await;
    front.run("SET synchronous_commit = on").await.unwrap();
    front.run("CREATE TABLE flushed ()").await.unwrap();
    front.run("RESET synchronous_commit").await.unwrap();
    front.submit("handed on").await;
    let relay = database.connect().await;
    let (batch, _) = relay.begin_batch().await.unwrap();
    assert_eq!(relay.read(batch, ALL).await.len(), 1);
    let database = tokio::task::spawn_blocking(move || {
        database.0.crash().unwrap();
        database.0.restart().unwrap();
        database
    });
    let database = database.await.unwrap();
    let relay = database.connect().await;
    assert_eq!(relay.relayed_keys().await, ["handed on"]);
}

/// The sizes in bytes of both partitions.
async fn sizes(session: &Session) -> [i64; 2] {
    let row = session
        .0
        .query_one("SELECT pg_relation_size('leasehold_outbox_1'), pg_relation_size('leasehold_outbox_2')", &[]);
    let row = row.await.unwrap();
    [row.get(0), row.get(1)]
}

async fn rotate(session: &Session) -> Option<String> {
    session.get("SELECT leasehold_outbox_rotate(100000)").await
}

#[tokio::test(flavor = "multi_thread")]
async fn q16_rotation_returns_the_size_and_waits_for_the_relay_and_for_writers() {
    let database = Database::new().await;
    let (front, slow, relay) = (database.connect().await, database.connect().await, database.connect().await);
    let fill = "SELECT leasehold_submit('q', n::text) FROM generate_series(1, 2000) AS n";
    assert_eq!(rotate(&relay).await, None);
    slow.run("BEGIN").await.unwrap();
    slow.submit("slow").await;
    front.run(fill).await.unwrap();
    assert_eq!(rotate(&relay).await.as_deref(), Some("switched"));
    front.submit("after the switch").await;
    assert_eq!(rotate(&relay).await, None, "nothing is relayed");
    assert_eq!(relay.relay(ALL).await.len(), 2_001);
    assert_eq!(rotate(&relay).await, None, "a transaction has written into the partition");
    slow.run("COMMIT").await.unwrap();
    assert_eq!(rotate(&relay).await, None, "its row is not relayed");
    assert_eq!(relay.relayed_keys().await, ["slow"]);
    assert_eq!(rotate(&relay).await.as_deref(), Some("emptied"));
    assert_eq!(sizes(&relay).await, [0, 8_192]);
    // Round after round, the outbox stays as small.
    for _ in 0..3 {
        front.run(fill).await.unwrap();
        assert_eq!(rotate(&relay).await.as_deref(), Some("switched"));
        assert_eq!(relay.relay(ALL).await.len(), 2_000);
        assert_eq!(rotate(&relay).await.as_deref(), Some("emptied"));
    }
    let sizes = sizes(&relay).await;
    assert!(sizes.contains(&0) && sizes.iter().sum::<i64>() <= 8_192, "{sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_q16_an_older_snapshot_writes_into_the_emptied_partition_and_its_row_is_relayed() {
    let database = Database::new().await;
    let (front, old, relay) = (database.connect().await, database.connect().await, database.connect().await);
    front.run("SELECT leasehold_submit('q', n::text) FROM generate_series(1, 2000) AS n").await.unwrap();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        old.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM rows")).await.unwrap();
        assert_eq!(rotate(&relay).await.as_deref(), Some("switched"));
        relay.relay(ALL).await;
        assert_eq!(rotate(&relay).await.as_deref(), Some("emptied"));
        front.run("SELECT leasehold_submit('q', n::text) FROM generate_series(1, 2000) AS n").await.unwrap();
        old.submit("old").await;
        relay.relay(ALL).await;
        old.run("COMMIT").await.unwrap();
        assert_eq!(rotate(&relay).await, None);
        assert_eq!(relay.relayed_keys().await, ["old"]);
        assert_eq!(rotate(&relay).await.as_deref(), Some("emptied"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_in_another_cluster_an_epoch_begins_that_relays_all_rows_again() {
    let database = Database::new().await;
    let (front, late, relay) = (database.connect().await, database.connect().await, database.connect().await);
    front.submit("relayed").await;
    assert_eq!(relay.relayed_keys().await, ["relayed"]);
    front.submit("waiting").await;
    let (_, epoch) = relay.begin_batch().await.unwrap();
    // A dump of another cluster, whose transaction ids were larger, looks like this.
    front.run("UPDATE leasehold_outbox SET transaction_id = '900000000' WHERE key = 'waiting'").await.unwrap();
    let relayed = "relayed = '1000000000:1000000000:', target = NULL";
    front.run(&format!("UPDATE leasehold_outbox_relay SET system_identifier = 1, {relayed}")).await.unwrap();
    late.run("BEGIN").await.unwrap();
    late.submit("late").await;
    front.submit("new").await;
    let begun = relay.0.query_one("SELECT batch, epoch FROM leasehold_outbox_begin()", &[]).await.unwrap();
    let begun: (Option<i64>, Option<i32>) = (begun.get(0), begun.get(1));
    assert_eq!(begun, (None, Some(epoch + 1)), "the epoch begins with a transaction of its own");
    assert_eq!(relay.begin_batch().await.map(|(_, epoch)| epoch), Some(epoch + 1));
    assert_eq!(relay.relayed_keys().await, ["relayed", "waiting", "new"]);
    late.run("COMMIT").await.unwrap();
    assert_eq!(relay.relayed_keys().await, ["late"]);
    assert_eq!(relay.relayed_keys().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_a_relay_needs_new_snapshots() {
    let database = Database::new().await;
    let relay = database.connect().await;
    relay.submit("a").await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for call in ["leasehold_outbox_begin()", "leasehold_outbox_rotate(0)"] {
            relay.run(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
            assert_eq!(relay.run(&format!("SELECT {call}")).await, refused("25000"), "{level}: {call}");
            relay.run("ROLLBACK").await.unwrap();
        }
    }
}

/// Asks for the place of the relay that works. Returns if it is this one's, and the number of its beats.
async fn hold(session: &Session, relay: u128, seen: Option<i64>) -> (bool, i64) {
    let sql = "SELECT holds, beats FROM leasehold_outbox_hold($1, $2)";
    let row = session.0.query_one(sql, &[&uuid::Uuid::from_u128(relay), &seen]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_one_relay_works_and_another_takes_its_place_once_it_is_silent() {
    let database = Database::new().await;
    let (one, other) = (database.connect().await, database.connect().await);
    assert!(hold(&one, 1, None).await.0);
    let (holds, seen) = hold(&other, 2, None).await;
    assert!(!holds);
    // The first one says that it works, so what the other has seen is old.
    assert!(hold(&one, 1, None).await.0);
    let (holds, seen_again) = hold(&other, 2, Some(seen)).await;
    assert!(!holds && seen_again > seen);
    assert!(hold(&other, 2, Some(seen_again)).await.0);
    assert!(!hold(&one, 1, None).await.0);
    other.run("SELECT leasehold_outbox_release('00000000-0000-0000-0000-000000000001')").await.unwrap();
    assert!(!hold(&one, 1, None).await.0, "only the relay that works gives its place up");
    other.run("SELECT leasehold_outbox_release('00000000-0000-0000-0000-000000000002')").await.unwrap();
    assert!(hold(&one, 1, None).await.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_refused_request_is_set_aside_and_can_be_submitted_again() {
    let database = Database::new().await;
    let (front, relay) = (database.connect().await, database.connect().await);
    front.run("SELECT leasehold_submit('q', n::text, convert_to('body', 'UTF8'), delay => '1 hour') FROM generate_series(1, 3) AS n").await.unwrap();
    front.run("SELECT leasehold_complete(gen_random_uuid(), 'q', 'settle', 7)").await.unwrap();
    let (batch, _) = relay.begin_batch().await.unwrap();
    let first = relay.read(batch, ALL).await;
    let refuse = async |row: &Relayed| {
        let sql = format!("SELECT leasehold_outbox_refuse({batch}, {}, {}, 'LIMIT_EXCEEDED')", row.place, row.number);
        relay.run(&sql).await.unwrap();
    };
    refuse(&first[1]).await;
    assert!(!relay.acknowledge(batch, first[1].place, first[1].number).await);
    let rest = relay.read(batch, ALL).await;
    assert_eq!(keys(&rest), ["3", "settle"], "a refused row holds up no other");
    // A relay that was overtaken sets nothing aside, and a settle is not kept.
    refuse(&first[0]).await;
    refuse(&rest[1]).await;
    assert!(relay.acknowledge(batch, rest[1].place, rest[1].number).await);
    refuse(&rest[0]).await;
    assert_eq!(relay.get::<i64>("SELECT leasehold_outbox_refusals()").await, 1);
    assert_eq!(relay.get::<String>("SELECT key || reason FROM leasehold_outbox_refused").await, "2LIMIT_EXCEEDED");
    let retry = format!("SELECT leasehold_outbox_retry({})", first[1].number);
    assert!(relay.get::<bool>(&retry).await);
    assert!(!relay.get::<bool>(&retry).await);
    assert_eq!(relay.get::<i64>("SELECT leasehold_outbox_refusals()").await, 0);
    let again = relay.relay(ALL).await;
    assert_eq!((keys(&again), &again[0].body[..]), (vec!["2".to_owned()], &b"body"[..]));
}

/// A scan that is switched off has a cost at which PostgreSQL compiles the statement anew in each call, for 20 ms. A relay
/// that sets many rows aside would never end.
#[tokio::test(flavor = "multi_thread")]
async fn q14_no_function_of_the_outbox_is_compiled_in_each_call() {
    let database = Database::new().await;
    let compiled = "SELECT coalesce(string_agg(proname, ', '), 'none') FROM pg_proc
      WHERE proname LIKE 'leasehold%' AND 'enable_seqscan=off' = ANY (proconfig) AND NOT 'jit=off' = ANY (proconfig)";
    assert_eq!(database.connect().await.get::<String>(compiled).await, "none");
}

/// Gives the outbox of `public` functions of a former version.
const FORMER: &str = "
    DROP FUNCTION leasehold_outbox_read(bigint, integer, integer);
    CREATE FUNCTION leasehold_outbox_read(batch bigint, max_rows integer, max_bytes integer)
        RETURNS TABLE (place bigint, number bigint) LANGUAGE sql AS 'SELECT 1::bigint, 1::bigint';
    REVOKE ALL ON FUNCTION leasehold_outbox_read FROM PUBLIC;
    CREATE FUNCTION leasehold_outbox_settle(text, uuid, text, text, bigint, interval)
        RETURNS void LANGUAGE sql AS 'SELECT';
    DROP FUNCTION leasehold_complete(uuid, text, text, bigint, uuid[]);
    ALTER TABLE leasehold_outbox DROP COLUMN requests";

/// The calls of relays and of workers that a former version had with other results or arguments.
const READ: &str = "leasehold_outbox_read(bigint, integer, integer)";
const COMPLETE: &str = "leasehold_complete(uuid, text, text, bigint, uuid[])";

/// Returns the roles but the owner that may call a function. A star means that a role may grant the right.
async fn callers(session: &Session, function: &str) -> Vec<String> {
    let callers = format!(
        "SELECT coalesce(array_agg(name ORDER BY name), '{{}}')
        FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))),
          LATERAL (SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END
            || CASE WHEN is_grantable THEN '*' ELSE '' END AS name) AS named
        WHERE pg_proc.oid = '{function}'::regprocedure AND grantee <> proowner"
    );
    session.get(&callers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_the_outbox_of_a_former_program_is_brought_up_to_date() {
    let database = Database::new().await;
    let owner = database.connect().await;
    owner.submit("a").await;
    owner.run(FORMER).await.unwrap();
    let granted = "CREATE ROLE \"a relay\"; CREATE ROLE worker; CREATE ROLE other;
        GRANT EXECUTE ON FUNCTION leasehold_outbox_read TO \"a relay\" WITH GRANT OPTION;
        GRANT EXECUTE ON FUNCTION leasehold_complete TO worker";
    owner.run(granted).await.unwrap();
    owner.run(outbox::SQL).await.unwrap();
    assert_eq!(owner.relayed_keys().await, ["a"]);
    assert_eq!(callers(&owner, READ).await, ["a relay*"]);
    assert_eq!(callers(&owner, COMPLETE).await, ["worker"]);
    // A right that is taken back later stays so.
    owner.run(&format!("REVOKE EXECUTE ON FUNCTION {COMPLETE} FROM worker")).await.unwrap();
    owner.run(outbox::SQL).await.unwrap();
    assert_eq!(callers(&owner, COMPLETE).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_only_the_owner_may_call_the_functions_of_a_new_outbox() {
    let database = Database::new().await;
    let owner = database.connect().await;
    for function in [READ, COMPLETE, "leasehold_complete(uuid, text, text, bigint)"] {
        assert_eq!(callers(&owner, function).await, [""; 0], "{function}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_an_outbox_that_was_loaded_without_rows_works() {
    let empty = "TRUNCATE leasehold_outbox_part, leasehold_outbox_relay, leasehold_outbox_holder";
    let hold = "leasehold_outbox_hold('00000000-0000-7000-8000-000000000001', NULL)";
    for call in ["leasehold_submit('q', 'a')", "leasehold_outbox_begin()", hold] {
        let database = Database::new().await;
        let owner = database.connect().await;
        owner.run(empty).await.unwrap();
        owner.run(&format!("SELECT {call}")).await.unwrap();
        owner.submit("b").await;
        let keys = owner.relayed_keys().await;
        assert_eq!(keys.last().map(String::as_str), Some("b"), "{call}");
        assert!(owner.get::<bool>(&format!("SELECT holds FROM {hold}")).await, "{call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_an_outbox_in_another_schema_stays_as_it_is() {
    let database = Database::new().await;
    let owner = database.connect().await;
    owner.run(FORMER).await.unwrap();
    owner.run("CREATE SCHEMA first; SET search_path = first, public").await.unwrap();
    owner.run(outbox::SQL).await.unwrap();
    owner.submit("b").await;
    assert_eq!(owner.relayed_keys().await, ["b"]);
    let former = "public.leasehold_outbox_settle(text, uuid, text, text, bigint, interval)";
    assert!(owner.get::<bool>(&format!("SELECT to_regprocedure('{former}') IS NOT NULL")).await);
    let read = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'leasehold_outbox%_read'";
    assert_eq!(owner.get::<i64>(read).await, 2);
}
