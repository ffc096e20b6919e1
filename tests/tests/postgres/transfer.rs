//! Exports of the store on PostgreSQL, and imports into it.

use std::path::PathBuf;

use leasehold_core::conformance::{Harness, run, run_locks, run_queues};
use leasehold_core::rules::Rules;
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{BlockingStore, Creation, EmbeddedStore, PostgresStore};
use leasehold_server::transfer::{StorePlace, TransferError, export, import};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::transfer::{export_of, many_rows, sorted_rows};
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

/// The newest fence of the export of many rows.
const FENCE: u64 = 5_000_000;

/// B13: the fences go on after the newest one of the export. An import takes no database with rows, and one that fails
/// leaves none. All rows come, however many there are of a kind.
#[test]
fn an_import_is_all_or_nothing() {
    let moves = Moves::start();
    let database = moves.new_database();
    let rows = many_rows(2_500);
    let cut = export_of(&rows, FENCE).replace("\"rows\":12500", "\"rows\":12501");
    let cut = import(&database, cut.as_bytes(), Rules::default());
    assert!(matches!(cut, Err(TransferError::CutShort)), "{cut:?}");
    let whole = import(&database, export_of(&rows, FENCE).as_bytes(), Rules::default());
    assert_eq!(whole.unwrap(), 12_500, "the failed import has left rows");
    let again = import(&database, export_of(&rows, FENCE).as_bytes(), Rules::default()).unwrap_err();
    assert!(again.to_string().contains("holds a store already"), "{again}");
    let mut exported = Vec::new();
    export(&database, false, &mut exported).unwrap();
    let text = String::from_utf8(exported).unwrap();
    assert_eq!(sorted_rows(&text).unwrap(), sorted_rows(&rows.join("\n")).unwrap());
    // A sequence that is far behind is set, and not drawn, with room for what other servers draw meanwhile.
    let end = format!(r#"{{"end":{{"fence":{},"rows":12500}}}}"#, FENCE + (1 << 20));
    assert_eq!(text.lines().last(), Some(&*end));
}

/// A role that may not read everything is told so before the first row, with what to do.
#[test]
fn an_export_needs_the_right_to_read_all_tables() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.store().unwrap();
    let roles = "CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader";
    cluster.execute(&database, roles).unwrap();
    let url = cluster.url(&database).replace("leasehold@", "reader@");
    let (place, mut lines) = (StorePlace::Postgres(Box::new(PostgresConfig::at(url))), Vec::new());
    let refused = export(&place, false, &mut lines).unwrap_err();
    let TransferError::Store(error) = refused else { panic!("{refused}") };
    let hint = error.hint().unwrap();
    assert!(hint.contains("GRANT SELECT ON SEQUENCE lease_fences TO reader"), "{error}: {hint}");
    assert!(!hint.contains("GRANT SELECT ON claims"), "{hint}");
    assert!(lines.is_empty(), "an export without rows has begun");
}
