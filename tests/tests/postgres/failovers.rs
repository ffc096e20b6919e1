//! The fight of a hundred clients for fifty buckets, while machines of a cluster of PostgreSQL under Patroni lose their
//! power, their cables and their processes. One order of all operations must explain every answer.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold_core::store::Store;
use nix::sys::signal::Signal;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use xtask::cluster::{Cluster, NODES};

use crate::linearizability::{Load, check_histories};
use crate::open_store;

/// The time between two faults.
const PAUSE: Duration = Duration::from_secs(5);

/// A fault of the cluster, and the longest time until clients get answers again.
struct Fault {
    name: &'static str,
    begin: fn(&mut Cluster, usize) -> Result<()>,
    end: fn(&mut Cluster, usize) -> Result<()>,
    limit: Duration,
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "the primary loses its power",
        begin: |cluster, primary| cluster.machine(primary)?.power_off(),
        end: |cluster, primary| cluster.node(primary)?.power_on(),
        limit: Duration::from_secs(40),
    },
    Fault {
        name: "a planned switchover",
        begin: |cluster, _| cluster.switch_over(),
        end: |_, _| Ok(()),
        limit: Duration::from_secs(15),
    },
    Fault {
        name: "the postmaster is killed",
        begin: |cluster, primary| cluster.node(primary)?.kill("bin/postgres").map(drop),
        end: |_, _| Ok(()),
        limit: Duration::from_secs(20),
    },
    Fault {
        name: "the cable of the primary is out",
        begin: |cluster, primary| cluster.machine(primary)?.unplug(),
        end: |cluster, primary| cluster.machine(primary)?.plug(),
        limit: Duration::from_secs(40),
    },
    Fault {
        name: "all processes of the primary are suspended for longer than its leader key lasts",
        begin: |cluster, primary| cluster.machine(primary)?.signal(Signal::SIGSTOP),
        end: |cluster, primary| cluster.machine(primary)?.signal(Signal::SIGCONT),
        limit: Duration::from_secs(40),
    },
    Fault {
        name: "Patroni alone is killed on the primary",
        begin: |cluster, primary| cluster.node(primary)?.kill("/usr/bin/patroni").map(drop),
        end: |cluster, primary| cluster.node(primary)?.run_patroni(),
        limit: Duration::from_secs(40),
    },
    Fault {
        name: "the member of etcd beside the primary is killed",
        begin: |cluster, primary| cluster.node(primary)?.kill("etcd --name").map(drop),
        end: |cluster, primary| cluster.node(primary)?.run_etcd(),
        limit: Duration::from_secs(40),
    },
    Fault {
        name: "the synchronous standby loses its power",
        begin: |cluster, _| {
            let standby = standby(cluster)?;
            cluster.machine(standby)?.power_off()
        },
        end: |cluster, _| {
            for index in 0..usize::from(NODES) {
                if cluster.machine(index)?.is_off()? {
                    cluster.node(index)?.power_on()?;
                }
            }
            Ok(())
        },
        limit: Duration::from_secs(40),
    },
];

/// Returns the index of the synchronous standby.
fn standby(cluster: &Cluster) -> Result<usize> {
    let members = cluster.members();
    let standby = members.iter().find(|member| member.role == "sync_standby").context("no synchronous standby")?;
    cluster.index(&standby.name).context("no such node")
}

/// `LEASEHOLD_FAILOVERS` is the number of faults.
#[test]
fn b09_b13_b30_answers_under_failovers_are_linearizable() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = number("SEED").unwrap_or_else(rand::random);
    let count = number("LEASEHOLD_FAILOVERS").unwrap_or(2);
    println!("SEED={seed}");
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut cluster = Cluster::start(directory.path()).unwrap();
    let load = Load::start(seed, [cluster.url(), cluster.url()], "patience_seconds = 30");
    let mut rng = SmallRng::seed_from_u64(seed);
    for round in 0..count {
        load.run_for(PAUSE);
        // The first faults are those that a short run must play.
        let fault = match usize::try_from(round) {
            Ok(round) if round < 2 => &FAULTS[round],
            _ => FAULTS.choose(&mut rng).unwrap(),
        };
        let primary = cluster.primary().unwrap();
        let began = Instant::now();
        (fault.begin)(&mut cluster, primary).unwrap();
        load.await_answers(fault.limit);
        println!("{}: {:.1?}", fault.name, began.elapsed());
        load.run_for(PAUSE);
        (fault.end)(&mut cluster, primary).unwrap();
        cluster.wait_until("all nodes are back", Cluster::is_whole).unwrap();
    }
    let histories = load.end();
    let primary = cluster.primary().unwrap();
    let url = format!(
        "postgres://leasehold:secret@{}:5432/leasehold?sslmode=disable",
        cluster.machine(primary).unwrap().address()
    );
    let state = Store::state(&open_store(&url)).unwrap();
    check_histories(&histories, &state, count, &["get unknown"]);
}
