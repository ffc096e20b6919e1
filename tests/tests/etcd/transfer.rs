//! Exports of the store in etcd, and imports into it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use leasehold_core::conformance::{Harness, run};
use leasehold_core::lease::Outcome;
use leasehold_core::rules::Rules;
use leasehold_server::config::EtcdConfig;
use leasehold_server::store::{BlockingStore, Creation};
use leasehold_server::transfer::{StorePlace, export, import};
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::etcd::{EtcdCluster, LIMITS};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::{Server, binary};
use leasehold_tests::transfer::{export_of, many_rows, sorted_rows};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{open, server};

/// Moves the store of a test to another prefix whenever it is reopened.
struct Moves {
    cluster: EtcdCluster,
    count: u32,
}

impl Moves {
    fn prefix(&self) -> String {
        format!("moves/{}", self.count)
    }

    fn place(&self) -> StorePlace {
        let state_directory = Some(self.cluster.state_directory());
        StorePlace::Etcd(Box::new(EtcdConfig { state_directory, ..EtcdConfig::at(self.cluster.url(&self.prefix())) }))
    }

    fn store(&self, creation: Creation) -> BlockingStore {
        open(&self.cluster, &self.prefix(), creation).unwrap()
    }
}

impl Harness for Moves {
    type Store = BlockingStore;

    fn open(&mut self) -> BlockingStore {
        self.count += 1;
        self.store(Creation::Allowed)
    }

    fn reopen(&mut self, store: BlockingStore) -> BlockingStore {
        drop(store);
        let (mut lines, former) = (Vec::new(), self.place());
        export(&former, false, &mut lines).unwrap();
        self.count += 1;
        import(&self.place(), lines.as_slice(), Rules::default()).unwrap();
        self.store(Creation::Refused)
    }
}

/// A store has the same rows, and gives the same answers, after it was moved to another prefix.
#[test]
fn a_store_that_moves_conforms() {
    run(&mut Moves { cluster: EtcdCluster::start(1, LIMITS).unwrap(), count: 0 });
}

/// All rows come, however many there are of a kind.
#[test]
fn a_store_with_many_rows_moves() {
    let moves = Moves { cluster: EtcdCluster::start(1, LIMITS).unwrap(), count: 1 };
    let (rows, mut lines) = (many_rows(2_500), Vec::new());
    assert_eq!(import(&moves.place(), export_of(&rows, 9_000).as_bytes(), Rules::default()).unwrap(), 12_500);
    export(&moves.place(), false, &mut lines).unwrap();
    let exported = sorted_rows(&String::from_utf8(lines).unwrap()).unwrap();
    assert_eq!(exported, sorted_rows(&rows.join("\n")).unwrap());
}

/// Runs `leasehold` with a store and its state directory, with `input` as its standard input.
fn leasehold(verb: &str, url: &str, cluster: &EtcdCluster, input: &[u8]) -> Output {
    let mut command = Command::new(binary().unwrap());
    command.args([verb, "--store", url]).env("XDG_STATE_HOME", cluster.state_directory());
    command.env_remove("LEASEHOLD_CONFIG").env_remove("LEASEHOLD_DATA");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A refused import may not read its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs `leasehold` as [`leasehold`], and returns its output.
fn told(verb: &str, url: &str, cluster: &EtcdCluster, input: &[u8]) -> Vec<u8> {
    let output = leasehold(verb, url, cluster, input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn refusal(verb: &str, url: &str, cluster: &EtcdCluster, input: &[u8]) -> String {
    let output = leasehold(verb, url, cluster, input);
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

fn creates(name: &str, number: u64) -> Update {
    Update { creates: vec![user(name, number, Vec::new())], key: Some(name.to_owned()), ..Update::default() }
}

/// A service that outgrows its store moves to another one: from a data directory to etcd, from there, while its server
/// runs, to PostgreSQL, and back. An outstanding lease is committed there, and fences go on (B13).
#[test]
fn b13_a_store_moves_to_etcd_and_on_to_postgres() {
    let (cluster, postgres) = (EtcdCluster::start(1, LIMITS).unwrap(), Cluster::start(&[]).unwrap());
    let database = postgres.url(&postgres.database().unwrap());
    Runtime::new().unwrap().block_on(moves(&cluster, &database));
}

async fn moves(cluster: &EtcdCluster, database: &str) {
    let directory = TempDir::new().unwrap();
    let mut embedded = Server::builder().data(directory.path().join("one")).start().unwrap();
    let mut client = Client::connect(&embedded, 1).await.unwrap();
    let alice = client.begin(creates("alice", 1)).await.unwrap();
    client.settle(&alice.lease, Outcome::Committed).await.unwrap();
    let bob = client.begin(creates("bob", 2)).await.unwrap();
    embedded.terminate().unwrap();
    let lines = leasehold_tests::transfer::export(&directory.path().join("one")).unwrap();

    told("import", &cluster.url("moved"), cluster, lines.as_bytes());
    let on_etcd = server(cluster, "moved", "").start().unwrap();
    let mut client = Client::connect(&on_etcd, 1).await.unwrap();
    assert_eq!(client.begin(creates("alice", 1)).await.unwrap(), alice, "the idempotency key is lost");
    let carol = client.begin(creates("carol", 3)).await.unwrap();
    assert!(carol.fence > bob.fence);
    client.settle(&carol.lease, Outcome::Committed).await.unwrap();
    let lines = told("export", &cluster.url("moved"), cluster, &[]);

    told("import", database, cluster, &lines);
    let on_postgres = Server::builder().arg("--store").arg(database).start().unwrap();
    let mut client = Client::connect(&on_postgres, 1).await.unwrap();
    client.settle(&bob.lease, Outcome::Committed).await.unwrap();
    let dora = client.begin(creates("dora", 4)).await.unwrap();
    assert!(dora.fence > carol.fence);
    assert_eq!(client.records().await.unwrap().len(), 4);
    let lines = told("export", database, cluster, &[]);
    told("import", &cluster.url("back"), cluster, &lines);
    let refused = refusal("import", &cluster.url("back"), cluster, &lines);
    assert!(refused.contains("holds a store already") && refused.contains("import into a new one"), "{refused}");
}

/// Rows of sessions can't be kept, and a failed import leaves nothing.
#[test]
fn an_import_of_sessions_is_refused_and_leaves_no_row() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let lines = r#"{"header":{"format":6}}
{"queue":{"path":"jobs","queue":{"is_paused":true,"limit":null,"taken":0}}}
{"end":{"fence":0,"rows":1}}"#;
    let refused = refusal("import", &cluster.url("claims"), &cluster, lines.as_bytes());
    assert!(refused.contains("line 2 can't be imported: the store keeps claims only"), "{refused}");
    assert_eq!(cluster.count("claims", "").unwrap(), 0);
}

/// The rest of an import that was killed is no store, and the next import begins anew.
#[test]
fn an_import_that_was_killed_is_no_store() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let mut import = Command::new(binary().unwrap());
    import.args(["import", "--store", &cluster.url("killed")]).env("XDG_STATE_HOME", cluster.state_directory());
    import.env_remove("LEASEHOLD_DATA").env_remove("LEASEHOLD_CONFIG");
    let mut import = import.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    while cluster.count("killed", "m/").unwrap() == 0 {
        std::thread::yield_now();
    }
    import.kill().unwrap();
    import.wait().unwrap();
    for verb in ["export", "init"] {
        let refused = refusal(verb, &cluster.url("killed"), &cluster, &[]);
        assert!(refused.contains("has the rest of an import that did not finish"), "{refused}");
    }
    let empty = "{\"header\":{\"format\":1}}\n{\"end\":{\"fence\":7,\"rows\":0}}\n";
    told("import", &cluster.url("killed"), &cluster, empty.as_bytes());
    told("export", &cluster.url("killed"), &cluster, &[]);
}
