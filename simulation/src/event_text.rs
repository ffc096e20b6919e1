//! Events as English sentences. An event may remove the things that it acts on, and its
//! consequences are known only afterwards. So each sentence is built in two parts, before and after
//! the event.

mod locks;
mod queues;

use leasehold_core::batch::UpdateRequest;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::{Fate, Step};

use crate::database::{CommitRefusal, RowRefusal, row_by_id};
use crate::effects::Transition;
use crate::event::{Change, Drift, Event};
use crate::message_text::payload_text;
use crate::names::lease_number;
use crate::network::{Message, MessageId, Payload, Request};
use crate::process::Process;
use crate::verifier::Run;
use crate::worker::{Phase, Save, SaveResult, Worker};
use crate::world::World;

/// Returns a sentence about an event and its consequences in a world. If the event is impossible,
/// the sentence describes the attempt only.
pub fn describe(world: &World, event: Event) -> String {
    let text = EventText::before(world, event);
    let mut world = world.clone();
    match world.apply(event) {
        Ok(()) => text.after(&world),
        Err(_) => text.sentence,
    }
}

/// A sentence about one event, under construction.
pub(crate) struct EventText {
    event: Event,
    sentence: String,
    /// True if the event can tell a waiting user the result of a save.
    has_user: bool,
    /// True if the event can end the task of a client.
    has_task: bool,
    /// True if the event delivers an answer for which the receiver still waits.
    pub(crate) is_awaited: bool,
}

impl EventText {
    /// Writes the first part of the sentence. Must be called before the event.
    pub(crate) fn before(world: &World, event: Event) -> Self {
        let has_user = user_of(event).and_then(|at| worker(world, at)).is_some_and(|worker| worker.save.is_some());
        let is_awaited = event.message().is_some_and(|id| world.is_awaited(id));
        let has_task = locks::client_of(event).and_then(|cell| world.client(cell)).is_some_and(|it| it.task.is_some());
        Self { event, sentence: action(world, event), has_user, has_task, is_awaited }
    }

    /// Adds the consequences of the event and returns the sentence. Must be called after the event.
    pub(crate) fn after(self, world: &World) -> String {
        let mut sentence = self.sentence;
        match self.event {
            Event::Step { .. } if world.effects().commit_refusal.is_some() => {
                sentence.push_str(", which is refused: the lease is too old")
            }
            Event::Step { cell, process } => {
                sentence.push_str(match world.effects().row_refusal {
                    None => "",
                    Some(RowRefusal::NameTaken) => ", which its database refuses: two rows would have one name",
                    Some(RowRefusal::RowChanged) => ", which its database refuses: a row has changed meanwhile",
                });
                sentence.push_str(&sent_text(world));
                if sentence == process_text(cell, process) {
                    sentence.push_str(" sends nothing");
                }
            }
            Event::Deliver(id) if id.is_answer() && !self.is_awaited => {
                sentence.push_str(", but no longer waits for it")
            }
            Event::Deliver(id) if !id.is_answer() && world.locks().is_none() => {
                let answer =
                    message(world, id.answer()).map_or_else(String::new, |answer| payload_text(&answer.payload));
                if !world.effects().taken_back.is_empty() {
                    sentence.push_str(&format!(", rolls back {}", taken_back_text(world)));
                }
                sentence.push_str(&answered(world, &answer));
            }
            Event::FinishCommit { .. } => sentence.push_str(match world.effects().commit_refusal {
                None => " is committed",
                Some(CommitRefusal::LeaseTooOld) => " is refused: its lease is too old",
                Some(CommitRefusal::TransactionTooOld) => " is refused: it has been open for too long",
            }),
            Event::Forget => sentence.push_str(&forgotten_text(world)),
            Event::TakeBack => sentence.push_str(&format!(" {}", taken_back_text(world))),
            _ => {}
        }
        sentence.push_str(&locks::consequences(world, self.event));
        let client = locks::client_of(self.event).filter(|_| self.has_task).and_then(|cell| world.client(cell));
        if let Some(result) = client.filter(|client| client.task.is_none()).and_then(|client| client.last_result) {
            sentence.push_str(&format!("; {}", locks::result_text(result)));
        }
        sentence.push_str(&queues::submit_consequence(world, self.event, self.is_awaited));
        let worker = user_of(self.event).filter(|_| self.has_user).and_then(|at| worker(world, at));
        if let Some(result) = worker.filter(|worker| worker.save.is_none()).and_then(|worker| worker.last_result) {
            sentence.push_str(&format!("; the user is told: {}", result_text(result)));
        }
        sentence
    }
}

fn worker(world: &World, (cell, worker): (u8, u8)) -> Option<&Worker> {
    world.cell(cell)?.workers.get(usize::from(worker))
}

fn message(world: &World, id: MessageId) -> Option<&Message> {
    world.network().messages().iter().find(|message| message.id == id)
}

/// Returns the cell and the number of the worker whose user may learn a result from the event,
/// `None` if no user may.
fn user_of(event: Event) -> Option<(u8, u8)> {
    match event {
        Event::Step { cell, process } | Event::TimeOut { cell, process } | Event::Crash { cell, process } => {
            process.worker().map(|worker| (cell, worker))
        }
        Event::FinishCommit { cell, worker } | Event::Disconnect { cell, worker } => Some((cell, worker)),
        Event::Deliver(id) if id.is_answer() => id.process().worker().map(|worker| (id.cell(), worker)),
        _ => None,
    }
}

fn process_text(cell: u8, process: Process) -> String {
    match process {
        Process::Worker(number) => format!("cell {cell}'s worker {number}"),
        Process::Reconciler(number) => format!("cell {cell}'s reconciler {number}"),
        Process::Verifier => format!("cell {cell}'s verifier"),
        Process::Client => format!("cell {cell}'s client"),
        Process::Keepalive => format!("cell {cell}'s keepalive"),
        Process::Front => format!("cell {cell}'s front"),
    }
}

fn action(world: &World, event: Event) -> String {
    match event {
        Event::Save { cell, worker, change } => {
            format!("a user of cell {cell} asks worker {worker} to {}", change_text(world, cell, change))
        }
        Event::Step { cell, process } => format!("{}{}", process_text(cell, process), step_text(world, cell, process)),
        Event::FinishCommit { cell, worker } => {
            format!("in cell {cell}'s database the transaction of worker {worker}")
        }
        Event::LoseCommit { cell, worker } => {
            format!("cell {cell}'s database abandons the COMMIT of worker {worker}, which has lost its connection")
        }
        Event::Deliver(id) => arrival(world, id),
        Event::Drop(id) => format!("the network loses {}", receiver_and_content(world, id)),
        Event::Duplicate(id) => format!("the network duplicates {}", receiver_and_content(world, id)),
        Event::CancelCall(id) => {
            let (caller, answer) = (process_text(id.cell(), id.process()), content_in_flight(world, id));
            format!("the service finds the call of {caller} cancelled before its answer leaves: {answer}")
        }
        Event::TakeBack => "the service rolls back".to_owned(),
        Event::TimeOut { cell, process } => format!("{} stops waiting for its answer", process_text(cell, process)),
        Event::Crash { cell, process } => {
            format!("{} crashes and restarts with empty memory", process_text(cell, process))
        }
        Event::Disconnect { cell, worker } => format!("cell {cell}'s worker {worker} loses its database connection"),
        Event::RestartDatabase { cell } => format!("cell {cell}'s database restarts and loses all its connections"),
        Event::Partition { cell } => format!("cell {cell} is cut off from the service"),
        Event::Heal { cell } => format!("cell {cell} reaches the service again"),
        Event::StopService => "the service stops: requests in flight to it are lost".to_owned(),
        Event::StartService => "the service starts again with all its durable state".to_owned(),
        Event::Replicate { cell } => format!("cell {cell}'s replica applies a change of its database"),
        Event::Forget => "the service deletes".to_owned(),
        Event::Drift { cell, drift } => {
            format!("in cell {cell}'s database plain SQL {}", drift_text(world, cell, drift))
        }
        Event::Wait { seconds } => format!("time passes: {}", duration(seconds)),
        _ => locks::action(event),
    }
}

fn change_text(world: &World, cell: u8, change: Change) -> String {
    let name = |name| world.names().spelling(name);
    let row = |id| row(world, cell, id);
    match change {
        Change::Invalid => "save an invalid change".to_owned(),
        Change::Create(created) => format!("create {}", name(created)),
        Change::CreateTwo([one, other]) => format!("create {} and {}", name(one), name(other)),
        Change::Rename { row: id, name: to } => format!("rename {} to {}", row(id), name(to)),
        Change::Delete(id) => format!("delete {}", row(id)),
        Change::Swap([one, other]) => format!("swap the names of {} and {}", row(one), row(other)),
        Change::Transfer { from, to } => format!("delete {} and give its name to {}", row(from), row(to)),
    }
}

fn drift_text(world: &World, cell: u8, drift: Drift) -> String {
    let name = |name| world.names().spelling(name);
    match drift {
        Drift::Insert(inserted) => format!("inserts a row named {}", name(inserted)),
        Drift::Rename { row: id, name: to } => format!("renames {} to {}", row(world, cell, id), name(to)),
        Drift::Delete(id) => format!("deletes {}", row(world, cell, id)),
    }
}

fn row(world: &World, cell: u8, id: u32) -> String {
    match world.cell(cell).and_then(|cell| row_by_id(cell.database.rows(), id)) {
        Some(row) => format!("row {id} ({})", world.names().spelling(row.name)),
        None => format!("row {id}"),
    }
}

/// Describes the action of a process. The text is empty if the step sends a message, since
/// [`sent_text`] then describes the message.
fn step_text(world: &World, cell: u8, process: Process) -> String {
    let Some(at) = world.cell(cell) else { return String::new() };
    match process {
        Process::Worker(number) => match worker(world, (cell, number)).and_then(|worker| worker.save.as_ref()) {
            Some(save) => save_text(world, save, at.database.has_open(number)).to_owned(),
            None => " has nothing to do".to_owned(),
        },
        Process::Reconciler(number) => {
            let run = at.reconcilers.get(usize::from(number)).and_then(|one| one.run.as_ref());
            run.map_or_else(String::new, |run| reconciler_text(&run.step()))
        }
        Process::Verifier => match at.verifier.run.as_deref().map(Run::step_name) {
            Some("read_rows") => " reads a page of rows",
            Some("read_again") => " reads some rows again",
            Some("write_lease") => " writes its lease row",
            Some("delete_row") => " deletes its lease row",
            Some("page_done") => " finishes a page",
            Some("done") => " ends its run",
            None | Some("find_bound") => " looks for the end of a page of rows",
            Some(_) => "",
        }
        .to_owned(),
        Process::Client => at.client.as_ref().map_or_else(String::new, locks::step_text),
        Process::Keepalive | Process::Front => String::new(),
    }
}

/// Describes the next step of a save. The text is empty if the step sends a message.
fn save_text(world: &World, save: &Save, has_transaction: bool) -> &'static str {
    match save.phase {
        Phase::Begin if save.update(world.names()) == UpdateRequest::default() => {
            " needs no lease, because its rows change no claim"
        }
        Phase::Abort if !has_transaction => " gives its save up, before it has begun a local transaction",
        Phase::CommitLease | Phase::RollBackLease if save.lease.is_none() => " ends its save, which has no lease",
        phase => phase_text(phase),
    }
}

fn phase_text(phase: Phase) -> &'static str {
    match phase {
        Phase::Validate => " validates its change",
        Phase::Open => " begins its local transaction",
        Phase::Write => " writes its rows",
        Phase::WriteLease => " writes its lease row",
        Phase::Commit => " sends COMMIT to its database",
        Phase::DeleteRow => " deletes its lease row",
        Phase::Abort => " rolls its local transaction back",
        Phase::Begin | Phase::CommitLease | Phase::FindLease | Phase::RollBackLease => "",
        Phase::AwaitDatabase => " waits for its database",
        Phase::AwaitBegin | Phase::AwaitCommit | Phase::AwaitFound | Phase::AwaitRollback => " waits for the service",
    }
}

fn reconciler_text(step: &Step) -> String {
    match step {
        Step::FindRows { .. } => " looks up its rows of these leases".to_owned(),
        Step::ListRows { .. } => " looks for stale lease rows".to_owned(),
        Step::DeleteRow { lease, fate } => {
            let fate = match fate {
                Fate::Committed => "which was committed",
                Fate::Lost => "which was rolled back: its claims are lost",
                Fate::Forgotten => "which the service no longer remembers",
            };
            format!(" deletes the row of {}, {fate}", lease_text(*lease))
        }
        Step::Done => " ends its run".to_owned(),
        Step::ListLeases { .. } | Step::Settle { .. } => String::new(),
    }
}

fn lease_text(lease: LeaseId) -> String {
    format!("lease {}", lease_number(lease))
}

/// Describes the request that a step has sent. The text is empty if the step has sent none.
fn sent_text(world: &World) -> String {
    match world.effects().sent.first().and_then(|id| message(world, *id)) {
        Some(Message { payload: Payload::Request(Request::ListLeases { .. }), .. }) => {
            " asks for its outstanding leases".to_owned()
        }
        Some(Message { payload: Payload::Request(Request::ListRecords { .. }), .. }) => {
            " asks for its claims".to_owned()
        }
        Some(message) if message.id.is_answer() => String::new(),
        Some(message) => format!(" sends {}", content_text(&message.payload)),
        None => String::new(),
    }
}

fn content_text(payload: &Payload) -> String {
    match payload {
        Payload::Request(Request::Settle { lease, outcome }) => {
            let what = if *outcome == Outcome::Committed { "commit" } else { "rollback" };
            format!("{what} of {}", lease_text(*lease))
        }
        payload => payload_text(payload),
    }
}

fn arrival(world: &World, id: MessageId) -> String {
    let (caller, sentence) = (process_text(id.cell(), id.process()), content_in_flight(world, id));
    if id.is_answer() {
        format!("{caller} receives the answer: {sentence}")
    } else if world.service().is_up {
        format!("the service receives from {caller}: {sentence}")
    } else {
        format!("the service is down, and receives nothing from {caller}: {sentence}")
    }
}

/// Describes the answer to the request that the event has delivered.
fn answered(world: &World, answer: &str) -> String {
    match world.service().is_up {
        true => format!(", and answers: {answer}"),
        false => format!("; the caller learns: {answer}"),
    }
}

fn receiver_and_content(world: &World, id: MessageId) -> String {
    let to = if id.is_answer() { process_text(id.cell(), id.process()) } else { "the service".to_owned() };
    format!("a message to {to}: {}", content_in_flight(world, id))
}

fn content_in_flight(world: &World, id: MessageId) -> String {
    message(world, id).map_or_else(|| "it is not in flight".to_owned(), |message| content_text(&message.payload))
}

/// Describes the leases that the event took back.
fn taken_back_text(world: &World) -> String {
    let leases: Vec<_> = world.effects().taken_back.iter().map(|lease| lease_text(*lease)).collect();
    format!("{}, which no caller can know", leases.join(" and "))
}

fn forgotten_text(world: &World) -> String {
    if world.locks().is_some() {
        let is_nothing = world.effects().forgotten_locks == 0;
        return if is_nothing { " nothing: no session and no lock is old enough" } else { " what ended long ago" }
            .to_owned();
    }
    let leases = world.effects().transitions.iter().filter(|fired| matches!(fired, Transition::Lease { .. })).count();
    match leases {
        0 => " nothing: no settled lease is old enough".to_owned(),
        1 => " a lease that was settled long ago".to_owned(),
        leases => format!(" {leases} leases that were settled long ago"),
    }
}

fn result_text(result: SaveResult) -> String {
    match result {
        SaveResult::Saved => "saved".to_owned(),
        SaveResult::Invalid => "invalid".to_owned(),
        SaveResult::Refused(reason) => format!("refused, {}", reason.summary()),
        SaveResult::Conflict => "refused by the cell's own database".to_owned(),
        SaveResult::TooLate => "too late, try again".to_owned(),
        SaveResult::Unavailable => "no answer, try again".to_owned(),
        SaveResult::Unknown => "outcome unknown, check whether the row exists".to_owned(),
    }
}

fn duration(seconds: u32) -> String {
    let units = [("day", 86_400, u32::MAX), ("hour", 3600, 24), ("minute", 60, 60), ("second", 1, 60)];
    let counted = units.map(|(unit, length, wraps)| (unit, seconds / length % wraps));
    let parts = counted.into_iter().filter(|(_, count)| *count > 0);
    let parts = parts.map(|(unit, count)| format!("{count} {unit}{}", if count == 1 { "" } else { "s" }));
    parts.collect::<Vec<_>>().join(" ")
}
