//! Queues under kills. Fronts submit by calls and in transactions, and workers are processes. Workers and servers are
//! killed, a worker is suspended beyond its session, and the database crashes. [`checker`] then explains the history,
//! or finds a fault.

mod broken_histories;
mod checker;
mod fronts;
mod history;
mod pool;
mod rows;
mod worker;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::store::Store as _;
use leasehold_core::{guard, invariant, outbox};
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{BlockingStore, Creation, PostgresStore};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::{Builder, Server};
use leasehold_tests::wire::eventually;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use self::checker::Counts;
use self::fronts::{Front, Shared};
use self::history::{Answer, History, LIMIT, LIMITED, Submitted};
use self::pool::Pool;
use crate::Client;

/// The duration of the load in seconds, unless `LEASEHOLD_QUEUE_KILLS_SECONDS` is set.
const SECONDS: u64 = 8;
/// The number of processes, each of which works on all queues.
const WORKERS: usize = 4;
/// The number of fronts that call servers, and of those that write into the outbox.
const FRONTS: usize = 3;
/// The longest time from a fault until all servers and the outbox take submits again.
const RECOVERY: Duration = Duration::from_secs(30);
/// The pause between two looks at the processes.
const LOOK: Duration = Duration::from_millis(20);

/// The tables of the user's database, beside the guard and the outbox.
const USER_TABLES: &str = "
    CREATE TABLE orders (id uuid PRIMARY KEY);
    CREATE TABLE effects (
        number bigserial, request_id uuid, queue text, key text, fence bigint, PRIMARY KEY (request_id, fence)
    )";

/// The store of the servers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// Two servers share a database.
    Postgres,
    /// One server has a data directory.
    Embedded,
}

/// The servers, fronts and workers of a run, with the cluster of the user's database and of the shared store.
struct Deployment {
    store: Store,
    cluster: Cluster,
    servers: Vec<Server>,
    runtime: Runtime,
    shared: Arc<Shared>,
    fronts: Vec<JoinHandle<Vec<Submitted>>>,
    pool: Pool,
    server_kills: usize,
    crashes: usize,
}

/// Returns the setup of a server with a relay of the user's outbox, which has the same address after a restart.
fn server(cluster: &Cluster, store: Store) -> Builder {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let relay = format!("[[relays]]\nname = \"shop\"\nurl = \"{}\"\n", cluster.url("postgres"));
    let server = Server::builder().config(relay).listen(format!("127.0.0.1:{port}"));
    match store {
        Store::Postgres => server.arg("--store").arg(cluster.url("store")),
        Store::Embedded => server,
    }
}

/// Starts the servers of a run, and notes the changes of their holds where they share a store.
fn servers(cluster: &Cluster, store: Store) -> Vec<Server> {
    for sql in [guard::SQL, outbox::SQL, USER_TABLES, "CREATE DATABASE store"] {
        cluster.execute("postgres", sql).unwrap();
    }
    let count = if store == Store::Postgres { 2 } else { 1 };
    let servers = (0..count).map(|_| server(cluster, store).start().unwrap()).collect();
    if store == Store::Postgres {
        cluster.execute("store", rows::AUDIT).unwrap();
    }
    servers
}

impl Deployment {
    fn start(store: Store, test: &'static str, seed: u64) -> Self {
        let cluster = Cluster::start(&[]).unwrap();
        let servers = servers(&cluster, store);
        let (runtime, mut rng) = (Runtime::new().unwrap(), SmallRng::seed_from_u64(seed));
        let shared = Arc::new(Shared {
            servers: servers.iter().map(|server| format!("http://{}", server.address())).collect(),
            database: cluster.url("postgres"),
            answered: servers.iter().map(|_| AtomicU64::default()).collect(),
            ..Shared::default()
        });
        runtime.block_on(set_limit(&servers[0]));
        let entered = runtime.enter();
        let mut front = || Front::new(shared.clone(), rng.random());
        let fronts = (0..FRONTS).flat_map(|_| [tokio::spawn(front().call()), tokio::spawn(front().commit())]).collect();
        drop(entered);
        let pool = Pool::start(test, &shared, rng.random(), WORKERS);
        Self { store, cluster, servers, runtime, shared, fronts, pool, server_kills: 0, crashes: 0 }
    }

    /// Waits while fronts and workers work.
    ///
    /// # Panics
    /// A front has ended, which means that one of its checks failed.
    fn run_until(&mut self, deadline: Instant) {
        while Instant::now() < deadline {
            std::thread::park_timeout(LOOK);
            self.pool.look();
            assert!(self.fronts.iter().all(|front| !front.is_finished()), "a front has ended");
        }
    }

    /// Returns the number of submits that each server has answered, and of transactions that have committed.
    fn progress(&self) -> Vec<u64> {
        let counters = self.shared.answered.iter().chain([&self.shared.committed]);
        counters.map(|counter| counter.load(Ordering::Relaxed)).collect()
    }

    /// Waits until each server has answered more submits, and more transactions have committed.
    fn await_progress(&mut self) {
        let (before, deadline) = (self.progress(), Instant::now() + RECOVERY);
        while !self.progress().iter().zip(&before).all(|(after, before)| *after > before + 5) {
            assert!(Instant::now() < deadline, "no submits are taken: {before:?}, {:?}", self.progress());
            self.run_until(Instant::now() + LOOK);
        }
    }

    fn kill_server(&mut self) {
        self.server_kills += 1;
        // The first server has the relay, and the second one needs 15 s to take its place.
        let next = self.server_kills % self.servers.len();
        self.servers[next].restart().unwrap();
        // The worker outlives its session until the next kill of workers, so the guard must refuse its work (K18).
        self.pool.suspend_first();
    }

    fn crash_database(&mut self) {
        self.cluster.crash().unwrap();
        self.cluster.restart().unwrap();
        self.crashes += 1;
    }

    fn kill_workers(&mut self) {
        self.pool.resume_first();
        self.pool.kill_most();
    }

    /// Waits until workers have killed themselves between their COMMIT and their settle.
    fn await_deaths(&mut self) {
        let deadline = Instant::now() + RECOVERY;
        while self.pool.deaths < WORKERS / 2 {
            assert!(Instant::now() < deadline, "{} workers have killed themselves", self.pool.deaths);
            self.run_until(Instant::now() + LOOK);
        }
    }

    /// Waits until workers have had as many lanes of the queue with a limit at a time as it allows.
    fn await_limit(&mut self) {
        let deadline = Instant::now() + RECOVERY;
        while checker::most_limited(&self.pool.history()) < LIMIT as usize {
            assert!(Instant::now() < deadline, "the limit was never reached");
            self.run_until(Instant::now() + RECOVERY / 60);
        }
    }

    /// Ends the fronts, and waits until all that they have submitted is settled. Returns the history, and an error if
    /// something is not settled in time.
    fn end(mut self) -> (History, anyhow::Result<()>) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        let fronts = std::mem::take(&mut self.fronts);
        let submitted = fronts.into_iter().flat_map(|front| self.runtime.block_on(front).unwrap()).collect();
        self.pool.resume_first();
        self.pool.calm();
        let mut history = History { submitted, ..History::default() };
        let settled = self.settle_all(&mut history);
        let user = &self.shared.database;
        history.effects = self.runtime.block_on(rows::effects(user));
        assert_eq!(self.runtime.block_on(rows::refused(user)), 0, "rows of the outbox are refused");
        if self.store == Store::Postgres {
            history.changes = Some(self.runtime.block_on(rows::changes(&self.cluster.url("store"))));
        }
        self.pool.end(&mut history);
        for server in &mut self.servers {
            assert!(server.terminate().unwrap().success(), "{}", server.stderr());
        }
        if self.store == Store::Postgres {
            check_store(&self.cluster);
        }
        (history, settled)
    }

    /// Waits until all requests are settled, those of the outbox too.
    fn settle_all(&mut self, history: &mut History) -> anyhow::Result<()> {
        let Self { runtime, shared, servers, pool, .. } = self;
        runtime.block_on(async {
            history.orders = rows::orders(&shared.database).await;
            let client = Client::of(&servers[0]).await;
            eventually("all requests are settled", async || {
                pool.look();
                if !rows::is_idle(&client).await {
                    return None;
                }
                history.settled = rows::settled(&client).await;
                let settled: BTreeSet<_> = history.settled.iter().map(|one| one.id).collect();
                let accepted = history.submitted.iter().filter_map(|submit| match submit.answer {
                    Answer::Accepted(id) => Some(id),
                    Answer::RolledBack | Answer::Unknown => None,
                });
                accepted.chain(history.orders.iter().copied()).all(|id| settled.contains(&id)).then_some(())
            })
            .await
        })
    }
}

async fn set_limit(server: &Server) {
    let request = wire::SetLimitRequest { queue: LIMITED.into(), limit: LIMIT };
    Client::of(server).await.queues.set_limit(request).await.unwrap();
}

/// Checks the invariants of the engine on the rows of the shared store.
fn check_store(cluster: &Cluster) {
    let config = PostgresConfig::at(cluster.url("store"));
    let store = BlockingStore::open(PostgresStore::open(&config, Creation::Allowed)).unwrap();
    invariant::check(&store.state().unwrap()).unwrap();
}

/// Plays a run, and checks its history.
fn play(store: Store, test: &'static str) {
    worker::work_if_told();
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = number("SEED").unwrap_or_else(rand::random);
    let seconds = number("LEASEHOLD_QUEUE_KILLS_SECONDS").unwrap_or(SECONDS);
    println!("SEED={seed}");
    let mut deployment = Deployment::start(store, test, seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    let pause = Duration::from_secs(seconds.clamp(8, 20) / 4);
    let faults: [fn(&mut Deployment); 3] =
        [Deployment::kill_server, Deployment::crash_database, Deployment::kill_workers];
    for (played, fault) in faults.iter().cycle().enumerate() {
        deployment.run_until(Instant::now() + pause);
        if played >= faults.len() && Instant::now() >= end {
            break;
        }
        fault(&mut deployment);
        deployment.await_progress();
    }
    deployment.await_deaths();
    deployment.await_limit();
    let (server_kills, crashes) = (deployment.server_kills, deployment.crashes);
    let kills = deployment.pool.kills + deployment.pool.deaths;
    let (history, settled) = deployment.end();
    let counts = checker::check(&history).unwrap_or_else(|fault| panic!("{fault}\n{}", save(&history)));
    settled.unwrap();
    println!("counts: {{{counts},\"server_kills\":{server_kills},\"crashes\":{crashes},\"worker_kills\":{kills}}}");
    check_load(&counts);
}

/// Checks that a run has shown what its promises are about.
fn check_load(counts: &Counts) {
    let Counts { redone, rolled_back, committed, limited, .. } = counts;
    for (name, count) in [("redone", redone), ("rolled back", rolled_back), ("committed", committed)] {
        assert!(*count > 0, "no request was {name}");
    }
    assert_eq!(*limited, LIMIT as usize, "the limit was never reached");
}

/// Writes a history to a file that is kept. Returns a message with its path.
fn save(history: &History) -> String {
    let (_, path) = tempfile::NamedTempFile::with_prefix("queue-history-").unwrap().keep().unwrap();
    std::fs::write(&path, format!("{history:#?}")).unwrap();
    format!("the whole history: `{}`", path.display())
}

#[test]
fn q03_q07_q09_q10_q14_q17_under_kills_each_request_is_settled_once() {
    play(Store::Postgres, "kills::q03_q07_q09_q10_q14_q17_under_kills_each_request_is_settled_once");
}

#[test]
fn q03_q07_q09_q10_q14_q17_under_kills_the_embedded_store_settles_each_request_once() {
    play(Store::Embedded, "kills::q03_q07_q09_q10_q14_q17_under_kills_the_embedded_store_settles_each_request_once");
}
