//! PostgreSQL under the suite that every store passes.

use leasehold_core::conformance::{Harness, run};
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{BlockingStore, PostgresStore};
use leasehold_tests::postgres::{Bouncer, Cluster};

/// Each store in a database of its own.
struct Databases<F> {
    cluster: Cluster,
    url: F,
    last: String,
}

impl<F: Fn(&Cluster, &str) -> String> Databases<F> {
    fn new(cluster: Cluster, url: F) -> Self {
        Self { cluster, url, last: String::new() }
    }

    fn store(&self) -> BlockingStore {
        let settings = PostgresConfig::at((self.url)(&self.cluster, &self.last));
        BlockingStore::open(PostgresStore::open(&settings)).unwrap()
    }
}

impl<F: Fn(&Cluster, &str) -> String> Harness for Databases<F> {
    type Store = BlockingStore;

    fn open(&mut self) -> BlockingStore {
        self.last = self.cluster.database().unwrap();
        self.store()
    }

    fn reopen(&mut self, store: BlockingStore) -> BlockingStore {
        drop(store);
        self.store()
    }
}

#[test]
fn it_conforms() {
    let cluster = Cluster::start(&["fsync=off"]).unwrap();
    run(&mut Databases::new(cluster, Cluster::url));
}

#[test]
fn it_conforms_through_pgbouncer_in_transaction_mode() {
    let cluster = Cluster::start(&["fsync=off"]).unwrap();
    let bouncer = Bouncer::start(&cluster, 4).unwrap();
    run(&mut Databases::new(cluster, |_: &Cluster, database: &str| bouncer.url(database)));
}

#[test]
fn a_group_that_was_given_up_is_turned_away_when_it_arrives_late() {
    let mut databases = Databases::new(Cluster::start(&["fsync=off"]).unwrap(), Cluster::url);
    drop(databases.open());
    let ask = |sql: &str| databases.cluster.execute(&databases.last, sql);
    let group = |lock: u32| format!("SELECT * FROM try_write_rows({lock}{})", ", '{}'".repeat(9));
    ask("SELECT abandon_group(5)").unwrap();
    let refused = ask(&group(5)).unwrap_err();
    assert!(format!("{refused:?}").contains("decided again"), "{refused:?}");
    ask(&group(6)).unwrap();
}
