//! The part of a world that concerns a queue.

use super::World;
use crate::event::Event;
use crate::front::Front;
use crate::lock_client::TaskKind;
use crate::network::MessageId;
use crate::process::Process;
use crate::queue_message::{BatchOutcome, QueueRequest};
use crate::queue_truth::QueueTruth;

impl World {
    /// Returns true if the world has a queue.
    pub fn has_queue(&self) -> bool {
        self.locks.as_ref().is_some_and(|locks| locks.terms.lanes > 0)
    }

    /// Returns the front of a cell, `None` unless the world has a queue.
    pub fn front(&self, cell: u8) -> Option<&Front> {
        self.cell(cell)?.front.as_ref()
    }

    fn truth_mut(&mut self) -> Option<&mut QueueTruth> {
        self.locks.as_mut().map(|locks| &mut locks.truth)
    }

    pub(super) fn is_queue_event_possible(&self, event: Event) -> bool {
        let Some(locks) = self.locks.as_ref().filter(|locks| locks.terms.lanes > 0) else { return false };
        let client = |cell| self.client(cell);
        match event {
            Event::Submit { cell, lane, .. } => {
                lane < locks.terms.lanes && self.front(cell).is_some_and(|front| front.submission.is_none())
            }
            Event::Serve { cell } => client(cell).is_some_and(|client| client.task.is_none()),
            Event::FailWork { cell } | Event::GiveBack { cell } => {
                client(cell).is_some_and(|client| !client.is_paused && client.batch_in_work().is_some())
            }
            _ => false,
        }
    }

    pub(super) fn dispatch_queue_event(&mut self, event: Event) {
        match event {
            Event::Submit { cell, lane, kind } => {
                let number = self.truth_mut().map(|truth| truth.submit(cell, lane, kind));
                let front = self.cell_mut(cell).and_then(|cell| cell.front.as_mut());
                front.zip(number).into_iter().for_each(|(front, number)| front.start(number, lane, kind));
            }
            Event::Serve { cell } => self.start_task(cell, TaskKind::Serve),
            Event::FailWork { cell } => self.end_batch(cell, BatchOutcome::Failed),
            Event::GiveBack { cell } => self.end_batch(cell, BatchOutcome::GivenBack),
            // `World::dispatch` and `World::dispatch_lock_event` handle all other events.
            _ => {}
        }
    }

    fn end_batch(&mut self, cell: u8, outcome: BatchOutcome) {
        let client = self.cell_mut(cell).and_then(|cell| cell.client.as_mut());
        client.into_iter().for_each(|client| client.end_batch(outcome));
    }

    pub(super) fn step_front(&mut self, number: u8) {
        let at = usize::from(number).checked_sub(1);
        let front = at.and_then(|at| self.cells.get_mut(at)).and_then(|cell| cell.front.as_mut());
        let sent = front.and_then(|front| front.step(number, self.now, &mut self.network));
        self.effects.sent.extend(sent);
    }

    pub(super) fn receive_queue(&mut self, id: MessageId, request: QueueRequest) {
        let is_open = self.is_awaited(id.answer());
        self.with_service(&mut |service, context| service.receive_queue(id, request, is_open, context));
    }

    /// Ends the process of a cell's client if its next step is the work on a poison request (Q03).
    /// Returns true if it died.
    pub(super) fn dies_of_its_work(&mut self, cell: u8) -> bool {
        let Some(fence) = self.client(cell).and_then(|client| client.dies_of()) else { return false };
        self.truth_mut().into_iter().for_each(|truth| truth.die(fence));
        self.effects.deadly_batch = Some(fence);
        self.crash(cell, Process::Client);
        true
    }

    pub(super) fn note_written_batch(&mut self) {
        if let Some(fence) = self.effects.written_batch {
            self.truth_mut().into_iter().for_each(|truth| truth.write(fence));
        }
    }
}
