//! Tests of contention: commands of one group, servers that share a database, and rows that another
//! session locks. A conflict must affect only the commands that need the contended rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use leasehold_core::claim::ClaimState;
use leasehold_core::invariant;
use leasehold_core::lease::Outcome;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_tests::client::{Begun, Client, Update, reason, user};
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::server::Server;
use leasehold_tests::wire::leasehold;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::{
    NO_SYNC, STORE_UNAVAILABLE, await_condition, await_no_connections, cells, client_of, create, create_all,
    final_state, metric, open_session, serve,
};

/// Returns an update that destroys the claim of one username.
fn destroy(name: impl Into<String>) -> Update {
    Update { destroys: vec![user(name, 7, Vec::new())], ..Update::default() }
}

/// Begins all updates at the same time, each with its own client. Returns the answers in the order
/// of the updates.
async fn begin_all(updates: Vec<(Client, Update)>) -> Vec<Result<Begun, Status>> {
    let mut calls = JoinSet::new();
    for (position, (mut client, update)) in updates.into_iter().enumerate() {
        calls.spawn(async move { (position, client.begin(update).await) });
    }
    let mut answers = calls.join_all().await;
    answers.sort_by_key(|(position, _)| *position);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Two servers that share one database, the second one connected through pgbouncer, and a client
/// for each.
struct ServerPair {
    cluster: Cluster,
    bouncer: Bouncer,
    database: String,
    servers: Vec<Server>,
    clients: [Client; 2],
    runtime: Runtime,
}

impl ServerPair {
    fn start() -> Self {
        let cluster = Cluster::start(NO_SYNC).unwrap();
        let bouncer = Bouncer::start(&cluster, 4).unwrap();
        let database = cluster.database().unwrap();
        let servers = vec![serve(&cluster.url(&database), ""), serve(&bouncer.url(&database), "")];
        let runtime = Runtime::new().unwrap();
        let clients = [0, 1].map(|index: usize| client_of(&runtime, &servers[index]));
        Self { cluster, bouncer, database, servers, clients, runtime }
    }

    /// Stops the two servers and pgbouncer. Returns the cluster, and the name of the servers'
    /// database.
    fn stop(mut self) -> (Cluster, String) {
        for server in &mut self.servers {
            assert!(server.terminate().unwrap().success(), "{}", server.stderr());
        }
        drop(self.bouncer);
        await_no_connections(&self.cluster, &self.database);
        (self.cluster, self.database)
    }
}

#[test]
fn b01_a_conflict_rejects_only_its_own_update() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let server = serve(&cluster.url(&cluster.database().unwrap()), "");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    let taken = runtime.block_on(client.begin(create_all((0..40).map(|number| format!("taken-{number}"))))).unwrap();
    runtime.block_on(client.settle(&taken.lease, Outcome::Committed)).unwrap();
    let busy = runtime.block_on(client.begin(create_all((0..40).map(|number| format!("busy-{number}"))))).unwrap();
    // Refused updates alternate with valid ones, so that the server's groups contain both.
    let names = |number: usize| match number % 5 {
        0 => vec![format!("free-{number}"), format!("taken-{}", number / 5)],
        2 => vec![format!("busy-{}", number / 5)],
        _ => vec![format!("new-{number}-a"), format!("new-{number}-b")],
    };
    let updates = (0..200).map(|number| (client.clone(), create_all(names(number)))).collect();
    let answers = runtime.block_on(begin_all(updates));
    let mut leases = BTreeSet::from([busy.lease]);
    for (number, answer) in answers.into_iter().enumerate() {
        match (number % 5, answer) {
            (0, Err(status)) => assert_eq!(reason(&status), "CLAIM_TAKEN"),
            (2, Err(status)) => assert_eq!(reason(&status), "CLAIM_BUSY"),
            (1 | 3 | 4, Ok(begun)) => assert!(leases.insert(begun.lease)),
            (_, answer) => panic!("{number}: {answer:?}"),
        }
    }
    assert_eq!(runtime.block_on(client.leases()).unwrap().into_iter().collect::<BTreeSet<_>>(), leases);
    assert_eq!(reason(&runtime.block_on(client.get("free-0")).unwrap_err()), "CLAIM_NOT_FOUND");
}

#[test]
fn rows_locked_by_a_foreign_session_fail_only_the_updates_of_those_rows() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), "");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    let locked = || (0..4).map(|number| format!("locked-{number}"));
    let lease = runtime.block_on(client.begin(create_all(locked()))).unwrap().lease;
    runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    let foreign = open_session(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; SELECT 1 FROM claims FOR UPDATE")).unwrap();
    let foreign_pid: i32 = runtime.block_on(foreign.query_one("SELECT pg_backend_pid()", &[])).unwrap().get(0);

    // Four updates need locked rows. That is more than the server has writers, so they could block
    // all of them.
    let destroys = || locked().map(destroy);
    let creates = (0..100).map(|number| create(format!("new-{number}")));
    let updates = destroys().chain(creates).map(|update| (client.clone(), update));
    let start = Instant::now();
    let answers = runtime.block_on(begin_all(updates.collect()));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            Err(status) if number < 4 => {
                assert_eq!((status.code(), reason(&status).as_str()), STORE_UNAVAILABLE);
                assert!(status.message().contains("locked by another session of the database"), "{status:?}");
            }
            Ok(_) if number >= 4 => {}
            answer => panic!("{number}: {answer:?}"),
        }
    }
    let address = format!("http://{}", server.address());
    let begin = ["begin", "--server", &address, "--cell", "1", "--destroy", "USERNAMES:locked-0"];
    let claim = ["--subject", "USER:7", "--source", "USERS:7"];
    let output = runtime.block_on(leasehold([&begin[..], &claim].concat())).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("hint: when that session has ended its transaction, repeat it with "), "{stderr}");
    assert_eq!(blockers(&runtime, &server.stderr(), &cluster.url(&database)), [foreign_pid]);

    runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
    let repeated = destroys().map(|update| (client.clone(), update)).collect();
    assert!(runtime.block_on(begin_all(repeated)).iter().all(Result::is_ok));
}

#[test]
fn beside_an_active_server_a_server_writes_one_group_at_a_time() {
    let pair = ServerPair::start();
    let mut client = pair.clients[1].clone();
    let lease = pair.runtime.block_on(client.begin(create("locked"))).unwrap().lease;
    pair.runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    let concurrent_groups = || metric(&pair.runtime, &pair.servers[0], "leasehold_groups_at_once").unwrap();
    assert_eq!(concurrent_groups(), "2");
    // The foreign session's lock makes each group of the second server slow. So the first server
    // always sees the second one writing a group.
    let foreign = open_session(&pair.runtime, &pair.cluster.url(&pair.database));
    pair.runtime.block_on(foreign.batch_execute("BEGIN; SELECT 1 FROM claims FOR UPDATE")).unwrap();
    let destroys = pair.runtime.spawn(async move {
        loop {
            client.begin(destroy("locked")).await.unwrap_err();
        }
    });
    await_condition("the server sees the other one at work", || concurrent_groups() == "1");
    destroys.abort();
    await_condition("the server sees the other one idle", || concurrent_groups() == "2");
    pair.runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
}

/// Runs the SQL statement that the server's log recommends for finding the session that holds the
/// locks. Returns the process ids in the statement's result.
fn blockers(runtime: &Runtime, log: &str, url: &str) -> Vec<i32> {
    let line =
        log.lines().find(|line| line.contains("rows are locked by another session")).expect("the log has the lock");
    let statement = line.split('`').find(|words| words.starts_with("SELECT ")).expect("the line has a statement");
    let rows = runtime.block_on(open_session(runtime, url).query(statement, &[])).unwrap();
    rows.iter().map(|row| row.get("pid")).collect()
}

#[test]
fn b01_b03_of_two_simultaneous_begins_on_two_servers_exactly_one_succeeds() {
    let pair = ServerPair::start();
    let mut winners = BTreeMap::<usize, usize>::new();
    for round in 0..100 {
        // Both updates create the bucket `both-…`, so only one begin can succeed. The bucket
        // `own-…` of the refused update must stay free.
        let names = |server: usize| [format!("both-{round}"), format!("own-{round}-{server}")];
        let update = |server: usize| (pair.clients[server].clone(), create_all(names(server)));
        let answers = pair.runtime.block_on(begin_all(vec![update(0), update(1)]));
        let winner = answers.iter().position(Result::is_ok).expect("one begin succeeds");
        let loser = answers[1 - winner].as_ref().expect_err("the other begin fails");
        assert_eq!(reason(loser), "CLAIM_BUSY", "{loser:?}");
        let mut client = pair.clients[winner].clone();
        let free = pair.runtime.block_on(client.get(&format!("own-{round}-{}", 1 - winner))).unwrap_err();
        assert_eq!(reason(&free), "CLAIM_NOT_FOUND");
        *winners.entry(winner).or_default() += 1;
    }
    println!("begins that succeeded, by server: {winners:?}");
    let log = pair.cluster.log().unwrap();
    assert!(!log.contains("ERROR"), "a lost race is logged as an error:\n{log}");
    let (cluster, database) = pair.stop();
    let state = final_state(&cluster, &database);
    invariant::check(&state).unwrap();
    assert_eq!((state.leases.len(), state.claims.len()), (100, 200));
}

/// Begins and commits updates of new usernames until the time `end`. Returns the number of commits.
async fn save_until(mut client: Client, number: u64, end: Instant) -> usize {
    let mut saves = 0;
    while Instant::now() < end {
        let lease = client.begin(create(format!("free-{number}-{saves}"))).await.unwrap().lease;
        client.settle(&lease, Outcome::Committed).await.unwrap();
        saves += 1;
    }
    saves
}

#[test]
fn repeated_attempts_on_locked_rows_do_not_slow_other_updates() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), "");
    let runtime = Runtime::new().unwrap();
    let client = client_of(&runtime, &server);
    let lease = runtime.block_on(client.clone().begin(create("locked"))).unwrap().lease;
    let foreign = open_session(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; SELECT FROM claim_leases FOR UPDATE")).unwrap();
    let mut attempts = JoinSet::new();
    for _ in 0..8 {
        let (mut client, lease) = (client.clone(), lease.clone());
        attempts.spawn_on(
            async move {
                loop {
                    match client.settle(&lease, Outcome::Committed).await {
                        Ok(()) => return,
                        Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
                    }
                }
            },
            runtime.handle(),
        );
    }
    let (mut savers, end) = (JoinSet::new(), Instant::now() + Duration::from_secs(4));
    for number in 0..8 {
        savers.spawn_on(save_until(client.clone(), number, end), runtime.handle());
    }
    let saves: usize = runtime.block_on(savers.join_all()).into_iter().sum();
    // If all writers wait for the locked rows, there are fewer than 12 saves a second.
    println!("{saves} saves in four seconds");
    assert!(saves > 200, "{saves} saves in four seconds");
    runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
    runtime.block_on(attempts.join_all());
}

/// The number of buckets that all contending updates choose from, arranged in a ring.
const RING: usize = 120;
/// The number of buckets in each contending update. It is more than half of the ring, so any two
/// updates overlap.
const WINDOW: usize = 80;

/// Returns claims of [`WINDOW`] consecutive buckets of the ring, starting at number `from`. They
/// are in descending order if `is_descending`.
fn window(from: usize, is_descending: bool) -> Vec<wire::Metadata> {
    let mut names: Vec<_> = (from..from + WINDOW).map(|index| format!("ring-{}", index % RING)).collect();
    if is_descending {
        names.reverse();
    }
    names.into_iter().map(|name| user(name, 7, Vec::new())).collect()
}

/// Begins updates of overlapping windows of the ring, and rolls back each that is begun. Returns
/// the number of begun updates.
async fn contend(mut client: Client, number: usize, rounds: usize, creates: bool) -> usize {
    let mut successes = 0;
    for round in 0..rounds {
        let claims = window(number * 31 + round * 7, (number + round).is_multiple_of(2));
        let update = if creates {
            Update { creates: claims, ..Update::default() }
        } else {
            Update { destroys: claims, ..Update::default() }
        };
        match client.begin(update).await {
            Ok(begun) => {
                client.settle(&begun.lease, Outcome::RolledBack).await.unwrap();
                successes += 1;
            }
            Err(status) => assert_eq!(reason(&status), "CLAIM_BUSY", "{status:?}"),
        }
    }
    successes
}

fn contend_all(pair: &ServerPair, creates: bool) -> usize {
    let mut clients = JoinSet::new();
    for number in 0..8 {
        let client = pair.clients[number % 2].clone();
        clients.spawn_on(contend(client, number, 40, creates), pair.runtime.handle());
    }
    pair.runtime.block_on(clients.join_all()).into_iter().sum()
}

#[test]
fn updates_with_opposite_orders_of_buckets_do_not_deadlock() {
    let pair = ServerPair::start();
    // The first run inserts rows for absent claims. The second run changes rows of claims that
    // exist.
    let created = contend_all(&pair, true);
    let mut client = pair.clients[0].clone();
    let all = create_all((0..RING).map(|index| format!("ring-{index}")));
    let lease = pair.runtime.block_on(client.begin(all)).unwrap().lease;
    pair.runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    let destroyed = contend_all(&pair, false);
    // The servers are stopped first: PostgreSQL may delay the last counts of a session, but adds them
    // when the session ends.
    let (cluster, database) = pair.stop();
    let count = |counter: &str| -> usize {
        let sql = format!("SELECT {counter} FROM pg_stat_database WHERE datname = '{database}'");
        cluster.execute("postgres", &sql).unwrap()[0].parse().unwrap()
    };
    let begun = created + destroyed + 1;
    await_condition("the statistics are complete", || count("xact_commit") > 2 * begun);
    println!("{created} and {destroyed} begun, {} transactions rolled back", count("xact_rollback"));
    assert!(created > 10 && destroyed > 10, "too few updates were begun");
    assert!(count("xact_rollback") > 0, "no transaction was rolled back: the updates did not contend");
    assert_eq!(count("deadlocks"), 0);
    let state = final_state(&cluster, &database);
    invariant::check(&state).unwrap();
    assert_eq!((state.leases.len(), state.claims.len()), (begun, RING));
    assert!(state.claims.values().all(|claim| matches!(claim.state, ClaimState::Active(_))));
}

#[test]
fn servers_that_start_together_on_an_empty_database_all_serve() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let runtime = Runtime::new().unwrap();
    for _ in 0..3 {
        let url = cluster.url(&cluster.database().unwrap());
        let servers: Vec<_> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..4).map(|_| scope.spawn(|| serve(&url, ""))).collect();
            starting.into_iter().map(|started| started.join().unwrap()).collect()
        });
        let mut leases = BTreeSet::new();
        for (number, server) in servers.iter().enumerate() {
            let mut client = client_of(&runtime, server);
            let begun = runtime.block_on(client.begin(create(format!("first-{number}")))).unwrap();
            assert_eq!(begun.fence, 1 + u64::try_from(number).unwrap());
            leases.insert(begun.lease);
            assert_eq!(runtime.block_on(client.leases()).unwrap().into_iter().collect::<BTreeSet<_>>(), leases);
        }
    }
}

/// A later version of the schema keeps the functions of earlier versions. Servers of the old
/// version can then work until all are upgraded.
#[test]
fn a_start_on_newer_tables_is_refused_while_older_servers_keep_working() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let url = cluster.url(&database);
    let older = serve(&url, "");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &older);
    // A create and a destroy of one username insert, read, change and delete rows of the tables.
    let mut use_the_tables = || {
        for update in [create("used"), destroy("used")] {
            let lease = runtime.block_on(client.begin(update)).unwrap().lease;
            runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
        }
    };
    use_the_tables();
    let newer = "ALTER TABLE claims ADD COLUMN added integer; ALTER TABLE claim_leases ADD COLUMN added integer;
        INSERT INTO leasehold_migrations (version) VALUES (1000000)";
    cluster.execute(&database, newer).unwrap();
    let refused = Server::builder().config(cells(1)).arg("--store").arg(&url).start().unwrap_err().to_string();
    assert!(refused.contains("version 1000000") && refused.contains("newer"), "{refused}");
    use_the_tables();
    cluster.execute(&database, "DELETE FROM leasehold_migrations WHERE version = 1000000").unwrap();
    serve(&url, "");
}
