//! Whoever applies the captured changes in their order has the rows of the table, whatever its triggers and foreign keys do
//! (Q06, Q21).

use std::collections::BTreeMap;

use leasehold_core::outbox;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio_postgres::Row;

use super::{ALL, Database, Session};

/// Tables whose rows change while statements run: by their triggers, by the actions of foreign keys, and by statements with
/// several operations.
const TABLES: &str = "
    CREATE TABLE boss (id integer PRIMARY KEY);
    CREATE TABLE users (
        id integer PRIMARY KEY, name text, number integer,
        one integer REFERENCES boss ON DELETE SET NULL ON UPDATE CASCADE,
        two integer REFERENCES boss ON DELETE SET NULL ON UPDATE CASCADE,
        three integer REFERENCES boss ON DELETE CASCADE,
        self integer REFERENCES users ON DELETE SET NULL ON UPDATE CASCADE
    );
    CREATE FUNCTION change_users() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.name LIKE 'upper%' THEN UPDATE users SET name = upper(name) WHERE id = NEW.id;
        ELSIF NEW.name LIKE 'gone%' THEN DELETE FROM users WHERE id = NEW.id;
        ELSIF NEW.name LIKE 'moved%' THEN UPDATE users SET id = id + 50, name = 'there' WHERE id = NEW.id;
        END IF; RETURN NULL; END $$;
    CREATE TRIGGER change_users AFTER INSERT OR UPDATE ON users FOR EACH ROW EXECUTE FUNCTION change_users();
    CREATE FUNCTION replace_users() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.name LIKE 'instead%' THEN DELETE FROM users WHERE id = NEW.id; END IF; RETURN NEW; END $$;
    CREATE TRIGGER replace_users BEFORE INSERT ON users FOR EACH ROW EXECUTE FUNCTION replace_users();
    INSERT INTO boss SELECT generate_series(1, 20);
    SELECT leasehold_capture('users', 'changes', '{name,number,one,two,three,self}', 'changes')";

/// Applies captured changes to rows by their keys.
pub(super) fn replay(bodies: &[Value], rows: &mut BTreeMap<String, Value>) {
    for body in bodies {
        if body["operation"] == "TRUNCATE" {
            rows.clear();
        }
        for changed in body["rows"].as_array().unwrap() {
            match &changed[2] {
                Value::Null => drop(rows.remove(&changed[0].to_string())),
                values => drop(rows.insert(changed[0].to_string(), values.clone())),
            }
        }
    }
}

impl Session {
    /// The rows that the captured changes lead to, by their keys.
    async fn replayed(&self, rows: &mut BTreeMap<String, Value>) {
        let bodies: Vec<_> =
            self.relay(ALL).await.iter().map(|row| serde_json::from_slice(&row.body).unwrap()).collect();
        replay(&bodies, rows);
    }

    async fn present(&self) -> BTreeMap<String, Value> {
        let sql =
            "SELECT json_build_array(id)::text, json_build_array(name, number, one, two, three, self)::text FROM users";
        let rows = self.0.query(sql, &[]).await.unwrap();
        let parsed = |row: &Row, index: usize| serde_json::from_str::<Value>(row.get(index)).unwrap();
        rows.iter().map(|row| (parsed(row, 0).to_string(), parsed(row, 1))).collect()
    }
}

async fn captured_users() -> (Database, Session) {
    let database = Database::new().await;
    let owner = database.connect().await;
    owner.run(outbox::CAPTURE_SQL).await.unwrap();
    owner.run(TABLES).await.unwrap();
    (database, owner)
}

#[tokio::test(flavor = "multi_thread")]
async fn q21_the_last_change_of_a_row_has_what_triggers_and_foreign_keys_made_of_it() {
    for statements in [
        "INSERT INTO users VALUES (1, 'upper'), (2, 'plain')",
        "INSERT INTO users VALUES (1, 'gone'), (2, 'moved')",
        "INSERT INTO users VALUES (1, 'plain'); INSERT INTO users VALUES (1, 'instead')",
        "INSERT INTO users VALUES (1, 'x', 0, 1, 1); DELETE FROM boss WHERE id = 1",
        "INSERT INTO users VALUES (1, 'x', 0, 1, 2, 3); DELETE FROM boss",
        "INSERT INTO users VALUES (1, 'x', 0, 1, 2, 3); UPDATE boss SET id = id + 100 WHERE id < 3",
        "INSERT INTO users (id) VALUES (1); INSERT INTO users (id, self) VALUES (2, 1); UPDATE users SET id = id + 100",
        "INSERT INTO users VALUES (1, 'old'), (2, 'old');
         WITH d AS (DELETE FROM users WHERE id = 1 RETURNING *), i AS (INSERT INTO users SELECT id, 'new' FROM d RETURNING id)
         DELETE FROM users USING i WHERE users.id = 2",
        "DO $$ BEGIN FOR n IN 1..3 LOOP INSERT INTO users VALUES (n, 'upper'); UPDATE users SET number = n; END LOOP; END $$",
    ] {
        let (_database, owner) = captured_users().await;
        owner.run(statements).await.unwrap();
        let mut rows = BTreeMap::new();
        owner.replayed(&mut rows).await;
        assert_eq!(rows, owner.present().await, "{statements}");
    }
}

/// Statements of all kinds, some of which fail, in transactions of their own.
#[tokio::test(flavor = "multi_thread")]
async fn q21_a_replay_of_random_statements_has_the_rows_of_the_table() {
    const STATEMENTS: usize = 400;
    let (_database, owner) = captured_users().await;
    let (mut random, mut replayed, mut succeeded) = (SmallRng::seed_from_u64(21), BTreeMap::new(), 0);
    for number in 0..STATEMENTS {
        let statement = statement(&mut random);
        succeeded += usize::from(owner.run(&statement).await.is_ok());
        if number % 20 == 0 || number == STATEMENTS - 1 {
            owner.replayed(&mut replayed).await;
            assert_eq!(replayed, owner.present().await, "{number}: {statement}");
        }
    }
    assert!(succeeded > STATEMENTS / 2, "{succeeded} statements");
}

fn statement(random: &mut SmallRng) -> String {
    let mut draw = |below: i32| random.random_range(1..=below);
    let (id, other, boss, second) = (draw(30), draw(30), draw(20), draw(20));
    let name = ["plain", "upper", "gone", "moved", "instead"][draw(5) as usize - 1];
    match draw(9) {
        1 => format!("INSERT INTO users VALUES ({id}, '{name}', {other}, {boss}, {second}, {boss})"),
        2 => format!(
            "INSERT INTO users SELECT n, '{name}', n, {boss}, {second} FROM generate_series({id}, {id} + 5) AS n
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, number = users.number + 1"
        ),
        3 => format!("UPDATE users SET name = '{name}', self = {other} WHERE id BETWEEN {id} AND {id} + 5"),
        4 => format!("UPDATE users SET id = id + 100 WHERE id = {id}; UPDATE users SET id = id - 90 WHERE id > 100"),
        5 => format!("DELETE FROM boss WHERE id = {boss}; INSERT INTO boss VALUES ({boss})"),
        6 => format!(
            "UPDATE boss SET id = id + 40 WHERE id IN ({boss}, {second}); UPDATE boss SET id = id - 40 WHERE id > 40"
        ),
        7 => format!("DELETE FROM users WHERE id BETWEEN {id} AND {id} + 2"),
        8 => format!(
            "WITH d AS (DELETE FROM users WHERE id IN ({id}, {other}) RETURNING *),
             i AS (INSERT INTO users SELECT id, '{name}', number FROM d RETURNING id)
             UPDATE users SET number = {boss} FROM i WHERE users.id = i.id + 1"
        ),
        _ => format!(
            "MERGE INTO users USING generate_series({id}, {id} + 3) AS n ON id = n
             WHEN MATCHED AND n % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET number = n, name = '{name}'
             WHEN NOT MATCHED THEN INSERT (id, name) VALUES (n, '{name}')"
        ),
    }
}
