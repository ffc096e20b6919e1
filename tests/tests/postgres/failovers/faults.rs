//! The faults of machines, networks and processes that a cluster and its servers must survive.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use xtask::cluster::{Cluster, Machine, NODES};

use super::{PAUSE, World};

/// The time of a leader key (`ttl`) and a check of it (`loop_wait`): after it, another node is the primary.
const KEY: Duration = Duration::from_secs(25);

/// The time at which clients get answers from both servers again.
#[derive(PartialEq, Eq)]
pub(super) enum Until {
    /// While the fault lasts.
    Answers,
    /// Soon after the fault has ended.
    End,
}

/// A fault.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) begin: fn(&mut World, usize) -> Result<()>,
    /// The time for which it lasts further.
    pub(super) rest: Duration,
    /// Ends the fault that began at this primary.
    pub(super) end: fn(&mut World, usize) -> Result<()>,
    pub(super) until: Until,
    /// The longest time until both servers answer.
    pub(super) limit: Duration,
    /// True if another node must be promoted.
    pub(super) promotes: bool,
}

/// A fault during which a further node is promoted.
const FAILOVER: Fault = Fault {
    name: "",
    begin: |_, _| Ok(()),
    rest: PAUSE,
    end: |_, _| Ok(()),
    until: Until::Answers,
    limit: Duration::from_secs(40),
    promotes: true,
};

/// A fault that the primary survives.
const LESS: Fault = Fault { promotes: false, ..FAILOVER };

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "the primary loses its power",
        begin: |world, primary| world.machine(primary)?.power_off(),
        end: |world, primary| world.cluster.node(primary)?.power_on(),
        ..FAILOVER
    },
    Fault {
        name: "a planned switchover",
        begin: |world, _| world.cluster.switch_over(),
        limit: Duration::from_secs(15),
        ..FAILOVER
    },
    Fault {
        name: "the postmaster is killed",
        begin: |world, primary| world.cluster.node(primary)?.kill("bin/postgres").map(drop),
        limit: Duration::from_secs(20),
        ..FAILOVER
    },
    Fault {
        name: "the cable of the primary is out",
        begin: |world, primary| world.machine(primary)?.unplug(),
        end: |world, primary| world.machine(primary)?.plug(),
        ..FAILOVER
    },
    Fault {
        name: "all processes of the primary are suspended for longer than its leader key lasts",
        begin: |world, primary| world.machine(primary)?.signal(Signal::SIGSTOP),
        end: |world, primary| world.machine(primary)?.signal(Signal::SIGCONT),
        ..FAILOVER
    },
    Fault {
        name: "the primary accepts connections and never answers",
        begin: |world, primary| world.machine(primary)?.signal_those("postgres", Signal::SIGSTOP).map(drop),
        end: |world, primary| world.machine(primary)?.signal_those("postgres", Signal::SIGCONT).map(drop),
        limit: Duration::from_secs(60),
        ..FAILOVER
    },
    Fault {
        name: "Patroni alone is killed on the primary, which goes on",
        begin: |world, primary| {
            world.cluster.node(primary)?.kill("patroni.yml")?;
            await_promotion(world, primary)
        },
        end: |world, primary| world.cluster.node(primary)?.run_patroni(),
        ..FAILOVER
    },
    Fault {
        name: "the member of etcd beside the primary is killed",
        begin: |world, primary| world.cluster.node(primary)?.kill("etcd --name").map(drop),
        end: |world, primary| world.cluster.node(primary)?.run_etcd(),
        ..LESS
    },
    Fault {
        name: "all members of etcd are killed",
        begin: |world, _| each_node(world, |cluster, index| cluster.node(index)?.kill("etcd --name").map(drop)),
        rest: KEY,
        end: |world, _| each_node(world, |cluster, index| cluster.node(index)?.run_etcd()),
        until: Until::End,
        ..LESS
    },
    Fault {
        name: "the synchronous standby loses its power",
        begin: |world, _| world.machine(world.standby()?)?.power_off(),
        end: |world, _| {
            each_node(world, |cluster, index| match cluster.machine(index)?.is_off()? {
                true => cluster.node(index)?.power_on(),
                false => Ok(()),
            })
        },
        ..LESS
    },
    Fault {
        name: "no packet of the primary reaches its synchronous standby",
        begin: |world, primary| world.machine(primary)?.cut(world.machine(world.standby()?)?),
        end: |world, primary| mend_all(world, primary),
        ..LESS
    },
    Fault {
        name: "the primary and its synchronous standby don't see each other, and the third node sees both",
        begin: |world, primary| both_ways(world.machine(primary)?, world.machine(world.standby()?)?, Machine::cut),
        end: |world, primary| mend_all(world, primary),
        ..LESS
    },
    Fault {
        name: "one server does not see the primary",
        begin: |world, primary| both_ways(&world.servers[0], world.machine(primary)?, Machine::cut),
        rest: KEY,
        end: |world, primary| both_ways(&world.servers[0], world.machine(primary)?, Machine::mend),
        until: Until::End,
        ..LESS
    },
    Fault {
        name: "the primary and one server see no other machine",
        begin: |world, primary| islands(world, primary, Machine::cut),
        rest: KEY,
        end: |world, primary| islands(world, primary, Machine::mend),
        until: Until::End,
        ..FAILOVER
    },
    Fault {
        name: "Patroni alone is killed, and one server sees only the former primary",
        begin: |world, primary| {
            world.cluster.node(primary)?.kill("patroni.yml")?;
            each_standby(world, primary, |node| both_ways(node, &world.servers[0], Machine::cut))?;
            await_promotion(world, primary)
        },
        rest: Duration::from_secs(10),
        end: |world, primary| {
            each_standby(world, primary, |node| both_ways(node, &world.servers[0], Machine::mend))?;
            world.cluster.node(primary)?.run_patroni()
        },
        until: Until::End,
        ..FAILOVER
    },
    Fault {
        name: "the standbys are cut off, and then the primary loses its power",
        begin: |world, primary| {
            each_standby(world, primary, Machine::unplug)?;
            let end = world.cluster.execute_at(primary, "postgres", "SELECT pg_current_wal_lsn()")?;
            let has_more = format!("SELECT pg_current_wal_lsn() > '{end}'");
            world.cluster.wait_until("the log of the primary has more than a standby", |cluster| {
                cluster.execute_at(primary, "postgres", &has_more).is_ok_and(|answer| answer == "t")
            })?;
            world.machine(primary)?.power_off()?;
            each_standby(world, primary, Machine::plug)
        },
        end: |world, primary| world.cluster.node(primary)?.power_on(),
        limit: Duration::from_secs(60),
        ..FAILOVER
    },
    Fault {
        name: "the disk of the primary is full",
        begin: |world, primary| world.cluster.node(primary)?.fill_disk(),
        rest: KEY,
        end: |world, primary| world.cluster.node(primary)?.free_disk(),
        until: Until::End,
        limit: Duration::from_secs(60),
        ..LESS
    },
    Fault {
        name: "the waits for a standby are canceled, and then the primary loses its power",
        begin: |world, primary| {
            each_standby(world, primary, Machine::unplug)?;
            world.cluster.wait_until("COMMITs wait for a standby", |cluster| {
                cluster.execute_at(primary, "postgres", WAITS).is_ok_and(|count| count != "0")
            })?;
            world.cluster.execute_at(primary, "postgres", CANCEL)?;
            world.machine(primary)?.power_off()?;
            each_standby(world, primary, Machine::plug)
        },
        end: |world, primary| world.cluster.node(primary)?.power_on(),
        limit: Duration::from_secs(60),
        ..FAILOVER
    },
];

const WAITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
const CANCEL: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Does something at each node.
fn each_node(world: &mut World, does: fn(&mut Cluster, usize) -> Result<()>) -> Result<()> {
    (0..usize::from(NODES)).try_for_each(|index| does(&mut world.cluster, index))
}

/// Does something at the machine of each node that is not the primary.
fn each_standby(world: &World, primary: usize, does: impl Fn(&Machine) -> Result<()>) -> Result<()> {
    (0..usize::from(NODES)).filter(|index| *index != primary).try_for_each(|index| does(world.machine(index)?))
}

/// Waits until another node is the primary, while the former one may go on.
pub(super) fn await_promotion(world: &World, former: usize) -> Result<()> {
    world
        .cluster
        .wait_until("another node is the primary", |cluster| cluster.primary().is_some_and(|present| present != former))
}

fn both_ways(one: &Machine, other: &Machine, does: fn(&Machine, &Machine) -> Result<()>) -> Result<()> {
    does(one, other)?;
    does(other, one)
}

/// Ends the cuts between a node and each other one, in both ways.
fn mend_all(world: &World, node: usize) -> Result<()> {
    let machine = world.machine(node)?;
    each_standby(world, node, |other| {
        // A way that is not cut can't be mended.
        let _ = machine.mend(other);
        let _ = other.mend(machine);
        Ok(())
    })
}

/// Cuts or mends the ways between the primary with one server and all other machines.
fn islands(world: &World, primary: usize, does: fn(&Machine, &Machine) -> Result<()>) -> Result<()> {
    let [server, other] = &world.servers;
    both_ways(other, world.machine(primary)?, does)?;
    each_standby(world, primary, |node| both_ways(node, world.machine(primary)?, does))?;
    each_standby(world, primary, |node| both_ways(node, server, does))
}
