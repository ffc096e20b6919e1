//! Settled leases leave no lasting cost in PostgreSQL: lists read as few pages as before, and
//! forgotten leases disappear together with their idempotency keys.

use leasehold_core::batch::UpdateRequest;
use leasehold_core::catalogue::Catalogue;
use leasehold_core::cell::CellId;
use leasehold_core::command::Command;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::rules::Rules;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_server::store::BlockingStore;
use leasehold_tests::client::{Update, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use uuid::Uuid;

use crate::{await_condition, await_no_connections, cells, final_state, open_store};
use leasehold_tests::fight::update_request;

/// Settings of the PostgreSQL cluster. Autovacuum is off, so that only the Leasehold server vacuums
/// tables. fsync is off because the test proves nothing about durability.
const SETTINGS: &[&str] = &["fsync=off", "autovacuum=off"];
const OUTSTANDING: usize = 10;
const GROUP: usize = 500;
const GROUPS: usize = 40;

/// Measures the server's statement that reads one page of outstanding leases.
const LIST: &str = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
    SELECT uuid, created_at FROM claim_leases
    WHERE creator_id = 1 AND (created_at, uuid_send(uuid)) >= ('1970-01-01', uuid_send('00000000-0000-0000-0000-000000000000'))
    ORDER BY created_at, uuid_send(uuid) LIMIT 101";

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap())
}

/// Decides and saves commands as one group, as a server does.
fn run(store: &mut BlockingStore, commands: &[Command]) {
    let mut workspace = store.workspace().unwrap();
    loop {
        let keys = workspace.missing(commands);
        if keys.is_empty() {
            break;
        }
        store.load(keys, &mut workspace).unwrap();
    }
    for command in commands {
        command.apply(&mut workspace, now()).unwrap().unwrap();
    }
    store.save(&workspace.into_changes()).unwrap();
}

/// Begins `count` updates of one claim each, with idempotency keys. Returns the ids of the leases.
fn begin(store: &mut BlockingStore, rules: &Rules, prefix: &str, count: usize) -> Vec<LeaseId> {
    let leases: Vec<_> = (0..count).map(|_| LeaseId(Uuid::from_u128(rand::random()))).collect();
    let command = |(number, lease): (usize, &LeaseId)| {
        let name = format!("{prefix}-{number}");
        let creates = vec![user(&name, 7, Vec::new())];
        let request: UpdateRequest = update_request(&Update { creates, ..Update::default() });
        Command::Begin(rules.begin(CellId(1), request, Some(&name), *lease).unwrap())
    };
    run(store, &leases.iter().enumerate().map(command).collect::<Vec<_>>());
    leases
}

fn settle(store: &mut BlockingStore, rules: &Rules, leases: &[LeaseId], outcome: Outcome) {
    let settle = |lease: &LeaseId| rules.settle(CellId(1), &lease.to_string(), outcome).unwrap();
    run(store, &leases.iter().map(|lease| Command::Settle(settle(lease))).collect::<Vec<_>>());
}

/// Returns how many 8 KiB pages of the database the statement [`LIST`] reads.
fn pages_read(cluster: &Cluster, database: &str) -> u64 {
    let plan: serde_json::Value = serde_json::from_str(&cluster.execute(database, LIST).unwrap()[0]).unwrap();
    let plan = &plan[0]["Plan"];
    // PostgreSQL 18 writes a fraction.
    assert_eq!(plan["Actual Rows"].as_f64(), Some(OUTSTANDING as f64), "{plan:#}");
    plan["Shared Hit Blocks"].as_u64().unwrap() + plan["Shared Read Blocks"].as_u64().unwrap()
}

/// Returns two counts for the table of leases: the index entries that lookups by primary key have
/// read, and the scans of the table's other indexes. PostgreSQL adds a session's counts when the
/// session ends.
fn lookups(cluster: &Cluster, database: &str) -> (u64, u64) {
    await_no_connections(cluster, database);
    let count = |figure: &str, is_key: &str| -> u64 {
        let of = "FROM pg_stat_user_indexes WHERE relname = 'claim_leases' AND indexrelname";
        cluster.execute(database, &format!("SELECT sum({figure}) {of} {is_key} 'claim_leases_pkey'")).unwrap()[0]
            .parse()
            .unwrap()
    };
    (count("idx_tup_read", "="), count("idx_scan", "<>"))
}

fn count(cluster: &Cluster, database: &str, table: &str) -> usize {
    cluster.execute(database, &format!("SELECT count(*) FROM {table}")).unwrap()[0].parse().unwrap()
}

#[test]
fn b33_settled_leases_are_forgotten_and_do_not_slow_the_list() {
    let cluster = Cluster::start(SETTINGS).unwrap();
    let database = cluster.database().unwrap();
    let rules = Rules { catalogue: Catalogue::default(), cells: [CellId(1)].into() };
    let mut store = open_store(&cluster.url(&database));
    begin(&mut store, &rules, "outstanding", OUTSTANDING);
    let before = pages_read(&cluster, &database);
    for group in 0..GROUPS {
        let leases = begin(&mut store, &rules, &format!("settled-{group}"), GROUP);
        settle(&mut store, &rules, &leases, Outcome::RolledBack);
    }
    let bloated = pages_read(&cluster, &database);
    assert!(bloated > 10 * before, "{bloated} pages after {before}: the settled leases leave too little to vacuum");
    let (settled, keys) = ("settled_leases", "idempotency_keys");
    assert_eq!(count(&cluster, &database, settled), GROUP * GROUPS);
    drop(store);

    let config = format!("settled_retention_seconds = 1\n{}", cells(1));
    let mut server = Server::builder().config(config).arg("--store").arg(cluster.url(&database)).start().unwrap();
    await_condition("settled leases are forgotten", || count(&cluster, &database, settled) == 0);
    assert_eq!(count(&cluster, &database, keys), OUTSTANDING, "idempotency keys of settled leases are left");
    let mut after = bloated;
    await_condition("a list is as cheap as before", || {
        after = pages_read(&cluster, &database);
        after <= before + 2
    });
    println!(
        "a list reads {before} pages, {bloated} with {} leases just settled, {after} after maintenance",
        GROUP * GROUPS
    );
    assert!(server.terminate().unwrap().success());
    let state = final_state(&cluster, &database);
    assert_eq!((state.leases.len(), state.replays.len(), state.claims.len()), (OUTSTANDING, OUTSTANDING, OUTSTANDING));
}

/// SQL statements that insert and delete leases, so that the table has dead rows for the next
/// vacuum.
const DEAD_ROWS: [&str; 2] = [
    "INSERT INTO claim_leases SELECT gen_random_uuid(), 1, n, now(), NULL, '{1}', '{dead}' FROM generate_series(1, 20000) n",
    "DELETE FROM claim_leases WHERE bucket_values = '{dead}'",
];

/// Like lists (B33), a settle must not become slower with the number of leases. PostgreSQL keeps a
/// session's plan of a statement. A plan that was made for a small table must not scan the table
/// after it has grown.
#[test]
fn a_settle_reads_only_its_own_lease_however_many_are_outstanding() {
    const FEW: usize = 30;
    const SETTLES: usize = 20;
    let cluster = Cluster::start(SETTINGS).unwrap();
    let rules = Rules { catalogue: Catalogue::default(), cells: [CellId(1)].into() };
    let preparations: [&[&str]; 3] =
        [&[], &["VACUUM claim_leases"], &[DEAD_ROWS[0], DEAD_ROWS[1], "VACUUM claim_leases"]];
    let outcomes = [Outcome::Committed, Outcome::RolledBack];
    for (outcome, preparation) in outcomes.into_iter().flat_map(|outcome| preparations.map(|sql| (outcome, sql))) {
        let database = cluster.database().unwrap();
        let mut first = open_store(&cluster.url(&database));
        let few = begin(&mut first, &rules, "few", FEW);
        drop(first);
        preparation.iter().for_each(|sql| drop(cluster.execute(&database, sql).unwrap()));
        let (read_before, other_before) = lookups(&cluster, &database);
        let mut session = open_store(&cluster.url(&database));
        settle(&mut session, &rules, &few[..1], outcome);
        let many = begin(&mut session, &rules, "many", GROUP);
        many.iter().take(SETTLES).for_each(|lease| settle(&mut session, &rules, &[*lease], outcome));
        drop(session);
        let (read, other) = lookups(&cluster, &database);
        let read = read - read_before;
        assert!(
            read <= 3 * (SETTLES as u64 + 1),
            "{outcome:?}, {preparation:?}: {SETTLES} settles have read {read} index entries"
        );
        assert_eq!(other, other_before, "{outcome:?}, {preparation:?}: a settle scans an index other than the key's");
    }
}
