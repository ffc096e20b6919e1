//! A world as a page shows it: plain values, with names instead of numbers, and what the last event has changed.

use std::fmt::Debug;

use leasehold_core::claim::{Claim, Record};
use leasehold_core::lease::LeaseId;
use leasehold_core::reconcile::{Step, Summary};
use leasehold_core::table::{CLAIM, ClaimStatus, Edge, LEASE, LeaseStatus};
use leasehold_core::time::Timestamp;
use leasehold_core::verify;
use serde::Serialize;

use crate::check::Violation;
use crate::database::{TransactionState, Write};
use crate::event::{Change, Process};
use crate::names::{lease_id, row_of};
use crate::network::{Answer, Message, MessageId, Payload, Request};
use crate::settings::Mode;
use crate::touched::Fired;
use crate::verifier::{Run, Stage};
use crate::words::settled_words;
use crate::worker::{Phase, Told};
use crate::world::{Cell, START, World};

/// A world.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// How many events have happened.
    pub events: u64,
    /// The clock, in microseconds since the start.
    pub now_micros: u64,
    /// Every name, by number.
    pub names: Vec<String>,
    /// Whether the service serves.
    pub is_up: bool,
    /// The service's claims.
    pub claims: Vec<ClaimView>,
    /// The service's leases.
    pub leases: Vec<LeaseView>,
    /// The cells.
    pub cells: Vec<CellView>,
    /// What is under way, the oldest first.
    pub messages: Vec<MessageView>,
    /// The edges of the engine's tables that the last event has fired.
    pub fired: Vec<FiredView>,
    /// What the last event has changed.
    pub changed: Changed,
    /// What does not hold, and the same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<(Violation, String)>,
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimView {
    /// The name.
    pub name: String,
    /// Whose it is.
    pub cell: i64,
    /// Where it stands, as the engine's table calls it.
    pub status: String,
    /// The row that it comes from; of a replace, the new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// Of a replace, the row that it came from before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_before: Option<u32>,
    /// The lease that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// When it last changed, in microseconds since the start.
    pub updated_micros: u64,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseView {
    /// Its id.
    pub lease: LeaseId,
    /// Its number, from 1.
    pub number: u32,
    /// Whose it is.
    pub cell: i64,
    /// Where it stands, as the engine's table calls it.
    pub status: String,
    /// Its fence.
    pub fence: u64,
    /// How old it is.
    pub age_micros: u64,
    /// The names that it holds.
    pub names: Vec<String>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellView {
    /// Its number.
    pub cell: u8,
    /// When it begins leases.
    pub mode: Mode,
    /// Whether it is cut off from the service.
    pub is_cut_off: bool,
    /// By how many microseconds its database's clock is ahead.
    pub clock_ahead_micros: i64,
    /// Its committed rows.
    pub rows: Vec<RowView>,
    /// Its committed rows of leases.
    pub lease_rows: Vec<LeaseRowView>,
    /// Its transactions.
    pub transactions: Vec<TransactionView>,
    /// Its workers.
    pub workers: Vec<WorkerView>,
    /// Its reconcilers.
    pub reconcilers: Vec<ReconcilerView>,
    /// Its verifier.
    pub verifier: VerifierView,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowView {
    /// Its key.
    pub row: u32,
    /// Its name.
    pub name: String,
    /// How long ago it was written, by its database's clock.
    pub age_micros: u64,
    /// Whether it was written past the claims.
    pub is_stray: bool,
}

/// The row of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseRowView {
    /// The lease.
    pub lease: LeaseId,
    /// How long ago the lease was begun, by its database's clock.
    pub age_micros: u64,
}

/// A transaction that is not at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TransactionView {
    /// Whose it is.
    pub worker: u8,
    /// Where it stands.
    pub state: &'static str,
    /// What it writes: row, name before, name after.
    pub writes: Vec<(u32, Option<String>, Option<String>)>,
    /// The lease whose row it writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerView {
    /// What it is to save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// What it does next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// Whether it can take a step.
    pub is_ready: bool,
    /// What it told the last user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
}

/// A reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReconcilerView {
    /// What it does next, where it is at a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// Whether it waits for the service.
    pub is_waiting: bool,
    /// What the last run did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Summary>,
}

/// A verifier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifierView {
    /// What it does next, where it is at a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<&'static str>,
    /// Whether it waits for the service.
    pub is_waiting: bool,
    /// What the last run saw and did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<verify::Report>,
}

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageView {
    /// Its name, for events.
    pub id: MessageId,
    /// The cell whose call it belongs to.
    pub cell: u8,
    /// The process that called.
    pub process: Process,
    /// Whether it goes to the cell.
    pub is_answer: bool,
    /// Which copy it is, from 0.
    pub copy: u8,
    /// What it says, in a few words.
    pub says: String,
    /// When it was sent, in microseconds since the start.
    pub sent_micros: u64,
    /// Whether it could arrive now.
    pub can_arrive: bool,
}

/// An edge that has fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FiredView {
    /// Of which machine: `claim` or `lease`.
    pub machine: &'static str,
    /// The name or the lease.
    pub of: String,
    /// Its place in the engine's table; none where a rule that is off let happen what the table lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<usize>,
    /// Where it stood.
    pub from: String,
    /// By what it was moved.
    pub event: String,
    /// Where it stands.
    pub to: String,
}

/// An edge of one of the engine's tables: from a state, by an event, to a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EdgeView {
    /// Where the machine stands.
    pub from: String,
    /// What happens.
    pub event: String,
    /// Where it stands then.
    pub to: String,
}

/// The engine's tables, in the order in which [`FiredView::edge`] counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tables {
    /// Of a claim.
    pub claim: Vec<EdgeView>,
    /// Of a lease.
    pub lease: Vec<EdgeView>,
}

impl Tables {
    /// The engine's own.
    pub fn new() -> Self {
        Self { claim: CLAIM.iter().map(EdgeView::of).collect(), lease: LEASE.iter().map(EdgeView::of).collect() }
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

impl EdgeView {
    fn of<S: Debug, E: Debug>(edge: &Edge<S, E>) -> Self {
        Self { from: format!("{:?}", edge.from), event: format!("{:?}", edge.event), to: format!("{:?}", edge.to) }
    }
}

/// What an event has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Names whose claims or rows have changed.
    pub names: Vec<String>,
    /// Leases that have changed, on either side.
    pub leases: Vec<LeaseId>,
    /// Messages that were sent.
    pub sent: Vec<MessageId>,
}

impl View {
    /// The world as it stands.
    pub fn of(world: &World) -> Self {
        let touched = world.touched();
        let name = |name: u8| world.names().spelling(name).to_owned();
        Self {
            events: world.events(),
            now_micros: world.now() - START,
            names: (0..world.names().len()).map(name).collect(),
            is_up: world.service().is_up,
            claims: claims(world),
            leases: (1..=world.ghosts().len()).filter_map(|number| lease(world, number)).collect(),
            cells: (1..).zip(world.cells()).map(|(number, cell)| self::cell(world, number, cell)).collect(),
            messages: world.network().messages().iter().map(|message| self::message(world, message)).collect(),
            fired: touched.fired.iter().map(|fired| self::fired(world, fired)).collect(),
            changed: Changed {
                names: touched.names.iter().map(|touched| name(*touched)).collect(),
                leases: touched.leases.to_vec(),
                sent: touched.sent.into_iter().collect(),
            },
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
        let row = |record: &Record| row_of(&record.source.id);
        ClaimView {
            name: world.names().spelling(name).to_owned(),
            cell: claim.owner.0,
            status: format!("{:?}", ClaimStatus::of(Some(claim))),
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
        status: format!("{:?}", LeaseStatus::of(Some(lease))),
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
            step: cell.verifier.run.as_deref().map(verifier_step),
            is_waiting: cell.verifier.line.is_waiting,
            last: cell.verifier.last.clone(),
        },
    }
}

fn workers(cell: &Cell) -> Vec<WorkerView> {
    let workers = (0..).zip(&cell.workers).map(|(number, worker)| WorkerView {
        change: worker.save.as_ref().map(|save| save.change),
        phase: worker.save.as_ref().map(|save| save.phase),
        lease: worker.save.as_ref().and_then(|save| save.lease),
        is_ready: worker.is_ready(number, &cell.database),
        told: worker.told,
    });
    workers.collect()
}

fn reconcilers(cell: &Cell) -> Vec<ReconcilerView> {
    let reconcilers = cell.reconcilers.iter().map(|reconciler| ReconcilerView {
        step: reconciler.run.as_ref().map(leasehold_core::reconcile::Reconciliation::step),
        is_waiting: reconciler.line.is_waiting,
        last: reconciler.last.clone(),
    });
    reconcilers.collect()
}

pub(crate) fn verifier_step(run: &Run) -> &'static str {
    match run.machine.step() {
        verify::Step::FindBound { .. } => "find_bound",
        verify::Step::ListRecords { .. } => "list_records",
        verify::Step::ReadRows { .. } => "read_rows",
        verify::Step::ReadAgain { .. } => "read_again",
        verify::Step::Begin(_) => "begin",
        verify::Step::Commit => match run.stage() {
            Some(Stage::Written) => "commit",
            Some(Stage::Committed) => "delete_row",
            Some(Stage::Begun) | None => "write_lease",
        },
        verify::Step::RollBack => "roll_back",
        verify::Step::PageDone => "page_done",
        verify::Step::Done => "done",
    }
}

fn message(world: &World, message: &Message) -> MessageView {
    let id = message.id;
    MessageView {
        id,
        cell: id.cell(),
        process: id.process(),
        is_answer: id.is_answer(),
        copy: id.copy_number(),
        says: says(&message.payload),
        sent_micros: since_start(Timestamp::from_micros(message.sent_at)),
        can_arrive: world.is_possible(crate::event::Event::Deliver(id)),
    }
}

pub(crate) fn says(payload: &Payload) -> String {
    match payload {
        Payload::Request(Request::Begin { update, .. }) => {
            let names = |claims: &[leasehold_core::batch::ClaimRequest]| {
                claims.iter().map(|claim| claim.value.to_string()).collect::<Vec<_>>().join(", ")
            };
            let parts = [("create", names(&update.creates)), ("destroy", names(&update.destroys))];
            let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
            let parts: Vec<_> = parts.map(|(what, names)| format!("{what} {names}")).collect();
            format!("begin: {}", parts.join("; "))
        }
        Payload::Request(Request::Settle { outcome: leasehold_core::lease::Outcome::Committed, .. }) => "commit".into(),
        Payload::Request(Request::Settle { .. }) => "roll back".into(),
        Payload::Request(Request::ListLeases { .. }) => "list leases".into(),
        Payload::Request(Request::ListRecords { .. }) => "list claims".into(),
        Payload::Answer(Answer::Begun { fence, .. }) => format!("begun, fence {}", fence.0),
        Payload::Answer(Answer::Refused { reason, .. }) => format!("refused: {}", reason.summary()),
        Payload::Answer(Answer::Settled(settled)) => settled_words(*settled).into(),
        Payload::Answer(Answer::Leases { leases, .. }) => counted(leases.len(), "lease"),
        Payload::Answer(Answer::Records { records, .. }) => counted(records.len(), "claim"),
        Payload::Answer(Answer::Unavailable) => "unavailable".into(),
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

pub(crate) fn fired(world: &World, fired: &Fired) -> FiredView {
    match *fired {
        Fired::Claim { name, from, event, to } => FiredView {
            machine: "claim",
            of: world.names().spelling(name).to_owned(),
            edge: CLAIM.iter().position(|edge| (edge.from, edge.event, edge.to) == (from, event, to)),
            from: format!("{from:?}"),
            event: format!("{event:?}"),
            to: format!("{to:?}"),
        },
        Fired::Lease { lease, from, event, to } => FiredView {
            machine: "lease",
            of: lease.to_string(),
            edge: LEASE.iter().position(|edge| (edge.from, edge.event, edge.to) == (from, event, to)),
            from: format!("{from:?}"),
            event: format!("{event:?}"),
            to: format!("{to:?}"),
        },
    }
}
