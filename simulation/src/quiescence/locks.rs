//! The end of all faults in a world of locks: clients that live renew, the service ticks, and every
//! lock becomes free.

use leasehold_core::lock::LockState;

use super::{NotQuiescent, queues};
use crate::event::Event;
use crate::lock_names::cell_of;
use crate::process::Process;
use crate::world::World;

/// Returns the decision of a proposal, if there is one.
pub(super) fn decide(world: &World) -> Option<Event> {
    Some(Event::Decide).filter(|event| world.is_possible(*event))
}

/// Returns true if a client waits for its turn in the queue of a lock, or for a batch while requests
/// are open. Such a wait ends by itself.
pub(super) fn waits_for_its_turn(world: &World, cell: u8, process: Process) -> bool {
    let is_idle = world.has_queue() && !queues::has_open_requests(world);
    process == Process::Client && !is_idle && world.service().lock_host().is_some_and(|host| host.is_attended(cell))
}

/// Returns the next renewal that is due, else a tick, if ticks are needed: an ask exists, a lock is
/// not free, or nobody renews a live session.
pub(super) fn tick(world: &World) -> Option<Event> {
    let locks = world.locks()?;
    remaining(world)?;
    let is_due = |cell: &u8| {
        let session = world.client(*cell).and_then(|client| client.session);
        session.is_some_and(|session| session.is_renewal_due(world.client_clock(*cell), locks.terms))
    };
    let due = (1..=world.settings().cells).filter(is_due);
    let mut renewals = due.map(|cell| Event::Step { cell, process: Process::Keepalive });
    let renewal = renewals.find(|event| world.is_possible(*event));
    renewal.or(Some(Event::Tick)).filter(|event| world.is_possible(*event))
}

/// Returns the first thing that ticks will end, as text, with the cell that it belongs to; `None` if
/// nothing is left.
fn remaining(world: &World) -> Option<(&'static str, u8)> {
    world.locks()?;
    let rows = world.service().lock_rows();
    if let Some((_, ask)) = rows.asks.iter().next() {
        return Some(("asks", cell_of(ask.session)));
    }
    if rows.locks.iter().any(|(_, lock)| lock.state != LockState::Free) {
        return Some(("a lock that is not free", 0));
    }
    if queues::has_open_requests(world) {
        return Some(("requests that are not settled", 0));
    }
    let renewed = |cell: u8| world.client(cell).and_then(|client| client.session).map(|session| session.id);
    let mut live = rows.sessions.iter().filter(|(_, session)| session.is_live()).map(|(id, _)| *id);
    let orphan = live.find(|id| renewed(cell_of(*id)) != Some(*id))?;
    Some(("a session that nobody renews", cell_of(orphan)))
}

/// Checks that every lock is free and every live session has its client.
pub(super) fn check(world: &World) -> Result<(), NotQuiescent> {
    remaining(world).map_or(Ok(()), |(what, cell)| Err(NotQuiescent::Remaining { what, cell }))
}
