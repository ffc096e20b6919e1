//! Writing schedules by hand: somebody's steps up to a point, and what is under way for them brought along.

use crate::event::{Change, Event, Process};
use crate::network::MessageId;
use crate::settings::{BadSettings, Settings};
use crate::trace::Trace;
use crate::view::verifier_step;
use crate::worker::Phase;
use crate::world::World;

/// More steps than any process takes by itself.
const PATIENCE: usize = 200;

/// A schedule in the making.
#[derive(Clone, Debug)]
pub struct Script {
    world: World,
    trace: Trace,
}

impl Script {
    /// An empty schedule.
    ///
    /// # Errors
    /// No world can be made of these settings.
    pub fn new(settings: Settings) -> Result<Self, BadSettings> {
        Ok(Self { world: World::new(settings.clone())?, trace: Trace::new(settings, Vec::new()) })
    }

    /// The world as it stands.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What was scheduled.
    pub fn into_trace(self) -> Trace {
        self.trace
    }

    /// One event; nothing where it can't happen, which the end state then shows.
    pub fn event(&mut self, event: Event) -> &mut Self {
        if self.world.apply(event).is_ok() {
            self.trace.events.push(event);
        }
        self
    }

    /// A user asks for a save.
    pub fn ask(&mut self, cell: u8, worker: u8, change: Change) -> &mut Self {
        self.event(Event::Save { cell, worker, change })
    }

    /// A save from its start to its end, with no trouble.
    pub fn save(&mut self, cell: u8, worker: u8, change: Change) -> &mut Self {
        self.ask(cell, worker, change).run(cell, Process::Worker(worker))
    }

    /// A worker goes on until it is to do something.
    pub fn until(&mut self, cell: u8, worker: u8, phase: Phase) -> &mut Self {
        let process = Process::Worker(worker);
        for _ in 0..PATIENCE {
            if self.phase(cell, worker).is_none_or(|present| present == phase) {
                break;
            }
            self.go_on(cell, process);
        }
        self
    }

    /// A cell's verifier goes on until it is to do something, as views call it; one that is idle starts.
    pub fn until_step(&mut self, cell: u8, step: &str) -> &mut Self {
        let is_there = |world: &World| {
            let verifier = world.cell(cell).map(|cell| &cell.verifier);
            let run =
                verifier.filter(|verifier| !verifier.line.is_waiting).and_then(|verifier| verifier.run.as_deref());
            run.is_some_and(|run| verifier_step(run) == step)
        };
        for _ in 0..PATIENCE {
            if is_there(&self.world) {
                break;
            }
            self.go_on(cell, Process::Verifier);
        }
        self
    }

    /// A process goes on to its end; one that is idle starts.
    pub fn run(&mut self, cell: u8, process: Process) -> &mut Self {
        self.go_on(cell, process);
        for _ in 0..PATIENCE {
            if !self.world.is_busy(cell, process) {
                break;
            }
            self.go_on(cell, process);
        }
        self
    }

    /// Time passes.
    pub fn wait(&mut self, seconds: u32) -> &mut Self {
        self.event(Event::Wait { seconds })
    }

    /// The request that a process waits for the answer to, while it is under way.
    pub fn request(&self, cell: u8, process: Process) -> Option<MessageId> {
        self.under_way(cell, process, false)
    }

    /// The answer that a process waits for, while it is under way.
    pub fn answer(&self, cell: u8, process: Process) -> Option<MessageId> {
        self.under_way(cell, process, true)
    }

    /// The request of a process arrives.
    pub fn arrive(&mut self, cell: u8, process: Process) -> &mut Self {
        let request = self.request(cell, process);
        request.into_iter().for_each(|id| _ = self.event(Event::Deliver(id)));
        self
    }

    /// The answer to a process is lost, and it gives up waiting.
    pub fn lose_answer(&mut self, cell: u8, process: Process) -> &mut Self {
        let answer = self.answer(cell, process);
        answer.into_iter().for_each(|id| _ = self.event(Event::Drop(id)));
        self.event(Event::TimeOut { cell, process })
    }

    fn under_way(&self, cell: u8, process: Process, is_answer: bool) -> Option<MessageId> {
        let mut ids = self.world.network().messages().iter().map(|message| message.id);
        ids.rfind(|id| id.cell() == cell && id.process() == process && id.is_answer() == is_answer)
    }

    fn phase(&self, cell: u8, worker: u8) -> Option<Phase> {
        let worker = self.world.cell(cell)?.workers.get(usize::from(worker))?;
        worker.save.as_ref().map(|save| save.phase)
    }

    fn go_on(&mut self, cell: u8, process: Process) {
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
