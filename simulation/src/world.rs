//! The world: cells with their databases and processes, the network, the service, one clock. It changes by
//! [`World::apply`] alone, one event at a time, and every event is checked.

use std::sync::Arc;

use leasehold_core::claim::CellId;
use leasehold_core::time::Timestamp;

use crate::check::{self, Violation};
use crate::database::{Database, Row, Transaction, TransactionState, Write, find, micros};
use crate::event::{Change, Drift, Event, Process};
use crate::ghost::Ghosts;
use crate::names::Names;
use crate::network::{Answer, MessageId, Network, Payload};
use crate::outside::{Line, Outside};
use crate::reconciler::Reconciler;
use crate::service::{Call, Service};
use crate::settings::{BadSettings, Mode, Settings};
use crate::touched::Touched;
use crate::verifier::Verifier;
use crate::worker::Worker;

/// The world's clock at the start: a day in the year 2027, in microseconds since 1970.
pub const START: u64 = 1_800_000_000_000_000;
/// The latest time that the world comes to: 2100.
const END: u64 = 4_102_444_800_000_000;
/// Nobody's worker: statements outside of transactions.
const NOBODY: u8 = u8::MAX;

/// A cell.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its database.
    pub database: Database,
    /// Its workers, by number.
    pub workers: Vec<Worker>,
    /// Its reconcilers, by number.
    pub reconcilers: Vec<Reconciler>,
    /// Its verifier.
    pub verifier: Verifier,
    /// Whether it is cut off from the service.
    pub is_cut_off: bool,
    /// When it begins leases.
    pub mode: Mode,
}

/// An event that can't happen as the world stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} can't happen as the world stands")]
pub struct Impossible(pub Event);

/// A world.
#[derive(Clone, Debug)]
pub struct World {
    settings: Arc<Settings>,
    names: Arc<Names>,
    now: u64,
    events: u64,
    saves: u32,
    service: Service,
    network: Network,
    cells: Vec<Cell>,
    ghosts: Ghosts,
    touched: Touched,
    violation: Option<Violation>,
}

impl World {
    /// A world in which nothing has happened yet.
    ///
    /// # Errors
    /// No world can be made of these settings.
    pub fn new(settings: Settings) -> Result<Self, BadSettings> {
        settings.check()?;
        let of = |cell: u8| usize::from(cell);
        let cells = (0..settings.cells).map(|cell| Cell {
            database: Database::new(cycled(&settings.clocks, of(cell))),
            workers: vec![Worker::default(); of(settings.workers)],
            reconcilers: vec![Reconciler::default(); of(settings.reconcilers)],
            verifier: Verifier::default(),
            is_cut_off: false,
            mode: cycled(&settings.modes, of(cell)),
        });
        Ok(Self {
            cells: cells.collect(),
            names: Arc::new(Names::new(settings.names, settings.cells)),
            settings: Arc::new(settings),
            now: START,
            events: 0,
            saves: 0,
            service: Service::default(),
            network: Network::default(),
            ghosts: Ghosts::default(),
            touched: Touched::default(),
            violation: None,
        })
    }

    /// What it is made of.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The names that there are to claim.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The clock, in microseconds since 1970.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The service's clock, which is the world's.
    pub fn service_now(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    /// How many events have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many saves users have asked for.
    pub fn saves(&self) -> u32 {
        self.saves
    }

    /// The service.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// What is under way.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The cells; the first is number 1.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The cells' databases.
    pub fn databases(&self) -> impl Iterator<Item = &Database> {
        self.cells.iter().map(|cell| &cell.database)
    }

    /// The truth about every lease.
    pub fn ghosts(&self) -> &Ghosts {
        &self.ghosts
    }

    /// What the last event has changed.
    pub fn touched(&self) -> &Touched {
        &self.touched
    }

    /// What does not hold since some event; the first such thing.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The cell with a number.
    pub fn cell(&self, number: u8) -> Option<&Cell> {
        self.cells.get(usize::from(number.checked_sub(1)?))
    }

    fn cell_mut(&mut self, number: u8) -> Option<&mut Cell> {
        self.cells.get_mut(usize::from(number.checked_sub(1)?))
    }

    /// Lets an event happen, and checks what must hold after it.
    ///
    /// # Errors
    /// It can't happen as the world stands; nothing has changed.
    pub fn apply(&mut self, event: Event) -> Result<(), Impossible> {
        if !self.is_possible(event) {
            return Err(Impossible(event));
        }
        self.touched.clear();
        self.events += 1;
        self.now += u64::from(self.settings.step_micros);
        self.happen(event);
        if self.violation.is_none() {
            self.violation = check::touched(self).err();
        }
        Ok(())
    }

    /// Whether an event can happen as the world stands.
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
            Event::Deliver(id) => self.is_under_way(id) && self.cell(id.cell()).is_some_and(|cell| !cell.is_cut_off),
            Event::Drop(id) => self.is_under_way(id),
            Event::Duplicate(id) => self.is_under_way(id) && id.copy_number() == 0,
            Event::TimeOut { cell, process } => self.line(cell, process).is_some_and(|line| line.is_waiting),
            Event::Crash { cell, process } => self.is_busy(cell, process),
            Event::Disconnect { cell, worker } => self.cell(cell).is_some_and(|cell| is_connected(cell, worker)),
            Event::RestartDatabase { cell } => {
                self.cell(cell).is_some_and(|cell| (0..self.settings.workers).any(|worker| is_connected(cell, worker)))
            }
            Event::Partition { cell } => self.cell(cell).is_some_and(|cell| !cell.is_cut_off),
            Event::Heal { cell } => self.cell(cell).is_some_and(|cell| cell.is_cut_off),
            Event::StopService => self.service.is_up,
            Event::StartService => !self.service.is_up,
            Event::Replicate { cell } => self.cell(cell).is_some_and(|cell| cell.database.is_behind()),
            Event::Forget => self.service.is_up,
            Event::Drift { cell, drift } => self.cell(cell).is_some_and(|cell| self.can_drift(&cell.database, drift)),
            Event::Wait { seconds } => seconds > 0 && self.now + micros(seconds) < END,
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

    /// A statement outside a transaction waits for locks as any other does.
    fn can_drift(&self, database: &Database, drift: Drift) -> bool {
        let is_new = |name| name < self.names.len() && database.row_named(name).is_none();
        let named = |id| find(database.rows(), id).map(|row| row.name);
        let (row, before, after) = match drift {
            Drift::Insert(name) if is_new(name) => (0, None, Some(name)),
            Drift::Rename { row, name } if is_new(name) && named(row).is_some() => (row, named(row), Some(name)),
            Drift::Delete(row) if named(row).is_some() => (row, named(row), None),
            Drift::Insert(_) | Drift::Rename { .. } | Drift::Delete(_) => return false,
        };
        database.is_free(NOBODY, &[Write { row, before, after }])
    }

    fn worker(&self, cell: u8, worker: u8) -> Option<&Worker> {
        self.cell(cell)?.workers.get(usize::from(worker))
    }

    fn line(&self, cell: u8, process: Process) -> Option<Line> {
        let cell = self.cell(cell)?;
        Some(match process {
            Process::Worker(number) => cell.workers.get(usize::from(number))?.line,
            Process::Reconciler(number) => cell.reconcilers.get(usize::from(number))?.line,
            Process::Verifier => cell.verifier.line,
        })
    }

    /// How many calls a process has made.
    pub fn calls(&self, cell: u8, process: Process) -> u32 {
        self.line(cell, process).map_or(0, |line| line.made)
    }

    /// Whether a process can take a step by itself.
    pub fn is_ready(&self, cell: u8, process: Process) -> bool {
        let Some(at) = self.cell(cell) else { return false };
        match process {
            Process::Worker(number) => {
                at.workers.get(usize::from(number)).is_some_and(|worker| worker.is_ready(number, &at.database))
            }
            Process::Reconciler(_) | Process::Verifier => self.line(cell, process).is_some_and(|line| !line.is_waiting),
        }
    }

    /// Whether a process is at something.
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
        }
    }

    fn is_under_way(&self, id: MessageId) -> bool {
        self.network.messages().iter().any(|message| message.id == id)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Save { cell, worker, change } => self.save(cell, worker, change),
            Event::Step { cell, process } => self.step(cell, process),
            Event::FinishCommit { cell, worker } => self.finish_commit(cell, worker),
            Event::LoseCommit { cell, worker } => {
                let lost = self.cell_mut(cell).and_then(|cell| cell.database.lose_commit(worker));
                lost.iter().for_each(|tx| self.touch(tx));
            }
            Event::Deliver(id) => self.deliver(id),
            Event::Drop(id) => _ = self.network.take(id),
            Event::Duplicate(id) => self.touched.sent = self.network.double(id),
            Event::TimeOut { cell, process } => self.time_out(cell, process),
            Event::Crash { cell, process } => self.crash(cell, process),
            Event::Disconnect { cell, worker } => self.disconnect(cell, worker),
            Event::RestartDatabase { cell } => {
                (0..self.settings.workers).for_each(|worker| self.disconnect(cell, worker));
            }
            Event::Partition { cell } => self.cut_off(cell, true),
            Event::Heal { cell } => self.cut_off(cell, false),
            Event::StopService => {
                self.service.is_up = false;
                self.network.lose_requests();
            }
            Event::StartService => self.service.is_up = true,
            Event::Replicate { cell } => self.cell_mut(cell).into_iter().for_each(|cell| cell.database.replicate()),
            Event::Forget => self.forget(),
            Event::Drift { cell, drift } => self.drift(cell, drift),
            Event::Wait { seconds } => self.now += micros(seconds),
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
        keys.iter_mut().take(new_rows).for_each(|key| *key = cell.database.draw_key());
        if let Some(worker) = cell.workers.get_mut(usize::from(worker)) {
            worker.start(number, change, keys);
        }
    }

    fn step(&mut self, number: u8, process: Process) {
        let Self { cells, network, ghosts, touched, settings, names, now, .. } = self;
        let at = usize::from(number).checked_sub(1);
        let Some(cell) = at.and_then(|at| cells.get_mut(at)) else { return };
        let Cell { database, workers, reconcilers, verifier, mode, .. } = cell;
        let database_now = database.now(START, *now);
        let mut outside =
            Outside { now: *now, cell: number, database, database_now, network, ghosts, touched, settings, names };
        match process {
            Process::Worker(number) => {
                let worker = workers.get_mut(usize::from(number)).into_iter();
                worker.for_each(|worker| worker.step(number, &mut outside, *mode));
            }
            Process::Reconciler(number) => {
                let reconciler = reconcilers.get_mut(usize::from(number)).into_iter();
                reconciler.for_each(|reconciler| reconciler.step(number, &mut outside));
            }
            Process::Verifier => {
                verifier.step(&mut outside);
                self.adopt(number);
            }
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
        self.touched.refused = result.err();
        if let (Ok(()), Some(lease)) = (result, tx.lease)
            && let Some(ghost) = self.ghosts.lease_mut(lease.lease)
        {
            ghost.is_committed = true;
        }
        self.touch(&tx);
    }

    /// What a transaction that has ended may have changed.
    fn touch(&mut self, tx: &Transaction) {
        let names = tx.writes.iter().flat_map(|write| [write.before, write.after]);
        names.flatten().for_each(|name| self.touched.name(name));
        self.touched.leases.extend(tx.lease.map(|row| row.lease));
    }

    fn deliver(&mut self, id: MessageId) {
        match self.network.take(id).map(|message| message.payload) {
            None => {}
            Some(Payload::Answer(answer)) => self.hand_over(id, &answer),
            Some(Payload::Request(request)) => {
                let mut call = Call {
                    cell: id.cell(),
                    now: Timestamp::from_micros(self.now),
                    rules: self.settings.rules_off,
                    names: &self.names,
                    ghosts: &mut self.ghosts,
                    touched: &mut self.touched,
                };
                let answer = self.service.answer(&request, &mut call);
                self.network.send(id.answer(), Payload::Answer(answer), self.now);
                self.touched.sent = Some(id.answer());
            }
        }
    }

    /// Once a correction's lease has its row, its lease will be committed: what it claims for a row is promised to the
    /// row from here on.
    fn adopt(&mut self, cell: u8) {
        for name in 0..self.names.len() {
            let Some(claim) = self.names.key(name).and_then(|key| self.service.claim(key)) else { continue };
            let Some(row) = self.ghosts.promised(claim).filter(|_| claim.owner == CellId(cell.into())) else {
                continue;
            };
            self.touched.name(name);
            self.cell_mut(cell).into_iter().for_each(|cell| cell.database.adopt(row, name));
        }
    }

    /// Whether a process waits for this message, as the answer to its last call.
    pub fn is_awaited(&self, id: MessageId) -> bool {
        // Numbers of calls begin again after a million.
        let last = |line: Line| MessageId::request(id.cell(), id.process(), line.made).call();
        let is_last = |line: Line| line.is_waiting && last(line) == id.call();
        id.is_answer() && self.line(id.cell(), id.process()).is_some_and(is_last)
    }

    /// Hands an answer to the process that called, if it still waits for it.
    fn hand_over(&mut self, id: MessageId, answer: &Answer) {
        if !self.is_awaited(id) {
            return;
        }
        if let Answer::Refused { is_own_obstacle: true, .. } = answer {
            self.touched.is_own_obstacle = true;
        }
        let settings = self.settings.clone();
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
        }
    }

    fn time_out(&mut self, cell: u8, process: Process) {
        let Some(cell) = self.cell_mut(cell) else { return };
        match process {
            Process::Worker(number) => {
                cell.workers.get_mut(usize::from(number)).into_iter().for_each(Worker::time_out);
            }
            Process::Reconciler(number) => {
                cell.reconcilers.get_mut(usize::from(number)).into_iter().for_each(Reconciler::time_out);
            }
            Process::Verifier => cell.verifier.time_out(),
        }
    }

    fn crash(&mut self, cell: u8, process: Process) {
        let Some(cell) = self.cell_mut(cell) else { return };
        match process {
            Process::Worker(number) => {
                cell.database.lose_connection(number);
                cell.workers.get_mut(usize::from(number)).into_iter().for_each(Worker::crash);
            }
            Process::Reconciler(number) => {
                cell.reconcilers.get_mut(usize::from(number)).into_iter().for_each(Reconciler::crash);
            }
            Process::Verifier => cell.verifier.crash(),
        }
    }

    fn disconnect(&mut self, cell: u8, worker: u8) {
        let Some(cell) = self.cell_mut(cell) else { return };
        if is_connected(cell, worker) {
            cell.database.lose_connection(worker);
            cell.workers.get_mut(usize::from(worker)).into_iter().for_each(Worker::disconnect);
        }
    }

    fn cut_off(&mut self, cell: u8, is_cut_off: bool) {
        self.cell_mut(cell).into_iter().for_each(|cell| cell.is_cut_off = is_cut_off);
    }

    fn forget(&mut self) {
        let now = Timestamp::from_micros(self.now);
        let mut call = Call {
            cell: 0,
            now,
            rules: self.settings.rules_off,
            names: &self.names,
            ghosts: &mut self.ghosts,
            touched: &mut self.touched,
        };
        let remember = micros(self.settings.thresholds.remember_within_seconds);
        self.service.forget_settled(now.minus_micros(remember), &mut call);
    }

    fn drift(&mut self, number: u8, drift: Drift) {
        let now = self.database_now(number);
        let settings = self.settings.clone();
        let Some(cell) = self.cell_mut(number) else { return };
        let (id, after) = match drift {
            Drift::Insert(name) => (cell.database.draw_key(), Some(name)),
            Drift::Rename { row, name } => (row, Some(name)),
            Drift::Delete(row) => (row, None),
        };
        let before = find(cell.database.rows(), id).map(|row| row.name);
        let row = after.map(|name| Row { id, name, updated_at: now, is_stray: true });
        cell.database.apply(id, row, now, &settings);
        self.ghosts.overtake(number);
        [before, after].into_iter().flatten().for_each(|name| self.touched.name(name));
    }

    fn database_now(&self, cell: u8) -> Timestamp {
        self.cell(cell).map_or(Timestamp::MIN, |cell| cell.database.now(START, self.now))
    }
}

/// Whether a worker has a transaction open, or a COMMIT sent.
fn is_connected(cell: &Cell, worker: u8) -> bool {
    let transactions = cell.database.transactions();
    transactions.iter().any(|tx| tx.worker == worker && tx.state != TransactionState::Orphaned)
}

fn cycled<T: Copy + Default>(list: &[T], at: usize) -> T {
    at.checked_rem(list.len()).and_then(|at| list.get(at)).copied().unwrap_or_default()
}

#[cfg(test)]
use leasehold_core::lease::{LeaseId, Outcome};

/// What no event can do: tests break the world with it, to see that the checks bite.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tampering {
    /// The service loses a name's claim.
    DropClaim(u8),
    /// A name's claim goes to another cell.
    GiveClaim(u8, u8),
    /// A name's claim gets the record of another's.
    CopyClaim(u8, u8),
    /// A cell gets a row of this name.
    AddRow(u8, u8),
    /// A cell loses a row, as if a save had deleted it.
    DropRow(u8, u32),
    /// A lease is said to have ended otherwise.
    Settle(LeaseId, Outcome),
    /// A lease's local transaction is said not to have been committed.
    Uncommit(LeaseId),
    /// The service loses a lease.
    DropLease(LeaseId),
    /// Every idempotency key names another fence.
    RenumberReplays,
    /// The service is said to have answered so.
    Answer(crate::touched::Answered),
}

#[cfg(test)]
impl World {
    pub(crate) fn tamper(&mut self, tampering: Tampering) {
        use leasehold_core::claim::Claim;
        use leasehold_core::transaction::{Changes, Replay};
        let state = self.service.state();
        let claim = |name: u8| state.claims[self.names.key(name).unwrap()].clone();
        let key = |name: u8| self.names.key(name).unwrap().clone();
        let mut changes = Changes::default();
        self.touched.clear();
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
                self.touched.name(name);
            }
            Tampering::DropRow(cell, row) => {
                let settings = self.settings.clone();
                let database = &mut self.cell_mut(cell).unwrap().database;
                let name = find(database.rows(), row).unwrap().name;
                database.apply(row, None, Timestamp::MIN, &settings);
                self.touched.name(name);
            }
            Tampering::Settle(lease, outcome) => {
                self.ghosts.lease_mut(lease).unwrap().settled = Some((outcome, Timestamp::MIN));
                self.touched.leases.push(lease);
            }
            Tampering::Uncommit(lease) => {
                self.ghosts.lease_mut(lease).unwrap().is_committed = false;
                self.touched.leases.push(lease);
            }
            Tampering::DropLease(lease) => {
                changes.leases.push((lease, None));
                self.touched.leases.push(lease);
                let held = state.leases[&lease].claims().iter().filter_map(|key| self.names.name(key));
                held.collect::<Vec<_>>().into_iter().for_each(|name| self.touched.name(name));
            }
            Tampering::RenumberReplays => {
                let renumbered = |replay: Replay| Replay { fence: replay.fence.next(), ..replay };
                changes.replays = state.replays.into_iter().map(|(key, used)| (key, Some(renumbered(used)))).collect();
                self.touched.leases.extend(state.leases.into_keys());
            }
            Tampering::Answer(answered) => self.touched.answered = Some(answered),
        }
        let names: Vec<_> = changes.claims.iter().filter_map(|(key, _)| self.names.name(key)).collect();
        names.into_iter().for_each(|name| self.touched.name(name));
        let holds = changes.claims.iter().filter_map(|(key, _)| state_hold(self.service.claim(key)));
        self.touched.leases.extend(holds);
        self.service.write(changes);
    }
}

#[cfg(test)]
fn state_hold(claim: Option<&leasehold_core::claim::Claim>) -> Option<LeaseId> {
    claim?.hold().map(|hold| hold.lease)
}
