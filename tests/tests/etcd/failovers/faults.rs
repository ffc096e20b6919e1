//! The faults of machines, networks and processes that a cluster of etcd and its servers must survive.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use xtask::cluster::Machine;

use super::World;
use super::nodes::NODES;

/// A fault.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) begin: fn(&mut World, usize) -> Result<()>,
    /// Ends the fault that began at this leader.
    pub(super) end: fn(&mut World, usize) -> Result<()>,
    /// True if a server gets no answers while the fault lasts.
    pub(super) is_outage: bool,
    /// The longest time until both servers answer.
    pub(super) limit: Duration,
}

/// A fault that the clients notice for the time of an election.
const BRIEF: Fault =
    Fault { name: "", begin: |_, _| Ok(()), end: |_, _| Ok(()), is_outage: false, limit: Duration::from_secs(15) };

/// A fault that cuts a server off until its end.
const OUTAGE: Fault = Fault { is_outage: true, limit: Duration::from_secs(20), ..BRIEF };

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "the leader loses its power",
        begin: |world, leader| world.machine(leader)?.power_off(),
        end: |world, leader| world.nodes.power_on(leader),
        ..BRIEF
    },
    Fault {
        name: "the leader is suspended",
        begin: |world, leader| world.machine(leader)?.signal(Signal::SIGSTOP),
        end: |world, leader| world.machine(leader)?.signal(Signal::SIGCONT),
        ..BRIEF
    },
    Fault {
        name: "the leader and one server see no other machine",
        begin: |world, leader| island(world, leader, Machine::cut),
        end: |world, leader| island(world, leader, Machine::mend),
        ..OUTAGE
    },
    Fault {
        name: "the leader is killed",
        begin: |world, leader| world.nodes.kill(leader),
        end: |world, leader| world.nodes.run(leader),
        ..BRIEF
    },
    Fault {
        name: "the cable of the leader is out",
        begin: |world, leader| world.machine(leader)?.unplug(),
        end: |world, leader| world.machine(leader)?.plug(),
        ..BRIEF
    },
    Fault {
        name: "a follower is killed",
        begin: |world, leader| world.nodes.kill(follower(leader)),
        end: |world, leader| world.nodes.run(follower(leader)),
        ..BRIEF
    },
    Fault {
        name: "the leader does not see one follower",
        begin: |world, leader| both_ways(world.machine(leader)?, world.machine(follower(leader))?, Machine::cut),
        end: |world, leader| both_ways(world.machine(leader)?, world.machine(follower(leader))?, Machine::mend),
        ..BRIEF
    },
    Fault {
        name: "one server does not see the leader",
        begin: |world, leader| both_ways(&world.servers[0], world.machine(leader)?, Machine::cut),
        end: |world, leader| both_ways(&world.servers[0], world.machine(leader)?, Machine::mend),
        ..BRIEF
    },
    Fault {
        name: "a follower is replaced by an empty node",
        begin: |world, leader| world.nodes.remove(follower(leader), leader),
        end: |world, leader| world.nodes.add(follower(leader), leader),
        ..BRIEF
    },
    Fault {
        name: "all nodes are killed",
        begin: |world, _| (0..usize::from(NODES)).try_for_each(|at| world.nodes.kill(at)),
        end: |world, _| (0..usize::from(NODES)).try_for_each(|at| world.nodes.run(at)),
        ..OUTAGE
    },
    Fault {
        name: "all nodes are suspended",
        begin: |world, _| each_node(world, Signal::SIGSTOP),
        end: |world, _| each_node(world, Signal::SIGCONT),
        ..OUTAGE
    },
];

/// Returns the index of a node that does not lead.
fn follower(leader: usize) -> usize {
    (leader + 1) % usize::from(NODES)
}

fn each_node(world: &World, signal: Signal) -> Result<()> {
    (0..usize::from(NODES)).try_for_each(|at| world.machine(at)?.signal(signal))
}

fn both_ways(one: &Machine, other: &Machine, does: fn(&Machine, &Machine) -> Result<()>) -> Result<()> {
    does(one, other)?;
    does(other, one)
}

/// Cuts or mends the ways between the leader with one server and all other machines.
fn island(world: &World, leader: usize, does: fn(&Machine, &Machine) -> Result<()>) -> Result<()> {
    let [server, other] = &world.servers;
    both_ways(other, world.machine(leader)?, does)?;
    (0..usize::from(NODES)).filter(|at| *at != leader).try_for_each(|at| {
        both_ways(world.machine(at)?, world.machine(leader)?, does)?;
        both_ways(world.machine(at)?, server, does)
    })
}
