//! Tests that every object of the database schema has a comment, which `psql` shows to operators.

use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{Creation, PostgresStore};
use leasehold_tests::postgres::Cluster;
use tokio::runtime::Runtime;

use crate::NO_SYNC;

const UNCOMMENTED_TABLES: &str = "
    SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S') AND obj_description(oid, 'pg_class') IS NULL";

const UNCOMMENTED_COLUMNS: &str = "
    SELECT format('%s.%s', attrelid::regclass, attname) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND attnum > 0
        AND NOT attisdropped AND col_description(attrelid, attnum) IS NULL";

const UNCOMMENTED_TYPES: &str = "
    SELECT reltype::regtype::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'c' AND obj_description(reltype, 'pg_type') IS NULL";

const UNCOMMENTED_FUNCTIONS: &str = "
    SELECT oid::regprocedure::text FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL";

#[test]
fn every_table_column_type_and_function_has_a_comment() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let query = |sql: &str| cluster.execute(&database, sql).unwrap();
    let settings = PostgresConfig::at(cluster.url(&database));
    Runtime::new().unwrap().block_on(PostgresStore::migrate(&settings, Creation::Allowed, false)).unwrap();
    assert_eq!(query(UNCOMMENTED_TABLES), [""; 0]);
    assert_eq!(query(UNCOMMENTED_COLUMNS), [""; 0]);
    assert_eq!(query(UNCOMMENTED_TYPES), [""; 0]);
    assert_eq!(query(UNCOMMENTED_FUNCTIONS), [""; 0]);
    // Check that the migrated schema has columns at all; without any, the queries above would find
    // nothing.
    assert!(query("SELECT 1 FROM pg_attribute WHERE attrelid = 'claims'::regclass AND attnum > 0").len() > 10);
}
