//! The sentences about events of a queue.

use leasehold_core::table::RequestEvent;

use crate::effects::Transition;
use crate::event::Event;
use crate::front::SubmitResult;
use crate::lock_client::{LockClient, WorkPhase};
use crate::message_text::{batch_text, request_text};
use crate::process::Process;
use crate::queue_message::WorkKind;
use crate::queue_names::lane_key;
use crate::world::World;

/// Describes an event of a queue, before it happens.
pub(super) fn action(event: Event) -> String {
    match event {
        Event::Submit { cell, lane, kind } => {
            let what = match kind {
                WorkKind::Create => "a create",
                WorkKind::Update => "an update",
                WorkKind::Poison => "a poison, an update that ends its worker,",
            };
            format!("cell {cell}'s program submits {what} of the sheet {}", lane_key(lane))
        }
        Event::Serve { cell } => format!("cell {cell}'s program asks for work from the queue"),
        Event::FailWork { cell } => format!("the work of cell {cell}'s client fails"),
        Event::GiveBack { cell } => format!("cell {cell}'s client is told to stop, and gives back what it has taken"),
        _ => String::new(),
    }
}

/// Describes the next step of a worker, `None` if the task does not serve a queue. The text is empty
/// if the step sends a message.
pub(super) fn step_text(client: &LockClient, phase: WorkPhase) -> Option<String> {
    let batch = client.serving.as_ref()?.batch.as_ref();
    let work = batch.filter(|_| phase == WorkPhase::WriteResource);
    Some(match (work, phase) {
        (_, WorkPhase::Check) => " looks at its clock".to_owned(),
        (Some(batch), _) if batch.kind == WorkKind::Poison => {
            format!(" works on {}, and dies of it", batch_text(batch))
        }
        (Some(batch), _) => format!(" writes {} to the sheet under fence {}", batch_text(batch), batch.fence.0),
        (None, _) => String::new(),
    })
}

/// Describes the transitions of requests that the event has caused.
pub(super) fn transitions_text(world: &World) -> String {
    let truth = world.locks().map(|locks| &locks.truth);
    let text = |transition: &Transition| {
        let Transition::Request { request, event, .. } = *transition else { return None };
        let says = match event {
            RequestEvent::Complete => "complete",
            RequestEvent::FailLast | RequestEvent::SilenceLast => "in error: its last attempt is used up",
            RequestEvent::Fail | RequestEvent::Silence => "new again, and waits for its next attempt",
            RequestEvent::GiveBack => "new again, and the attempt does not count",
            _ => return None,
        };
        let kind = truth.and_then(|truth| truth.request(request))?.kind;
        Some(format!("; {} is {says}", request_text(kind, request)))
    };
    world.effects().transitions.iter().filter_map(text).collect()
}

/// Describes the result of a submit that the event has ended. The text is empty if it has ended none.
pub(super) fn submit_consequence(world: &World, event: Event, is_awaited: bool) -> String {
    let cell = match event {
        Event::Deliver(id) if id.is_answer() && id.process() == Process::Front && is_awaited => id.cell(),
        Event::TimeOut { cell, process: Process::Front } | Event::Crash { cell, process: Process::Front } => cell,
        _ => return String::new(),
    };
    let front = world.front(cell).filter(|front| front.submission.is_none());
    match front.and_then(|front| front.last_result) {
        Some(SubmitResult::Known(first)) => format!("; the sheet has a create already: request {first}"),
        Some(SubmitResult::Unanswered) => "; the front gives up: the service does not answer".to_owned(),
        Some(SubmitResult::Died) => "; its program must submit again".to_owned(),
        Some(SubmitResult::Submitted) | None => String::new(),
    }
}
