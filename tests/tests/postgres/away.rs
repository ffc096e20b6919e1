//! A database that goes away in the middle of everything: what was answered is there, what was not is answered truly when
//! it is asked again, and nobody waits for longer than they have patience.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::cell::CellId;
use leasehold_core::claim::ClaimState;
use leasehold_core::invariant;
use leasehold_core::lease::{IdempotencyKey, Outcome};
use leasehold_core::rows::State;
use leasehold_core::store::Store;
use leasehold_tests::client::{Begun, Client, Update, user};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, get, leasehold};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::history::lease_id;
use crate::proxy::{Cut, Proxy};
use crate::{NO_SYNC, await_condition, final_state, writer};

const CLIENTS: u64 = 16;
const AWAY: (Code, &str) = (Code::Unavailable, "STORE_UNAVAILABLE");
/// What a refusal may take beyond the patience.
const SLACK: Duration = Duration::from_secs(4);
const SERVICE: &str = "gitlab.cells.topology_service.claims.v1.ClaimService";

fn server(url: &str, settings: &str) -> Server {
    let config = format!("[postgres]\nurl = \"{url}\"\n{settings}\n{}", crate::cells(3));
    Server::builder().config(config).start().unwrap()
}

fn create(name: impl Into<String>, number: u64, key: Option<String>) -> Update {
    Update { creates: vec![user(name, number, Vec::new())], key, ..Update::default() }
}

fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey { cell: CellId(1), key: name.into() }
}

/// Commits that are not waited for stay in memory for as long as that lets them.
const CARELESS: [&str; 3] = ["synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB"];

#[test]
fn what_was_answered_outlives_a_crash_whatever_commits_do_by_default() {
    let mut cluster = Cluster::start(&CARELESS).unwrap();
    let database = cluster.database().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut server = server(&cluster.url(&database), "");
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let begun: BTreeMap<_, _> = (0..4)
        .map(|number| {
            let name = format!("kept-{number}");
            let begun = runtime.block_on(client.begin(create(&name, 1 + number, Some(name.clone())))).unwrap();
            (name, begun)
        })
        .collect();
    let commit = |client: &mut Client, name: &str| {
        runtime.block_on(client.settle(&begun[name].lease, Outcome::Committed)).unwrap();
    };
    commit(&mut client, "kept-0");
    cluster.crash().unwrap();
    cluster.start_again().unwrap();
    check_begun(&writer(&cluster.url(&database)).state().unwrap(), &begun, 3);
    // One that has not begun them reads them first.
    server.terminate().unwrap();
    server.restart().unwrap();
    client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    commit(&mut client, "kept-1");
    cluster.crash().unwrap();
    cluster.start_again().unwrap();
    check_begun(&writer(&cluster.url(&database)).state().unwrap(), &begun, 2);
}

/// What the clients of a load have in common.
#[derive(Default)]
struct Load {
    answered: AtomicU64,
    refused: AtomicU64,
    slowest_millis: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    /// Calls until there is an answer other than that the database is away.
    async fn ask<T, F: Future<Output = Result<T, Status>>>(&self, call: impl Fn(Client) -> F, client: &Client) -> T {
        loop {
            let asked = Instant::now();
            let answer = call(client.clone()).await;
            let millis = u64::try_from(asked.elapsed().as_millis()).unwrap();
            self.slowest_millis.fetch_max(millis, Ordering::Relaxed);
            match answer {
                Ok(answer) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    return answer;
                }
                Err(status) => assert_eq!(Refusal::of(&status).code_and_reason(), AWAY, "{status:?}"),
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins and commits names of its own; the last one is left as it is begun. What it was answered, by key.
    async fn work(self: Arc<Self>, client: Client, number: u64) -> BTreeMap<String, Begun> {
        let mut begun = BTreeMap::new();
        loop {
            let name = format!("away-{number}-{}", begun.len());
            let update = create(&name, 1 + number, Some(name.clone()));
            let begin = |mut client: Client| {
                let update = update.clone();
                async move { client.begin(update).await }
            };
            let answer = self.ask(begin, &client).await;
            begun.insert(name, answer.clone());
            if self.stop.load(Ordering::Relaxed) {
                return begun;
            }
            let commit = |mut client: Client| {
                let lease = answer.lease.clone();
                async move { client.settle(&lease, Outcome::Committed).await }
            };
            self.ask(commit, &client).await;
        }
    }

    fn await_answers(&self, more: u64) {
        let enough = self.answered.load(Ordering::Relaxed) + more;
        await_condition("commands are answered", || self.answered.load(Ordering::Relaxed) >= enough);
    }
}

/// There is one lease for each begin, the one that was answered; all but those that are still held were committed.
fn check_begun(state: &State, begun: &BTreeMap<String, Begun>, held: usize) {
    invariant::check(state).unwrap();
    assert_eq!((state.leases.len(), state.claims.len()), (begun.len(), begun.len()));
    for (name, begun) in begun {
        let id = lease_id(&begun.lease);
        let lease = &state.leases[&id];
        assert_eq!(lease.fence.0, begun.fence);
        assert_ne!(lease.outcome(), Some(Outcome::RolledBack));
        assert!(state.replays.get(&key(name)).is_none_or(|replay| replay.lease == id));
    }
    let resting = state.claims.values().filter(|claim| matches!(claim.state, ClaimState::Active(_))).count();
    let committed = state.leases.values().filter(|lease| lease.outcome().is_some()).count();
    assert_eq!((begun.len() - resting, begun.len() - committed), (held, held));
}

#[test]
fn what_was_answered_before_during_and_after_a_crash_is_there() {
    let patience = Duration::from_secs(5);
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let mut server = server(&cluster.url(&database), "patience_seconds = 5");
    let runtime = Runtime::new().unwrap();
    let load = Arc::new(Load::default());
    let client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let mut working = JoinSet::new();
    for number in 0..CLIENTS {
        working.spawn_on(load.clone().work(client.clone(), number), runtime.handle());
    }
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        load.await_answers(300);
        let crashed = Instant::now();
        cluster.crash().unwrap();
        cluster.start_again().unwrap();
        longest = longest.max(crashed.elapsed());
        load.await_answers(300);
    }
    load.stop.store(true, Ordering::Relaxed);
    let begun: BTreeMap<_, _> = runtime.block_on(working.join_all()).into_iter().flatten().collect();
    let (refused, slowest) = (load.refused.load(Ordering::Relaxed), load.slowest_millis.load(Ordering::Relaxed));
    println!("{} leases, away for {longest:?}, {refused} refused, slowest {slowest} ms", begun.len());
    assert!(Duration::from_millis(slowest) < patience + SLACK, "a call took {slowest} ms");
    assert!(
        refused == 0 || longest + SLACK > patience,
        "{refused} calls were refused, though it was back after {longest:?}"
    );
    assert!(server.terminate().unwrap().success());
    let state = final_state(&cluster, &database);
    check_begun(&state, &begun, CLIENTS.try_into().unwrap());
    assert_eq!(state.replays.len(), begun.len());
}

/// Begins names, a few at a time, so that every writer has something to do.
async fn begin_many(client: &Client, prefix: &str) -> Vec<Result<Begun, Status>> {
    let mut working = JoinSet::new();
    for number in 0..8 {
        let (mut client, prefix) = (client.clone(), prefix.to_owned());
        working.spawn(async move {
            let mut answers = Vec::new();
            for turn in 0..10 {
                answers.push(client.begin(create(format!("{prefix}-{number}-{turn}"), 7, None)).await);
            }
            answers
        });
    }
    working.join_all().await.into_iter().flatten().collect()
}

#[test]
fn while_it_is_away_begins_are_refused_and_health_says_so() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = server(&cluster.url(&database), "patience_seconds = 1");
    let runtime = Runtime::new().unwrap();
    let channel = runtime.block_on(server.connect(None)).unwrap();
    let mut client = Client::over(channel.clone(), 1);
    let request = HealthCheckRequest { service: SERVICE.into() };
    let mut health = runtime.block_on(HealthClient::new(channel).watch(request)).unwrap().into_inner();
    let mut next_health = || {
        let next = async { tokio::time::timeout(Duration::from_secs(30), health.message()).await };
        runtime.block_on(next).unwrap().unwrap().unwrap().status
    };
    assert_eq!(next_health(), ServingStatus::Serving as i32);
    assert!(runtime.block_on(begin_many(&client, "before")).iter().all(Result::is_ok));

    cluster.crash().unwrap();
    let asked = Instant::now();
    let refused = runtime.block_on(client.begin(create("during", 7, None))).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), AWAY);
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(1) + SLACK, "refused after {took:?}");
    assert_eq!(Refusal::of(&runtime.block_on(client.get("before-0-0")).unwrap_err()).code_and_reason(), AWAY);
    assert_eq!(next_health(), ServingStatus::NotServing as i32);

    cluster.start_again().unwrap();
    assert_eq!(next_health(), ServingStatus::Serving as i32);
    // Its writers have found nothing out yet since it is back: that must be nobody's trouble.
    for answer in runtime.block_on(begin_many(&client, "after")) {
        answer.unwrap();
    }
    runtime.block_on(client.get("after-0-0")).unwrap();
    assert!(runtime.block_on(client.get("during")).is_err(), "what was refused before it was tried is not there");
}

#[test]
fn commands_wait_as_long_in_a_second_outage_though_nobody_wrote_between() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let server = server(&cluster.url(&cluster.database().unwrap()), "patience_seconds = 1");
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    for outage in 0..2 {
        cluster.crash().unwrap();
        let asked = Instant::now();
        let refused = runtime.block_on(client.begin(create("during", 7, None))).unwrap_err();
        assert_eq!(Refusal::of(&refused).code_and_reason(), AWAY);
        assert!(asked.elapsed() >= Duration::from_secs(1), "outage {outage}: refused after {:?}", asked.elapsed());
        cluster.start_again().unwrap();
        await_condition("the return is told of", || {
            crate::metric(&runtime, &server, "leasehold_store_failed").as_deref() == Some("0")
        });
    }
}

/// Operators are alarmed by the metric, at a time when nobody may be writing.
#[test]
fn a_database_that_is_away_is_seen_in_the_metric_before_anybody_writes() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let server = server(&cluster.url(&cluster.database().unwrap()), "");
    let runtime = Runtime::new().unwrap();
    let has_failed = |value: &str| {
        let (_, text) = runtime.block_on(get(server.address(), "/metrics")).unwrap();
        text.lines().any(|line| line == format!("leasehold_store_failed {value}"))
    };
    assert!(has_failed("0"));
    cluster.crash().unwrap();
    await_condition("the metric says that the store is away", || has_failed("1"));
    cluster.start_again().unwrap();
    await_condition("the metric says that the store is back", || has_failed("0"));
    await_condition("the log says so", || server.stderr().lines().any(|line| line.ends_with("the store is back")));
}

#[test]
fn a_commit_whose_answer_is_lost_is_resolved() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let proxy = Proxy::start(cluster.port());
    let mut server = server(&proxy.url(&database), "");
    let runtime = Runtime::new().unwrap();
    let client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let (mut begun, mut rolled_back, mut settles) = (BTreeMap::new(), Vec::new(), 0);
    for (round, cut) in [Cut::Before, Cut::During, Cut::After].into_iter().cycle().take(60).enumerate() {
        let cuts = proxy.cuts();
        proxy.cut_next(cut);
        // Mostly alone, now and then in company.
        let keyed = round % 2 == 0;
        let company = if round % 4 < 2 { 3 } else { 1 };
        let answers = runtime.block_on(begin_at_once(&client, round, company, keyed));
        assert_eq!(proxy.cuts(), cuts + 1);
        for (name, answer) in answers {
            let answer = answer.unwrap_or_else(|status| panic!("{name}, cut {cut:?}: {status:?}"));
            proxy.cut_next(cut);
            // A commit is one statement, a rollback a transaction of several.
            let outcome = if round % 5 == 4 { Outcome::RolledBack } else { Outcome::Committed };
            let settled = runtime.block_on(client.clone().settle(&answer.lease, outcome));
            settled.unwrap_or_else(|status| panic!("{outcome:?} of {name}, cut {cut:?}: {status:?}"));
            settles += 1;
            if outcome == Outcome::RolledBack {
                rolled_back.push(name);
                continue;
            }
            if keyed {
                let again = create(&name, 7, Some(name.clone()));
                assert_eq!(runtime.block_on(client.clone().begin(again)).unwrap(), answer);
            }
            begun.insert(name, answer);
        }
    }
    assert_eq!(proxy.cuts(), 60 + settles);
    assert!(rolled_back.iter().all(|name| runtime.block_on(client.clone().get(name)).is_err()));
    assert!(server.terminate().unwrap().success());
    // Only now is all of it there: a command is told of after it is answered.
    let told = server.stderr().lines().filter(|line| line.contains("lease settled")).count();
    assert!(u64::try_from(told).unwrap() >= settles, "{told} of {settles} settles are in the audit log");
    let mut state = final_state(&cluster, &database);
    state.leases.retain(|_, lease| lease.outcome() != Some(Outcome::RolledBack));
    state.replays.retain(|_, replay| state.leases.contains_key(&replay.lease));
    check_begun(&state, &begun, 0);
}

async fn begin_at_once(
    client: &Client,
    round: usize,
    count: usize,
    keyed: bool,
) -> Vec<(String, Result<Begun, Status>)> {
    let mut working = JoinSet::new();
    for number in 0..count {
        let (name, mut client) = (format!("cut-{round}-{number}"), client.clone());
        let update = create(&name, 7, keyed.then(|| name.clone()));
        working.spawn(async move { (name, client.begin(update).await) });
    }
    working.join_all().await
}

/// A machine that loses its power, or a network that loses everything, tells the database nothing.
#[test]
fn a_connection_that_goes_silent_holds_nobody_up_for_long() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let proxy = Proxy::start(cluster.port());
    let settings = "statement_timeout_seconds = 1\npatience_seconds = 10";
    let (cut_off, other) = (server(&proxy.url(&database), settings), server(&cluster.url(&database), settings));
    let runtime = Runtime::new().unwrap();
    let connect = |server: &Server| Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let (mut silenced, mut other_client) = (connect(&cut_off), connect(&other));
    proxy.cut_next(Cut::Silence);
    let first = runtime.block_on(silenced.begin(create("silent", 7, None))).unwrap();
    proxy.cut_next(Cut::Silence);
    let second = runtime.spawn(async move { silenced.begin(create("dead", 7, None)).await });
    await_condition("the second begin is cut off", || proxy.cuts() == 2);
    drop(cut_off);
    // Its transaction is still open: nobody has told the database.
    let begun = runtime.block_on(other_client.begin(create("dead", 7, None))).unwrap();
    assert!(begun.fence > first.fence);
    assert!(runtime.block_on(second).unwrap().is_err());
    let leases = runtime.block_on(other_client.leases()).unwrap();
    assert_eq!(leases, [first.lease, begun.lease]);
}

/// Nothing that it may still wait for holds up an operator who wants it gone.
#[test]
fn a_second_signal_stops_a_server_whose_database_hangs() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let mut server = server(&cluster.url(&cluster.database().unwrap()), "write_connections = 1");
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    runtime.block_on(client.begin(create("before", 7, None))).unwrap();
    // Whoever connects later finds a process of his own, which is not stopped.
    let looking = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FROM claims, claim_leases WHERE false%'
        AND pid <> pg_backend_pid()";
    await_condition("it is looked for", || cluster.execute("postgres", looking).unwrap() == ["1"]);
    let frozen = cluster.freeze().unwrap();
    let hanging = runtime.spawn(async move { client.begin(create("hangs", 7, None)).await });
    await_condition("it is told of", || {
        crate::metric(&runtime, &server, "leasehold_store_failed").as_deref() == Some("1")
    });
    server.signal(Signal::SIGHUP).unwrap();
    await_condition("it is stopping", || server.stdout().contains("another signal stops at once"));
    let asked = Instant::now();
    server.signal(Signal::SIGTERM).unwrap();
    assert!(server.wait().unwrap().success());
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(runtime.block_on(hanging).unwrap().is_err());
    drop(frozen);
}

#[test]
fn a_read_that_gets_no_connection_says_which_setting_it_lacks() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = server(&cluster.url(&database), "read_connections = 1\nconnect_timeout_seconds = 1");
    let runtime = Runtime::new().unwrap();
    let client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let (holder, connection) =
        runtime.block_on(tokio_postgres::connect(&cluster.url(&database), tokio_postgres::NoTls)).unwrap();
    runtime.spawn(connection);
    runtime.block_on(holder.batch_execute("BEGIN; LOCK TABLE claims IN ACCESS EXCLUSIVE MODE")).unwrap();
    let mut reading = JoinSet::new();
    for _ in 0..3 {
        let mut client = client.clone();
        reading.spawn_on(async move { client.get("alice").await }, runtime.handle());
    }
    let first = runtime.block_on(reading.join_next()).unwrap().unwrap().unwrap_err();
    let words = "all 1 connections for reads, `postgres.read_connections`, were in use for 1 s";
    assert!(first.message().contains(words), "{first:?}");
}

/// Where the database lets one of a server's writers in and not the other, commands are the first one's.
#[test]
fn a_writer_that_alone_cannot_connect_holds_nobody_up() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let ask = |sql: &str| cluster.execute(&database, sql).unwrap();
    // One for the reads, one to look whether the database is there, one for a writer.
    ask("CREATE ROLE served LOGIN CONNECTION LIMIT 3");
    ask(&format!("ALTER DATABASE {database} OWNER TO served"));
    let url = cluster.url(&database).replace("leasehold@", "served@");
    let server = server(&url, "read_connections = 1\nwrite_connections = 2\npatience_seconds = 1");
    let runtime = Runtime::new().unwrap();
    let client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let mut rounds = 0;
    await_condition("the other writer is turned away", || {
        rounds += 1;
        let answers = runtime.block_on(begin_many(&client, &format!("lone-{rounds}")));
        answers.into_iter().for_each(|answer| drop(answer.unwrap()));
        cluster.log().unwrap().contains("too many connections for role")
    });
    for round in 0..20 {
        let answers = runtime.block_on(begin_many(&client, &format!("later-{round}")));
        answers.into_iter().for_each(|answer| drop(answer.unwrap()));
    }
    let connected = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'served'";
    assert_eq!(ask(connected), ["3"]);
    ask("ALTER ROLE served CONNECTION LIMIT 10");
    await_condition("it is back at work", || ask(connected) == ["4"]);
}

#[test]
fn a_bench_leaves_nothing_under_a_lease() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let mut server = server(&cluster.url(&database), "patience_seconds = 1");
    let address = format!("http://{}", server.address());
    let bench = ["bench", "--json", "--cell", "1", "--clients", "16", "--seconds", "5", "--server", &address];
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| Runtime::new().unwrap().block_on(leasehold(bench)).unwrap());
        let settled = |cluster: &Cluster| cluster.execute(&database, "SELECT count(*) FROM settled_leases").unwrap();
        await_condition("it saves", || settled(&cluster)[0].parse::<u64>().unwrap() > 100);
        cluster.crash().unwrap();
        // Whoever asked before this call has lost patience before it.
        assert_eq!(
            Refusal::of(&runtime.block_on(client.begin(create("alone", 7, None))).unwrap_err()).code_and_reason(),
            AWAY
        );
        cluster.start_again().unwrap();
        running.join().unwrap()
    });
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert!(told["saves"].as_u64().unwrap() > 100 && told["unsettled"] == 0, "{told}");
    assert!(told["errors"].to_string().contains("STORE_UNAVAILABLE"), "{told}");
    assert!(server.terminate().unwrap().success());
    let state = final_state(&cluster, &database);
    let left = state.leases.values().filter(|lease| lease.outcome() != Some(Outcome::Committed)).count();
    assert_eq!((left, state.leases.len() as u64), (0, told["saves"].as_u64().unwrap()));
}
