//! A test of linearizability under faults: [`leasehold_tests::fight`] on two servers, one of them behind
//! pgbouncer. Meanwhile servers are killed and the database crashes.

use std::time::{Duration, Instant};

use leasehold_core::rows::State;
use leasehold_tests::fight::{Histories, Load, check_histories, number, seed};
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::server::{Builder, Server};

use crate::final_state;

/// The duration of the load in seconds, unless `LEASEHOLD_LINEARIZABILITY_SECONDS` is set.
const SECONDS: u64 = 20;
/// The longest time from a fault until both servers answer calls again.
const RECOVERY: Duration = Duration::from_secs(30);

type Fault = fn(&mut Deployment);

/// The database of the load: a cluster, and a pooler in front of it.
struct Deployment {
    cluster: Cluster,
    database: String,
    bouncer: Bouncer,
    load: Load,
}

impl Deployment {
    fn start(seed: u64) -> Self {
        let cluster = Cluster::start(&[]).unwrap();
        let database = cluster.database().unwrap();
        Self::start_on(cluster, database, seed, [Server::builder(), Server::builder()])
    }

    /// Starts the servers on a database of this name, the second one behind a pooler.
    fn start_on(cluster: Cluster, database: String, seed: u64, [one, other]: [Builder; 2]) -> Self {
        let bouncer = Bouncer::start(&cluster, 6).unwrap();
        let at = |url| format!("[postgres]\nurl = \"{url}\"");
        let servers = [(one, at(cluster.url(&database))), (other, at(bouncer.url(&database)))];
        let load = Load::start(seed, servers);
        Self { cluster, database, bouncer, load }
    }

    fn crash_database(&mut self) {
        self.cluster.crash().unwrap();
        self.cluster.restart().unwrap();
    }

    /// Stops the clients and the servers. Returns the history of each client, and the final rows of
    /// the database.
    fn end(self) -> (Histories, State) {
        let histories = self.load.end();
        drop(self.bouncer);
        (histories, final_state(&self.cluster, &self.database))
    }
}

#[test]
fn b09_b13_b30_answers_under_faults_are_linearizable() {
    let faults: [Fault; 3] =
        [|deployment| deployment.load.kill(0), Deployment::crash_database, |deployment| deployment.load.kill(1)];
    play(Deployment::start(seed()), &faults);
}

/// A server of the last version without epochs makes the tables, and goes on when the present one has migrated them. It
/// could not be started again.
#[cfg(feature = "former-epochs")]
#[test]
fn b09_b13_b30_answers_beside_a_server_without_epochs_are_linearizable() {
    let former = std::env::var_os("LEASEHOLD_FORMER_EPOCHS_BINARY").expect("the former version is named");
    let cluster = Cluster::start(&[]).unwrap();
    let database = cluster.database().unwrap();
    let servers = [Server::builder().binary(former), Server::builder()];
    let deployment = Deployment::start_on(cluster, database, seed(), servers);
    play(deployment, &[Deployment::crash_database, |deployment| deployment.load.kill(1)]);
}

/// Lets the load run among faults, and checks its history.
fn play(mut deployment: Deployment, faults: &[Fault]) {
    let seconds = number("LEASEHOLD_LINEARIZABILITY_SECONDS").unwrap_or(SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    let pause = Duration::from_secs(seconds.clamp(5, 20) / 5);
    let mut fault_count = 0;
    for fault in faults.iter().cycle() {
        deployment.load.run_for(pause);
        if Instant::now() >= end {
            break;
        }
        fault(&mut deployment);
        fault_count += 1;
        deployment.load.await_answers(RECOVERY);
    }
    let (histories, state) = deployment.end();
    check_histories(&histories, &state, &[("faults", fault_count)], &["begin unknown", "settle unknown"]);
}
