//! Triggers write the changes of tables into the outbox, those of raw SQL too (Q06, Q21).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold_core::outbox;
use leasehold_tests::wire::leasehold;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::order::relay_beside;
use super::{ALL, Database, Session, refused};

impl Database {
    /// A database that captures these tables, as the program prints it.
    async fn capturing(arguments: &[&str]) -> Self {
        let database = Self::new().await;
        let owner = database.connect().await;
        owner.run("CREATE TABLE users (id bigint PRIMARY KEY, name text, email text)").await.unwrap();
        owner
            .run("CREATE TABLE parts (id bigint, region text, PRIMARY KEY (region, id)) PARTITION BY LIST (region)")
            .await
            .unwrap();
        owner.run("CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a')").await.unwrap();
        owner.run("CREATE TABLE parts_b PARTITION OF parts FOR VALUES IN ('b')").await.unwrap();
        let printed = leasehold([&["capture"], arguments].concat()).await.unwrap().stdout;
        owner.run(&format!("BEGIN; {}; COMMIT", String::from_utf8(printed).unwrap())).await.unwrap();
        database
    }
}

impl Session {
    /// Relays what was captured: the operation of each request, and its rows.
    async fn captured(&self) -> Vec<(String, Value)> {
        let bodies = self.captured_bodies().await;
        bodies.into_iter().map(|body| (body["operation"].as_str().unwrap().to_owned(), body["rows"].clone())).collect()
    }

    async fn captured_bodies(&self) -> Vec<Value> {
        self.relay(ALL).await.iter().map(|row| serde_json::from_slice(&row.body).unwrap()).collect()
    }
}

fn change(operation: &str, rows: Value) -> (String, Value) {
    (operation.to_owned(), rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_each_statement_hands_on_the_keys_that_it_changed_exactly_if_it_commits() {
    let database = Database::capturing(&["users"]).await;
    let writer = database.connect().await;
    writer.run("BEGIN; INSERT INTO users SELECT n FROM generate_series(1, 3) AS n").await.unwrap();
    writer.run("SAVEPOINT one; DELETE FROM users; ROLLBACK TO SAVEPOINT one").await.unwrap();
    writer.run("UPDATE users SET name = 'x' WHERE id < 3; UPDATE users SET id = 4 WHERE id = 3; COMMIT").await.unwrap();
    writer.run("DELETE FROM users WHERE id = 1; UPDATE users SET name = 'y' WHERE id > 100").await.unwrap();
    writer.run("BEGIN; TRUNCATE users; ROLLBACK; TRUNCATE users").await.unwrap();
    assert_eq!(
        writer.captured().await,
        [
            change("INSERT", json!([[[1]], [[2]], [[3]]])),
            change("UPDATE", json!([[[1]], [[2]]])),
            change("UPDATE", json!([[[3]]])),
            change("UPDATE", json!([[[4]]])),
            change("DELETE", json!([[[1]]])),
            change("TRUNCATE", json!([])),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_old_and_new_values_of_the_chosen_columns_are_handed_on() {
    let database = Database::capturing(&["users", "--columns", "name,email", "--queue", "sync"]).await;
    let writer = database.connect().await;
    writer.run("INSERT INTO users VALUES (1, 'a \"quoted\"', NULL), (2, E'b\\n', '')").await.unwrap();
    writer.run("UPDATE users SET name = 'c' WHERE id = 1; UPDATE users SET id = id + 1").await.unwrap();
    writer
        .run("INSERT INTO users VALUES (2, 'd'), (9, 'e') ON CONFLICT (id) DO UPDATE SET name = excluded.name")
        .await
        .unwrap();
    writer.run("DELETE FROM users WHERE id = 9").await.unwrap();
    let rows = writer.relay(ALL).await;
    assert!(rows.iter().all(|row| (row.queue.as_str(), row.key.as_str()) == ("sync", "changes")), "{rows:?}");
    let bodies: Vec<Value> = rows.iter().map(|row| serde_json::from_slice(&row.body).unwrap()).collect();
    assert_eq!(bodies[0]["table"], "public.users");
    assert_eq!((&bodies[0]["key"], &bodies[0]["columns"]), (&json!(["id"]), &json!(["name", "email"])));
    let changed = bodies.iter().map(|body| (body["operation"].as_str().unwrap(), sorted(&body["rows"])));
    let expected = [
        ("INSERT", json!([[[1], null, ["a \"quoted\"", null]], [[2], null, ["b\n", ""]]])),
        ("UPDATE", json!([[[1], ["a \"quoted\"", null], ["c", null]]])),
        // The key 2 passed from one row to another.
        ("UPDATE", json!([[[1], ["c", null], null], [[2], ["b\n", ""], ["c", null]], [[3], null, ["b\n", ""]]])),
        ("UPDATE", json!([[[2], ["c", null], ["d", null]]])),
        ("INSERT", json!([[[9], null, ["e", null]]])),
        ("DELETE", json!([[[9], ["e", null], null]])),
    ];
    assert_eq!(changed.collect::<Vec<_>>(), expected);
}

/// The rows of a statement, which have no order.
fn sorted(rows: &Value) -> Value {
    let mut rows = rows.as_array().unwrap().clone();
    rows.sort_by_key(Value::to_string);
    rows.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_statements_of_many_rows_and_large_values_fit_into_requests() {
    let database = Database::capturing(&["users", "--columns", "name,email"]).await;
    let writer = database.connect().await;
    // The plan of the first statement, for one row, is kept.
    writer.run("INSERT INTO users VALUES (0, 'n', 'e'); UPDATE users SET name = 'm'").await.unwrap();
    writer.relay(ALL).await;
    writer
        .run("INSERT INTO users SELECT n, 'name', repeat('é', n % 1000) FROM generate_series(1, 20000) AS n")
        .await
        .unwrap();
    writer.run("UPDATE users SET name = repeat('n', 20000) WHERE id = 7").await.unwrap();
    let bodies = writer.captured_bodies().await;
    let (last, inserted) = bodies.split_last().unwrap();
    assert_eq!(last["rows"], json!([[[7]]]), "the values are too large");
    let keys: Vec<_> = inserted
        .iter()
        .flat_map(|body| body["rows"].as_array().unwrap())
        .map(|row| row[0][0].as_i64().unwrap())
        .collect();
    assert!(keys.iter().copied().eq(1..=20_000) && inserted.len() > 300, "{} requests", inserted.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_partitions_are_captured_and_rows_that_move_between_them() {
    let database = Database::capturing(&["parts", "--by-table"]).await;
    let writer = database.connect().await;
    writer
        .run("INSERT INTO parts VALUES (1, 'a'), (2, 'b'); UPDATE parts SET region = 'b' WHERE id = 1")
        .await
        .unwrap();
    writer.run("UPDATE parts_b SET id = 3 WHERE id = 2; TRUNCATE parts_a").await.unwrap();
    let rows = writer.relay(ALL).await;
    assert!(rows.iter().all(|row| row.key == "public.parts"), "{rows:?}");
    let bodies: Vec<Value> = rows.iter().map(|row| serde_json::from_slice(&row.body).unwrap()).collect();
    let changed = bodies.iter().map(|body| {
        (body["operation"].as_str().unwrap(), body["partition"].as_str().unwrap_or(""), sorted(&body["rows"]))
    });
    let expected = [
        ("INSERT", "", json!([[["a", 1]], [["b", 2]]])),
        ("UPDATE", "", json!([[["a", 1]], [["b", 1]]])),
        ("UPDATE", "public.parts_b", json!([[["b", 2]], [["b", 3]]])),
        ("TRUNCATE", "public.parts_a", json!([])),
    ];
    assert_eq!(changed.collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_copies_cascades_and_roles_without_rights_on_the_outbox_are_captured() {
    let database = Database::capturing(&["users"]).await;
    let owner = database.connect().await;
    owner.run("CREATE TABLE teams (id bigint PRIMARY KEY); INSERT INTO teams VALUES (5)").await.unwrap();
    owner.run("ALTER TABLE users ADD team bigint REFERENCES teams ON DELETE CASCADE").await.unwrap();
    owner.run("CREATE ROLE writer; GRANT INSERT ON users TO writer; SET ROLE writer").await.unwrap();
    owner.run("SET search_path = pg_catalog; INSERT INTO public.users (id, team) VALUES (1, 5)").await.unwrap();
    owner.run("RESET ROLE; RESET search_path").await.unwrap();
    owner.run("COPY users (id, team) FROM PROGRAM 'printf \"2\\t5\\n3\\t5\\n\"'").await.unwrap();
    owner.run("DELETE FROM teams").await.unwrap();
    assert_eq!(
        owner.captured().await,
        [
            change("INSERT", json!([[[1]]])),
            change("INSERT", json!([[[2]], [[3]]])),
            change("DELETE", json!([[[1]], [[2]], [[3]]])),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn q21_captured_changes_of_a_row_arrive_in_the_order_of_its_versions() {
    let database = Database::capturing(&["rows", "--columns", "version"]).await;
    let running = Arc::new(AtomicI64::new(8));
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let (session, running) = (database.connect().await, running.clone());
        writers.spawn(async move {
            for number in 0..60 {
                let id = (writer + number) % 3 + 1;
                let statement = format!("UPDATE rows SET version = version + 1 WHERE id = {id}");
                session.run(&format!("BEGIN; {statement}; SELECT pg_current_xact_id(); COMMIT")).await.unwrap();
            }
            running.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let rows = relay_beside(&database.connect().await, &running).await;
    writers.join_all().await;
    let bodies: Vec<Value> = rows.iter().map(|row| serde_json::from_slice(&row.body).unwrap()).collect();
    let mut versions = BTreeMap::new();
    for row in bodies.iter().flat_map(|body| body["rows"].as_array().unwrap()) {
        let before = versions.insert(row[0][0].as_i64(), row[2][0].as_i64()).flatten().unwrap_or(0);
        assert_eq!((row[1][0].as_i64(), row[2][0].as_i64()), (Some(before), Some(before + 1)), "{row}");
    }
    assert_eq!(bodies.len(), 480);
}

#[tokio::test(flavor = "multi_thread")]
async fn q21_changes_that_would_not_be_captured_are_listed() {
    let database = Database::capturing(&["users", "parts"]).await;
    let owner = database.connect().await;
    let gaps = async || {
        let rows =
            owner.0.query("SELECT member::text, gap FROM leasehold_capture_gaps() ORDER BY 1, 2", &[]).await.unwrap();
        rows.iter()
            .map(|row| (row.get::<_, Option<String>>(0).unwrap_or_default(), row.get::<_, String>(1)))
            .collect::<Vec<_>>()
    };
    assert_eq!(gaps().await, []);
    owner.run("CREATE TABLE parts_c PARTITION OF parts FOR VALUES IN ('c')").await.unwrap();
    owner
        .run("ALTER TABLE users DISABLE TRIGGER leasehold_capture_update, DISABLE TRIGGER leasehold_capture_key")
        .await
        .unwrap();
    owner.run("SET session_replication_role = replica").await.unwrap();
    let found = gaps().await;
    let tables: Vec<_> = found.iter().map(|(table, _)| table.as_str()).collect();
    assert_eq!(tables, ["parts_c", "parts_c", "parts_c", "parts_c", "users", "users", ""], "{found:?}");
    owner.run("RESET session_replication_role; ALTER TABLE users ENABLE TRIGGER USER").await.unwrap();
    owner.run("SELECT leasehold_capture('parts', 'changes', '{}', 'changes')").await.unwrap();
    assert_eq!(gaps().await, []);
    // The gap of a dropped table says how to end its capture.
    owner.run("CREATE TABLE brief (id int PRIMARY KEY)").await.unwrap();
    owner.run("SELECT leasehold_capture('brief', 'changes', '{}', 'changes'); DROP TABLE brief").await.unwrap();
    let found = gaps().await;
    let [(_, dropped)] = found.as_slice() else { panic!("{found:?}") };
    owner.run(dropped.strip_prefix("the table was dropped: ").unwrap()).await.unwrap();
    assert_eq!(gaps().await, []);
    // A partition that left is still captured, until that is ended too.
    owner.run("ALTER TABLE parts DETACH PARTITION parts_c").await.unwrap();
    let found = gaps().await;
    let [(table, detached)] = found.as_slice() else { panic!("{found:?}") };
    owner.run(detached.strip_prefix("it is no part of a captured table any more: ").unwrap()).await.unwrap();
    assert_eq!((table.as_str(), gaps().await), ("parts_c", Vec::new()));
    let key = "ALTER TABLE users DROP CONSTRAINT users_pkey, ADD PRIMARY KEY (id, name)";
    owner.run(&format!("BEGIN; {key}")).await.unwrap();
    assert_eq!(gaps().await.len(), 1);
    owner.run("ROLLBACK").await.unwrap();
    // A renamed column makes statements fail, until the table is captured again. So does another type of a whole number.
    owner.run("SELECT leasehold_capture('users', 'changes', '{name}', 'changes')").await.unwrap();
    owner.run("BEGIN; ALTER TABLE users ALTER id TYPE text").await.unwrap();
    assert_eq!(owner.run("INSERT INTO users VALUES ('\"')").await, refused("42883"));
    owner.run("ROLLBACK; SELECT leasehold_capture('users', 'changes', NULL, 'changes')").await.unwrap();
    owner.run("ALTER TABLE users RENAME id TO number").await.unwrap();
    assert_eq!(owner.run("INSERT INTO users VALUES (1)").await, refused("42703"));
    owner
        .run("SELECT leasehold_capture('users', 'changes', '{}', 'changes'); INSERT INTO users VALUES (1)")
        .await
        .unwrap();
    owner.run("SELECT leasehold_end_capture('users'); INSERT INTO users VALUES (2)").await.unwrap();
    assert_eq!(owner.captured().await, [change("INSERT", json!([[[1]]]))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_names_need_no_care_and_a_renamed_table_is_still_captured() {
    let database = Database::capturing(&["users"]).await;
    let owner = database.connect().await;
    owner.run("CREATE SCHEMA app; SET search_path = app").await.unwrap();
    owner
        .run(r#"CREATE TABLE "odd %s" (key text, item numeric, "it's" jsonb, PRIMARY KEY (key, item))"#)
        .await
        .unwrap();
    owner.run(r#"SELECT public.leasehold_capture('"odd %s"', 'changes', ARRAY['it''s'], 'changes')"#).await.unwrap();
    owner
        .run(r#"INSERT INTO "odd %s" VALUES ('%s', 'NaN', '{"a": [1]}'); ALTER TABLE "odd %s" RENAME TO even"#)
        .await
        .unwrap();
    owner.run(r#"CREATE TABLE "odd %s" (id bigint PRIMARY KEY)"#).await.unwrap();
    owner.run(r#"SELECT public.leasehold_capture('"odd %s"', 'changes', '{}', NULL)"#).await.unwrap();
    owner.run(r#"INSERT INTO "odd %s" VALUES (1); DELETE FROM even"#).await.unwrap();
    owner
        .run("SELECT public.leasehold_capture('even', 'changes', '{}', NULL); INSERT INTO even VALUES ('k', 2)")
        .await
        .unwrap();
    owner.run("SET search_path = public").await.unwrap();
    let bodies = owner.captured_bodies().await;
    let changed = bodies.iter().map(|body| (body["table"].as_str().unwrap(), &body["rows"]));
    let old = json!({"a": [1]});
    let expected = [
        ("app.odd %s", &json!([[["%s", "NaN"], null, [old]]])),
        ("app.odd %s", &json!([[[1]]])),
        ("app.odd %s", &json!([[["%s", "NaN"], [old], null]])),
        ("app.even", &json!([[["k", 2]]])),
    ];
    assert_eq!(changed.collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_tables_that_can_not_be_captured_are_refused() {
    let database = Database::capturing(&["users"]).await;
    let owner = database.connect().await;
    owner.run("CREATE TABLE keyless (id bigint)").await.unwrap();
    for (call, code) in [
        ("'keyless', 'changes', '{}', NULL", "42P16"),
        ("'absent', 'changes', '{}', NULL", "42P01"),
        ("'users', 'changes', '{absent}', NULL", "42703"),
        ("'users', 'changes', '{NULL}', NULL", "42703"),
        ("'users', 'a..b', '{}', NULL", "22023"),
        ("'users', 'changes', '{}', repeat('k', 513)", "22023"),
        ("'users', 'leasehold.claims', '{}', NULL", "22023"),
        ("'users', 'leasehold.claims.strict', '{}', NULL", "22023"),
    ] {
        assert_eq!(owner.run(&format!("SELECT leasehold_capture({call})")).await, refused(code), "{call}");
    }
    // The installation may be repeated, and needs the outbox.
    owner.run(outbox::CAPTURE_SQL).await.unwrap();
    owner.run("INSERT INTO users VALUES (1)").await.unwrap();
    assert_eq!(owner.captured().await, [change("INSERT", json!([[[1]]]))]);
}
