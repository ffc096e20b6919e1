//! The world: cells with databases and processes, the network, the service and one clock.
//! [`World::apply`] is the only way to change a world: it performs one event and checks the result.

mod locks;
mod queues;

use std::sync::Arc;

use leasehold_core::cell::CellId;
use leasehold_core::lease::LeaseId;
use leasehold_core::time::Timestamp;

use crate::database::{Database, Row, Transaction, TransactionState, Write, micros, row_by_id};
use crate::effects::Effects;
use crate::event::{Change, Drift, Event};
use crate::front::Front;
use crate::ground_truth::GroundTruth;
use crate::lock_client::LockClient;
use crate::names::Names;
use crate::network::{MessageId, Network, Payload, Request, Response};
use crate::process::Process;
use crate::reconciler::Reconciler;
use crate::service::{CallContext, Service};
use crate::settings::{InvalidSettings, Mode, WorldSettings};
use crate::step_context::{Calls, StepContext};
use crate::verifier::Verifier;
use crate::violation::Violation;
use crate::worker::Worker;

pub use locks::LockWorld;

/// The world's clock at the start, in microseconds since 1970: a day in January 2027.
pub const START: u64 = 1_800_000_000_000_000;
/// The latest time that the world's clock can show: 2100.
const END: u64 = 4_102_444_800_000_000;
/// A worker number for statements outside any transaction. No worker has it.
const NO_WORKER: u8 = u8::MAX;

/// A cell of a world: a database and the processes that use it.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The cell's database.
    pub database: Database,
    /// The cell's workers, by number.
    pub workers: Vec<Worker>,
    /// The cell's reconcilers, by number.
    pub reconcilers: Vec<Reconciler>,
    /// The cell's verifier.
    pub verifier: Verifier,
    /// True if no message passes between the cell and the service: the cell is cut off.
    pub is_cut_off: bool,
    /// The point of a save at which the cell begins the save's lease.
    pub mode: Mode,
    /// The cell's client of locks, `None` in a world of claims. In the world of a queue it is a worker.
    pub client: Option<LockClient>,
    /// The cell's front, `None` unless the world has a queue.
    pub front: Option<Front>,
}

/// The error of an event that the world cannot perform in its present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event `{}` is impossible in the present state of the world", json_text(*.0))]
pub struct ImpossibleEvent(pub Event);

/// Returns an event as JSON, the form in which traces and JavaScript have it.
fn json_text(event: Event) -> String {
    // An event has no map and no number that JSON lacks, so the conversion does not fail.
    serde_json::to_string(&event).unwrap_or_default()
}

/// The complete state of a simulation.
#[derive(Clone, Debug)]
pub struct World {
    settings: Arc<WorldSettings>,
    names: Arc<Names>,
    now: u64,
    events: u64,
    saves: u32,
    service: Service,
    network: Network,
    cells: Vec<Cell>,
    ground_truth: GroundTruth,
    effects: Effects,
    violation: Option<Violation>,
    locks: Option<LockWorld>,
}

impl World {
    /// Creates a world in which no event has happened.
    ///
    /// # Errors
    /// The settings describe no valid world.
    pub fn new(settings: WorldSettings) -> Result<Self, InvalidSettings> {
        settings.check()?;
        let of = |cell: u8| usize::from(cell);
        let cells = (0..settings.cells).map(|cell| Cell {
            database: Database::new(nth_cycled(&settings.clocks, of(cell))),
            workers: vec![Worker::default(); of(settings.workers)],
            reconcilers: vec![Reconciler::default(); of(settings.reconcilers)],
            verifier: Verifier::default(),
            is_cut_off: false,
            mode: nth_cycled(&settings.modes, of(cell)),
            client: settings.locks.map(|_| LockClient::default()),
            front: settings.locks.filter(|locks| locks.lanes > 0).map(|_| Front::default()),
        });
        let mut world = Self {
            cells: cells.collect(),
            names: Arc::new(Names::new(settings.names, settings.cells)),
            settings: Arc::new(settings),
            now: START,
            events: 0,
            saves: 0,
            service: Service::default(),
            network: Network::default(),
            ground_truth: GroundTruth::default(),
            effects: Effects::default(),
            violation: None,
            locks: None,
        };
        world.add_locks();
        Ok(world)
    }

    /// Returns the settings that the world was created with.
    pub fn settings(&self) -> &WorldSettings {
        &self.settings
    }

    /// Returns the names that cells can claim.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the time by the world's clock, in microseconds since 1970.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the time by the service's clock, which always shows the world's time.
    pub fn service_now(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    /// Returns the number of events that have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of saves that users have requested.
    pub fn saves(&self) -> u32 {
        self.saves
    }

    /// Returns the service of the world.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Returns the network with the messages in flight.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the cells in the order of their numbers. The first is cell 1.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the cells' databases, in the order of the cells' numbers.
    pub fn databases(&self) -> impl Iterator<Item = &Database> {
        self.cells.iter().map(|cell| &cell.database)
    }

    /// Returns the true history of every lease, which no participant knows.
    pub fn ground_truth(&self) -> &GroundTruth {
        &self.ground_truth
    }

    /// Returns the changes made by the last event.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Returns the first violation since the start of the world, `None` if there was none.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Returns the cell with this number, `None` if there is no such cell.
    pub fn cell(&self, number: u8) -> Option<&Cell> {
        self.cells.get(usize::from(number.checked_sub(1)?))
    }

    fn cell_mut(&mut self, number: u8) -> Option<&mut Cell> {
        self.cells.get_mut(usize::from(number.checked_sub(1)?))
    }

    /// Performs an event without checking its changes. [`World::apply`] checks them.
    ///
    /// # Errors
    /// The event is impossible in the present state. The world is unchanged.
    pub(crate) fn perform(&mut self, event: Event) -> Result<(), ImpossibleEvent> {
        if !self.is_possible(event) {
            return Err(ImpossibleEvent(event));
        }
        self.effects.clear();
        self.events += 1;
        self.now += u64::from(self.settings.step_micros);
        self.dispatch(event);
        Ok(())
    }

    /// Keeps this violation, unless an earlier one was found.
    pub(crate) fn set_violation(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Returns true if the event is possible in the present state of the world.
    pub fn is_possible(&self, event: Event) -> bool {
        match event {
            Event::Save { cell, worker, change } => {
                let is_idle = self.worker(cell, worker).is_some_and(|worker| worker.save.is_none());
                is_idle && self.are_names(change)
            }
            Event::Step { cell, process } => self.is_ready(cell, process),
            Event::FinishCommit { cell, worker } => {
                self.cell(cell).is_some_and(|cell| cell.database.is_committing(worker))
            }
            Event::LoseCommit { cell, worker } => self.cell(cell).is_some_and(|cell| cell.database.is_orphaned(worker)),
            Event::Deliver(id) => {
                let is_connected = self.cell(id.cell()).is_some_and(|cell| !cell.is_cut_off);
                is_connected && self.is_in_flight(id) && self.can_receive(id)
            }
            Event::Drop(id) => self.is_in_flight(id),
            Event::Duplicate(id) => self.is_in_flight(id) && id.copy_number() == 0,
            Event::CancelCall(id) => self.undelivered_lease(id).is_some(),
            Event::TakeBack => self.service.undelivered().take_backs().len() > 0,
            Event::TimeOut { cell, process } => self.calls_of(cell, process).is_some_and(|calls| calls.is_waiting),
            Event::Crash { cell, process } => self.can_crash(cell, process),
            Event::Disconnect { cell, worker } => self.cell(cell).is_some_and(|cell| is_connected(cell, worker)),
            Event::RestartDatabase { cell } => {
                self.cell(cell).is_some_and(|cell| (0..self.settings.workers).any(|worker| is_connected(cell, worker)))
            }
            Event::Partition { cell } => self.cell(cell).is_some_and(|cell| !cell.is_cut_off),
            Event::Heal { cell } => self.cell(cell).is_some_and(|cell| cell.is_cut_off),
            Event::StopService => self.service.is_up,
            Event::StartService => !self.service.is_up,
            Event::Replicate { cell } => self.cell(cell).is_some_and(|cell| cell.database.is_behind()),
            Event::Forget => self.service.is_up && !self.service.is_paused,
            Event::Drift { cell, drift } => self.cell(cell).is_some_and(|cell| self.can_drift(&cell.database, drift)),
            Event::Wait { seconds } => seconds > 0 && self.now + micros(seconds) < END,
            _ => self.is_lock_event_possible(event),
        }
    }

    fn are_names(&self, change: Change) -> bool {
        let count = self.names.len();
        match change {
            Change::Create(name) | Change::Rename { name, .. } => name < count,
            Change::CreateTwo(names) => names.iter().all(|name| *name < count),
            Change::Invalid | Change::Delete(_) | Change::Swap(_) | Change::Transfer { .. } => true,
        }
    }

    /// Returns true if plain SQL can make the change now. Like any other statement, it must wait
    /// while a transaction locks the row or one of the names.
    fn can_drift(&self, database: &Database, drift: Drift) -> bool {
        let is_new = |name| name < self.names.len() && database.row_by_name(name).is_none();
        let named = |id| row_by_id(database.rows(), id).map(|row| row.name);
        let (row, before, after) = match drift {
            Drift::Insert(name) if is_new(name) => (0, None, Some(name)),
            Drift::Rename { row, name } if is_new(name) && named(row).is_some() => (row, named(row), Some(name)),
            Drift::Delete(row) if named(row).is_some() => (row, named(row), None),
            Drift::Insert(_) | Drift::Rename { .. } | Drift::Delete(_) => return false,
        };
        database.is_free(NO_WORKER, &[Write { row, before, after }])
    }

    fn worker(&self, cell: u8, worker: u8) -> Option<&Worker> {
        self.cell(cell)?.workers.get(usize::from(worker))
    }

    fn calls_of(&self, cell: u8, process: Process) -> Option<Calls> {
        let cell = self.cell(cell)?;
        Some(match process {
            Process::Worker(number) => cell.workers.get(usize::from(number))?.calls,
            Process::Reconciler(number) => cell.reconcilers.get(usize::from(number))?.calls,
            Process::Verifier => cell.verifier.calls,
            Process::Client => cell.client.as_ref()?.calls,
            Process::Keepalive => cell.client.as_ref()?.keepalive,
            Process::Front => cell.front.as_ref()?.calls,
        })
    }

    /// Returns the number of calls that a process has made to the service.
    pub fn calls(&self, cell: u8, process: Process) -> u32 {
        self.calls_of(cell, process).map_or(0, |calls| calls.made)
    }

    /// Returns true if a process can take a step without waiting for a message, its database or a
    /// lock.
    pub fn is_ready(&self, cell: u8, process: Process) -> bool {
        let Some(at) = self.cell(cell) else { return false };
        match process {
            Process::Worker(number) => {
                at.workers.get(usize::from(number)).is_some_and(|worker| worker.is_ready(number, &at.database))
            }
            Process::Reconciler(_) | Process::Verifier => {
                self.calls_of(cell, process).is_some_and(|calls| !calls.is_waiting)
            }
            Process::Client => at.client.as_ref().is_some_and(LockClient::is_ready),
            Process::Keepalive => at.client.as_ref().is_some_and(LockClient::can_renew),
            Process::Front => at.front.as_ref().is_some_and(Front::is_ready),
        }
    }

    /// Returns true if a process is working on a save, a run or a task, or waits for a renewal.
    pub fn is_busy(&self, cell: u8, process: Process) -> bool {
        let Some(cell) = self.cell(cell) else { return false };
        match process {
            Process::Worker(number) => {
                cell.workers.get(usize::from(number)).is_some_and(|worker| worker.save.is_some())
            }
            Process::Reconciler(number) => {
                cell.reconcilers.get(usize::from(number)).is_some_and(|one| one.run.is_some())
            }
            Process::Verifier => cell.verifier.run.is_some(),
            Process::Client => cell.client.as_ref().is_some_and(|client| client.task.is_some()),
            Process::Keepalive => cell.client.as_ref().is_some_and(|client| client.keepalive.is_waiting),
            Process::Front => cell.front.as_ref().is_some_and(|front| front.submission.is_some()),
        }
    }

    /// Returns true if a crash of the process would change something. A keepalive only dies with its
    /// client, whose session outlives it.
    fn can_crash(&self, cell: u8, process: Process) -> bool {
        match process {
            Process::Client => self.is_busy(cell, process) || self.client(cell).is_some_and(|it| it.session.is_some()),
            Process::Keepalive => false,
            _ => self.is_busy(cell, process),
        }
    }

    fn is_in_flight(&self, id: MessageId) -> bool {
        self.network.messages().iter().any(|message| message.id == id)
    }

    /// Returns the lease that this answer reports, if the answer has not left the service and the
    /// begin had no idempotency key. Otherwise returns `None`.
    fn undelivered_lease(&self, id: MessageId) -> Option<LeaseId> {
        let undelivered = self.service.undelivered().answers();
        if undelivered.is_empty() {
            return None;
        }
        let message = self.network.messages().iter().find(|message| message.id == id)?;
        let Payload::Response(Response::Begun { lease, .. }) = message.payload else { return None };
        undelivered.contains(&lease).then_some(lease)
    }

    /// If the event's message is an answer, notes that the answer has left the service.
    fn hand_on(&mut self, event: Event) {
        if let Event::Deliver(id) | Event::Drop(id) | Event::Duplicate(id) = event
            && let Some(lease) = self.undelivered_lease(id)
        {
            self.service.hand_on(lease);
        }
    }

    fn dispatch(&mut self, event: Event) {
        self.hand_on(event);
        match event {
            Event::Save { cell, worker, change } => self.save(cell, worker, change),
            Event::Step { cell, process } => self.step(cell, process),
            Event::FinishCommit { cell, worker } => self.finish_commit(cell, worker),
            Event::LoseCommit { cell, worker } => {
                let lost = self.cell_mut(cell).and_then(|cell| cell.database.lose_commit(worker));
                lost.iter().for_each(|tx| self.note_transaction(tx));
            }
            Event::Deliver(id) => self.deliver(id),
            Event::Drop(id) => _ = self.network.take(id),
            Event::Duplicate(id) => self.effects.sent.extend(self.network.duplicate(id)),
            Event::CancelCall(id) => self.cancel_call(id),
            Event::TakeBack => {
                let (service, mut call) = self.service_call(0);
                service.take_back(&mut call);
            }
            Event::TimeOut { cell, process } => self.time_out(cell, process),
            Event::Crash { cell, process } => self.crash(cell, process),
            Event::Disconnect { cell, worker } => self.disconnect(cell, worker),
            Event::RestartDatabase { cell } => {
                (0..self.settings.workers).for_each(|worker| self.disconnect(cell, worker));
            }
            Event::Partition { cell } => self.set_cut_off(cell, true),
            Event::Heal { cell } => self.set_cut_off(cell, false),
            Event::StopService => {
                self.service.stop();
                self.network.drop_requests();
            }
            Event::StartService => {
                self.service.is_up = true;
                self.load_locks();
            }
            Event::Replicate { cell } => self.cell_mut(cell).into_iter().for_each(|cell| cell.database.replicate()),
            Event::Forget => self.forget(),
            Event::Drift { cell, drift } => self.drift(cell, drift),
            Event::Wait { seconds } => self.now += micros(seconds),
            _ => self.dispatch_lock_event(event),
        }
    }

    fn save(&mut self, cell: u8, worker: u8, change: Change) {
        self.saves += 1;
        let number = self.saves;
        let Some(cell) = self.cell_mut(cell) else { return };
        let new_rows = match change {
            Change::Create(_) => 1,
            Change::CreateTwo(_) => 2,
            _ => 0,
        };
        let mut keys = [0; 2];
        keys.iter_mut().take(new_rows).for_each(|key| *key = cell.database.allocate_key());
        if let Some(worker) = cell.workers.get_mut(usize::from(worker)) {
            worker.start(number, change, keys);
        }
    }

    fn step(&mut self, number: u8, process: Process) {
        match process {
            Process::Client | Process::Keepalive => return self.step_client(number, process),
            Process::Front => return self.step_front(number),
            Process::Worker(_) | Process::Reconciler(_) | Process::Verifier => {}
        }
        let Self { cells, network, ground_truth, effects, settings, names, now, .. } = self;
        let at = usize::from(number).checked_sub(1);
        let Some(cell) = at.and_then(|at| cells.get_mut(at)) else { return };
        let Cell { database, workers, reconcilers, verifier, mode, .. } = cell;
        let database_now = database.now(START, *now);
        let mut context = StepContext {
            now: *now,
            cell: number,
            database,
            database_now,
            network,
            ground_truth,
            effects,
            settings,
            names,
        };
        match process {
            Process::Worker(number) => {
                let worker = workers.get_mut(usize::from(number)).into_iter();
                worker.for_each(|worker| worker.step(number, &mut context, *mode));
            }
            Process::Reconciler(number) => {
                let reconciler = reconcilers.get_mut(usize::from(number)).into_iter();
                reconciler.for_each(|reconciler| reconciler.step(number, &mut context));
            }
            Process::Verifier => {
                verifier.step(&mut context);
                self.adopt(number);
            }
            // The steps of these processes need other parts of the world.
            Process::Client | Process::Keepalive | Process::Front => {}
        }
    }

    fn finish_commit(&mut self, cell: u8, worker: u8) {
        let now = self.database_now(cell);
        let settings = self.settings.clone();
        let Some(at) = self.cell_mut(cell) else { return };
        let Some((tx, result)) = at.database.finish_commit(worker, now, &settings) else { return };
        if tx.state == TransactionState::Committing {
            at.workers.get_mut(usize::from(worker)).into_iter().for_each(|worker| worker.committed(result));
        }
        self.effects.commit_refusal = result.err();
        if let (Ok(()), Some(lease)) = (result, tx.lease)
            && let Some(truth) = self.ground_truth.lease_mut(lease.lease)
        {
            truth.is_committed = true;
        }
        self.note_transaction(&tx);
    }

    /// Records in the event's effects every name and lease that a finished transaction may have
    /// changed.
    fn note_transaction(&mut self, tx: &Transaction) {
        let names = tx.writes.iter().flat_map(|write| [write.before, write.after]);
        names.flatten().for_each(|name| self.effects.name(name));
        self.effects.leases.extend(tx.lease.map(|row| row.lease));
    }

    /// Returns the service with the context of a call by `cell`, 0 for the service's own work.
    fn service_call(&mut self, cell: u8) -> (&mut Service, CallContext<'_>) {
        let call = CallContext {
            cell,
            now: Timestamp::from_micros(self.now),
            rules_off: self.settings.rules_off,
            names: &self.names,
            ground_truth: &mut self.ground_truth,
            effects: &mut self.effects,
        };
        (&mut self.service, call)
    }

    fn cancel_call(&mut self, id: MessageId) {
        if let Some(lease) = self.undelivered_lease(id) {
            self.network.take(id);
            self.service.cancel(lease);
        }
    }

    fn deliver(&mut self, id: MessageId) {
        match self.network.take(id).map(|message| message.payload) {
            None => {}
            Some(Payload::Response(answer)) => self.deliver_answer(id, &answer),
            Some(Payload::Request(Request::Lock(request))) if self.service.is_up => self.receive_lock(id, request),
            Some(Payload::Request(Request::Queue(request))) if self.service.is_up => self.receive_queue(id, request),
            Some(Payload::Request(request)) => {
                let (service, mut call) = self.service_call(id.cell());
                let answer = service.answer(&request, &mut call);
                self.network.send(id.answer(), Payload::Response(answer), self.now);
                self.effects.sent.push(id.answer());
            }
        }
    }

    /// Marks the rows of a correction that has written its lease row as covered by claims. The
    /// lease will be committed, so these rows must keep their claims.
    fn adopt(&mut self, cell: u8) {
        for name in 0..self.names.len() {
            let Some(claim) = self.names.key(name).and_then(|key| self.service.claim(key)) else { continue };
            let Some(row) = self.ground_truth.promised(claim).filter(|_| claim.owner == CellId(cell.into())) else {
                continue;
            };
            self.effects.name(name);
            self.cell_mut(cell).into_iter().for_each(|cell| cell.database.adopt(row, name));
        }
    }

    /// Returns true if a process is waiting for this message as the answer to its last call.
    pub fn is_awaited(&self, id: MessageId) -> bool {
        // A message id has 20 bits for the number of the call, so numbers repeat after a million
        // calls.
        let last = |calls: Calls| MessageId::request(id.cell(), id.process(), calls.made).call();
        let is_last = |calls: Calls| calls.is_waiting && last(calls) == id.call();
        id.is_answer() && self.calls_of(id.cell(), id.process()).is_some_and(is_last)
    }

    /// Delivers an answer to the calling process, unless the process no longer waits for it.
    fn deliver_answer(&mut self, id: MessageId, answer: &Response) {
        if !self.is_awaited(id) {
            return;
        }
        if let Response::Refused { blocked_by_own_lease: true, .. } = answer {
            self.effects.blocked_by_own_lease = true;
        }
        let settings = self.settings.clone();
        if matches!(id.process(), Process::Client | Process::Keepalive) {
            return self.deliver_to_client(id.cell(), id.process(), answer);
        }
        let Some(cell) = self.cell_mut(id.cell()) else { return };
        let mode = cell.mode;
        match id.process() {
            Process::Worker(number) => {
                cell.workers.get_mut(usize::from(number)).into_iter().for_each(|worker| worker.answer(answer, mode));
            }
            Process::Reconciler(number) => {
                cell.reconcilers.get_mut(usize::from(number)).into_iter().for_each(|one| one.answer(answer));
            }
            Process::Verifier => cell.verifier.answer(answer, &settings),
            Process::Front => cell.front.iter_mut().for_each(|front| front.answer(answer)),
            Process::Client | Process::Keepalive => {}
        }
    }

    fn time_out(&mut self, number: u8, process: Process) {
        let Some(cell) = self.cell_mut(number) else { return };
        match process {
            Process::Worker(number) => {
                cell.workers.get_mut(usize::from(number)).into_iter().for_each(Worker::time_out);
            }
            Process::Reconciler(number) => {
                cell.reconcilers.get_mut(usize::from(number)).into_iter().for_each(Reconciler::time_out);
            }
            Process::Verifier => cell.verifier.time_out(),
            Process::Front => cell.front.iter_mut().for_each(Front::time_out),
            Process::Client | Process::Keepalive => self.time_out_client(number, process),
        }
    }

    fn crash(&mut self, number: u8, process: Process) {
        let Some(cell) = self.cell_mut(number) else { return };
        match process {
            Process::Worker(number) => {
                cell.database.lose_connection(number);
                cell.workers.get_mut(usize::from(number)).into_iter().for_each(Worker::crash);
            }
            Process::Reconciler(number) => {
                cell.reconcilers.get_mut(usize::from(number)).into_iter().for_each(Reconciler::crash);
            }
            Process::Verifier => cell.verifier.crash(),
            Process::Front => cell.front.iter_mut().for_each(Front::crash),
            Process::Client | Process::Keepalive => {
                cell.client.iter_mut().for_each(LockClient::crash);
                self.service.close_calls(number);
            }
        }
    }

    fn disconnect(&mut self, cell: u8, worker: u8) {
        let Some(cell) = self.cell_mut(cell) else { return };
        if is_connected(cell, worker) {
            cell.database.lose_connection(worker);
            cell.workers.get_mut(usize::from(worker)).into_iter().for_each(Worker::disconnect);
        }
    }

    fn set_cut_off(&mut self, cell: u8, is_cut_off: bool) {
        if is_cut_off {
            self.service.close_calls(cell);
        }
        self.cell_mut(cell).into_iter().for_each(|cell| cell.is_cut_off = is_cut_off);
    }

    fn forget(&mut self) {
        let remember = micros(self.settings.thresholds.remember_within_seconds);
        let before = self.service_now().minus_micros(remember);
        let (service, mut call) = self.service_call(0);
        service.forget_settled(before, &mut call);
        self.forget_locks();
    }

    fn drift(&mut self, number: u8, drift: Drift) {
        let now = self.database_now(number);
        let settings = self.settings.clone();
        let Some(cell) = self.cell_mut(number) else { return };
        let (id, after) = match drift {
            Drift::Insert(name) => (cell.database.allocate_key(), Some(name)),
            Drift::Rename { row, name } => (row, Some(name)),
            Drift::Delete(row) => (row, None),
        };
        let before = row_by_id(cell.database.rows(), id).map(|row| row.name);
        let row = after.map(|name| Row { id, name, updated_at: now, is_stray: true });
        cell.database.apply(id, row, now, &settings);
        self.ground_truth.mark_overtaken(number);
        [before, after].into_iter().flatten().for_each(|name| self.effects.name(name));
    }

    fn database_now(&self, cell: u8) -> Timestamp {
        self.cell(cell).map_or(Timestamp::MIN, |cell| cell.database.now(START, self.now))
    }
}

/// Returns true if a worker has an open transaction, or has sent a COMMIT that the database has not
/// answered.
fn is_connected(cell: &Cell, worker: u8) -> bool {
    let transactions = cell.database.transactions();
    transactions.iter().any(|tx| tx.worker == worker && tx.state != TransactionState::Orphaned)
}

fn nth_cycled<T: Copy + Default>(list: &[T], at: usize) -> T {
    at.checked_rem(list.len()).and_then(|at| list.get(at)).copied().unwrap_or_default()
}

#[cfg(test)]
use leasehold_core::lease::Outcome;

/// A change to the world that no event can make. Tests make such changes to prove that the checks
/// find a broken world.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tampering {
    /// The service loses the claim of the name with this number.
    DropClaim(u8),
    /// The claim of a name, the first number, moves to another cell, the second number.
    GiveClaim(u8, u8),
    /// The claim of the first name replaces the claim of the second name.
    CopyClaim(u8, u8),
    /// A cell, the first number, gets a row with a name, the second number.
    AddRow(u8, u8),
    /// A cell, the first number, loses the row with this primary key, as if a save had deleted it.
    DropRow(u8, u32),
    /// The true history of a lease shows this outcome at the service.
    Settle(LeaseId, Outcome),
    /// The true history of a lease shows that its local transaction was not committed.
    Uncommit(LeaseId),
    /// The service loses the row of a lease.
    DropLease(LeaseId),
    /// The stored answer of every idempotency key has a wrong fence.
    RenumberReplays,
    /// The effects of the event show that the service has given this answer.
    Answer(crate::effects::SettleAnswer),
}

#[cfg(test)]
impl World {
    pub(crate) fn tamper(&mut self, tampering: Tampering) {
        use leasehold_core::claim::Claim;
        use leasehold_core::lease::Replay;
        use leasehold_core::rows::Changes;
        let state = self.service.state();
        let claim = |name: u8| state.claims[self.names.key(name).unwrap()].clone();
        let key = |name: u8| self.names.key(name).unwrap().clone();
        let mut changes = Changes::default();
        self.effects.clear();
        match tampering {
            Tampering::DropClaim(name) => changes.claims.push((key(name), None)),
            Tampering::GiveClaim(name, cell) => {
                changes.claims.push((key(name), Some(Claim { owner: CellId(cell.into()), ..claim(name) })));
            }
            Tampering::CopyClaim(from, to) => changes.claims.push((key(to), Some(claim(from)))),
            Tampering::AddRow(cell, name) => {
                let row = Row { id: 9, name, updated_at: Timestamp::MIN, is_stray: false };
                let settings = self.settings.clone();
                self.cell_mut(cell).unwrap().database.apply(9, Some(row), Timestamp::MIN, &settings);
                self.effects.name(name);
            }
            Tampering::DropRow(cell, row) => {
                let settings = self.settings.clone();
                let database = &mut self.cell_mut(cell).unwrap().database;
                let name = row_by_id(database.rows(), row).unwrap().name;
                database.apply(row, None, Timestamp::MIN, &settings);
                self.effects.name(name);
            }
            Tampering::Settle(lease, outcome) => {
                self.ground_truth.lease_mut(lease).unwrap().settled = Some((outcome, Timestamp::MIN));
                self.effects.leases.push(lease);
            }
            Tampering::Uncommit(lease) => {
                self.ground_truth.lease_mut(lease).unwrap().is_committed = false;
                self.effects.leases.push(lease);
            }
            Tampering::DropLease(lease) => {
                changes.leases.push((lease, None));
                self.effects.leases.push(lease);
                let held = state.leases[&lease].claims().iter().filter_map(|key| self.names.name(key));
                held.collect::<Vec<_>>().into_iter().for_each(|name| self.effects.name(name));
            }
            Tampering::RenumberReplays => {
                let renumbered = |replay: Replay| Replay { fence: replay.fence.next(), ..replay };
                changes.replays = state.replays.into_iter().map(|(key, used)| (key, Some(renumbered(used)))).collect();
                self.effects.leases.extend(state.leases.into_keys());
            }
            Tampering::Answer(answered) => self.effects.settle_answer = Some(answered),
        }
        let names: Vec<_> = changes.claims.iter().filter_map(|(key, _)| self.names.name(key)).collect();
        names.into_iter().for_each(|name| self.effects.name(name));
        let holds = changes.claims.iter().filter_map(|(key, _)| lease_holding(self.service.claim(key)));
        self.effects.leases.extend(holds);
        self.service.write(changes);
    }
}

#[cfg(test)]
fn lease_holding(claim: Option<&leasehold_core::claim::Claim>) -> Option<LeaseId> {
    claim?.hold().map(|hold| hold.lease)
}
