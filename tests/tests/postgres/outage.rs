//! Tests of database outages: acknowledged updates survive, a repeated call gets the true answer,
//! and no call waits much longer than `postgres.patience_seconds`.

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
use leasehold_tests::wire::{Refusal, leasehold};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::link::{Fault, Link};
use crate::proxy::{Cut, Proxy};
use crate::{
    NO_SYNC, STORE_UNAVAILABLE, StoreStatus, await_condition, await_report, client_of, create, final_state,
    open_session, open_store, reports, serve,
};
use leasehold_tests::fight::lease_id;

const CLIENTS: u64 = 16;
/// The longest time that a refusal may take in addition to `patience_seconds`.
const SLACK: Duration = Duration::from_secs(4);
const SERVICE: &str = "gitlab.cells.topology_service.claims.v1.ClaimService";

/// Returns an update that creates the username `name` for a user. Its idempotency key equals the
/// name.
fn create_with_key(name: &str, user_id: u64) -> Update {
    Update { creates: vec![user(name, user_id, Vec::new())], key: Some(name.to_owned()), ..Update::default() }
}

fn idempotency_key(name: &str) -> IdempotencyKey {
    IdempotencyKey { cell: CellId(1), key: name.into() }
}

/// Cluster settings under which commits are asynchronous by default, and stay in memory for up to
/// ten seconds.
const ASYNCHRONOUS_COMMIT: [&str; 3] = ["synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB"];

#[test]
fn acknowledged_updates_survive_a_crash_even_if_commits_are_asynchronous_by_default() {
    let mut cluster = Cluster::start(&ASYNCHRONOUS_COMMIT).unwrap();
    let database = cluster.database().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut server = serve(&cluster.url(&database), "");
    let mut client = client_of(&runtime, &server);
    let begun: BTreeMap<_, _> = (0..4)
        .map(|number| {
            let name = format!("kept-{number}");
            let begun = runtime.block_on(client.begin(create_with_key(&name, 1 + number))).unwrap();
            (name, begun)
        })
        .collect();
    let commit = |client: &mut Client, name: &str| {
        runtime.block_on(client.settle(&begun[name].lease, Outcome::Committed)).unwrap();
    };
    commit(&mut client, "kept-0");
    cluster.crash().unwrap();
    cluster.restart().unwrap();
    check_begun(&open_store(&cluster.url(&database)).state().unwrap(), &begun, 3);
    // After a restart the server's cache has no leases, so the server must read a lease's rows
    // before it commits the lease.
    server.terminate().unwrap();
    server.restart().unwrap();
    client = client_of(&runtime, &server);
    commit(&mut client, "kept-1");
    cluster.crash().unwrap();
    cluster.restart().unwrap();
    check_begun(&open_store(&cluster.url(&database)).state().unwrap(), &begun, 2);
}

/// The counters of a load of many clients, and the flag that ends the load.
#[derive(Default)]
struct Load {
    answered: AtomicU64,
    refused: AtomicU64,
    slowest_millis: AtomicU64,
    is_stopped: AtomicBool,
}

impl Load {
    /// Repeats a call as long as the server refuses it as `STORE_UNAVAILABLE`. Returns the accepted
    /// answer.
    async fn retry<T, F: Future<Output = Result<T, Status>>>(&self, call: impl Fn(Client) -> F, client: &Client) -> T {
        loop {
            let start = Instant::now();
            let answer = call(client.clone()).await;
            let millis = u64::try_from(start.elapsed().as_millis()).unwrap();
            self.slowest_millis.fetch_max(millis, Ordering::Relaxed);
            match answer {
                Ok(answer) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    return answer;
                }
                Err(status) => assert_eq!(Refusal::of(&status).code_and_reason(), STORE_UNAVAILABLE, "{status:?}"),
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins and commits updates of names that only this client uses, until the load ends. The
    /// last lease stays outstanding. Returns the answer to each begin, by its idempotency key.
    async fn work(self: Arc<Self>, client: Client, number: u64) -> BTreeMap<String, Begun> {
        let mut begun = BTreeMap::new();
        loop {
            let name = format!("outage-{number}-{}", begun.len());
            let update = create_with_key(&name, 1 + number);
            let begin = |mut client: Client| {
                let update = update.clone();
                async move { client.begin(update).await }
            };
            let answer = self.retry(begin, &client).await;
            begun.insert(name, answer.clone());
            if self.is_stopped.load(Ordering::Relaxed) {
                return begun;
            }
            let commit = |mut client: Client| {
                let lease = answer.lease.clone();
                async move { client.settle(&lease, Outcome::Committed).await }
            };
            self.retry(commit, &client).await;
        }
    }

    /// Waits until the clients have received `count` further answers.
    fn await_answers(&self, count: u64) {
        let enough = self.answered.load(Ordering::Relaxed) + count;
        await_condition("calls are answered", || self.answered.load(Ordering::Relaxed) >= enough);
    }
}

/// Asserts that the state has exactly the leases of the acknowledged begins, and that all but
/// `outstanding` of them are committed.
fn check_begun(state: &State, begun: &BTreeMap<String, Begun>, outstanding: usize) {
    invariant::check(state).unwrap();
    assert_eq!((state.leases.len(), state.claims.len()), (begun.len(), begun.len()));
    for (name, begun) in begun {
        let id = lease_id(&begun.lease);
        let lease = &state.leases[&id];
        assert_eq!(lease.fence.0, begun.fence);
        assert_ne!(lease.outcome(), Some(Outcome::RolledBack));
        assert!(state.replays.get(&idempotency_key(name)).is_none_or(|replay| replay.lease == id));
    }
    let active = state.claims.values().filter(|claim| matches!(claim.state, ClaimState::Active(_))).count();
    let committed = state.leases.values().filter(|lease| lease.outcome().is_some()).count();
    assert_eq!((begun.len() - active, begun.len() - committed), (outstanding, outstanding));
}

#[test]
fn updates_acknowledged_before_during_and_after_a_crash_are_stored() {
    let patience = Duration::from_secs(5);
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let mut server = serve(&cluster.url(&database), "patience_seconds = 5");
    let runtime = Runtime::new().unwrap();
    let load = Arc::new(Load::default());
    let client = client_of(&runtime, &server);
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn_on(load.clone().work(client.clone(), number), runtime.handle());
    }
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        load.await_answers(300);
        let crashed = Instant::now();
        cluster.crash().unwrap();
        cluster.restart().unwrap();
        longest = longest.max(crashed.elapsed());
        load.await_answers(300);
    }
    load.is_stopped.store(true, Ordering::Relaxed);
    let begun: BTreeMap<_, _> = runtime.block_on(clients.join_all()).into_iter().flatten().collect();
    let (refused, slowest) = (load.refused.load(Ordering::Relaxed), load.slowest_millis.load(Ordering::Relaxed));
    println!("{} leases, outages up to {longest:?}, {refused} refused, slowest {slowest} ms", begun.len());
    assert!(Duration::from_millis(slowest) < patience + SLACK, "a call took {slowest} ms");
    assert!(
        refused == 0 || longest + SLACK > patience,
        "{refused} calls were refused, although the longest outage took {longest:?}"
    );
    assert!(server.terminate().unwrap().success());
    let state = final_state(&cluster, &database);
    check_begun(&state, &begun, CLIENTS.try_into().unwrap());
    assert_eq!(state.replays.len(), begun.len());
}

/// Begins 80 updates, eight at a time, so that each writer of the server writes some of them.
/// Returns the answers.
async fn begin_many(client: &Client, prefix: &str) -> Vec<Result<Begun, Status>> {
    let mut working = JoinSet::new();
    for number in 0..8 {
        let (mut client, prefix) = (client.clone(), prefix.to_owned());
        working.spawn(async move {
            let mut answers = Vec::new();
            for turn in 0..10 {
                answers.push(client.begin(create(format!("{prefix}-{number}-{turn}"))).await);
            }
            answers
        });
    }
    working.join_all().await.into_iter().flatten().collect()
}

#[test]
fn during_an_outage_begins_and_reads_are_refused_and_health_reports_it() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), "patience_seconds = 1");
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
    let start = Instant::now();
    let refused = runtime.block_on(client.begin(create("during"))).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE);
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(1) + SLACK, "refused after {took:?}");
    let refused = runtime.block_on(client.get("before-0-0")).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE);
    assert_eq!(next_health(), ServingStatus::NotServing as i32);

    cluster.restart().unwrap();
    assert_eq!(next_health(), ServingStatus::Serving as i32);
    // The server's writers still hold connections that the crash has closed. They must replace them
    // without refusing a command.
    for answer in runtime.block_on(begin_many(&client, "after")) {
        answer.unwrap();
    }
    runtime.block_on(client.get("after-0-0")).unwrap();
    assert!(runtime.block_on(client.get("during")).is_err(), "the refused begin has left a claim");
}

/// Each read would otherwise wait for its statement, and then for a second try. Reads that come later would wait for a
/// connection of the pool too. The log tells of the outage, not of each read.
#[test]
fn reads_are_refused_soon_while_the_database_is_silent() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let link = Link::start(cluster.port());
    let server = serve(&link.url(&database), "");
    let runtime = Runtime::new().unwrap();
    let client = client_of(&runtime, &server);
    runtime.block_on(client.clone().begin(create("kept"))).unwrap();
    link.cut(Fault::Frozen);
    for _ in 0..3 {
        let mut reads = JoinSet::new();
        for _ in 0..20 {
            let mut client = client.clone();
            reads.spawn_on(async move { client.get("kept").await.unwrap_err() }, runtime.handle());
        }
        let start = Instant::now();
        for refused in runtime.block_on(reads.join_all()) {
            assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE);
        }
        assert!(start.elapsed() < Duration::from_secs(5), "refused after {:?}", start.elapsed());
    }
    assert!(server.has_logged("the database is away"), "{}", server.stderr());
    assert_eq!(server.stderr().matches("can't be read").count(), 0, "{}", server.stderr());
    link.heal();
    await_condition("reads are answered again", || runtime.block_on(client.clone().get("kept")).is_ok());
}

#[test]
fn commands_wait_for_the_whole_patience_again_in_a_second_outage() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let server = serve(&cluster.url(&cluster.database().unwrap()), "patience_seconds = 1");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    // No client writes between the two outages, so no writer has used the database in between.
    for outage in 0..2 {
        cluster.crash().unwrap();
        let start = Instant::now();
        let refused = runtime.block_on(client.begin(create("during"))).unwrap_err();
        assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE);
        assert!(start.elapsed() >= Duration::from_secs(1), "outage {outage}: refused after {:?}", start.elapsed());
        cluster.restart().unwrap();
        await_report(&runtime, &server, StoreStatus::Working);
    }
}

/// Operators' alerts depend on the metric, so it must change although no client writes.
#[test]
fn an_outage_is_reported_before_any_write() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let server = serve(&cluster.url(&cluster.database().unwrap()), "");
    let runtime = Runtime::new().unwrap();
    assert!(reports(&runtime, &server, StoreStatus::Working));
    cluster.crash().unwrap();
    await_report(&runtime, &server, StoreStatus::Failed);
    cluster.restart().unwrap();
    await_report(&runtime, &server, StoreStatus::Working);
    await_condition("the log has the recovery", || {
        server.stderr().lines().any(|line| line.ends_with("the database answers again"))
    });
}

#[test]
fn a_commit_with_a_lost_answer_is_resolved_by_the_server() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let proxy = Proxy::start(cluster.port());
    let mut server = serve(&proxy.url(&database), "");
    let runtime = Runtime::new().unwrap();
    let client = client_of(&runtime, &server);
    let (mut begun, mut rolled_back, mut settles) = (BTreeMap::new(), Vec::new(), 0);
    for (round, cut) in [Cut::Before, Cut::During, Cut::After].into_iter().cycle().take(60).enumerate() {
        let cuts = proxy.cuts();
        proxy.cut_next(cut);
        // A group of one command and a group of several commands use different statements to
        // commit.
        let with_key = round % 2 == 0;
        let count = if round % 4 < 2 { 3 } else { 1 };
        let answers = runtime.block_on(begin_together(&client, round, count, with_key));
        assert_eq!(proxy.cuts(), cuts + 1);
        for (name, answer) in answers {
            let answer = answer.unwrap_or_else(|status| panic!("{name}, cut {cut:?}: {status:?}"));
            proxy.cut_next(cut);
            // The server commits a lease by a single statement, but rolls it back by a transaction
            // of several statements.
            let outcome = if round % 5 == 4 { Outcome::RolledBack } else { Outcome::Committed };
            let settled = runtime.block_on(client.clone().settle(&answer.lease, outcome));
            settled.unwrap_or_else(|status| panic!("{outcome:?} of {name}, cut {cut:?}: {status:?}"));
            settles += 1;
            if outcome == Outcome::RolledBack {
                rolled_back.push(name);
                continue;
            }
            if with_key {
                let repeated = runtime.block_on(client.clone().begin(create_with_key(&name, 7)));
                assert_eq!(repeated.unwrap(), answer);
            }
            begun.insert(name, answer);
        }
    }
    assert_eq!(proxy.cuts(), 60 + settles);
    assert!(rolled_back.iter().all(|name| runtime.block_on(client.clone().get(name)).is_err()));
    assert!(server.terminate().unwrap().success());
    // The server writes the audit line after its answer, so the log is complete only after the
    // server's end.
    let logged = server.stderr().lines().filter(|line| line.contains("lease settled")).count();
    assert!(u64::try_from(logged).unwrap() >= settles, "{logged} of {settles} settles are in the audit log");
    let mut state = final_state(&cluster, &database);
    state.leases.retain(|_, lease| lease.outcome() != Some(Outcome::RolledBack));
    state.replays.retain(|_, replay| state.leases.contains_key(&replay.lease));
    check_begun(&state, &begun, 0);
}

/// Begins updates of one name each at the same time. Returns each name with the answer.
async fn begin_together(
    client: &Client,
    round: usize,
    count: usize,
    with_key: bool,
) -> Vec<(String, Result<Begun, Status>)> {
    let mut calls = JoinSet::new();
    for number in 0..count {
        let (name, mut client) = (format!("cut-{round}-{number}"), client.clone());
        let update = if with_key { create_with_key(&name, 7) } else { create(&name) };
        calls.spawn(async move { (name, client.begin(update).await) });
    }
    calls.join_all().await
}

/// `Cut::Silence` simulates a power cut or a broken network: no end is closed, but no end receives
/// anything.
#[test]
fn a_silent_connection_delays_its_own_server_and_other_servers_only_briefly() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let proxy = Proxy::start(cluster.port());
    let settings = "statement_timeout_seconds = 1\npatience_seconds = 10";
    let (cut_off, other) = (serve(&proxy.url(&database), settings), serve(&cluster.url(&database), settings));
    let runtime = Runtime::new().unwrap();
    let (mut cut_off_client, mut other_client) = (client_of(&runtime, &cut_off), client_of(&runtime, &other));
    proxy.cut_next(Cut::Silence);
    let first = runtime.block_on(cut_off_client.begin(create("silent"))).unwrap();
    proxy.cut_next(Cut::Silence);
    let second = runtime.spawn(async move { cut_off_client.begin(create("dead")).await });
    await_condition("the second begin is cut off", || proxy.cuts() == 2);
    drop(cut_off);
    // The transaction of the second begin is still open, because the database has not noticed that
    // the connection is dead.
    let begun = runtime.block_on(other_client.begin(create("dead"))).unwrap();
    assert!(begun.fence > first.fence);
    assert!(runtime.block_on(second).unwrap().is_err());
    let leases = runtime.block_on(other_client.leases()).unwrap();
    assert_eq!(leases, [first.lease, begun.lease]);
}

/// After the first signal a server completes its commands before it stops. After a second signal it
/// must stop at once, also if nobody reads its log. A server that waits for a reader takes a second at
/// least. On a machine that stalls any stop may take so long, and then another one is timed.
#[test]
fn a_second_signal_stops_a_server_at_once_while_its_database_hangs() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    await_condition("a server stops at once", || time_second_signal(&cluster) < Duration::from_secs(1));
}

/// Returns the time from the second signal to the end of a server whose database hangs.
fn time_second_signal(cluster: &Cluster) -> Duration {
    let url = cluster.url(&cluster.database().unwrap());
    let builder = Server::builder().config(format!("[postgres]\nurl = \"{url}\"\nwrite_connections = 1\n"));
    let mut server = builder.arg("--log").arg("info,h2=trace").leave_stderr_unread().start().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    for number in 0..100 {
        runtime.block_on(client.begin(create(format!("before-{number}")))).unwrap();
    }
    // `Cluster::freeze` suspends only the processes of existing connections. The server's probe
    // must be connected before, or it would get a running process and report a working database.
    let probe = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FROM claims, claim_leases WHERE false%'
        AND pid <> pg_backend_pid()";
    await_condition("the probe is connected", || cluster.execute("postgres", probe).unwrap() == ["1"]);
    let frozen = cluster.freeze().unwrap();
    let hanging = runtime.spawn(async move { client.begin(create("hangs")).await });
    await_report(&runtime, &server, StoreStatus::Failed);
    server.signal(Signal::SIGINT).unwrap();
    await_condition("the server is stopping", || server.stdout().contains("another signal stops at once"));
    let signalled = Instant::now();
    server.signal(Signal::SIGTERM).unwrap();
    assert!(server.wait().unwrap().success());
    let took = signalled.elapsed();
    assert!(runtime.block_on(hanging).unwrap().is_err());
    drop(frozen);
    took
}

/// A row that someone deleted by hand is no outage: callers must not retry.
#[test]
fn rows_that_contradict_each_other_are_answered_data_loss() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let url = cluster.url(&database);
    let server = serve(&url, "");
    let runtime = Runtime::new().unwrap();
    let begun = runtime.block_on(client_of(&runtime, &server).begin(create("gone"))).unwrap();
    cluster.execute(&database, "DELETE FROM claims").unwrap();
    // Another server does not have the lease in its cache, so it reads the rows.
    let other = serve(&url, "");
    let mut client = client_of(&runtime, &other);
    let refusal = Refusal::of(&runtime.block_on(client.settle(&begun.lease, Outcome::Committed)).unwrap_err());
    assert_eq!(refusal.code_and_reason(), (Code::DataLoss, "STATE_BROKEN"), "{}", refusal.message);
    runtime.block_on(client.begin(create("another"))).unwrap();
}

#[test]
fn a_read_that_gets_no_connection_names_the_setting_of_the_pool() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), "read_connections = 1\nconnect_timeout_seconds = 1");
    let runtime = Runtime::new().unwrap();
    let client = client_of(&runtime, &server);
    let foreign = open_session(&runtime, &cluster.url(&database));
    runtime.block_on(foreign.batch_execute("BEGIN; LOCK TABLE claims IN ACCESS EXCLUSIVE MODE")).unwrap();
    let mut reads = JoinSet::new();
    for _ in 0..3 {
        let mut client = client.clone();
        reads.spawn_on(async move { client.get("alice").await }, runtime.handle());
    }
    let first = runtime.block_on(reads.join_next()).unwrap().unwrap().unwrap_err();
    let words = "all 1 connections for reads, `postgres.read_connections`, were in use for 1 s";
    assert!(first.message().contains(words), "{first:?}");
}

/// The database accepts only so many connections that one of the server's two writers gets none.
#[test]
fn a_writer_that_cannot_connect_leaves_all_commands_to_the_other() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let execute = |sql: &str| cluster.execute(&database, sql).unwrap();
    // Three connections: one for reads, one for the server's probe, and one for a writer.
    execute("CREATE ROLE served LOGIN CONNECTION LIMIT 3");
    execute(&format!("ALTER DATABASE {database} OWNER TO served"));
    let url = cluster.url(&database).replace("leasehold@", "served@");
    let server = serve(&url, "read_connections = 1\nwrite_connections = 2\npatience_seconds = 1");
    let runtime = Runtime::new().unwrap();
    let client = client_of(&runtime, &server);
    let mut rounds = 0;
    await_condition("the database refuses the other writer", || {
        rounds += 1;
        let answers = runtime.block_on(begin_many(&client, &format!("one-writer-{rounds}")));
        answers.into_iter().for_each(|answer| drop(answer.unwrap()));
        cluster.log().unwrap().contains("too many connections for role")
    });
    for round in 0..20 {
        let answers = runtime.block_on(begin_many(&client, &format!("later-{round}")));
        answers.into_iter().for_each(|answer| drop(answer.unwrap()));
    }
    let connected = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'served'";
    assert_eq!(execute(connected), ["3"]);
    execute("ALTER ROLE served CONNECTION LIMIT 10");
    await_condition("the other writer is connected", || execute(connected) == ["4"]);
}

#[test]
fn a_benchmark_settles_all_of_its_leases_despite_a_crash_of_the_database() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let mut server = serve(&cluster.url(&database), "patience_seconds = 1");
    let address = format!("http://{}", server.address());
    // The benchmark runs for longer than the test needs for its crash on a machine that stalls.
    let bench = ["bench", "--json", "--cell", "1", "--clients", "16", "--seconds", "20", "--server", &address];
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| Runtime::new().unwrap().block_on(leasehold(bench)).unwrap());
        let settled = |cluster: &Cluster| cluster.execute(&database, "SELECT count(*) FROM settled_leases").unwrap();
        await_condition("the benchmark saves", || settled(&cluster)[0].parse::<u64>().unwrap() > 100);
        cluster.crash().unwrap();
        // All calls wait equally long. When this later call is refused, the benchmark's earlier
        // calls have been refused too.
        let refused = runtime.block_on(client.begin(create("alone"))).unwrap_err();
        assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE);
        cluster.restart().unwrap();
        running.join().unwrap()
    });
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(5), "{report}");
    assert!(report["saves"].as_u64().unwrap() > 100 && report["unsettled"] == 0, "{report}");
    assert!(report["errors"].to_string().contains("STORE_UNAVAILABLE"), "{report}");
    assert!(server.terminate().unwrap().success());
    let state = final_state(&cluster, &database);
    let unsettled = state.leases.values().filter(|lease| lease.outcome() != Some(Outcome::Committed)).count();
    assert_eq!((unsettled, state.leases.len() as u64), (0, report["saves"].as_u64().unwrap()));
}
