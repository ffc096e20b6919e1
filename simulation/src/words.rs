//! Events in words, for people who watch. What an event is about may be gone once it has happened, and what comes of it
//! is known only then: so it is told in two parts.

use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::{Fate, Settled, Step};

use crate::database::{TooLate, find};
use crate::event::{Change, Drift, Event, Process};
use crate::names::lease_number;
use crate::network::{Message, MessageId, Payload, Request};
use crate::touched::Fired;
use crate::view::{says, verifier_step};
use crate::worker::{Phase, Told, Worker};
use crate::world::World;

/// What would happen if an event did, as the world stands; of one that can't happen, what it is.
pub fn describe(world: &World, event: Event) -> String {
    let story = Story::begin(world, event);
    let mut world = world.clone();
    match world.apply(event) {
        Ok(()) => story.end(&world),
        Err(_) => story.words,
    }
}

/// An event that is being told.
pub(crate) struct Story {
    event: Event,
    words: String,
    /// Whether there is a user whom the event may bring an answer.
    has_user: bool,
    /// Whether the answer that arrives is waited for.
    pub(crate) is_awaited: bool,
}

impl Story {
    /// What is known before it happens.
    pub(crate) fn begin(world: &World, event: Event) -> Self {
        let has_user = user_of(event).and_then(|at| worker(world, at)).is_some_and(|worker| worker.save.is_some());
        let is_awaited = event.message().is_some_and(|id| world.is_awaited(id));
        Self { event, words: intent(world, event), has_user, is_awaited }
    }

    /// The same with what came of it.
    pub(crate) fn end(self, world: &World) -> String {
        let mut words = self.words;
        match self.event {
            Event::Step { .. } if world.touched().refused.is_some() => {
                words.push_str(", which is refused: it is too late")
            }
            Event::Step { .. } => words.push_str(&sent(world)),
            Event::Deliver(id) if id.is_answer() && !self.is_awaited => words.push_str(", and waits for it no more"),
            Event::Deliver(id) if !id.is_answer() => {
                let answer = message(world, id.answer()).map_or_else(String::new, |answer| says(&answer.payload));
                words.push_str(&format!(", and answers: {answer}"));
            }
            Event::FinishCommit { .. } => words.push_str(match world.touched().refused {
                None => " is committed",
                Some(TooLate::Lease) => " is refused: its lease is too old",
                Some(TooLate::Transaction) => " is refused: it is too old",
            }),
            Event::Forget => words.push_str(&forgotten(world)),
            _ => {}
        }
        let told = user_of(self.event).filter(|_| self.has_user).and_then(|at| worker(world, at));
        if let Some(told) = told.filter(|worker| worker.save.is_none()).and_then(|worker| worker.told) {
            words.push_str(&format!("; the user is told: {}", told_words(told)));
        }
        words
    }
}

fn worker(world: &World, (cell, worker): (u8, u8)) -> Option<&Worker> {
    world.cell(cell)?.workers.get(usize::from(worker))
}

fn message(world: &World, id: MessageId) -> Option<&Message> {
    world.network().messages().iter().find(|message| message.id == id)
}

/// The worker whose user may learn something by an event: cell and number.
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

fn who(cell: u8, process: Process) -> String {
    match process {
        Process::Worker(number) => format!("cell {cell}'s worker {number}"),
        Process::Reconciler(number) => format!("cell {cell}'s reconciler {number}"),
        Process::Verifier => format!("cell {cell}'s verifier"),
    }
}

fn intent(world: &World, event: Event) -> String {
    match event {
        Event::Save { cell, worker, change } => {
            format!("a user of cell {cell} asks worker {worker} to {}", change_words(world, cell, change))
        }
        Event::Step { cell, process } => format!("{}{}", who(cell, process), step(world, cell, process)),
        Event::FinishCommit { cell, worker } => {
            format!("in cell {cell}'s database the transaction of worker {worker}")
        }
        Event::LoseCommit { cell, worker } => {
            format!("cell {cell}'s database gives up on the COMMIT of worker {worker}, which is gone")
        }
        Event::Deliver(id) => arrival(world, id),
        Event::Drop(id) => format!("the network loses {}", letter(world, id)),
        Event::Duplicate(id) => format!("the network doubles {}", letter(world, id)),
        Event::TimeOut { cell, process } => format!("{} waits no longer for its answer", who(cell, process)),
        Event::Crash { cell, process } => format!("{} dies, and starts again knowing nothing", who(cell, process)),
        Event::Disconnect { cell, worker } => format!("cell {cell}'s worker {worker} loses its database connection"),
        Event::RestartDatabase { cell } => format!("cell {cell}'s database restarts: all its connections are lost"),
        Event::Partition { cell } => format!("cell {cell} is cut off from the service"),
        Event::Heal { cell } => format!("cell {cell} reaches the service again"),
        Event::StopService => "the service stops: requests on their way to it are lost".to_owned(),
        Event::StartService => "the service starts again, with all that it had answered".to_owned(),
        Event::Replicate { cell } => format!("cell {cell}'s replica takes in a change of its database"),
        Event::Forget => "the service forgets".to_owned(),
        Event::Drift { cell, drift } => {
            format!("past the claims, in cell {cell}'s database {}", drift_words(world, cell, drift))
        }
        Event::Wait { seconds } => format!("time passes: {}", duration(seconds)),
    }
}

fn change_words(world: &World, cell: u8, change: Change) -> String {
    let name = |name| world.names().spelling(name);
    let row = |id| row(world, cell, id);
    match change {
        Change::Invalid => "save what is not valid".to_owned(),
        Change::Create(created) => format!("create {}", name(created)),
        Change::CreateTwo([one, other]) => format!("create {} and {}", name(one), name(other)),
        Change::Rename { row: id, name: to } => format!("rename {} to {}", row(id), name(to)),
        Change::Delete(id) => format!("delete {}", row(id)),
        Change::Swap([one, other]) => format!("swap the names of {} and {}", row(one), row(other)),
        Change::Transfer { from, to } => format!("delete {} and give its name to {}", row(from), row(to)),
    }
}

fn drift_words(world: &World, cell: u8, drift: Drift) -> String {
    let name = |name| world.names().spelling(name);
    match drift {
        Drift::Insert(inserted) => format!("a row is inserted for {}", name(inserted)),
        Drift::Rename { row: id, name: to } => format!("{} is renamed to {}", row(world, cell, id), name(to)),
        Drift::Delete(id) => format!("{} is deleted", row(world, cell, id)),
    }
}

fn row(world: &World, cell: u8, id: u32) -> String {
    match world.cell(cell).and_then(|cell| find(cell.database.rows(), id)) {
        Some(row) => format!("row {id} ({})", world.names().spelling(row.name)),
        None => format!("row {id}"),
    }
}

/// What a process does, unless it sends something: that is told by what was sent.
fn step(world: &World, cell: u8, process: Process) -> String {
    let Some(at) = world.cell(cell) else { return String::new() };
    match process {
        Process::Worker(number) => match worker(world, (cell, number)).and_then(|worker| worker.save.as_ref()) {
            Some(save) => phase_words(save.phase).to_owned(),
            None => " has nothing to do".to_owned(),
        },
        Process::Reconciler(number) => {
            let run = at.reconcilers.get(usize::from(number)).and_then(|one| one.run.as_ref());
            run.map_or_else(String::new, |run| reconciler_words(&run.step()))
        }
        Process::Verifier => match at.verifier.run.as_deref().map(verifier_step) {
            Some("read_rows") => " reads a page of rows",
            Some("read_again") => " reads some rows once more",
            Some("write_lease") => " writes the row of its lease",
            Some("delete_row") => " deletes the row of its lease",
            Some("page_done") => " has compared a page",
            Some("done") => " ends its run",
            None | Some("find_bound") => " looks where a page of rows ends",
            Some(_) => "",
        }
        .to_owned(),
    }
}

fn phase_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Validate => " checks what it is to save",
        Phase::Open => " begins its local transaction",
        Phase::Write => " writes its rows",
        Phase::WriteLease => " writes the row of its lease",
        Phase::Commit => " sends COMMIT to its database",
        Phase::DeleteRow => " deletes the row of its lease",
        Phase::Abort => " rolls its local transaction back",
        Phase::Begin | Phase::CommitLease | Phase::FindLease | Phase::RollBackLease => "",
        Phase::AwaitDatabase => " waits for its database",
        Phase::AwaitBegin | Phase::AwaitCommit | Phase::AwaitFound | Phase::AwaitRollback => " waits for the service",
    }
}

fn reconciler_words(step: &Step) -> String {
    match step {
        Step::FindRows { .. } => " looks for its rows of these leases".to_owned(),
        Step::ListRows { .. } => " looks for rows of leases that are stale".to_owned(),
        Step::DeleteRow { lease, fate } => {
            let fate = match fate {
                Fate::Committed => "which is committed",
                Fate::Lost => "which was rolled back: its claims are lost",
                Fate::Forgotten => "which is forgotten",
            };
            format!(" deletes the row of {}, {fate}", lease_words(*lease))
        }
        Step::Done => " ends its run".to_owned(),
        Step::ListLeases { .. } | Step::Settle { .. } => String::new(),
    }
}

fn lease_words(lease: LeaseId) -> String {
    format!("lease {}", lease_number(lease))
}

/// The request that was sent by a step.
fn sent(world: &World) -> String {
    match world.touched().sent.and_then(|id| message(world, id)) {
        Some(Message { payload: Payload::Request(Request::ListLeases { .. }), .. }) => {
            " asks for its outstanding leases".to_owned()
        }
        Some(Message { payload: Payload::Request(Request::ListRecords { .. }), .. }) => {
            " asks for its claims".to_owned()
        }
        Some(message) => format!(" sends {}", message_words(&message.payload)),
        None => String::new(),
    }
}

fn message_words(payload: &Payload) -> String {
    match payload {
        Payload::Request(Request::Settle { lease, outcome }) => {
            let what = if *outcome == Outcome::Committed { "commit" } else { "rollback" };
            format!("{what} of {}", lease_words(*lease))
        }
        payload => says(payload),
    }
}

fn arrival(world: &World, id: MessageId) -> String {
    let (caller, words) = (who(id.cell(), id.process()), contents(world, id));
    if id.is_answer() {
        format!("{caller} gets the answer: {words}")
    } else {
        format!("the service gets from {caller}: {words}")
    }
}

fn letter(world: &World, id: MessageId) -> String {
    let to = if id.is_answer() { who(id.cell(), id.process()) } else { "the service".to_owned() };
    format!("a message to {to}: {}", contents(world, id))
}

fn contents(world: &World, id: MessageId) -> String {
    message(world, id).map_or_else(|| "it is not under way".to_owned(), |message| message_words(&message.payload))
}

fn forgotten(world: &World) -> String {
    let leases = world.touched().fired.iter().filter(|fired| matches!(fired, Fired::Lease { .. })).count();
    match leases {
        0 => " nothing: no settled lease is old enough".to_owned(),
        1 => " a lease that was settled long ago".to_owned(),
        leases => format!(" {leases} leases that were settled long ago"),
    }
}

/// What the service says became of a lease.
pub(crate) fn settled_words(settled: Settled) -> &'static str {
    match settled {
        Settled::Done => "done",
        Settled::RolledBack => "it was rolled back",
        Settled::Committed => "it was committed",
        Settled::NotFound => "no such lease",
    }
}

fn told_words(told: Told) -> String {
    match told {
        Told::Saved => "saved".to_owned(),
        Told::Invalid => "not valid".to_owned(),
        Told::Refused(reason) => format!("refused, {}", reason.summary()),
        Told::Conflict => "refused by the cell's own database".to_owned(),
        Told::TooLate => "too late, try again".to_owned(),
        Told::Unavailable => "no answer, try again".to_owned(),
        Told::Unknown => "nobody knows, look whether it is there".to_owned(),
    }
}

fn duration(seconds: u32) -> String {
    let units = [("day", 86_400, u32::MAX), ("hour", 3600, 24), ("minute", 60, 60), ("second", 1, 60)];
    let counted = units.map(|(unit, length, wraps)| (unit, seconds / length % wraps));
    let parts = counted.into_iter().filter(|(_, count)| *count > 0);
    let parts = parts.map(|(unit, count)| format!("{count} {unit}{}", if count == 1 { "" } else { "s" }));
    parts.collect::<Vec<_>>().join(" ")
}
