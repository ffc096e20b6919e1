//! The random choice of a world's next event, from a seed.

mod locks;
mod queues;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use crate::event::{Change, Drift, Event};
use crate::process::Process;
use crate::settings::{MAX_RECONCILERS, Rates, WorldSettings};
use crate::world::World;

/// The stream of the random generator, the same for every seed. Its value has no meaning.
const STREAM: u64 = 0x6c65_6173_6568_6f6c;
/// The largest number of draws for one event. If every drawn event is impossible, the scheduler
/// lets one second pass.
const MAX_DRAWS: u32 = 64;
/// The durations of waits, in seconds. They lie on both sides of each threshold.
const WAITS: [u32; 9] = [1, 20, 100, 290, 310, 590, 1700, 3500, 90_000];

/// A seeded random generator of events.
#[derive(Clone, Debug)]
pub struct RandomScheduler {
    generator: Pcg32,
    rates: Rates,
    total: u32,
    workers: u8,
    reconcilers: u8,
    cells: u8,
    names: u8,
}

impl RandomScheduler {
    /// Creates a scheduler from the seed, the rates and the sizes in the settings.
    pub fn new(settings: &WorldSettings) -> Self {
        let total = weights(&settings.rates).into_iter().map(u32::from).sum();
        Self {
            generator: Pcg32::new(settings.seed, STREAM),
            rates: settings.rates,
            total,
            workers: settings.workers,
            reconcilers: settings.reconcilers.min(MAX_RECONCILERS),
            cells: settings.cells,
            names: settings.names,
        }
    }

    /// Draws a possible event, performs it in the world and returns it.
    pub fn step(&mut self, world: &mut World) -> Event {
        let event = self.choose(world);
        let happened = world.apply(event);
        debug_assert!(happened.is_ok(), "the world has come to its end");
        event
    }

    /// Draws an event that is possible in the world, and returns it.
    pub fn choose(&mut self, world: &World) -> Event {
        let drawn = (0..MAX_DRAWS).find_map(|_| self.draw(world).filter(|event| world.is_possible(*event)));
        // A wait is always possible until the world's clock reaches its end.
        drawn.unwrap_or(Event::Wait { seconds: 1 })
    }

    fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.generator.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        let at = self.below(list.len() as u32);
        list.get(at as usize).copied()
    }

    fn cell(&mut self) -> u8 {
        self.below(self.cells.into()) as u8 + 1
    }

    fn worker(&mut self) -> u8 {
        self.below(self.workers.into()) as u8
    }

    fn name(&mut self) -> u8 {
        self.below(self.names.into()) as u8
    }

    /// Draws a process of a cell: a worker in six of eight cases.
    fn process(&mut self) -> Process {
        match self.below(8) {
            0 => Process::Verifier,
            1 if self.reconcilers > 0 => Process::Reconciler(self.below(self.reconcilers.into()) as u8),
            _ => Process::Worker(self.worker()),
        }
    }

    fn draw(&mut self, world: &World) -> Option<Event> {
        if world.locks().is_some() {
            return locks::draw(self, world);
        }
        let mut left = self.below(self.total);
        for (kind, weight) in weights(&self.rates).into_iter().enumerate() {
            match left.checked_sub(weight.into()) {
                Some(rest) => left = rest,
                None => return self.event(kind, world),
            }
        }
        None
    }

    fn event(&mut self, kind: usize, world: &World) -> Option<Event> {
        let cell = self.cell();
        Some(match kind {
            0 => Event::Save { cell, worker: self.worker(), change: self.change(world, cell)? },
            1 => self.progress(world, cell),
            // A lease can be taken back only in worlds without idempotency keys. In all other
            // worlds this arm draws no random number, so their golden traces do not depend on it.
            2 if world.is_possible(Event::TakeBack) && self.below(2) == 0 => Event::TakeBack,
            2 => Event::Deliver(self.message(world)?),
            3 => self.loss(world)?,
            4 => Event::Duplicate(self.message(world)?),
            5 => Event::TimeOut { cell, process: self.process() },
            6 => Event::Crash { cell, process: self.process() },
            7 if self.below(4) == 0 => Event::RestartDatabase { cell },
            7 => Event::Disconnect { cell, worker: self.worker() },
            8 if world.cell(cell)?.is_cut_off => Event::Heal { cell },
            8 if self.below(4) == 0 => Event::Partition { cell },
            9 if !world.service().is_up => Event::StartService,
            9 if self.below(4) == 0 => Event::StopService,
            8 | 9 => return None,
            10 if self.below(8) == 0 => Event::Forget,
            10 => Event::Wait { seconds: self.pick(&WAITS)? },
            _ => Event::Drift { cell, drift: self.drift(world, cell)? },
        })
    }

    /// Draws the loss of a message. An answer that has not left the service can be lost in the
    /// service or in the network; any other message is lost in the network.
    fn loss(&mut self, world: &World) -> Option<Event> {
        let id = self.message(world)?;
        let is_cancelled = world.is_possible(Event::CancelCall(id)) && self.below(2) == 0;
        Some(if is_cancelled { Event::CancelCall(id) } else { Event::Drop(id) })
    }

    /// Draws the next step of a process, of a COMMIT or of the replica.
    fn progress(&mut self, world: &World, cell: u8) -> Event {
        let process = self.process();
        match process {
            Process::Worker(worker) if world.cell(cell).is_some_and(|cell| cell.database.is_committing(worker)) => {
                if self.below(4) == 0 {
                    Event::LoseCommit { cell, worker }
                } else {
                    Event::FinishCommit { cell, worker }
                }
            }
            Process::Verifier if self.below(4) == 0 => Event::Replicate { cell },
            // If the reconciler or verifier is idle, three of four draws step a worker instead. So
            // runs start more rarely than they continue.
            Process::Verifier | Process::Reconciler(_) if !world.is_busy(cell, process) && self.below(4) != 0 => {
                Event::Step { cell, process: Process::Worker(self.worker()) }
            }
            _ => Event::Step { cell, process },
        }
    }

    fn message(&mut self, world: &World) -> Option<crate::network::MessageId> {
        let messages = world.network().messages();
        let at = self.below(messages.len() as u32);
        messages.get(at as usize).map(|message| message.id)
    }

    fn row(&mut self, world: &World, cell: u8) -> Option<u32> {
        let rows = world.cell(cell)?.database.rows();
        let at = self.below(rows.len() as u32);
        rows.get(at as usize).map(|row| row.id)
    }

    fn change(&mut self, world: &World, cell: u8) -> Option<Change> {
        Some(match self.below(16) {
            0 => Change::Invalid,
            1..=5 => Change::Create(self.name()),
            6 => Change::CreateTwo([self.name(), self.name()]),
            7..=10 => Change::Rename { row: self.row(world, cell)?, name: self.name() },
            11 => Change::Swap([self.row(world, cell)?, self.row(world, cell)?]),
            12 => Change::Transfer { from: self.row(world, cell)?, to: self.row(world, cell)? },
            _ => Change::Delete(self.row(world, cell)?),
        })
    }

    fn drift(&mut self, world: &World, cell: u8) -> Option<Drift> {
        Some(match self.below(3) {
            0 => Drift::Insert(self.name()),
            1 => Drift::Rename { row: self.row(world, cell)?, name: self.name() },
            _ => Drift::Delete(self.row(world, cell)?),
        })
    }
}

fn weights(rates: &Rates) -> [u16; 12] {
    [
        rates.save,
        rates.step,
        rates.deliver,
        rates.drop,
        rates.duplicate,
        rates.time_out,
        rates.crash,
        rates.disconnect,
        rates.partition,
        rates.restart,
        rates.wait,
        rates.drift,
    ]
}
