//! The outbox in a user's own PostgreSQL database: what transactions write into it reaches a relay
//! exactly if they commit, and in the order of Q21.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod capture;
mod capture_kinds;
mod capture_replay;
mod order;
mod relay;
mod replication;
mod rights;
mod serving;
mod transactions;

use leasehold_core::{guard, outbox};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::wire::leasehold;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, NoTls, Row};

/// More rows and bytes than any batch of these tests has.
const ALL: (i32, i32) = (1_000, 4_194_304);

/// A user's database with the guard and the outbox.
struct Database(Cluster);

/// A connection to the database. A failed statement is its SQLSTATE.
struct Session(Client);

/// A row that a relay has read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Relayed {
    place: i64,
    number: i64,
    operation: String,
    queue: String,
    key: String,
    body: Vec<u8>,
}

impl Database {
    async fn new() -> Self {
        Self::with_settings(&["fsync=off", "max_prepared_transactions=4"]).await
    }

    async fn with_settings(settings: &'static [&'static str]) -> Self {
        let database = Self(tokio::task::spawn_blocking(|| Cluster::start(settings).unwrap()).await.unwrap());
        let owner = database.connect().await;
        owner.run(guard::SQL).await.unwrap();
        owner.run(outbox::SQL).await.unwrap();
        owner.run("CREATE TABLE rows (id integer PRIMARY KEY, version integer NOT NULL)").await.unwrap();
        owner.run("INSERT INTO rows SELECT id, 0 FROM generate_series(1, 6) AS id").await.unwrap();
        database
    }

    async fn connect(&self) -> Session {
        self.connect_to("postgres").await
    }

    async fn connect_to(&self, name: &str) -> Session {
        let (client, connection) = tokio_postgres::connect(&self.0.url(name), NoTls).await.unwrap();
        tokio::spawn(connection);
        Session(client)
    }
}

impl Session {
    async fn run(&self, sql: &str) -> Result<(), String> {
        let done = self.0.batch_execute(sql).await;
        done.map_err(|error| error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()))
    }

    /// Returns the first column of the only row.
    async fn get<T: for<'a> FromSql<'a>>(&self, sql: &str) -> T {
        self.0.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn submit(&self, key: &str) {
        self.run(&format!("SELECT leasehold_submit('q', '{key}')")).await.unwrap();
    }

    /// Begins a batch, or goes on with it. Returns its number and epoch.
    async fn begin_batch(&self) -> Option<(i64, i32)> {
        let row = self.0.query_one("SELECT batch, epoch FROM leasehold_outbox_begin()", &[]).await.unwrap();
        row.get::<_, Option<i64>>(0).map(|batch| (batch, row.get(1)))
    }

    async fn read(&self, batch: i64, (rows, bytes): (i32, i32)) -> Vec<Relayed> {
        let sql = "SELECT * FROM leasehold_outbox_read($1, $2, $3)";
        self.0.query(sql, &[&batch, &rows, &bytes]).await.unwrap().iter().map(Relayed::of).collect()
    }

    /// Returns true if the batch is done.
    async fn acknowledge(&self, batch: i64, place: i64, number: i64) -> bool {
        let sql = "SELECT leasehold_outbox_acknowledge($1, $2, $3)";
        self.0.query_one(sql, &[&batch, &place, &number]).await.unwrap().get(0)
    }

    /// Relays all that is committed, in batches that are read in pieces of this size.
    async fn relay(&self, size: (i32, i32)) -> Vec<Relayed> {
        let mut relayed = Vec::new();
        while let Some((batch, _)) = self.begin_batch().await {
            loop {
                let rows = self.read(batch, size).await;
                let (place, number) = rows.last().map_or((0, 0), |last| (last.place, last.number));
                relayed.extend(rows.into_iter().filter(|row| row.operation != "pass"));
                if self.acknowledge(batch, place, number).await {
                    break;
                }
            }
        }
        relayed
    }

    async fn relayed_keys(&self) -> Vec<String> {
        keys(&self.relay(ALL).await)
    }
}

impl Relayed {
    fn of(row: &Row) -> Self {
        Self {
            place: row.get("place"),
            number: row.get("number"),
            operation: row.get("operation"),
            queue: row.get::<_, Option<String>>("queue").unwrap_or_default(),
            key: row.get::<_, Option<String>>("key").unwrap_or_default(),
            body: row.get::<_, Option<Vec<u8>>>("body").unwrap_or_default(),
        }
    }
}

fn keys(rows: &[Relayed]) -> Vec<String> {
    rows.iter().map(|row| row.key.clone()).collect()
}

fn refused(code: &str) -> Result<(), String> {
    Err(code.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_the_program_prints_the_outbox_which_may_be_installed_again() {
    let printed = leasehold(["outbox"]).await.unwrap().stdout;
    assert!(printed == outbox::SQL.as_bytes(), "{} bytes", printed.len());
    let database = Database::new().await;
    let owner = database.connect().await;
    owner.submit("before").await;
    owner.run(outbox::SQL).await.unwrap();
    owner.submit("after").await;
    assert_eq!(owner.relayed_keys().await, ["before", "after"]);
    // Another role's functions could take the place of PostgreSQL's, with the rights of the owner.
    owner.run("GRANT CREATE ON SCHEMA public TO PUBLIC").await.unwrap();
    assert_eq!(owner.run(outbox::SQL).await, refused("42501"));
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_role_needs_no_rights_but_on_the_functions_that_it_calls() {
    let database = Database::new().await;
    let owner = database.connect().await;
    owner.run("CREATE ROLE front; CREATE SCHEMA own AUTHORIZATION front").await.unwrap();
    let front = database.connect().await;
    front.run("SET ROLE front; SET search_path = own").await.unwrap();
    let submit = "SELECT public.leasehold_submit('q', 'front')";
    assert_eq!(front.run(submit).await, refused("42501"));
    let arguments = "text, text, bytea, text, integer, interval, integer, uuid";
    owner.run(&format!("GRANT EXECUTE ON FUNCTION leasehold_submit({arguments}) TO front")).await.unwrap();
    // The caller's own tables and functions are not those of the outbox.
    front.run("CREATE TABLE own.leasehold_outbox (part smallint)").await.unwrap();
    front.run("CREATE TEMPORARY TABLE leasehold_outbox_part AS SELECT 2::smallint AS part").await.unwrap();
    front.run(submit).await.unwrap();
    for forbidden in [
        "SELECT public.leasehold_outbox_begin()",
        "SELECT public.leasehold_outbox_rotate(0)",
        "SELECT FROM public.leasehold_outbox",
        "INSERT INTO public.leasehold_outbox_part VALUES (false, 2)",
    ] {
        assert_eq!(front.run(forbidden).await, refused("42501"), "{forbidden}");
    }
    owner.run(outbox::SQL).await.unwrap();
    front.run(submit).await.unwrap();
    assert_eq!(owner.get::<i16>("SELECT DISTINCT part FROM leasehold_outbox").await, 1);
    assert_eq!(owner.relayed_keys().await, ["front", "front"]);
}
