//! The end of all faults: the network heals, every process finishes, and reconcilers and verifiers
//! run. Then the world must be quiescent: no work is left, and rows and claims agree.

mod locks;
mod queues;

use leasehold_core::cell::CellId;
use leasehold_core::claim::ClaimState;

use crate::event::Event;
use crate::names::row_id;
use crate::network::MessageId;
use crate::process::Process;
use crate::world::World;

/// The largest number of events that the processes of a world may take to become idle.
const MAX_EVENTS: u32 = 100_000;

/// The reason for which a world is not quiescent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotQuiescent {
    /// The processes of the world never become idle.
    #[error("the processes of the world do not finish")]
    Endless,
    /// Messages, transactions, outstanding leases or lease rows remain.
    #[error("cell {cell} still has {what}")]
    Remaining {
        /// The kind of thing that remains, for the text.
        what: &'static str,
        /// The number of the cell that has the remaining things.
        cell: u8,
    },
    /// A row has no claim although no other row has claimed its name.
    #[error("row {row} of cell {cell} has no claim")]
    Unclaimed {
        /// The number of the cell that has the row.
        cell: u8,
        /// The primary key of the row.
        row: u32,
    },
    /// The row that a claim comes from does not exist or has another name.
    #[error("the claim of `{name}` has no row")]
    Extra {
        /// The name whose claim is extra.
        name: String,
    },
}

/// Ends all faults in a world, lets every process finish, and returns the events that this took.
///
/// # Errors
/// The processes do not finish.
pub fn reach(world: &mut World) -> Result<Vec<Event>, NotQuiescent> {
    let has_claims = world.locks().is_none();
    let mut quiescing = Quiescing { world, events: Vec::new(), left: MAX_EVENTS };
    quiescing.repair_all();
    quiescing.drain()?;
    if !has_claims {
        return Ok(quiescing.events);
    }
    let thresholds = quiescing.world.settings().thresholds;
    let longest = [thresholds.stale_after_seconds, thresholds.recent_within_seconds, thresholds.replica_lag_seconds];
    // The wait is three times the longest threshold, since a database's clock may run at half
    // speed.
    let wait = Event::Wait { seconds: longest.into_iter().max().unwrap_or_default().saturating_mul(3) };
    for process in [Process::Reconciler(0), Process::Verifier, Process::Reconciler(0), Process::Verifier] {
        quiescing.perform(wait);
        for cell in 1..=quiescing.world.settings().cells {
            quiescing.perform(Event::Step { cell, process });
            quiescing.drain()?;
        }
    }
    Ok(quiescing.events)
}

struct Quiescing<'a> {
    world: &'a mut World,
    events: Vec<Event>,
    left: u32,
}

impl Quiescing<'_> {
    fn perform(&mut self, event: Event) -> bool {
        let happened = self.world.apply(event).is_ok();
        self.events.extend(happened.then_some(event));
        happened
    }

    fn repair_all(&mut self) {
        while let Some(event) = repair(self.world) {
            self.perform(event);
        }
    }

    /// Performs events until every process is idle.
    fn drain(&mut self) -> Result<(), NotQuiescent> {
        while let Some(event) = next_event(self.world, None) {
            self.left = self.left.checked_sub(1).ok_or(NotQuiescent::Endless)?;
            self.perform(event);
        }
        Ok(())
    }
}

/// Returns the next event of a world without further faults, or `None` once every process is idle.
///
/// The order is: the service takes leases back and decides proposals, messages arrive, databases
/// finish COMMITs, processes continue, idle workers serve a queue, processes without an answer time
/// out, the service starts, and partitions heal. Then keepalives renew and the service ticks, until no
/// lock is held and no session is left that nobody renews. The message `except` is not delivered.
pub fn next_event(world: &World, except: Option<MessageId>) -> Option<Event> {
    let messages = world.network().messages().iter().filter(|message| Some(message.id) != except);
    let message = messages.map(|message| Event::Deliver(message.id)).find(|event| world.is_possible(*event));
    take_back(world)
        .or_else(|| locks::decide(world))
        .or(message)
        .or_else(|| finish_commit(world))
        .or_else(|| step(world))
        .or_else(|| queues::serve(world))
        .or_else(|| time_out(world))
        .or_else(|| repair(world))
        .or_else(|| locks::tick(world))
}

fn take_back(world: &World) -> Option<Event> {
    Some(Event::TakeBack).filter(|event| world.is_possible(*event))
}

fn finish_commit(world: &World) -> Option<Event> {
    let cells = (1..).zip(world.cells());
    cells.into_iter().find_map(|(cell, at)| {
        let transactions = at.database.transactions().iter();
        let mut workers = transactions.map(|tx| tx.worker).filter(|worker| at.database.is_committing(*worker));
        workers.next().map(|worker| Event::FinishCommit { cell, worker })
    })
}

fn step(world: &World) -> Option<Event> {
    let mut busy = processes(world).filter(|(cell, process)| world.is_busy(*cell, *process));
    let (cell, process) = busy.find(|(cell, process)| world.is_ready(*cell, *process))?;
    Some(Event::Step { cell, process })
}

fn time_out(world: &World) -> Option<Event> {
    let waiting = processes(world).filter(|(cell, process)| !locks::waits_for_its_turn(world, *cell, *process));
    let mut events = waiting.map(|(cell, process)| Event::TimeOut { cell, process });
    events.find(|event| world.is_possible(*event))
}

fn repair(world: &World) -> Option<Event> {
    let heal = (1..=world.settings().cells).flat_map(|cell| [Event::Heal { cell }, Event::Resume { cell }]);
    let service = [Event::StartService, Event::ResumeService];
    service.into_iter().chain(heal).find(|event| world.is_possible(*event))
}

fn processes(world: &World) -> impl Iterator<Item = (u8, Process)> {
    let settings = world.settings();
    let (workers, reconcilers) = (settings.workers, settings.reconcilers);
    (1..=settings.cells).flat_map(move |cell| {
        let workers = (0..workers).map(Process::Worker);
        let rest = (0..reconcilers).map(Process::Reconciler);
        let rest = rest.chain([Process::Verifier, Process::Front, Process::Client, Process::Keepalive]);
        workers.chain(rest).map(move |process| (cell, process))
    })
}

/// Checks that no cell has work left and that rows and claims agree.
///
/// # Errors
/// The first reason for which the world is not quiescent.
pub fn check(world: &World) -> Result<(), NotQuiescent> {
    locks::check(world)?;
    queues::check(world)?;
    for (cell, at) in (1..).zip(world.cells()) {
        let left = [
            ("outstanding leases", world.service().outstanding(cell).next().is_some()),
            ("lease rows", !at.database.lease_rows().is_empty()),
            ("transactions", !at.database.transactions().is_empty()),
            ("messages", world.network().messages().iter().any(|message| message.id.cell() == cell)),
        ];
        if let Some((what, _)) = left.into_iter().find(|(_, is_left)| *is_left) {
            return Err(NotQuiescent::Remaining { what, cell });
        }
    }
    (0..world.names().len()).try_for_each(|name| check_name(world, name))
}

/// Checks that the claim of a name has its row, and that one of the rows with this name has the
/// claim.
fn check_name(world: &World, name: u8) -> Result<(), NotQuiescent> {
    let claim = world.names().key(name).and_then(|key| world.service().claim(key));
    let holder = claim.and_then(|claim| match &claim.state {
        ClaimState::Active(record) => Some((claim.owner, row_id(&record.source.id)?)),
        _ => None,
    });
    let mut rows =
        (1_u8..).zip(world.databases()).filter_map(|(cell, database)| Some((cell, database.row_by_name(name)?)));
    match holder {
        None => rows.next().map_or(Ok(()), |(cell, row)| Err(NotQuiescent::Unclaimed { cell, row: row.id })),
        Some((owner, id)) => {
            let is_held = rows.any(|(cell, row)| CellId(cell.into()) == owner && row.id == id);
            if is_held { Ok(()) } else { Err(NotQuiescent::Extra { name: world.names().spelling(name).to_owned() }) }
        }
    }
}
