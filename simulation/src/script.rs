//! A schedule written by hand: each call runs a process up to a chosen point and delivers the
//! process's messages.

use crate::event::{Change, Event};
use crate::lock_client::WorkPhase;
use crate::network::MessageId;
use crate::process::Process;
use crate::settings::{InvalidSettings, WorldSettings};
use crate::trace::Trace;
use crate::worker::Phase;
use crate::world::World;

/// The largest number of events for which one call runs a process.
const MAX_STEPS: usize = 200;

/// A schedule under construction: the world after its events, and the events as a trace.
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

    /// Returns the world after the events so far.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the events so far as a trace.
    pub fn into_trace(self) -> Trace {
        self.trace
    }

    /// Adds an event to the schedule. Ignores an impossible event: tests then find another final
    /// state than they expect.
    pub fn event(&mut self, event: Event) -> &mut Self {
        if self.world.apply(event).is_ok() {
            self.trace.events.push(event);
        }
        self
    }

    /// Adds the event that a user requests a save.
    pub fn request_save(&mut self, cell: u8, worker: u8, change: Change) -> &mut Self {
        self.event(Event::Save { cell, worker, change })
    }

    /// Adds the events of a save that a user requests and that runs without faults to its end.
    pub fn save(&mut self, cell: u8, worker: u8, change: Change) -> &mut Self {
        self.request_save(cell, worker, change).run(cell, Process::Worker(worker))
    }

    /// Adds the events of a worker until `phase` is the next action of its save.
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

    /// Adds the events of a cell's client until `phase` is the next action of its task, or until it
    /// has no task.
    pub fn run_client_until(&mut self, cell: u8, phase: WorkPhase) -> &mut Self {
        for _ in 0..MAX_STEPS {
            let task = self.world.client(cell).and_then(|client| client.task);
            if task.is_none_or(|task| task.phase == phase) {
                break;
            }
            self.advance(cell, Process::Client);
        }
        self
    }

    /// Adds the events of a cell's verifier until `step` is its next action, by the name that
    /// [`Run::step_name`](crate::verifier::Run::step_name) returns. An idle verifier starts a run.
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

    /// Adds the events of a process until it is idle. An idle process starts first.
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

    /// Adds an event that lets time pass.
    pub fn wait(&mut self, seconds: u32) -> &mut Self {
        self.event(Event::Wait { seconds })
    }

    /// Returns the id of the request that a process has in flight, `None` if it has none.
    pub fn request(&self, cell: u8, process: Process) -> Option<MessageId> {
        self.in_flight(cell, process, false)
    }

    /// Returns the id of the answer that is in flight to a process, `None` if there is none.
    pub fn answer(&self, cell: u8, process: Process) -> Option<MessageId> {
        self.in_flight(cell, process, true)
    }

    /// Adds the event that the request of a process arrives at the service.
    pub fn deliver_request(&mut self, cell: u8, process: Process) -> &mut Self {
        let request = self.request(cell, process);
        request.into_iter().for_each(|id| _ = self.event(Event::Deliver(id)));
        self
    }

    /// Adds the events that the answer to a process is lost and that the process stops waiting for
    /// it.
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
