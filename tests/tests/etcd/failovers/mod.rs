//! The fight of a hundred clients for fifty buckets, while machines of a cluster of etcd lose their power, their
//! cables and their processes. One order of all operations must explain every answer.

mod faults;
mod nodes;

use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold_core::store::Store;
use leasehold_server::config::EtcdConfig;
use leasehold_server::store::{BlockingStore, Creation, OrderedStore};
use leasehold_tests::fight::{Load, check_histories, number, seed};
use leasehold_tests::server::{Builder, Server};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use tempfile::TempDir;
use xtask::cluster::Machine;

use self::faults::{FAULTS, Fault};
use self::nodes::Nodes;

/// The time between two faults.
const PAUSE: Duration = Duration::from_secs(3);
/// The faults that a short run plays.
const SHORT: u64 = 3;
/// The numbers of the machines of the servers.
const SERVERS: [u8; 2] = [11, 12];

/// A cluster, and the machines of the two servers.
struct World {
    servers: [Machine; 2],
    nodes: Nodes,
    directory: TempDir,
}

impl World {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let nodes = Nodes::start(directory.path()).unwrap();
        let servers = SERVERS.map(|number| nodes.network().machine(number).unwrap());
        Self { servers, nodes, directory }
    }

    fn settings(&self) -> EtcdConfig {
        EtcdConfig { state_directory: Some(self.directory.path().join("state")), ..EtcdConfig::at(self.nodes.url()) }
    }

    /// Returns a server on its machine, and its settings.
    fn server(&self, machine: &Machine) -> (Builder, String) {
        let (url, state) = (self.nodes.url(), self.directory.path().join("state"));
        let settings =
            format!("[etcd]\nurl = \"{url}\"\nstate_directory = \"{}\"\npatience_seconds = 30\n", state.display());
        let builder = Server::builder().in_namespace(machine.name(), machine.address());
        (builder, settings)
    }

    /// Starts the servers and the clients.
    fn load(&self, seed: u64) -> Load {
        let [one, other] = &self.servers;
        Load::start(seed, [one, other].map(|machine| self.server(machine)))
    }

    fn machine(&self, at: usize) -> Result<&Machine> {
        self.nodes.machine(at)
    }

    /// Plays a fault, and waits until all nodes are back.
    fn play(&mut self, fault: &Fault, load: &Load) {
        let leader = self.nodes.leader().unwrap();
        println!("{}", fault.name);
        let began = Instant::now();
        (fault.begin)(self, leader).unwrap();
        if !fault.is_outage {
            load.await_answers(fault.limit);
            println!("{}: {:.1?}", fault.name, began.elapsed());
        }
        load.run_for(PAUSE);
        let ended = Instant::now();
        (fault.end)(self, leader).unwrap();
        load.await_answers(fault.limit);
        println!("{}: {:.1?} after its end", fault.name, ended.elapsed());
        self.nodes.wait_until("all nodes are back", Nodes::is_whole).unwrap();
    }

    /// Ends the load, and checks its history with the rows of the store.
    fn check(&self, load: Load, fault_count: u64) {
        let histories = load.end();
        let settings = self.settings();
        let store =
            BlockingStore::open(async move { OrderedStore::on_etcd(&settings, Creation::Refused).await }).unwrap();
        check_histories(&histories, &store.state().unwrap(), &[("faults", fault_count)], &[]);
    }
}

/// `LEASEHOLD_ETCD_FAULTS` is the number of faults, and `LEASEHOLD_FAULT` a text that their names have.
#[test]
fn b09_b13_b30_answers_under_failovers_of_etcd_are_linearizable() {
    let (seed, count) = (seed(), number("LEASEHOLD_ETCD_FAULTS").unwrap_or(SHORT));
    let name = std::env::var("LEASEHOLD_FAULT").unwrap_or_default();
    let mut faults: Vec<_> = FAULTS.iter().filter(|fault| fault.name.contains(&name)).collect();
    if count > SHORT {
        faults.shuffle(&mut SmallRng::seed_from_u64(seed));
    }
    let mut world = World::start();
    let load = world.load(seed);
    for (_, fault) in (0..count).zip(faults.into_iter().cycle()) {
        load.run_for(PAUSE);
        world.play(fault, &load);
    }
    world.check(load, count);
}
