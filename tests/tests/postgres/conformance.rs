//! Runs the conformance suite of stores on the PostgreSQL store.

use leasehold_core::conformance::{Harness, run, run_locks, run_queues};
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{BlockingStore, Creation, PostgresStore};
use leasehold_tests::postgres::{Bouncer, Cluster};

use crate::NO_SYNC;

/// Gives each test of the suite a new store in a database of its own.
struct Databases<F> {
    cluster: Cluster,
    url: F,
    database: String,
}

impl<F: Fn(&Cluster, &str) -> String> Databases<F> {
    fn new(cluster: Cluster, url: F) -> Self {
        Self { cluster, url, database: String::new() }
    }

    fn store(&self) -> BlockingStore {
        let settings = PostgresConfig::at((self.url)(&self.cluster, &self.database));
        BlockingStore::open(PostgresStore::open(&settings, Creation::Allowed)).unwrap()
    }
}

impl<F: Fn(&Cluster, &str) -> String> Harness for Databases<F> {
    type Store = BlockingStore;

    fn open(&mut self) -> BlockingStore {
        self.database = self.cluster.store().unwrap();
        self.store()
    }

    fn reopen(&mut self, store: BlockingStore) -> BlockingStore {
        drop(store);
        self.store()
    }
}

#[test]
fn the_postgres_store_conforms() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let mut databases = Databases::new(cluster, Cluster::url);
    run(&mut databases);
    run_locks(&mut databases);
    run_queues(&mut databases);
}

#[test]
fn the_postgres_store_conforms_through_pgbouncer_in_transaction_mode() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let bouncer = Bouncer::start(&cluster, 4).unwrap();
    let mut databases = Databases::new(cluster, |_: &Cluster, database: &str| bouncer.url(database));
    run(&mut databases);
    run_locks(&mut databases);
    run_queues(&mut databases);
}

#[test]
fn an_abandoned_group_is_refused_if_it_arrives_late() {
    let mut databases = Databases::new(Cluster::start(NO_SYNC).unwrap(), Cluster::url);
    drop(databases.open());
    let execute = |sql: &str| databases.cluster.execute(&databases.database, sql);
    let group = |number: u32| format!("SELECT * FROM try_write_group({number}{})", ", '{}'".repeat(9));
    execute("SELECT abandon_group(5)").unwrap();
    let refused = execute(&group(5)).unwrap_err();
    assert!(format!("{refused:?}").contains("decided again"), "{refused:?}");
    execute(&group(6)).unwrap();
}
