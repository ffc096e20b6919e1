//! The sentences about events of sessions and locks.

use leasehold_core::session::SessionId;

use super::queues;
use crate::effects::Transition;
use crate::event::Event;
use crate::lock_client::{LockClient, WorkPhase, WorkResult};
use crate::lock_names::{cell_of, lock_key, session_number};
use crate::message_text::payload_text;
use crate::network::{Message, MessageId};
use crate::process::Process;
use crate::resource::WriteOutcome;
use crate::world::World;

/// Describes an event of sessions and locks, before it happens.
pub(super) fn action(event: Event) -> String {
    match event {
        Event::Work { cell, lock } => format!("cell {cell}'s program asks for work under the lock {}", lock_key(lock)),
        Event::Close { cell } => format!("cell {cell}'s program closes its session"),
        Event::Pause { cell } => format!("cell {cell}'s client is paused, with its keepalive"),
        Event::Resume { cell } => format!("cell {cell}'s client runs again, and its clock has run on"),
        Event::PauseService => "the service is paused: it counts no tick".to_owned(),
        Event::ResumeService => "the service runs again".to_owned(),
        Event::Tick => "the service counts a tick".to_owned(),
        Event::Decide => "the service decides a proposal".to_owned(),
        Event::Evict { cell } => format!("an operator evicts the session of cell {cell}'s client"),
        Event::Force { lock } => format!("an operator takes the lock {} from its holder", lock_key(lock)),
        Event::JumpClock { seconds } if seconds < 0 => {
            format!("the service's wall clock jumps back by {} seconds", seconds.unsigned_abs())
        }
        Event::JumpClock { seconds } => format!("the service's wall clock jumps ahead by {seconds} seconds"),
        _ => queues::action(event),
    }
}

/// Describes the next step of a client. The text is empty if the step sends a message.
pub(super) fn step_text(client: &LockClient) -> String {
    let Some(task) = client.task else { return " has nothing to do".to_owned() };
    if let Some(text) = queues::step_text(client, task.phase) {
        return text;
    }
    match (task.phase, task.fence) {
        (WorkPhase::Check, _) => " looks at its clock".to_owned(),
        (WorkPhase::WriteResource, Some(fence)) => format!(" writes to the resource under fence {}", fence.0),
        _ => String::new(),
    }
}

/// Describes the consequences of an event of sessions and locks, after it has happened.
pub(super) fn consequences(world: &World, event: Event) -> String {
    let mut text = String::new();
    if world.locks().is_none() {
        return text;
    }
    match event {
        Event::Step { cell, process: Process::Client } => text.push_str(&step_consequences(world, cell)),
        Event::Tick => text.push_str(&tick_consequences(world)),
        _ => {}
    }
    world.effects().transitions.iter().for_each(|transition| text.push_str(&transition_text(*transition)));
    text.push_str(&queues::transitions_text(world));
    let own = event.message().map(MessageId::answer);
    let sent = world.effects().sent.iter().filter(|id| id.is_answer());
    let messages = sent.filter_map(|id| world.network().messages().iter().find(|message| message.id == *id));
    messages.for_each(|message| text.push_str(&answer_text(world, message, own)));
    text
}

fn answer_text(world: &World, message: &Message, own: Option<MessageId>) -> String {
    let says = payload_text(&message.payload);
    match own == Some(message.id) {
        true => super::answered(world, &says),
        false => format!("; it tells cell {}'s {}: {says}", message.id.cell(), thread(message.id.process())),
    }
}

fn thread(process: Process) -> &'static str {
    match process {
        Process::Keepalive => "keepalive",
        Process::Front => "front",
        _ => "client",
    }
}

fn step_consequences(world: &World, cell: u8) -> String {
    match world.effects().write {
        Some(WriteOutcome::Accepted { .. }) => return ", which accepts the write".to_owned(),
        Some(WriteOutcome::Refused) => return ", which has seen a newer fence and refuses".to_owned(),
        None => {}
    }
    let task = world.client(cell).and_then(|client| client.task);
    match task.map(|task| task.phase) {
        Some(WorkPhase::WriteResource) => ": the deadline of its session has not passed".to_owned(),
        _ => String::new(),
    }
}

fn tick_consequences(world: &World) -> String {
    match world.service().lock_host().map_or(0, |host| host.undecided()) {
        0 => String::new(),
        1 => " and proposes an end".to_owned(),
        count => format!(" and proposes {count} ends"),
    }
}

fn transition_text(transition: Transition) -> String {
    use leasehold_core::table::{LockEvent, SessionEvent};
    match transition {
        Transition::Session { session, event, .. } => match event {
            SessionEvent::Silence => format!(": {} has been silent for too long and expires", session_text(session)),
            SessionEvent::Forget => format!(", {}", session_text(session)),
            _ => String::new(),
        },
        Transition::Lock { lock, event, .. } => match event {
            LockEvent::HandOver | LockEvent::ElapseHandOver | LockEvent::CleanHandOver => {
                format!("; the lock {} passes on to the next ask", lock_key(lock))
            }
            LockEvent::Withhold => format!("; the lock {} is withheld", lock_key(lock)),
            LockEvent::Release | LockEvent::Elapse | LockEvent::Clean => {
                format!("; the lock {} is free", lock_key(lock))
            }
            LockEvent::Forget => format!(", the free lock {}", lock_key(lock)),
            // The world reaps no namespace and shares no lock, so the other events do not happen.
            _ => String::new(),
        },
        Transition::Claim { .. } | Transition::Lease { .. } | Transition::Request { .. } => String::new(),
    }
}

/// Returns the name of a session: the cell of its client and its number.
fn session_text(session: SessionId) -> String {
    format!("session {} of cell {}", session_number(session), cell_of(session))
}

/// Returns the cell whose client may end a task by the event, `None` if no client may.
pub(super) fn client_of(event: Event) -> Option<u8> {
    match event {
        Event::Step { cell, process: Process::Client }
        | Event::TimeOut { cell, process: Process::Client }
        | Event::Crash { cell, process: Process::Client } => Some(cell),
        Event::Deliver(id) if id.is_answer() => Some(id.cell()),
        _ => None,
    }
}

pub(super) fn result_text(result: WorkResult) -> &'static str {
    match result {
        WorkResult::Done => "the work is done",
        WorkResult::GaveUp => "the client gives up: the lock was not granted in time",
        WorkResult::Lost => "the client stops: its session is lost",
        WorkResult::Taken => "the client stops: an operator has taken its lock",
        WorkResult::Fenced => "the client stops: another holder has the lock",
        WorkResult::Unanswered => "the client gives up: the service does not answer",
        WorkResult::Died => "the work is unfinished",
        WorkResult::Closed => "the session is closed",
        WorkResult::Idle => "the worker stops to wait: no lane is ready",
        WorkResult::Failed => "the work has failed",
        WorkResult::GivenBack => "the worker has nothing any more",
    }
}
