//! The fight of a hundred clients for fifty buckets, while machines of a cluster of PostgreSQL under Patroni lose their
//! power, their cables and their processes. One order of all operations must explain every answer.

mod faults;
#[cfg(feature = "deep-failovers")]
mod remedies;
#[cfg(feature = "deep-failovers")]
mod times;

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use leasehold_core::store::Store;
use leasehold_tests::fight::{Load, check_histories, number, seed};
use leasehold_tests::server::Server;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use xtask::cluster::{self, Cluster, Machine, NODES};

use self::faults::{FAULTS, Fault, Until};
use crate::open_store;

/// The time between two faults.
const PAUSE: Duration = Duration::from_secs(3);
/// The faults that a short run plays.
const SHORT: u64 = 2;
/// The numbers of the machines of the servers.
const SERVERS: [u8; 2] = [11, 12];

/// A cluster, and the machines of the two servers.
struct World {
    cluster: Cluster,
    servers: [Machine; 2],
    directory: TempDir,
}

impl World {
    /// Starts a cluster whose nodes' wall clocks are so many seconds ahead.
    fn start(ahead_seconds: [i64; NODES as usize]) -> Self {
        Runtime::new().unwrap().block_on(cluster::prepare()).unwrap();
        let directory = TempDir::new().unwrap();
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let cluster = Cluster::start_at(directory.path(), ahead_seconds).unwrap();
        for (index, ahead) in ahead_seconds.into_iter().enumerate() {
            assert!((clock(&cluster, index) - now_seconds() - ahead).abs() < 60, "the clock of a node is not set");
        }
        let servers = SERVERS.map(|number| cluster.network().machine(number).unwrap());
        Self { cluster, servers, directory }
    }

    /// Starts the servers, each on its machine and without the remedies in `taken_out`, and the clients. The second one
    /// is behind a proxy, which leads to the primary.
    fn load(&self, seed: u64, taken_out: &str) -> Load {
        // The primary is the first host of the URL: a server without a remedy stays there.
        let url = self.cluster.url_from(self.cluster.primary().unwrap());
        let proxied = self.cluster.run_proxy(&self.servers[1], self.directory.path()).unwrap();
        let server = |(machine, url): (&Machine, String)| {
            let builder = Server::builder().in_namespace(machine.name(), machine.address()).env("TAKEN_OUT", taken_out);
            (builder, format!("[postgres]\nurl = \"{url}\"\npatience_seconds = 30"))
        };
        let [one, other] = &self.servers;
        Load::start(seed, [(one, url), (other, proxied)].map(server))
    }

    fn machine(&self, index: usize) -> Result<&Machine> {
        self.cluster.machine(index)
    }

    /// Returns the index of the synchronous standby.
    fn standby(&self) -> Result<usize> {
        let members = self.cluster.members();
        let standby = members.iter().find(|member| member.role == "sync_standby").context("no synchronous standby")?;
        self.cluster.index(&standby.name).context("no such node")
    }

    /// Plays a fault, and waits until all nodes are back.
    fn play(&mut self, fault: &Fault, load: &Load) {
        let primary = self.cluster.primary().unwrap();
        let timeline = self.cluster.timeline();
        let mut began = Instant::now();
        println!("{}", fault.name);
        (fault.begin)(self, primary).unwrap();
        if fault.until == Until::Answers {
            load.await_answers(fault.limit);
            println!("{}: {:.1?}", fault.name, began.elapsed());
        }
        load.run_for(fault.rest);
        match fault.until {
            // The first answers may be those that a former primary gives for two seconds.
            Until::Answers => load.await_answers(fault.limit),
            Until::End => began = Instant::now(),
        }
        (fault.end)(self, primary).unwrap();
        if fault.until == Until::End {
            load.await_answers(fault.limit);
            println!("{}: {:.1?} after its end", fault.name, began.elapsed());
        }
        self.cluster.wait_until("all nodes are back", Cluster::is_whole).unwrap();
        assert!(self.cluster.timeline() > timeline || !fault.promotes, "no node was promoted: {}", fault.name);
    }

    /// Ends the load, and checks its history with the rows of the primary.
    fn check(&self, load: Load, fault_count: u64) {
        let histories = load.end();
        let primary = self.cluster.primary().unwrap();
        let address = self.machine(primary).unwrap().address();
        let url = format!("postgres://leasehold:secret@{address}:5432/leasehold?sslmode=disable");
        let state = Store::state(&open_store(&url)).unwrap();
        // The first timeline has the number 1.
        let promotions = self.cluster.timeline() - 1;
        check_histories(&histories, &state, &[("faults", fault_count), ("promotions", promotions)], &[]);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the members: {:?}; the logs end so:\n{}", self.cluster.members(), self.cluster.logs(60));
        }
    }
}

/// Returns the wall clock of a node's database, in seconds since 1970.
fn clock(cluster: &Cluster, index: usize) -> i64 {
    let now = "SELECT extract(epoch FROM clock_timestamp())::bigint";
    cluster.execute_at(index, "postgres", now).unwrap().parse().unwrap()
}

fn now_seconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    since.as_secs().try_into().unwrap()
}

/// `LEASEHOLD_FAILOVERS` is the number of faults, and `LEASEHOLD_FAULT` a text that their names have.
#[test]
fn b09_b13_b30_answers_under_failovers_are_linearizable() {
    let (seed, count) = (seed(), number("LEASEHOLD_FAILOVERS").unwrap_or(SHORT));
    let mut rng = SmallRng::seed_from_u64(seed);
    let name = std::env::var("LEASEHOLD_FAULT").unwrap_or_default();
    let mut faults: Vec<_> = FAULTS.iter().filter(|fault| fault.name.contains(&name)).collect();
    let mut clocks = [0; NODES as usize];
    if count > SHORT {
        faults.shuffle(&mut rng);
        clocks = *[clocks, [0, 300, -300]].choose(&mut rng).unwrap();
    }
    let mut world = World::start(clocks);
    let load = world.load(seed, "");
    for (_, fault) in (0..count).zip(faults.into_iter().cycle()) {
        load.run_for(PAUSE);
        world.play(fault, &load);
    }
    world.check(load, count);
}
