//! The end of all trouble: the network heals, everybody finishes, reconcilers and verifiers run. Then everything must
//! be at rest, and both sides must agree.

use leasehold_core::claim::{CellId, ClaimState};

use crate::event::{Event, Process};
use crate::names::row_of;
use crate::network::MessageId;
use crate::world::World;

/// More events than any small world needs to come to rest.
const PATIENCE: u32 = 100_000;

/// What is not at rest, or not in agreement, after all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrest {
    /// It goes on for ever.
    #[error("the world does not come to rest")]
    Endless,
    /// Messages, transactions, leases or their rows are left.
    #[error("{what} of cell {cell} are left")]
    Left {
        /// What is.
        what: &'static str,
        /// Whose.
        cell: u8,
    },
    /// A row has no claim, though the name is nobody else's.
    #[error("row {row} of cell {cell} is not claimed")]
    Unclaimed {
        /// The cell.
        cell: u8,
        /// The row.
        row: u32,
    },
    /// A claim has no row.
    #[error("`{name}` is claimed for no row")]
    Extra {
        /// The name.
        name: String,
    },
}

/// Ends all trouble, and returns the events that it took.
///
/// # Errors
/// It goes on for ever.
pub fn settle(world: &mut World) -> Result<Vec<Event>, Unrest> {
    let mut calm = Calm { world, events: Vec::new(), left: PATIENCE };
    calm.make_peace();
    calm.drain()?;
    let thresholds = calm.world.settings().thresholds;
    let longest = [thresholds.stale_after_seconds, thresholds.recent_within_seconds, thresholds.replica_lag_seconds];
    // Clocks may run slow.
    let wait = Event::Wait { seconds: longest.into_iter().max().unwrap_or_default().saturating_mul(3) };
    for process in [Process::Reconciler(0), Process::Verifier, Process::Reconciler(0), Process::Verifier] {
        calm.happen(wait);
        for cell in 1..=calm.world.settings().cells {
            calm.happen(Event::Step { cell, process });
            calm.drain()?;
        }
    }
    Ok(calm.events)
}

struct Calm<'a> {
    world: &'a mut World,
    events: Vec<Event>,
    left: u32,
}

impl Calm<'_> {
    fn happen(&mut self, event: Event) -> bool {
        let happened = self.world.apply(event).is_ok();
        self.events.extend(happened.then_some(event));
        happened
    }

    fn make_peace(&mut self) {
        while let Some(event) = peace(self.world) {
            self.happen(event);
        }
    }

    /// Lets everybody finish what they are at.
    fn drain(&mut self) -> Result<(), Unrest> {
        while let Some(event) = next(self.world, None) {
            self.left = self.left.checked_sub(1).ok_or(Unrest::Endless)?;
            self.happen(event);
        }
        Ok(())
    }
}

/// What happens next when nothing more goes wrong, until nobody is at anything: messages arrive, everybody goes on with
/// what they are at, whoever waits in vain gives up, and what is down or cut off comes back. `except` is a message that
/// is to wait.
pub fn next(world: &World, except: Option<MessageId>) -> Option<Event> {
    let messages = world.network().messages().iter().filter(|message| Some(message.id) != except);
    let message = messages.map(|message| Event::Deliver(message.id)).find(|event| world.is_possible(*event));
    message
        .or_else(|| finish_commit(world))
        .or_else(|| step(world))
        .or_else(|| time_out(world))
        .or_else(|| peace(world))
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
    let mut events = processes(world).map(|(cell, process)| Event::TimeOut { cell, process });
    events.find(|event| world.is_possible(*event))
}

fn peace(world: &World) -> Option<Event> {
    let heal = (1..=world.settings().cells).map(|cell| Event::Heal { cell });
    std::iter::once(Event::StartService).chain(heal).find(|event| world.is_possible(*event))
}

fn processes(world: &World) -> impl Iterator<Item = (u8, Process)> {
    let settings = world.settings();
    let (workers, reconcilers) = (settings.workers, settings.reconcilers);
    (1..=settings.cells).flat_map(move |cell| {
        let workers = (0..workers).map(Process::Worker);
        let rest = (0..reconcilers).map(Process::Reconciler).chain([Process::Verifier]);
        workers.chain(rest).map(move |process| (cell, process))
    })
}

/// Checks that nothing is under way, and that rows and claims agree.
///
/// # Errors
/// The first thing that is not so.
pub fn at_rest(world: &World) -> Result<(), Unrest> {
    for (cell, at) in (1..).zip(world.cells()) {
        let left = [
            ("outstanding leases", world.service().outstanding(cell).next().is_some()),
            ("lease rows", !at.database.lease_rows().is_empty()),
            ("transactions", !at.database.transactions().is_empty()),
            ("messages", world.network().messages().iter().any(|message| message.id.cell() == cell)),
        ];
        if let Some((what, _)) = left.into_iter().find(|(_, is_left)| *is_left) {
            return Err(Unrest::Left { what, cell });
        }
    }
    (0..world.names().len()).try_for_each(|name| agreed(world, name))
}

/// A name's claim has its row; and of its rows one has the claim.
fn agreed(world: &World, name: u8) -> Result<(), Unrest> {
    let claim = world.names().key(name).and_then(|key| world.service().claim(key));
    let holder = claim.and_then(|claim| match &claim.state {
        ClaimState::Active(record) => Some((claim.owner, row_of(&record.source.id)?)),
        _ => None,
    });
    let mut rows =
        (1_u8..).zip(world.databases()).filter_map(|(cell, database)| Some((cell, database.row_named(name)?)));
    match holder {
        None => rows.next().map_or(Ok(()), |(cell, row)| Err(Unrest::Unclaimed { cell, row: row.id })),
        Some((owner, id)) => {
            let is_held = rows.any(|(cell, row)| CellId(cell.into()) == owner && row.id == id);
            if is_held { Ok(()) } else { Err(Unrest::Extra { name: world.names().spelling(name).to_owned() }) }
        }
    }
}
