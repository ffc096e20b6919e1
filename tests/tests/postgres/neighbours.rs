//! Commands that go together, and servers that share a database, keep out of each other's way.

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

use crate::{NO_SYNC, await_condition, await_nobody, cells, connect, final_state, metric};

fn server(url: &str) -> Server {
    Server::builder().config(cells(3)).arg("--store").arg(url).start().unwrap()
}

fn create(names: impl IntoIterator<Item = String>) -> Update {
    Update { creates: names.into_iter().map(|name| user(name, 7, Vec::new())).collect(), ..Update::default() }
}

/// Sends updates all at once, each over the client beside it. The answers, in their order.
async fn begin_all(updates: Vec<(Client, Update)>) -> Vec<Result<Begun, Status>> {
    let mut sent = JoinSet::new();
    for (place, (mut client, update)) in updates.into_iter().enumerate() {
        sent.spawn(async move { (place, client.begin(update).await) });
    }
    let mut answers = sent.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Two servers on one database, the second behind pgbouncer, and a client of each.
struct Pair {
    cluster: Cluster,
    bouncer: Bouncer,
    database: String,
    servers: Vec<Server>,
    clients: [Client; 2],
    runtime: Runtime,
}

impl Pair {
    fn start() -> Self {
        let cluster = Cluster::start(NO_SYNC).unwrap();
        let bouncer = Bouncer::start(&cluster, 4).unwrap();
        let database = cluster.database().unwrap();
        let servers = vec![server(&cluster.url(&database)), server(&bouncer.url(&database))];
        let runtime = Runtime::new().unwrap();
        let connect = |at: usize| Client::over(runtime.block_on(servers[at].connect(None)).unwrap(), 1);
        let clients = [connect(0), connect(1)];
        Self { cluster, bouncer, database, servers, clients, runtime }
    }

    /// Stops the servers; the cluster and the database that they leave.
    fn stop(mut self) -> (Cluster, String) {
        for server in &mut self.servers {
            assert!(server.terminate().unwrap().success(), "{}", server.stderr());
        }
        drop(self.bouncer);
        await_nobody(&self.cluster, &self.database);
        (self.cluster, self.database)
    }
}

#[test]
fn a_conflict_fails_its_own_command_only() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let server = server(&cluster.url(&cluster.database().unwrap()));
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let taken = runtime.block_on(client.begin(create((0..40).map(|number| format!("taken-{number}"))))).unwrap();
    runtime.block_on(client.settle(&taken.lease, Outcome::Committed)).unwrap();
    let busy = runtime.block_on(client.begin(create((0..40).map(|number| format!("busy-{number}"))))).unwrap();
    // Each between two that are as good as new.
    let names = |number: usize| match number % 5 {
        0 => vec![format!("free-{number}"), format!("taken-{}", number / 5)],
        2 => vec![format!("busy-{}", number / 5)],
        _ => vec![format!("new-{number}-a"), format!("new-{number}-b")],
    };
    let updates = (0..200).map(|number| (client.clone(), create(names(number)))).collect();
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
fn rows_that_a_foreign_session_locks_fail_only_those_who_want_them() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = server(&cluster.url(&database));
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let locked = || (0..4).map(|number| format!("locked-{number}"));
    let lease = runtime.block_on(client.begin(create(locked()))).unwrap().lease;
    runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    let foreign = connect(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; SELECT 1 FROM claims FOR UPDATE")).unwrap();
    let foreign_pid: i32 = runtime.block_on(foreign.query_one("SELECT pg_backend_pid()", &[])).unwrap().get(0);

    // More of them than the server has connections for writing.
    let destroys = || locked().map(|name| Update { destroys: create([name]).creates, ..Update::default() });
    let news = (0..100).map(|number| create([format!("new-{number}")]));
    let updates = destroys().chain(news).map(|update| (client.clone(), update));
    let asked = Instant::now();
    let answers = runtime.block_on(begin_all(updates.collect()));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            Err(status) if number < 4 => {
                assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
                assert!(status.message().contains("locked by another session of the database"), "{status:?}");
            }
            Ok(_) if number >= 4 => {}
            answer => panic!("{number}: {answer:?}"),
        }
    }
    let at = format!("http://{}", server.address());
    let begin = ["begin", "--server", &at, "--cell", "1", "--destroy", "USERNAMES:locked-0"];
    let of = ["--subject", "USER:7", "--source", "USERS:7"];
    let said = runtime.block_on(leasehold([&begin[..], &of].concat())).unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("hint: when that session has ended its transaction, repeat it with "), "{said}");
    assert_eq!(blockers(&runtime, &server.stderr(), &cluster.url(&database)), [foreign_pid]);

    runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
    let again = destroys().map(|update| (client.clone(), update)).collect();
    assert!(runtime.block_on(begin_all(again)).iter().all(Result::is_ok));
}

#[test]
fn where_another_server_is_at_work_one_group_is_written_at_once() {
    let pair = Pair::start();
    let mut client = pair.clients[1].clone();
    let lease = pair.runtime.block_on(client.begin(create(["locked".into()]))).unwrap().lease;
    pair.runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    let at_once = || metric(&pair.runtime, &pair.servers[0], "leasehold_groups_at_once").unwrap();
    assert_eq!(at_once(), "2");
    // Has the other server's groups wait, so that there always is one.
    let foreign = connect(&pair.runtime, &pair.cluster.url(&pair.database));
    pair.runtime.block_on(foreign.batch_execute("BEGIN; SELECT 1 FROM claims FOR UPDATE")).unwrap();
    let destroys = pair.runtime.spawn(async move {
        loop {
            let update = Update { destroys: create(["locked".into()]).creates, ..Update::default() };
            client.begin(update).await.unwrap_err();
        }
    });
    await_condition("the other server's work is seen", || at_once() == "1");
    destroys.abort();
    await_condition("the other server is seen to rest", || at_once() == "2");
    pair.runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
}

/// The sessions that the statement in a server's log finds.
fn blockers(runtime: &Runtime, log: &str, url: &str) -> Vec<i32> {
    let line = log.lines().find(|line| line.contains("rows are locked by another session")).expect("it is logged");
    let statement = line.split('`').find(|words| words.starts_with("SELECT ")).expect("it says how to find out");
    let rows = runtime.block_on(connect(runtime, url).query(statement, &[])).unwrap();
    rows.iter().map(|row| row.get("pid")).collect()
}

#[test]
fn of_two_begins_at_once_on_two_servers_one_wins() {
    let pair = Pair::start();
    let mut winners = BTreeMap::<usize, usize>::new();
    for round in 0..100 {
        // One bucket in common; the loser's other bucket stays free.
        let names = |server: usize| [format!("both-{round}"), format!("own-{round}-{server}")];
        let update = |server: usize| (pair.clients[server].clone(), create(names(server)));
        let answers = pair.runtime.block_on(begin_all(vec![update(0), update(1)]));
        let winner = answers.iter().position(Result::is_ok).expect("one of them wins");
        let loser = answers[1 - winner].as_ref().expect_err("not both");
        assert_eq!(reason(loser), "CLAIM_BUSY", "{loser:?}");
        let mut client = pair.clients[winner].clone();
        let free = pair.runtime.block_on(client.get(&format!("own-{round}-{}", 1 - winner))).unwrap_err();
        assert_eq!(reason(&free), "CLAIM_NOT_FOUND");
        *winners.entry(winner).or_default() += 1;
    }
    println!("{winners:?}");
    let log = pair.cluster.log().unwrap();
    assert!(!log.contains("ERROR"), "the loser of a race is no error:\n{log}");
    let (cluster, database) = pair.stop();
    let state = final_state(&cluster, &database);
    invariant::check(&state).unwrap();
    assert_eq!((state.leases.len(), state.claims.len()), (100, 200));
}

/// Saves names of its own; how many.
async fn save_until(mut client: Client, number: u64, end: Instant) -> usize {
    let mut saves = 0;
    while Instant::now() < end {
        let lease = client.begin(create([format!("neighbour-{number}-{saves}")])).await.unwrap().lease;
        client.settle(&lease, Outcome::Committed).await.unwrap();
        saves += 1;
    }
    saves
}

#[test]
fn callers_who_try_locked_rows_again_and_again_hold_up_nobody_else() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = server(&cluster.url(&database));
    let runtime = Runtime::new().unwrap();
    let client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let lease = runtime.block_on(client.clone().begin(create(["locked".into()]))).unwrap().lease;
    let foreign = connect(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; SELECT FROM claim_leases FOR UPDATE")).unwrap();
    let mut trying = JoinSet::new();
    for _ in 0..8 {
        let (mut client, lease) = (client.clone(), lease.clone());
        trying.spawn_on(
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
    let (mut saving, end) = (JoinSet::new(), Instant::now() + Duration::from_secs(4));
    for number in 0..8 {
        saving.spawn_on(save_until(client.clone(), number, end), runtime.handle());
    }
    let saves: usize = runtime.block_on(saving.join_all()).into_iter().sum();
    // There were fewer than a dozen a second.
    println!("{saves} saves in four seconds");
    assert!(saves > 200, "{saves} saves in four seconds");
    runtime.block_on(foreign.batch_execute("COMMIT")).unwrap();
    runtime.block_on(trying.join_all());
}

const RING: usize = 120;
const WINDOW: usize = 80;

/// Some buckets of a ring, from any of them on, up or down.
fn window(from: usize, down: bool) -> Vec<wire::Metadata> {
    let mut names: Vec<_> = (from..from + WINDOW).map(|at| format!("ring-{}", at % RING)).collect();
    if down {
        names.reverse();
    }
    names.into_iter().map(|name| user(name, 7, Vec::new())).collect()
}

/// Begins updates of windows again and again, and takes back what it gets. How often it got one.
async fn contend(mut client: Client, number: usize, rounds: usize, creates: bool) -> usize {
    let mut begun = 0;
    for round in 0..rounds {
        let claims = window(number * 31 + round * 7, (number + round).is_multiple_of(2));
        let update = if creates {
            Update { creates: claims, ..Update::default() }
        } else {
            Update { destroys: claims, ..Update::default() }
        };
        match client.begin(update).await {
            Ok(lease) => {
                client.settle(&lease.lease, Outcome::RolledBack).await.unwrap();
                begun += 1;
            }
            Err(status) => assert_eq!(reason(&status), "CLAIM_BUSY", "{status:?}"),
        }
    }
    begun
}

fn contend_all(pair: &Pair, creates: bool) -> usize {
    let mut working = JoinSet::new();
    for number in 0..8 {
        let client = pair.clients[number % 2].clone();
        working.spawn_on(contend(client, number, 40, creates), pair.runtime.handle());
    }
    pair.runtime.block_on(working.join_all()).into_iter().sum()
}

#[test]
fn opposite_orders_of_keys_do_not_deadlock() {
    let pair = Pair::start();
    // First over rows that are not there yet, then over rows that are.
    let created = contend_all(&pair, true);
    let mut client = pair.clients[0].clone();
    let all = create((0..RING).map(|at| format!("ring-{at}")));
    let lease = pair.runtime.block_on(client.begin(all)).unwrap().lease;
    pair.runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    let destroyed = contend_all(&pair, false);
    // Counted by the database itself, once its processes have ended and told.
    let (cluster, database) = pair.stop();
    let count = |what: &str| -> usize {
        let sql = format!("SELECT {what} FROM pg_stat_database WHERE datname = '{database}'");
        cluster.execute("postgres", &sql).unwrap()[0].parse().unwrap()
    };
    let begun = created + destroyed + 1;
    await_condition("the database has counted", || count("xact_commit") > 2 * begun);
    println!("{created} and {destroyed} begun, {} transactions rolled back", count("xact_rollback"));
    assert!(created > 10 && destroyed > 10, "hardly anything was begun");
    assert!(count("xact_rollback") > 0, "no race was lost: they were not in each other's way");
    assert_eq!(count("deadlocks"), 0);
    let state = final_state(&cluster, &database);
    invariant::check(&state).unwrap();
    assert_eq!((state.leases.len(), state.claims.len()), (begun, RING));
    assert!(state.claims.values().all(|claim| matches!(claim.state, ClaimState::Active(_))));
}

#[test]
fn servers_that_start_at_once_on_an_empty_database_all_serve() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let runtime = Runtime::new().unwrap();
    for _ in 0..3 {
        let url = cluster.url(&cluster.database().unwrap());
        let servers: Vec<_> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..4).map(|_| scope.spawn(|| server(&url))).collect();
            starting.into_iter().map(|started| started.join().unwrap()).collect()
        });
        let mut leases = BTreeSet::new();
        for (number, server) in servers.iter().enumerate() {
            let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
            let begun = runtime.block_on(client.begin(create([format!("first-{number}")]))).unwrap();
            assert_eq!(begun.fence, 1 + u64::try_from(number).unwrap());
            leases.insert(begun.lease);
            assert_eq!(runtime.block_on(client.leases()).unwrap().into_iter().collect::<BTreeSet<_>>(), leases);
        }
    }
}

/// A later version of the tables leaves the functions of earlier ones in place, so that servers can be upgraded one
/// after the other.
#[test]
fn a_start_on_newer_tables_is_refused_while_older_servers_go_on() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let url = cluster.url(&database);
    let older = server(&url);
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(older.connect(None)).unwrap(), 1);
    // Creates and destroys a name: rows are written, read, changed and removed.
    let mut use_the_tables = || {
        let created = create(["used".to_owned()]);
        let destroyed = Update { destroys: created.creates.clone(), ..Update::default() };
        for update in [created, destroyed] {
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
    server(&url);
}
