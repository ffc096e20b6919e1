//! A schedule written by hand: a process runs up to a chosen point, and its messages arrive on the
//! way.

use crate::event::{Change, Event};
use crate::network::MessageId;
use crate::process::Process;
use crate::settings::{InvalidSettings, WorldSettings};
use crate::trace::Trace;
use crate::worker::Phase;
use crate::world::World;

/// An upper bound on the steps that a process takes by itself.
const MAX_STEPS: usize = 200;

/// A schedule under construction.
#[derive(Clone, Debug)]
pub struct Script {
    world: World,
    trace: Trace,
}

impl Script {
    /// Creates an empty schedule.
    ///
    /// # Errors
    /// The settings describe no valid world.
    pub fn new(settings: WorldSettings) -> Result<Self, InvalidSettings> {
        Ok(Self { world: World::new(settings.clone())?, trace: Trace::new(settings, Vec::new()) })
    }

    /// The present state of the world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the events so far as a trace.
    pub fn into_trace(self) -> Trace {
        self.trace
    }

    /// Adds an event. An impossible event is ignored; the final state then differs from the
    /// expected one.
    pub fn event(&mut self, event: Event) -> &mut Self {
        if self.world.apply(event).is_ok() {
            self.trace.events.push(event);
        }
        self
    }

    /// A user requests a save.
    pub fn request_save(&mut self, cell: u8, worker: u8, change: Change) -> &mut Self {
        self.event(Event::Save { cell, worker, change })
    }

    /// A user requests a save, which runs without faults to its end.
    pub fn save(&mut self, cell: u8, worker: u8, change: Change) -> &mut Self {
        self.request_save(cell, worker, change).run(cell, Process::Worker(worker))
    }

    /// A worker runs until `phase` is its next action.
    pub fn run_worker_until(&mut self, cell: u8, worker: u8, phase: Phase) -> &mut Self {
        let process = Process::Worker(worker);
        for _ in 0..MAX_STEPS {
            if self.phase(cell, worker).is_none_or(|present| present == phase) {
                break;
            }
            self.advance(cell, process);
        }
        self
    }

    /// A cell's verifier runs until `step` is its next action, by the name that views show. An idle
    /// verifier starts a run.
    pub fn run_verifier_until(&mut self, cell: u8, step: &str) -> &mut Self {
        let is_there = |world: &World| {
            let verifier = world.cell(cell).map(|cell| &cell.verifier);
            let run =
                verifier.filter(|verifier| !verifier.calls.is_waiting).and_then(|verifier| verifier.run.as_deref());
            run.is_some_and(|run| run.step_name() == step)
        };
        for _ in 0..MAX_STEPS {
            if is_there(&self.world) {
                break;
            }
            self.advance(cell, Process::Verifier);
        }
        self
    }

    /// A process runs to its end. An idle one starts first.
    pub fn run(&mut self, cell: u8, process: Process) -> &mut Self {
        self.advance(cell, process);
        for _ in 0..MAX_STEPS {
            if !self.world.is_busy(cell, process) {
                break;
            }
            self.advance(cell, process);
        }
        self
    }

    /// Lets time pass.
    pub fn wait(&mut self, seconds: u32) -> &mut Self {
        self.event(Event::Wait { seconds })
    }

    /// The id of the request that a process has in flight.
    pub fn request(&self, cell: u8, process: Process) -> Option<MessageId> {
        self.in_flight(cell, process, false)
    }

    /// The id of the answer that is in flight to a process.
    pub fn answer(&self, cell: u8, process: Process) -> Option<MessageId> {
        self.in_flight(cell, process, true)
    }

    /// The request of a process arrives.
    pub fn deliver_request(&mut self, cell: u8, process: Process) -> &mut Self {
        let request = self.request(cell, process);
        request.into_iter().for_each(|id| _ = self.event(Event::Deliver(id)));
        self
    }

    /// The answer to a process is lost, and the process stops waiting.
    pub fn lose_answer(&mut self, cell: u8, process: Process) -> &mut Self {
        let answer = self.answer(cell, process);
        answer.into_iter().for_each(|id| _ = self.event(Event::Drop(id)));
        self.event(Event::TimeOut { cell, process })
    }

    fn in_flight(&self, cell: u8, process: Process, is_answer: bool) -> Option<MessageId> {
        let mut ids = self.world.network().messages().iter().map(|message| message.id);
        ids.rfind(|id| id.cell() == cell && id.process() == process && id.is_answer() == is_answer)
    }

    fn phase(&self, cell: u8, worker: u8) -> Option<Phase> {
        let worker = self.world.cell(cell)?.workers.get(usize::from(worker))?;
        worker.save.as_ref().map(|save| save.phase)
    }

    fn advance(&mut self, cell: u8, process: Process) {
        let message = self.answer(cell, process).or_else(|| self.request(cell, process));
        let event = match (message, process) {
            (Some(id), _) => Event::Deliver(id),
            (None, Process::Worker(worker)) if self.phase(cell, worker) == Some(Phase::AwaitDatabase) => {
                Event::FinishCommit { cell, worker }
            }
            (None, _) => Event::Step { cell, process },
        };
        self.event(event);
    }
}
