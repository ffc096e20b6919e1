//! The state of a world in the form that a page draws: plain values, names instead of numbers, and
//! the changes made by the last event.

mod locks;
mod queues;

use std::fmt::Debug;

use leasehold_core::claim::{Claim, Record};
use leasehold_core::lease::LeaseId;
use leasehold_core::reconcile::{Step, Summary};
use leasehold_core::table::{
    CLAIM, ClaimStatus, Edge, LEASE, LOCK, LeaseStatus, LockEvent, LockStatus, REQUEST, RequestEvent, RequestStatus,
    SESSION,
};
use leasehold_core::time::Timestamp;
use leasehold_core::verify;
use serde::Serialize;

use crate::database::{TransactionState, Write};
use crate::effects::Transition;
use crate::event::Change;
use crate::lock_names::lock_key;
use crate::message_text;
use crate::names::{lease_id, row_id};
use crate::network::{Message, MessageId};
use crate::process::Process;
use crate::settings::Mode;
use crate::verifier::Run;
use crate::violation::Violation;
use crate::worker::{Phase, SaveResult};
use crate::world::{Cell, START, World};

pub use locks::{ClientView, LockView, LocksView, SessionView, Standing};
pub use queues::{FrontView, LaneView, RequestView};

/// The state of a world, for a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// The number of events that have happened in the world.
    pub events: u64,
    /// The world's clock, in microseconds since the start.
    pub now_micros: u64,
    /// Every name of the world, by number.
    pub names: Vec<String>,
    /// True if the service accepts requests.
    pub is_up: bool,
    /// The claims of the service.
    pub claims: Vec<ClaimView>,
    /// The leases of the service.
    pub leases: Vec<LeaseView>,
    /// The leases that the service will roll back because no caller can know them, in the order of
    /// their rollbacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub take_backs: Vec<LeaseId>,
    /// The cells, in the order of their numbers.
    pub cells: Vec<CellView>,
    /// The messages in flight, the oldest first.
    pub messages: Vec<MessageView>,
    /// The transitions of claims and leases that the last event caused, as the engine's tables name
    /// them.
    pub fired: Vec<TransitionView>,
    /// The changes made by the last event.
    pub changed: Changed,
    /// The sessions and locks, `None` in a world of claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<LocksView>,
    /// The first violation in the world and its text, `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<(Violation, String)>,
}

/// A claim of the service, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimView {
    /// The name that is claimed.
    pub name: String,
    /// The number of the cell that owns the claim.
    pub cell: i64,
    /// The status of the claim, as the engine's table names it.
    pub status: String,
    /// The primary key of the row that the claim comes from; for a replace, the new row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// For a replace, the primary key of the row that the claim came from before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_before: Option<u32>,
    /// The lease that holds the claim, `None` if no lease does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The time of the claim's last change, in microseconds since the start.
    pub updated_micros: u64,
}

/// A lease of the service, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseView {
    /// The id of the lease.
    pub lease: LeaseId,
    /// The number of the lease, from 1.
    pub number: u32,
    /// The number of the cell that began the lease.
    pub cell: i64,
    /// The status of the lease, as the engine's table names it.
    pub status: String,
    /// The fence of the lease.
    pub fence: u64,
    /// The age of the lease in microseconds, by the service's clock.
    pub age_micros: u64,
    /// The names whose claims the lease holds.
    pub names: Vec<String>,
}

/// A cell of the world, for a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellView {
    /// The number of the cell.
    pub cell: u8,
    /// The point of a save at which the cell begins the save's lease.
    pub mode: Mode,
    /// True if the cell is cut off from the service.
    pub is_cut_off: bool,
    /// The number of microseconds that the database's clock is ahead of the world's clock.
    pub clock_ahead_micros: i64,
    /// The committed rows in the cell's database.
    pub rows: Vec<RowView>,
    /// The committed lease rows in the cell's database.
    pub lease_rows: Vec<LeaseRowView>,
    /// The transactions in the cell's database that have not ended.
    pub transactions: Vec<TransactionView>,
    /// The cell's workers, by number.
    pub workers: Vec<WorkerView>,
    /// The cell's reconcilers, by number.
    pub reconcilers: Vec<ReconcilerView>,
    /// The cell's verifier.
    pub verifier: VerifierView,
    /// The cell's client of locks, `None` in a world of claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientView>,
    /// The cell's front, `None` unless the world has a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front: Option<FrontView>,
}

/// A row of a cell's database, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowView {
    /// The primary key of the row.
    pub row: u32,
    /// The name of the row.
    pub name: String,
    /// The number of microseconds since the row's last write, by the database's clock.
    pub age_micros: u64,
    /// True if plain SQL wrote the row and bypassed the claims.
    pub is_stray: bool,
}

/// A lease row of a cell's database, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseRowView {
    /// The lease that the row belongs to.
    pub lease: LeaseId,
    /// The number of microseconds since the begin of the lease, by the database's clock.
    pub age_micros: u64,
}

/// A transaction that has not ended, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TransactionView {
    /// The number of the worker that began the transaction.
    pub worker: u8,
    /// The state of the transaction: `open`, `committing` or `orphaned`.
    pub state: &'static str,
    /// The changes of the transaction, each as primary key, name before and name after.
    pub writes: Vec<(u32, Option<String>, Option<String>)>,
    /// The lease whose lease row the transaction writes, `None` if it writes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
}

/// A worker of a cell, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerView {
    /// The change that the worker is saving, `None` while it is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// The next action of the worker's save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The lease of the worker's save, `None` until it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// True if the worker can take a step without waiting.
    pub is_ready: bool,
    /// The result of the worker's last save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<SaveResult>,
}

/// A reconciler of a cell, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReconcilerView {
    /// The next step of the reconciler's run, `None` while it is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// True if the reconciler waits for the service.
    pub is_waiting: bool,
    /// The summary of the reconciler's last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Summary>,
}

/// A verifier of a cell, for a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifierView {
    /// The name of the next action of the verifier's run, `None` while it is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<&'static str>,
    /// True if the verifier waits for the service.
    pub is_waiting: bool,
    /// The report of the verifier's last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<verify::Report>,
}

/// A message in flight, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageView {
    /// The id of the message, as events refer to it.
    pub id: MessageId,
    /// The number of the cell whose process made the call.
    pub cell: u8,
    /// The process that made the call.
    pub process: Process,
    /// True if the message goes from the service to the cell.
    pub is_answer: bool,
    /// The copy number of the message: 0 for the original.
    pub copy: u8,
    /// The content of the message in a few words.
    pub says: String,
    /// The time at which the message was sent, in microseconds since the start.
    pub sent_micros: u64,
    /// True if the message can arrive now: its cell is not cut off from the service.
    pub can_arrive: bool,
}

/// A transition of a claim or a lease, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TransitionView {
    /// The machine that made the transition: `claim`, `lease`, `session`, `lock` or `request`.
    pub machine: &'static str,
    /// The name whose claim changed, the id of the lease or session that changed, the key of the lock, or
    /// the number of the request.
    pub of: String,
    /// The position of the transition in the engine's table; `None` if only a rule that is off
    /// allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<usize>,
    /// The state before the transition.
    pub from: String,
    /// The event that caused the transition.
    pub event: String,
    /// The state after the transition.
    pub to: String,
}

/// An edge of one of the engine's transition tables, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EdgeView {
    /// The state before the transition.
    pub from: String,
    /// The event that causes the transition.
    pub event: String,
    /// The state after the transition.
    pub to: String,
}

/// The engine's transition tables, for a page. [`TransitionView::edge`] is a position in one of
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tables {
    /// The edges between the states of a claim.
    pub claim: Vec<EdgeView>,
    /// The edges between the states of a lease.
    pub lease: Vec<EdgeView>,
    /// The edges between the states of a session.
    pub session: Vec<EdgeView>,
    /// The edges between the states of a lock.
    pub lock: Vec<EdgeView>,
    /// The edges between the states of a request.
    pub request: Vec<EdgeView>,
}

impl Tables {
    /// Returns the engine's tables.
    pub fn new() -> Self {
        Self {
            claim: CLAIM.iter().map(EdgeView::of).collect(),
            lease: LEASE.iter().map(EdgeView::of).collect(),
            session: SESSION.iter().map(EdgeView::of).collect(),
            lock: lock_edges().map(EdgeView::of).collect(),
            request: request_edges().map(EdgeView::of).collect(),
        }
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the name of a state or an event. It takes any type, so that the wasm file has this code once.
fn variant_name(value: &dyn Debug) -> String {
    format!("{value:?}")
}

impl EdgeView {
    fn of<S: Debug, E: Debug>(edge: &Edge<S, E>) -> Self {
        Self { from: variant_name(&edge.from), event: variant_name(&edge.event), to: variant_name(&edge.to) }
    }
}

/// The changes made by the last event, for a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// The names whose claims or rows have changed.
    pub names: Vec<String>,
    /// The leases that have changed at the service or in a cell's database.
    pub leases: Vec<LeaseId>,
    /// The ids of the messages that were sent.
    pub sent: Vec<MessageId>,
}

impl View {
    /// Returns the present state of a world.
    pub fn of(world: &World) -> Self {
        let effects = world.effects();
        let name = |name: u8| world.names().spelling(name).to_owned();
        Self {
            events: world.events(),
            now_micros: world.now() - START,
            names: (0..world.names().len()).map(name).collect(),
            is_up: world.service().is_up,
            claims: claims(world),
            leases: (1..=world.ground_truth().len()).filter_map(|number| lease(world, number)).collect(),
            take_backs: world.service().undelivered().take_backs().collect(),
            cells: (1..).zip(world.cells()).map(|(number, cell)| self::cell(world, number, cell)).collect(),
            messages: world.network().messages().iter().map(|message| self::message(world, message)).collect(),
            fired: effects.transitions.iter().map(|transition| self::transition(world, transition)).collect(),
            changed: Changed {
                names: effects.names.iter().map(|effects| name(*effects)).collect(),
                leases: effects.leases.to_vec(),
                sent: effects.sent.to_vec(),
            },
            locks: locks::locks(world),
            violation: world.violation().map(|violation| (violation.clone(), violation.to_string())),
        }
    }
}

fn since_start(at: Timestamp) -> u64 {
    at.micros_since(Timestamp::from_micros(START))
}

fn claims(world: &World) -> Vec<ClaimView> {
    let names = 0..world.names().len();
    let claim = |name: u8| Some((name, world.service().claim(world.names().key(name)?)?));
    let view = |(name, claim): (u8, &Claim)| {
        let row = |record: &Record| row_id(&record.source.id);
        ClaimView {
            name: world.names().spelling(name).to_owned(),
            cell: claim.owner.0,
            status: variant_name(&ClaimStatus::of(Some(claim))),
            row: row(claim.record()),
            row_before: claim.records().nth(1).and_then(row),
            lease: claim.hold().map(|hold| hold.lease),
            updated_micros: since_start(claim.record().updated_at),
        }
    };
    names.filter_map(claim).map(view).collect()
}

fn lease(world: &World, number: u32) -> Option<LeaseView> {
    let id = lease_id(number);
    let lease = world.service().lease(id)?;
    let name = |key| Some(world.names().spelling(world.names().name(key)?).to_owned());
    Some(LeaseView {
        lease: id,
        number,
        cell: lease.cell.0,
        status: variant_name(&LeaseStatus::of(Some(lease))),
        fence: lease.fence.0,
        age_micros: world.service_now().micros_since(lease.created_at),
        names: lease.claims().iter().filter_map(name).collect(),
    })
}

fn cell(world: &World, number: u8, cell: &Cell) -> CellView {
    let database = &cell.database;
    let now = database.now(START, world.now());
    let name = |name: u8| world.names().spelling(name).to_owned();
    let write = |write: &Write| (write.row, write.before.map(name), write.after.map(name));
    CellView {
        cell: number,
        mode: cell.mode,
        is_cut_off: cell.is_cut_off,
        clock_ahead_micros: now.as_micros().cast_signed() - world.now().cast_signed(),
        rows: database
            .rows()
            .iter()
            .map(|row| RowView {
                row: row.id,
                name: name(row.name),
                age_micros: now.micros_since(row.updated_at),
                is_stray: row.is_stray,
            })
            .collect(),
        lease_rows: database
            .lease_rows()
            .iter()
            .map(|row| LeaseRowView { lease: row.lease, age_micros: now.micros_since(row.created_at) })
            .collect(),
        transactions: database
            .transactions()
            .iter()
            .map(|tx| TransactionView {
                worker: tx.worker,
                state: match tx.state {
                    TransactionState::Open => "open",
                    TransactionState::Committing => "committing",
                    TransactionState::Orphaned => "orphaned",
                },
                writes: tx.writes.iter().map(write).collect(),
                lease: tx.lease.map(|row| row.lease),
            })
            .collect(),
        workers: workers(cell),
        reconcilers: reconcilers(cell),
        verifier: VerifierView {
            step: cell.verifier.run.as_deref().map(Run::step_name),
            is_waiting: cell.verifier.calls.is_waiting,
            last: cell.verifier.last.clone(),
        },
        client: cell
            .client
            .as_ref()
            .zip(world.settings().locks)
            .map(|(client, terms)| locks::client(client, now.as_micros(), terms)),
        front: cell.front.as_ref().map(queues::front),
    }
}

fn workers(cell: &Cell) -> Vec<WorkerView> {
    let workers = (0..).zip(&cell.workers).map(|(number, worker)| WorkerView {
        change: worker.save.as_ref().map(|save| save.change),
        phase: worker.save.as_ref().map(|save| save.phase),
        lease: worker.save.as_ref().and_then(|save| save.lease),
        is_ready: worker.is_ready(number, &cell.database),
        told: worker.last_result,
    });
    workers.collect()
}

fn reconcilers(cell: &Cell) -> Vec<ReconcilerView> {
    let reconcilers = cell.reconcilers.iter().map(|reconciler| ReconcilerView {
        step: reconciler.run.as_ref().map(leasehold_core::reconcile::Reconciliation::step),
        is_waiting: reconciler.calls.is_waiting,
        last: reconciler.last.clone(),
    });
    reconcilers.collect()
}

fn message(world: &World, message: &Message) -> MessageView {
    let id = message.id;
    MessageView {
        id,
        cell: id.cell(),
        process: id.process(),
        is_answer: id.is_answer(),
        copy: id.copy_number(),
        says: message_text::payload_text(&message.payload),
        sent_micros: since_start(Timestamp::from_micros(message.sent_at)),
        can_arrive: world.is_possible(crate::event::Event::Deliver(id)),
    }
}

/// The edges of a lock that the world plays: it reaps no namespace, and shares no lock.
fn lock_edges() -> impl Iterator<Item = &'static Edge<LockStatus, LockEvent>> {
    let is_played = |status| !matches!(status, LockStatus::Orphaned | LockStatus::SetAside | LockStatus::Divided);
    LOCK.iter().filter(move |edge| is_played(edge.from) && is_played(edge.to))
}

/// The edges of a request that the world plays: it withdraws, resubmits and forgets no request.
fn request_edges() -> impl Iterator<Item = &'static Edge<RequestStatus, RequestEvent>> {
    use RequestEvent::{Forget, Resubmit, Withdraw};
    REQUEST.iter().filter(|edge| !matches!(edge.event, Withdraw | Resubmit | Forget))
}

pub(crate) fn transition(world: &World, transition: &Transition) -> TransitionView {
    match *transition {
        Transition::Claim { name, from, event, to } => TransitionView {
            machine: "claim",
            of: world.names().spelling(name).to_owned(),
            edge: CLAIM.iter().position(|edge| (edge.from, edge.event, edge.to) == (from, event, to)),
            from: variant_name(&from),
            event: variant_name(&event),
            to: variant_name(&to),
        },
        Transition::Lease { lease, from, event, to } => TransitionView {
            machine: "lease",
            of: lease.to_string(),
            edge: LEASE.iter().position(|edge| (edge.from, edge.event, edge.to) == (from, event, to)),
            from: variant_name(&from),
            event: variant_name(&event),
            to: variant_name(&to),
        },
        Transition::Session { session, from, event, to } => TransitionView {
            machine: "session",
            of: session.to_string(),
            edge: SESSION.iter().position(|edge| (edge.from, edge.event, edge.to) == (from, event, to)),
            from: variant_name(&from),
            event: variant_name(&event),
            to: variant_name(&to),
        },
        Transition::Lock { lock, from, event, to } => TransitionView {
            machine: "lock",
            of: lock_key(lock).to_owned(),
            edge: lock_edges().position(|edge| (edge.from, edge.event, edge.to) == (from, event, to)),
            from: variant_name(&from),
            event: variant_name(&event),
            to: variant_name(&to),
        },
        Transition::Request { request, from, event, to } => TransitionView {
            machine: "request",
            of: request.to_string(),
            edge: request_edges().position(|edge| (edge.from, edge.event, edge.to) == (from, event, to)),
            from: variant_name(&from),
            event: variant_name(&event),
            to: variant_name(&to),
        },
    }
}
