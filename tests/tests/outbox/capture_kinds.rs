//! The capture of tables of all kinds: with partitions and children, with row security, with types and operators of other
//! schemas, in other encodings (Q06, Q21).

use std::collections::BTreeMap;

use leasehold_core::outbox;
use serde_json::{Value, json};

use super::capture_replay::replay;
use super::{ALL, Database, Session, refused};

async fn database(tables: &str) -> (Database, Session) {
    let database = Database::new().await;
    let owner = database.connect().await;
    owner.run(outbox::CAPTURE_SQL).await.unwrap();
    owner.run(tables).await.unwrap();
    (database, owner)
}

impl Session {
    async fn bodies(&self) -> Vec<Value> {
        self.relay(ALL).await.iter().map(|row| serde_json::from_slice(&row.body).unwrap()).collect()
    }

    /// The operations that were captured, with the partitions that they name.
    async fn operations(&self) -> Vec<Value> {
        self.bodies().await.iter().map(|body| json!([body["operation"], body["partition"]])).collect()
    }

    /// Asserts that a replay of the captured changes has the rows of a table with the columns `id` and `v`.
    async fn assert_replayed(&self, table: &str, statement: &str) {
        let mut replayed = BTreeMap::new();
        replay(&self.bodies().await, &mut replayed);
        let sql = format!("SELECT json_build_array(id)::text, json_build_array(v)::text FROM {table}");
        let rows = self.0.query(&sql, &[]).await.unwrap();
        let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let present: BTreeMap<_, _> =
            rows.iter().map(|row| (parsed(row.get(0)).to_string(), parsed(row.get(1)))).collect();
        assert_eq!(replayed, present, "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q21_a_trigger_may_name_a_table_by_one_of_its_partitions_or_children() {
    for (table, other, statement) in [
        ("p", "p", "UPDATE p1 SET v = 6"),
        ("p", "p", "UPDATE p1a SET v = 6"),
        ("p", "p1a", "UPDATE p SET v = 6"),
        ("p", "p1a", "UPDATE p1 SET v = 6"),
        ("p", "p1", "INSERT INTO p VALUES (2, 9)"),
        ("parent", "child", "UPDATE parent SET v = 6"),
        ("parent", "parent", "UPDATE child SET v = 6"),
    ] {
        let (_database, owner) = database(&format!(
            "CREATE TABLE p (id integer PRIMARY KEY, v integer) PARTITION BY RANGE (id);
             CREATE TABLE p1 PARTITION OF p DEFAULT PARTITION BY RANGE (id);
             CREATE TABLE p1a PARTITION OF p1 DEFAULT;
             CREATE TABLE parent (id integer PRIMARY KEY, v integer);
             CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
             CREATE FUNCTION add() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NEW.v % 3 = 0 THEN UPDATE {other} SET v = v + 1 WHERE id = NEW.id; END IF; RETURN NULL; END $$;
             CREATE TRIGGER add AFTER INSERT OR UPDATE ON p FOR EACH ROW EXECUTE FUNCTION add();
             CREATE TRIGGER add AFTER INSERT OR UPDATE ON child FOR EACH ROW EXECUTE FUNCTION add();
             SELECT leasehold_capture('{table}', 'changes', '{{v}}', 'changes');
             INSERT INTO p VALUES (1, 1); INSERT INTO child VALUES (1, 1)",
        ))
        .await;
        owner.run(statement).await.unwrap();
        owner.assert_replayed(table, &format!("{statement}, {other}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_a_truncate_of_a_whole_table_is_one_request() {
    for columns in ["NULL", "'{v}'"] {
        let (_database, owner) = database(&format!(
            "CREATE TABLE p (id integer PRIMARY KEY, v integer) PARTITION BY RANGE (id);
             CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
             CREATE TABLE p1a PARTITION OF p1 DEFAULT;
             CREATE TABLE p2 PARTITION OF p DEFAULT;
             SELECT leasehold_capture('p', 'changes', {columns}, 'changes')",
        ))
        .await;
        let (root, part) = (json!(["TRUNCATE", null]), |name| json!(["TRUNCATE", format!("public.{name}")]));
        let inserted = json!(["INSERT", null]);
        for (statements, expected) in [
            ("TRUNCATE p", vec![root.clone()]),
            ("TRUNCATE p1", vec![part("p1")]),
            ("TRUNCATE p1a", vec![part("p1a")]),
            ("TRUNCATE p1, p2", vec![part("p1"), part("p2")]),
            ("TRUNCATE p; TRUNCATE p1", vec![root.clone()]),
            ("TRUNCATE p1; TRUNCATE p", vec![part("p1"), root.clone()]),
            ("TRUNCATE p; INSERT INTO p VALUES (1); TRUNCATE p1", vec![root.clone(), inserted.clone(), part("p1")]),
            ("BEGIN; SAVEPOINT s; TRUNCATE p; ROLLBACK TO s; TRUNCATE p1; COMMIT", vec![part("p1")]),
        ] {
            owner.run(statements).await.unwrap();
            assert_eq!(owner.operations().await, expected, "{columns}: {statements}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_a_table_that_hides_rows_from_its_owner_is_refused() {
    let (database, admin) = database(
        "CREATE ROLE owner LOGIN; CREATE ROLE app; CREATE SCHEMA own AUTHORIZATION owner; GRANT USAGE ON SCHEMA own TO app",
    )
    .await;
    let owner = database.connect().await;
    owner.run("SET SESSION AUTHORIZATION owner; SET search_path = own").await.unwrap();
    owner.run(outbox::SQL).await.unwrap();
    owner.run(outbox::CAPTURE_SQL).await.unwrap();
    owner
        .run(
            "CREATE TABLE team (id integer PRIMARY KEY);
             CREATE TABLE mem (id integer PRIMARY KEY, team integer REFERENCES team ON DELETE SET NULL, v text);
             ALTER TABLE mem ENABLE ROW LEVEL SECURITY;
             CREATE POLICY app ON mem USING (current_user = 'app');
             GRANT ALL ON mem TO app;
             SELECT leasehold_capture('mem', 'changes', '{v}', 'changes')",
        )
        .await
        .unwrap();
    // The owner sees all rows, so the capture does.
    admin
        .run("SET search_path = own; SET ROLE app; INSERT INTO mem VALUES (1, NULL, 'a'); UPDATE mem SET v = 'b'")
        .await
        .unwrap();
    admin.run("RESET ROLE").await.unwrap();
    owner.assert_replayed("(SELECT 1 AS id, 'b' AS v) AS expected", "row security").await;
    owner.run("ALTER TABLE mem FORCE ROW LEVEL SECURITY").await.unwrap();
    assert_eq!(owner.run("SELECT leasehold_capture('mem', 'changes', '{v}', 'changes')").await, refused("42P16"));
    assert_eq!(owner.get::<String>("SELECT member::text FROM leasehold_capture_gaps()").await, "mem");
    // A change that can't be read is refused, and so not missed.
    assert_eq!(admin.run("SET ROLE app; UPDATE mem SET v = 'c'").await, refused("42501"));
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_the_values_do_not_depend_on_the_settings_of_the_session() {
    let (_database, owner) = database(
        "CREATE TABLE r (id integer PRIMARY KEY, d daterange, t tsrange, i interval);
         SELECT leasehold_capture('r', 'changes', '{d,t,i}', 'changes')",
    )
    .await;
    let insert = "INSERT INTO r VALUES (1, daterange('2026-02-03', '2026-02-05'),
        tsrange('2026-02-03 04:05', '2026-02-05'), make_interval(days => -1, hours => 2)); DELETE FROM r";
    owner.run(&format!("SET datestyle = 'SQL, DMY'; SET intervalstyle = sql_standard; {insert}")).await.unwrap();
    let expected =
        json!(["[2026-02-03,2026-02-05)", "[\"2026-02-03 04:05:00\",\"2026-02-05 00:00:00\")", "-1 days +02:00:00"]);
    assert_eq!(owner.bodies().await[0]["rows"], json!([[[1], null, expected]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_types_of_other_schemas_and_columns_of_any_name_are_keys() {
    let (_database, owner) = database(
        "CREATE SCHEMA ext;
         CREATE TYPE ext.pair AS (a integer, b integer);
         CREATE DOMAIN ext.code AS text;
         CREATE TYPE ext.color AS ENUM ('red', 'green');",
    )
    .await;
    owner.run("CREATE EXTENSION ltree SCHEMA ext; CREATE EXTENSION citext SCHEMA ext").await.unwrap();
    for (kind, first, second) in [
        ("ext.ltree", "a.b", "a.c"),
        ("ext.citext", "A", "b"),
        ("ext.pair", "(1,2)", "(1,3)"),
        ("ext.code", "x", "y"),
        ("ext.color", "red", "green"),
        ("integer[]", "{1,2}", "{1,3}"),
        ("varchar(9)", "x", "y"),
    ] {
        for columns in ["NULL", "'{v}'"] {
            owner.run(&format!("CREATE TABLE t (id {kind} PRIMARY KEY, v text)")).await.unwrap();
            owner.run(&format!("SELECT leasehold_capture('t', 'changes', {columns}, 'changes')")).await.unwrap();
            owner.run(&format!("INSERT INTO t VALUES ('{first}', '1')")).await.unwrap();
            owner
                .run(&format!(
                    "DO $$ BEGIN UPDATE t SET v = '2'; UPDATE t SET id = '{second}'; DELETE FROM t; INSERT INTO t VALUES ('{first}', '3'); UPDATE t SET v = '4'; END $$"
                ))
                .await
                .unwrap();
            if columns == "NULL" {
                assert_eq!(owner.bodies().await.len(), 7, "{kind}");
            } else {
                owner.assert_replayed("t", kind).await;
            }
            owner.run("DROP TABLE t; SELECT leasehold_end_capture(captured) FROM leasehold_captures").await.unwrap();
        }
    }
    for name in ["former", "latter", "key", "changes", "item", "piece", "number"] {
        owner.run(&format!("CREATE TABLE t ({name} integer PRIMARY KEY, v text)")).await.unwrap();
        owner.run("SELECT leasehold_capture('t', 'changes', '{v}', 'changes')").await.unwrap();
        owner
            .run("DO $$ BEGIN INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'a'); UPDATE t SET v = 'b'; END $$")
            .await
            .unwrap();
        owner.assert_replayed(&format!("(SELECT {name} AS id, v FROM t) AS t"), name).await;
        owner.run("DROP TABLE t; SELECT leasehold_end_capture(captured) FROM leasehold_captures").await.unwrap();
    }
    // The functions of a dropped table go with its capture.
    let left = "SELECT count(*) FROM pg_proc WHERE proname ~ '^leasehold_capture_[0-9]+$'";
    assert_eq!(owner.get::<i64>(left).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_a_deferrable_key_is_refused() {
    let (_database, owner) = database("CREATE TABLE g (id integer PRIMARY KEY DEFERRABLE, v text)").await;
    assert_eq!(owner.run("SELECT leasehold_capture('g', 'changes', '{v}', 'changes')").await, refused("42P16"));
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_requests_are_measured_in_utf_8_whatever_the_encoding_is() {
    let (database, owner) = database("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'").await;
    let latin = database.connect_to("latin").await;
    latin.run(outbox::SQL).await.unwrap();
    latin.run(outbox::CAPTURE_SQL).await.unwrap();
    latin.run("CREATE TABLE t (id integer PRIMARY KEY, v text)").await.unwrap();
    latin.run("SELECT leasehold_capture('t', 'changes', '{v}', 'changes')").await.unwrap();
    latin.run("INSERT INTO t SELECT n, repeat(chr(233), 7000) FROM generate_series(1, 9) AS n").await.unwrap();
    latin.run("UPDATE t SET v = repeat(chr(233), 9000)").await.unwrap();
    let bodies = latin.bodies().await;
    let values =
        bodies.iter().filter(|body| body["operation"] == "INSERT").map(|body| body["rows"].as_array().unwrap().len());
    assert_eq!(values.sum::<usize>(), 9);
    // Both values of a row of 32 KB in UTF-8 are left out.
    assert_eq!(bodies.last().unwrap()["rows"].as_array().unwrap().last().unwrap(), &json!([[9]]));
    drop(owner);
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_large_bodies_count_for_the_rotation() {
    let (_database, owner) = database("").await;
    assert_eq!(owner.get::<Option<String>>("SELECT leasehold_outbox_rotate(0)").await, None, "no rows");
    owner
        .run("SELECT leasehold_submit('q', 'k', convert_to(repeat('x', 60000), 'UTF8')) FROM generate_series(1, 200)")
        .await
        .unwrap();
    owner.relay(ALL).await;
    let rotate = "SELECT leasehold_outbox_rotate(8388608)";
    assert_eq!(owner.get::<Option<String>>(rotate).await.as_deref(), Some("switched"));
    assert_eq!(owner.get::<Option<String>>(rotate).await.as_deref(), Some("emptied"));
    assert!(owner.get::<i64>("SELECT sum(pg_table_size(inhrelid))::bigint FROM pg_inherits WHERE inhparent = 'leasehold_outbox'::regclass").await < 1 << 20);
}
