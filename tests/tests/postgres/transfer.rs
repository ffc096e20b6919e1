//! Exports of the store on PostgreSQL, and imports into it.

use std::path::PathBuf;

use leasehold_core::conformance::{Harness, run, run_locks, run_queues};
use leasehold_core::rules::Rules;
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{BlockingStore, Creation, EmbeddedStore, PostgresStore};
use leasehold_server::transfer::{StorePlace, TransferError, export, import};
use leasehold_tests::postgres::Cluster;
use tempfile::TempDir;

use crate::NO_SYNC;

/// Moves the store of a test to another kind of store whenever it is reopened: from a database to a data directory, and
/// back to another database.
struct Moves {
    cluster: Cluster,
    directory: TempDir,
    count: u32,
    place: StorePlace,
}

impl Moves {
    fn start() -> Self {
        let place = StorePlace::Directory(PathBuf::new());
        Self { cluster: Cluster::start(NO_SYNC).unwrap(), directory: TempDir::new().unwrap(), count: 0, place }
    }

    fn new_directory(&mut self) -> StorePlace {
        self.count += 1;
        StorePlace::Directory(self.directory.path().join(self.count.to_string()))
    }

    /// Returns a new database. One in four has no tables yet, and the others have empty ones, which takes less time.
    fn new_database(&self) -> StorePlace {
        let has_tables = !self.count.is_multiple_of(4);
        let database = if has_tables { self.cluster.store() } else { self.cluster.database() };
        StorePlace::Postgres(Box::new(PostgresConfig::at(self.cluster.url(&database.unwrap()))))
    }

    fn open_place(&self) -> BlockingStore {
        let allowed = Creation::Allowed;
        match &self.place {
            StorePlace::Directory(path) => BlockingStore::open(std::future::ready(EmbeddedStore::open(path, allowed))),
            StorePlace::Postgres(settings) => BlockingStore::open(PostgresStore::open(settings, allowed)),
            StorePlace::Etcd(_) => unreachable!("no store moves there"),
        }
        .unwrap()
    }
}

impl Harness for Moves {
    type Store = BlockingStore;

    fn open(&mut self) -> BlockingStore {
        self.place = self.new_database();
        self.open_place()
    }

    fn reopen(&mut self, store: BlockingStore) -> BlockingStore {
        drop(store);
        let next = match self.place {
            StorePlace::Postgres(_) => self.new_directory(),
            _ => self.new_database(),
        };
        let mut lines = Vec::new();
        export(&self.place, false, &mut lines).unwrap();
        import(&next, lines.as_slice(), Rules::default()).unwrap();
        self.place = next;
        self.open_place()
    }
}

/// A store has the same rows, and gives the same answers, after it was moved to another kind of store.
#[test]
fn a_store_that_moves_between_kinds_conforms() {
    let mut moves = Moves::start();
    run(&mut moves);
    run_locks(&mut moves);
    run_queues(&mut moves);
}

/// B13: the fences go on after the newest one of the export. An import takes no database with rows, and one that fails
/// leaves none.
#[test]
fn an_import_is_all_or_nothing() {
    let moves = Moves::start();
    let database = moves.new_database();
    let lines = |rows: &[String], count: usize| {
        let end = format!(r#"{{"end":{{"fence":5000000,"rows":{count}}}}}"#);
        let header = r#"{"header":{"format":1}}"#.to_owned();
        [vec![header], rows.to_vec(), vec![end]].concat().join("\n")
    };
    let many: Vec<_> = (1..=5_000).map(claim_line).collect();
    let cut = import(&database, lines(&many, 5_001).as_bytes(), Rules::default());
    assert!(matches!(cut, Err(TransferError::CutShort)), "{cut:?}");
    let whole = import(&database, lines(&many, 5_000).as_bytes(), Rules::default());
    assert_eq!(whole.unwrap(), 5_000, "the failed import has left rows");
    let again = import(&database, lines(&many, 5_000).as_bytes(), Rules::default()).unwrap_err();
    assert!(again.to_string().contains("holds a store already"), "{again}");
    let mut exported = Vec::new();
    let result = export(&database, false, &mut exported).unwrap();
    let text = String::from_utf8(exported).unwrap();
    let last = text.lines().last().unwrap();
    assert_eq!(result.rows, 5_000);
    // A sequence that is far behind is set, and not drawn, with room for what other servers draw meanwhile.
    assert_eq!(last, format!(r#"{{"end":{{"fence":{},"rows":5000}}}}"#, 5_000_000 + (1 << 20)));
}

/// Returns the line of an export with a claim at rest.
fn claim_line(number: u128) -> String {
    let (name, uuid) = (format!("n{number:05}"), uuid::Uuid::from_u128(number));
    let record = format!(
        r#"{{"uuid":"{uuid}","spelling":"{name}","subject":{{"subject_type":4,"id":7}},"source":{{"source_type":1,"id":"07"}},"user_data":null,"created_at":1,"updated_at":1}}"#
    );
    format!(
        r#"{{"claim":{{"key":{{"bucket_type":4,"canonical":"{name}"}},"claim":{{"owner":1,"state":{{"Active":{record}}}}}}}}}"#
    )
}
