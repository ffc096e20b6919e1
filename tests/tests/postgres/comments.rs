//! What the tables say of themselves to whoever opens them with psql.

use leasehold_server::config::PostgresConfig;
use leasehold_server::store::PostgresStore;
use leasehold_tests::postgres::Cluster;
use tokio::runtime::Runtime;

use crate::NO_SYNC;

const SILENT_TABLES: &str = "
    SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S') AND obj_description(oid, 'pg_class') IS NULL";

const SILENT_COLUMNS: &str = "
    SELECT format('%s.%s', attrelid::regclass, attname) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
        AND col_description(attrelid, attnum) IS NULL";

const SILENT_TYPES: &str = "
    SELECT reltype::regtype::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'c' AND obj_description(reltype, 'pg_type') IS NULL";

const SILENT_FUNCTIONS: &str = "
    SELECT oid::regprocedure::text FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL";

#[test]
fn every_table_column_type_and_function_says_what_it_is_for() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let ask = |sql: &str| cluster.execute(&database, sql).unwrap();
    Runtime::new().unwrap().block_on(PostgresStore::migrate(&PostgresConfig::at(cluster.url(&database)))).unwrap();
    assert_eq!(ask(SILENT_TABLES), [""; 0]);
    assert_eq!(ask(SILENT_COLUMNS), [""; 0]);
    assert_eq!(ask(SILENT_TYPES), [""; 0]);
    assert_eq!(ask(SILENT_FUNCTIONS), [""; 0]);
    // There are some at all.
    assert!(ask("SELECT 1 FROM pg_attribute WHERE attrelid = 'claims'::regclass AND attnum > 0").len() > 10);
}
