//! Requests that a transaction writes exist exactly if it commits (Q14).

use std::collections::HashSet;

use leasehold_core::outbox;
use uuid::{Uuid, Variant};

use super::{ALL, Database, Session, keys, refused};

/// A settle under a fence, guarded as a lock's writes are.
async fn complete(worker: &Session, fence: u64) -> Result<(), String> {
    worker.run("BEGIN").await?;
    worker.run(&format!("SELECT leasehold_guard('q/7', {fence}, interval '1 minute')")).await?;
    worker.run("UPDATE rows SET version = version + 1 WHERE id = 1").await?;
    let session = "00000000-0000-4000-8000-000000000001";
    worker.run(&format!("SELECT leasehold_complete('{session}', 'q', '7', {fence})")).await?;
    worker.run("COMMIT").await
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_submit_happens_exactly_if_its_transaction_commits() {
    let database = Database::new().await;
    let (front, relay) = (database.connect().await, database.connect().await);
    front.run("BEGIN").await.unwrap();
    front.submit("committed").await;
    assert_eq!(relay.relayed_keys().await, [""; 0]);
    front.run("COMMIT; BEGIN").await.unwrap();
    front.submit("rolled back").await;
    front.run("ROLLBACK").await.unwrap();
    assert_eq!(relay.relayed_keys().await, ["committed"]);
    assert_eq!(relay.relayed_keys().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_what_a_savepoint_takes_back_was_not_submitted() {
    let database = Database::new().await;
    let (front, relay) = (database.connect().await, database.connect().await);
    front.run("BEGIN; SAVEPOINT one").await.unwrap();
    front.submit("taken back").await;
    front.run("ROLLBACK TO SAVEPOINT one; SAVEPOINT two; SAVEPOINT three").await.unwrap();
    front.submit("a").await;
    front.run("RELEASE SAVEPOINT three").await.unwrap();
    front.submit("b").await;
    front.run("RELEASE SAVEPOINT two; SAVEPOINT four").await.unwrap();
    front.submit("taken back").await;
    assert_eq!(front.run("SELECT 1 / 0").await, refused("22012"));
    front.run("ROLLBACK TO SAVEPOINT four").await.unwrap();
    front.submit("c").await;
    assert_eq!(relay.relayed_keys().await, [""; 0]);
    front.run("COMMIT").await.unwrap();
    let rows = relay.relay(ALL).await;
    assert_eq!(keys(&rows), ["a", "b", "c"]);
    assert!(rows.iter().all(|row| row.place == rows[2].number), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_prepared_transaction_submits_when_it_commits() {
    let database = Database::new().await;
    let (front, relay) = (database.connect().await, database.connect().await);
    for key in ["kept", "dropped"] {
        front.run("BEGIN").await.unwrap();
        front.submit(key).await;
        front.run(&format!("PREPARE TRANSACTION '{key}'")).await.unwrap();
    }
    front.submit("other").await;
    assert_eq!(relay.relayed_keys().await, ["other"]);
    front.run("ROLLBACK PREPARED 'dropped'").await.unwrap();
    front.run("COMMIT PREPARED 'kept'").await.unwrap();
    assert_eq!(relay.relayed_keys().await, ["kept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q10_q14_a_completion_commits_with_the_work_and_under_the_newest_fence_only() {
    let database = Database::new().await;
    let (former, later, relay) = (database.connect().await, database.connect().await, database.connect().await);
    complete(&later, 8).await.unwrap();
    assert_eq!(complete(&former, 7).await, refused("LH001"));
    former.run("ROLLBACK").await.unwrap();
    let (batch, _) = relay.begin_batch().await.unwrap();
    let row = relay.0.query_one("SELECT * FROM leasehold_outbox_read($1, 10, 10)", &[&batch]).await.unwrap();
    assert_eq!((row.get("operation"), row.get("queue"), row.get("key")), ("complete", "q", "7"));
    assert_eq!(row.get::<_, i64>("fence"), 8);
    assert_eq!(relay.get::<i32>("SELECT version FROM rows WHERE id = 1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn q16_new_ids_begin_with_the_time_and_are_random_otherwise() {
    let database = Database::new().await;
    let front = database.connect().await;
    let seconds = "SELECT extract(epoch FROM clock_timestamp())::bigint";
    let before = front.get::<i64>(seconds).await;
    let ids = front.get::<Vec<Uuid>>("SELECT array_agg(leasehold_submit('q', 'a')) FROM generate_series(1, 50)").await;
    let after = front.get::<i64>(seconds).await;
    for id in &ids {
        assert_eq!((id.get_version_num(), id.get_variant()), (7, Variant::RFC4122));
        let (made, _) = id.get_timestamp().unwrap().to_unix();
        assert!((before - 1..=after + 1).contains(&made.cast_signed()), "{id}");
    }
    let random: HashSet<_> = ids.iter().map(|id| &id.as_bytes()[6..]).collect();
    assert_eq!(random.len(), ids.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_what_the_server_would_refuse_is_refused_at_once_and_q22_without_its_text() {
    let database = Database::new().await;
    let front = database.connect().await;
    let session = "'00000000-0000-4000-8000-000000000001'";
    for (call, field) in [
        ("leasehold_submit('', 'secret')".to_owned(), "queue"),
        ("leasehold_submit('a..b', 'secret')".to_owned(), "queue"),
        ("leasehold_submit('a/b', 'secret')".to_owned(), "queue"),
        ("leasehold_submit(repeat('q', 256), 'secret')".to_owned(), "queue"),
        ("leasehold_submit('q', NULL)".to_owned(), "key"),
        ("leasehold_submit('q', E'secret\\n')".to_owned(), "key"),
        ("leasehold_submit('q', E'secret\\u0085')".to_owned(), "key"),
        ("leasehold_submit('q', repeat('secret', 100))".to_owned(), "key"),
        ("leasehold_submit('q', 'secret', id => NULL)".to_owned(), "id"),
        ("leasehold_submit('q', 'secret', kind => 'delete')".to_owned(), "kind"),
        ("leasehold_submit('q', 'secret', priority => 10)".to_owned(), "priority"),
        ("leasehold_submit('q', 'secret', delay => '366 days')".to_owned(), "delay"),
        ("leasehold_submit('q', 'secret', max_attempts => 0)".to_owned(), "max_attempts"),
        ("leasehold_submit('q', 'secret', convert_to(repeat('secret', 11000), 'UTF8'))".to_owned(), "body"),
        ("leasehold_complete(NULL, 'q', 'secret', 1)".to_owned(), "session_id"),
        (format!("leasehold_give_back({session}, 'q', 'secret', 0)"), "fence"),
        (format!("leasehold_complete({session}, 'q', 'secret', 1, ARRAY[NULL]::uuid[])"), "requests"),
        (format!("leasehold_complete({session}, 'q', 'secret', 1, ARRAY[ARRAY[{session}::uuid]])"), "requests"),
        (
            format!("leasehold_complete({session}, 'q', 'secret', 1, array_fill({session}::uuid, ARRAY[101]))"),
            "requests",
        ),
        (format!("leasehold_fail({session}, 'q', 'secret', 1, '-1 second')"), "retry"),
    ] {
        let error = front.0.batch_execute(&format!("SELECT {call}")).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{call}: {error:?}");
        assert!(error.message().starts_with(&format!("`{field}` is ")), "{call}: {error:?}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    // A relay could not read bytes that are no text.
    front.run("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'").await.unwrap();
    let bytes = database.connect_to("bytes").await;
    bytes.run(outbox::SQL).await.unwrap();
    assert_eq!(bytes.run("SELECT leasehold_submit('q', E'k\\xff')").await, refused("22021"));
    bytes.run("SELECT leasehold_submit('q', 'k')").await.unwrap();
    let longest =
        "repeat('q', 255), repeat('k', 512), convert_to(repeat('b', 65536), 'UTF8'), 'create', 9, '365 days', 1000";
    front
        .run(&format!("SELECT leasehold_submit({longest}), leasehold_fail({session}, 'q', 'k', 1, '365 days')"))
        .await
        .unwrap();
    assert_eq!(front.relay(ALL).await.len(), 2);
}

/// A batch of a worker: its fence, and the numbers of its requests.
struct Batch<'a>(u64, &'a [u128]);

impl Batch<'_> {
    fn ids(&self) -> String {
        let ids: Vec<_> = self.1.iter().map(|id| format!("'{}'", uuid::Uuid::from_u128(*id))).collect();
        format!("ARRAY[{}]::uuid[]", ids.join(", "))
    }

    /// Works on a batch in a transaction, which stays open: each request that is not done counts in its row.
    async fn work(&self, worker: &Session) -> Result<(), String> {
        let Self(fence, requests) = self;
        worker.run("BEGIN").await?;
        worker.run(&format!("SELECT leasehold_guard('q/7', {fence}, interval '1 minute')")).await?;
        let done: Vec<uuid::Uuid> = worker.get(&format!("SELECT leasehold_done('q', '7', {})", self.ids())).await;
        for id in requests.iter().filter(|id| !done.contains(&uuid::Uuid::from_u128(**id))) {
            worker.run(&format!("UPDATE rows SET version = version + 1 WHERE id = {id}")).await?;
        }
        let session = "00000000-0000-4000-8000-000000000001";
        worker.run(&format!("SELECT leasehold_complete('{session}', 'q', '7', {fence}, {})", self.ids())).await
    }
}

/// How often the work of each request of a table was done.
async fn worked(session: &Session) -> Vec<i32> {
    session.get("SELECT array_agg(version ORDER BY id) FROM rows").await
}

/// Relays all that is committed to a server that refuses all settles.
async fn relay_refused(relay: &Session) {
    while let Some((batch, _)) = relay.begin_batch().await {
        let rows = relay.read(batch, ALL).await;
        for row in &rows {
            let sql =
                format!("SELECT leasehold_outbox_refuse({batch}, {}, {}, 'SESSION_ENDED')", row.place, row.number);
            relay.run(&sql).await.unwrap();
        }
        let last = rows.last().unwrap();
        relay.acknowledge(batch, last.place, last.number).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_what_a_dead_worker_has_done_is_done_once() {
    let database = Database::new().await;
    let (dead, next, relay) = (database.connect().await, database.connect().await, database.connect().await);
    Batch(1, &[1, 2]).work(&dead).await.unwrap();
    dead.run("COMMIT").await.unwrap();
    // The worker died before its batch was settled: the next one has its requests, and another.
    Batch(2, &[1, 2, 3]).work(&next).await.unwrap();
    next.run("ROLLBACK").await.unwrap();
    relay_refused(&relay).await;
    Batch(3, &[1, 2, 3]).work(&next).await.unwrap();
    next.run("COMMIT").await.unwrap();
    assert_eq!(worked(&next).await, [1, 1, 1, 0, 0, 0]);
    // The marks survive the rotation, until the relay forgets them.
    relay_refused(&relay).await;
    relay.run("SELECT leasehold_outbox_rotate(0), leasehold_outbox_rotate(0)").await.unwrap();
    assert_eq!(relay.get::<i64>("SELECT count(*) FROM leasehold_outbox").await, 0);
    Batch(4, &[1, 4]).work(&next).await.unwrap();
    next.run("COMMIT").await.unwrap();
    assert_eq!(worked(&next).await, [1, 1, 1, 1, 0, 0]);
    relay_refused(&relay).await;
    let marks = "SELECT array_agg(mark) FROM leasehold_outbox_marks('00000000-0000-0000-0000-000000000001', 2) AS mark";
    let ids = |ids: &[u128]| ids.iter().map(|id| uuid::Uuid::from_u128(*id)).collect::<Vec<_>>();
    assert_eq!(relay.get::<Vec<uuid::Uuid>>(marks).await, ids(&[2, 3]));
    relay
        .run("SELECT leasehold_outbox_forget((SELECT array_agg(request_id) FROM leasehold_outbox_done))")
        .await
        .unwrap();
    relay.run("SELECT leasehold_outbox_rotate(0), leasehold_outbox_rotate(0)").await.unwrap();
    Batch(5, &[1]).work(&next).await.unwrap();
    next.run("COMMIT").await.unwrap();
    assert_eq!(worked(&next).await[0], 2, "a mark is forgotten once no worker can get the request");
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_the_next_worker_waits_for_the_transaction_of_a_slow_one() {
    let database = Database::new().await;
    let (slow, next) = (database.connect().await, database.connect().await);
    Batch(1, &[1, 2]).work(&slow).await.unwrap();
    let batch = Batch(2, &[1, 2]);
    let (worked_next, ()) = tokio::join!(batch.work(&next), async {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        let observer = database.connect().await;
        while observer.get::<i64>(waits).await == 0 {
            tokio::task::yield_now().await;
        }
        slow.run("COMMIT").await.unwrap();
    });
    worked_next.unwrap();
    next.run("COMMIT").await.unwrap();
    assert_eq!(worked(&next).await, [1, 1, 0, 0, 0, 0]);
    // One that begins after it is refused.
    assert_eq!(Batch(1, &[3]).work(&slow).await, refused("LH001"));
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_partition_is_not_emptied_while_a_transaction_has_read_its_done_marks() {
    let database = Database::new().await;
    let (dead, next, relay) = (database.connect().await, database.connect().await, database.connect().await);
    Batch(1, &[1]).work(&dead).await.unwrap();
    dead.run("COMMIT").await.unwrap();
    assert_eq!(relay.get::<Option<String>>("SELECT leasehold_outbox_rotate(0)").await.as_deref(), Some("switched"));
    Batch(2, &[1]).work(&next).await.unwrap();
    relay_refused(&relay).await;
    let rotate = "SELECT leasehold_outbox_rotate(0)";
    assert_eq!(relay.get::<Option<String>>(rotate).await, None);
    next.run("COMMIT").await.unwrap();
    relay_refused(&relay).await;
    assert_eq!(relay.get::<Option<String>>(rotate).await.as_deref(), Some("emptied"));
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        next.run(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
        assert_eq!(next.run("SELECT leasehold_done('q', '7', '{}')").await, refused("25000"), "{level}");
        next.run("ROLLBACK").await.unwrap();
    }
}
