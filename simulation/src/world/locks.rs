//! The part of a world that concerns sessions and locks.

use std::sync::Arc;

use leasehold_core::session::SessionId;
use leasehold_core::time::Timestamp;

use super::{START, World};
use crate::database::micros;
use crate::event::Event;
use crate::lock_client::{ClientContext, LockClient, TaskKind};
use crate::lock_message::LockRequest;
use crate::lock_names::LockNames;
use crate::network::{MessageId, Payload, Response};
use crate::process::Process;
use crate::queue_names::QueueNames;
use crate::queue_truth::QueueTruth;
use crate::resource::{Resources, WriteOutcome};
use crate::service::{LockContext, Service};
use crate::settings::{LockSettings, Rule};

/// The time for which the service remembers ended sessions and free locks, in seconds.
const REMEMBER_SECONDS: u32 = 20;
/// The largest difference between the service's wall clock and the world's clock, in seconds.
const MAX_JUMP_SECONDS: i64 = 31_536_000;

/// The locks of a world, and what they guard.
#[derive(Clone, Debug)]
pub struct LockWorld {
    /// The names of the locks.
    pub names: Arc<LockNames>,
    /// The names of the queue and its lanes.
    pub queue: Arc<QueueNames>,
    /// The true history of the queue.
    pub truth: QueueTruth,
    /// The terms of every session, and the length of a tick.
    pub terms: LockSettings,
    /// The resources that the locks guard, or those that the lanes are about.
    pub resources: Resources,
    /// The time of the service's last tick, by the world's clock in microseconds.
    pub ticked_at: u64,
    /// The number of seconds that the service's wall clock is ahead of the world's clock.
    pub ahead_seconds: i64,
}

impl World {
    pub(super) fn add_locks(&mut self) {
        let Some(terms) = self.settings.locks else { return };
        let count = terms.count + terms.lanes;
        let resources = Resources::new(count, self.settings.rules_off.is_on(Rule::FenceCheck));
        self.locks = LockNames::new(terms.count).zip(QueueNames::new(terms.lanes)).map(|(names, queue)| LockWorld {
            names: Arc::new(names),
            queue: Arc::new(queue),
            truth: QueueTruth::default(),
            terms,
            resources,
            ticked_at: START,
            ahead_seconds: 0,
        });
        self.load_locks();
    }

    /// Returns the locks of the world, `None` in a world of claims.
    pub fn locks(&self) -> Option<&LockWorld> {
        self.locks.as_ref()
    }

    /// Returns the client of a cell, `None` in a world of claims.
    pub fn client(&self, cell: u8) -> Option<&LockClient> {
        self.cell(cell)?.client.as_ref()
    }

    /// Returns the time by the clock of a cell's client, in microseconds.
    pub fn client_clock(&self, cell: u8) -> u64 {
        self.database_now(cell).as_micros()
    }

    /// Returns the time by the service's wall clock, which may have jumped.
    pub fn wall_clock(&self) -> Timestamp {
        let ahead = self.locks.as_ref().map_or(0, |locks| locks.ahead_seconds.saturating_mul(1_000_000));
        Timestamp::from_micros(self.now.saturating_add_signed(ahead))
    }

    /// Returns true if the service is running and not paused.
    pub fn is_service_awake(&self) -> bool {
        self.service.is_up && !self.service.is_paused
    }

    /// Returns true if the receiver of a message is not paused.
    pub(super) fn can_receive(&self, id: MessageId) -> bool {
        match id.is_answer() {
            false => !self.service.is_paused,
            true if id.process() == Process::Front => true,
            true => !self.client(id.cell()).is_some_and(|client| client.is_paused),
        }
    }

    pub(super) fn is_lock_event_possible(&self, event: Event) -> bool {
        let Some(locks) = &self.locks else { return false };
        let client = |cell| self.client(cell);
        let is_lock = |lock| lock < locks.terms.count;
        let has_proposals = self.service.lock_host().is_some_and(|host| host.undecided() > 0);
        match event {
            Event::Work { cell, lock } => is_lock(lock) && client(cell).is_some_and(|client| client.task.is_none()),
            Event::Close { cell } => {
                client(cell).is_some_and(|client| client.task.is_none() && client.session.is_some())
            }
            Event::Pause { cell } => client(cell).is_some_and(|client| !client.is_paused),
            Event::Resume { cell } => client(cell).is_some_and(|client| client.is_paused),
            Event::PauseService => self.is_service_awake(),
            Event::ResumeService => self.service.is_paused,
            // The service submits the proposals of the next tick only once the last ones are decided.
            Event::Tick => self.is_service_awake() && !has_proposals,
            Event::Decide => self.is_service_awake() && has_proposals,
            Event::Evict { cell } => self.is_service_awake() && self.live_session_of(cell).is_some(),
            Event::Force { lock } => {
                let row = locks.names.path(lock).and_then(|path| self.service.lock(path));
                self.is_service_awake() && row.is_some_and(|lock| lock.grant().is_some())
            }
            Event::JumpClock { seconds } => {
                let ahead = locks.ahead_seconds + i64::from(seconds);
                seconds != 0 && ahead.abs() <= MAX_JUMP_SECONDS
            }
            _ => self.is_queue_event_possible(event),
        }
    }

    /// Returns the session that a cell's client has, if the service has it as live.
    fn live_session_of(&self, cell: u8) -> Option<SessionId> {
        let id = self.client(cell)?.session?.id;
        self.service.session(id).filter(|session| session.is_live()).map(|_| id)
    }

    pub(super) fn dispatch_lock_event(&mut self, event: Event) {
        match event {
            Event::Work { cell, lock } => self.start_task(cell, TaskKind::Work(lock)),
            Event::Close { cell } => self.start_task(cell, TaskKind::Close),
            Event::Pause { cell } => self.set_paused(cell, true),
            Event::Resume { cell } => self.set_paused(cell, false),
            Event::PauseService => self.service.is_paused = true,
            Event::ResumeService => self.service.is_paused = false,
            Event::Tick => self.tick(),
            Event::Decide => self.with_service(&mut Service::decide_proposal),
            Event::Evict { cell } => {
                let session = self.live_session_of(cell);
                session
                    .into_iter()
                    .for_each(|id| self.with_service(&mut |service, context| service.evict(id, context)));
            }
            Event::Force { lock } => self.with_service(&mut |service, context| service.force(lock, context)),
            Event::JumpClock { seconds } => {
                self.locks.iter_mut().for_each(|locks| locks.ahead_seconds += i64::from(seconds));
            }
            _ => self.dispatch_queue_event(event),
        }
    }

    pub(super) fn start_task(&mut self, cell: u8, kind: TaskKind) {
        let clock = self.client_clock(cell);
        let Some(terms) = self.settings.locks else { return };
        let client = self.cell_mut(cell).and_then(|cell| cell.client.as_mut());
        client.into_iter().for_each(|client| client.start(kind, cell, clock, terms));
    }

    fn set_paused(&mut self, cell: u8, is_paused: bool) {
        let client = self.cell_mut(cell).and_then(|cell| cell.client.as_mut());
        client.into_iter().for_each(|client| client.is_paused = is_paused);
    }

    fn tick(&mut self) {
        let Some(locks) = &mut self.locks else { return };
        self.now = self.now.max(locks.ticked_at + u64::from(locks.terms.tick_millis) * 1000);
        locks.ticked_at = self.now;
        self.with_service(&mut |service, context| service.tick(context));
    }

    /// Calls the service with the context of sessions and locks, then sends the answers that are
    /// ready.
    pub(super) fn with_service(&mut self, call: &mut dyn FnMut(&mut Service, &mut LockContext<'_>)) {
        let Some(locks) = &mut self.locks else { return };
        let ahead = locks.ahead_seconds.saturating_mul(1_000_000);
        let mut context = LockContext {
            now: Timestamp::from_micros(self.now.saturating_add_signed(ahead)),
            terms: locks.terms,
            rules_off: self.settings.rules_off,
            names: &locks.names,
            queue: &locks.queue,
            truth: &mut locks.truth,
            effects: &mut self.effects,
        };
        call(&mut self.service, &mut context);
        for (request, answer) in self.service.take_lock_answers() {
            self.network.send(request.answer(), Payload::Response(answer), self.now);
            self.effects.sent.push(request.answer());
        }
    }

    pub(super) fn receive_lock(&mut self, id: MessageId, request: LockRequest) {
        let is_open = self.is_awaited(id.answer());
        self.with_service(&mut |service, context| service.receive_lock(id, request, is_open, context));
    }

    pub(super) fn load_locks(&mut self) {
        self.with_service(&mut |service, context| service.load_locks(context));
    }

    pub(super) fn forget_locks(&mut self) {
        let remember = micros(REMEMBER_SECONDS);
        self.with_service(&mut |service, context| {
            let before = context.now.minus_micros(remember);
            context.effects.forgotten_locks = service.forget_locks(before, context);
        });
    }

    pub(super) fn step_client(&mut self, number: u8, process: Process) {
        if process == Process::Client && self.dies_of_its_work(number) {
            return;
        }
        let clock = self.client_clock(number);
        let Some(locks) = &mut self.locks else { return };
        let at = usize::from(number).checked_sub(1);
        let cell = at.and_then(|at| self.cells.get_mut(at));
        let Some(client) = cell.and_then(|cell| cell.client.as_mut()) else { return };
        let mut context = ClientContext {
            cell: number,
            now: self.now,
            clock,
            terms: locks.terms,
            network: &mut self.network,
            resources: &mut locks.resources,
        };
        let (sent, write) = match process {
            Process::Keepalive => (client.renew(&mut context), None),
            _ => client.step(&mut context),
        };
        let batch = client.serving.as_ref().and_then(|serving| serving.batch.as_ref()).map(|batch| batch.fence);
        let is_accepted = matches!(write, Some(WriteOutcome::Accepted { .. }));
        self.effects.written_batch = batch.filter(|_| is_accepted);
        self.effects.sent.extend(sent);
        self.effects.write = write;
        self.note_written_batch();
    }

    pub(super) fn deliver_to_client(&mut self, number: u8, process: Process, answer: &Response) {
        let clock = self.client_clock(number);
        let Some(terms) = self.settings.locks else { return };
        let client = self.cell_mut(number).and_then(|cell| cell.client.as_mut());
        client.into_iter().for_each(|client| match process {
            Process::Keepalive => client.renewed(answer, clock, terms),
            _ => client.answer(answer),
        });
    }

    pub(super) fn time_out_client(&mut self, number: u8, process: Process) {
        let client = self.cell_mut(number).and_then(|cell| cell.client.as_mut());
        client.into_iter().for_each(|client| client.time_out(process));
        if process == Process::Client {
            self.service.close_calls(number);
        }
    }
}
