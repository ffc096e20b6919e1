//! What is settled leaves nothing behind: lists stay as cheap as they were, and old leases go with their keys.

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

use crate::history::update_request;
use crate::{await_condition, await_nobody, cells, final_state, writer};

/// Nobody but the server tidies up.
const SETTINGS: &[&str] = &["fsync=off", "autovacuum=off"];
const OUTSTANDING: usize = 10;
const GROUP: usize = 500;
const GROUPS: usize = 40;

/// The statement of a page of leases, as the server sends it.
const LIST: &str = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
    SELECT uuid, created_at FROM claim_leases
    WHERE creator_id = 1 AND (created_at, uuid_send(uuid)) >= ('1970-01-01', uuid_send('00000000-0000-0000-0000-000000000000'))
    ORDER BY created_at, uuid_send(uuid) LIMIT 101";

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap())
}

/// Runs commands as one group, as the server does.
fn run(writer: &mut BlockingStore, commands: &[Command]) {
    let mut workspace = writer.workspace().unwrap();
    loop {
        let keys = workspace.missing(commands);
        if keys.is_empty() {
            break;
        }
        writer.load(keys, &mut workspace).unwrap();
    }
    for command in commands {
        command.apply(&mut workspace, now()).unwrap().unwrap();
    }
    writer.save(&workspace.into_changes()).unwrap();
}

/// Begins updates of one claim each, with a key; their leases.
fn begin(writer: &mut BlockingStore, rules: &Rules, prefix: &str, count: usize) -> Vec<LeaseId> {
    let leases: Vec<_> = (0..count).map(|_| LeaseId(Uuid::from_u128(rand::random()))).collect();
    let command = |(number, lease): (usize, &LeaseId)| {
        let name = format!("{prefix}-{number}");
        let creates = vec![user(&name, 7, Vec::new())];
        let request: UpdateRequest = update_request(&Update { creates, ..Update::default() });
        Command::Begin(rules.begin(CellId(1), request, Some(&name), *lease).unwrap())
    };
    run(writer, &leases.iter().enumerate().map(command).collect::<Vec<_>>());
    leases
}

fn settle(writer: &mut BlockingStore, rules: &Rules, leases: &[LeaseId], outcome: Outcome) {
    let settle = |lease: &LeaseId| rules.settle(CellId(1), &lease.to_string(), outcome).unwrap();
    run(writer, &leases.iter().map(|lease| Command::Settle(settle(lease))).collect::<Vec<_>>());
}

/// The pages that the list touches.
fn pages(cluster: &Cluster, database: &str) -> u64 {
    let plan: serde_json::Value = serde_json::from_str(&cluster.execute(database, LIST).unwrap()[0]).unwrap();
    let plan = &plan[0]["Plan"];
    assert_eq!(plan["Actual Rows"], OUTSTANDING, "{plan:#}");
    plan["Shared Hit Blocks"].as_u64().unwrap() + plan["Shared Read Blocks"].as_u64().unwrap()
}

/// The entries that lookups of leases by their key have read, and the scans of other indexes, which sessions tell when they end.
fn lookups(cluster: &Cluster, database: &str) -> (u64, u64) {
    await_nobody(cluster, database);
    let count = |figure: &str, is_key: &str| -> u64 {
        let of = "FROM pg_stat_user_indexes WHERE relname = 'claim_leases' AND indexrelname";
        cluster.execute(database, &format!("SELECT sum({figure}) {of} {is_key} 'claim_leases_pkey'")).unwrap()[0]
            .parse()
            .unwrap()
    };
    (count("idx_tup_read", "="), count("idx_scan", "<>"))
}

fn count(cluster: &Cluster, database: &str, what: &str) -> usize {
    cluster.execute(database, &format!("SELECT count(*) FROM {what}")).unwrap()[0].parse().unwrap()
}

#[test]
fn settled_leases_leave_lists_as_they_were_and_are_forgotten() {
    let cluster = Cluster::start(SETTINGS).unwrap();
    let database = cluster.database().unwrap();
    let rules = Rules { catalogue: Catalogue::default(), cells: [CellId(1)].into() };
    let mut writer = writer(&cluster.url(&database));
    begin(&mut writer, &rules, "outstanding", OUTSTANDING);
    let before = pages(&cluster, &database);
    for group in 0..GROUPS {
        let leases = begin(&mut writer, &rules, &format!("settled-{group}"), GROUP);
        settle(&mut writer, &rules, &leases, Outcome::RolledBack);
    }
    let bloated = pages(&cluster, &database);
    assert!(bloated > 10 * before, "{bloated} pages after {before}: there is nothing to tidy up");
    let (settled, keys) = ("settled_leases", "idempotency_keys");
    assert_eq!(count(&cluster, &database, settled), GROUP * GROUPS);
    drop(writer);

    let config = format!("settled_retention_seconds = 1\n{}", cells(1));
    let mut server = Server::builder().config(config).arg("--store").arg(cluster.url(&database)).start().unwrap();
    await_condition("settled leases are forgotten", || count(&cluster, &database, settled) == 0);
    assert_eq!(count(&cluster, &database, keys), OUTSTANDING, "the keys of settled leases stay");
    let mut after = bloated;
    await_condition("lists are as cheap as they were", || {
        after = pages(&cluster, &database);
        after <= before + 2
    });
    println!(
        "a list touches {before} pages, {bloated} with {} leases just settled, {after} in the end",
        GROUP * GROUPS
    );
    assert!(server.terminate().unwrap().success());
    let state = final_state(&cluster, &database);
    assert_eq!((state.leases.len(), state.replays.len(), state.claims.len()), (OUTSTANDING, OUTSTANDING, OUTSTANDING));
}

/// Leases that have come and gone since the last vacuum.
const GONE: [&str; 2] = [
    "INSERT INTO claim_leases SELECT gen_random_uuid(), 1, n, now(), NULL, '{1}', '{gone}' FROM generate_series(1, 20000) n",
    "DELETE FROM claim_leases WHERE bucket_values = '{gone}'",
];

/// B33: a session plans once, and what it has planned beside a few leases goes on when there are many.
#[test]
fn a_settle_reads_its_own_lease_however_many_are_outstanding() {
    const FEW: usize = 30;
    const SETTLES: usize = 20;
    let cluster = Cluster::start(SETTINGS).unwrap();
    let rules = Rules { catalogue: Catalogue::default(), cells: [CellId(1)].into() };
    let found: [&[&str]; 3] = [&[], &["VACUUM claim_leases"], &[GONE[0], GONE[1], "VACUUM claim_leases"]];
    for (outcome, found) in
        [Outcome::Committed, Outcome::RolledBack].into_iter().flat_map(|o| found.map(|found| (o, found)))
    {
        let database = cluster.database().unwrap();
        let mut first = writer(&cluster.url(&database));
        let few = begin(&mut first, &rules, "few", FEW);
        drop(first);
        found.iter().for_each(|sql| drop(cluster.execute(&database, sql).unwrap()));
        let (read_before, other_before) = lookups(&cluster, &database);
        let mut session = writer(&cluster.url(&database));
        settle(&mut session, &rules, &few[..1], outcome);
        let many = begin(&mut session, &rules, "many", GROUP);
        many.iter().take(SETTLES).for_each(|lease| settle(&mut session, &rules, &[*lease], outcome));
        drop(session);
        let (read, other) = lookups(&cluster, &database);
        let read = read - read_before;
        assert!(
            read <= 3 * (SETTLES as u64 + 1),
            "{outcome:?}, {found:?}: {SETTLES} settles have read {read} entries of leases"
        );
        assert_eq!(other, other_before, "{outcome:?}, {found:?}: leases are looked up where they are not keys");
    }
}
