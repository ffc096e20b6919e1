//! The conditions of a queue: the engine's own invariants, and conditions that span the fronts, the
//! workers and the resources.

use leasehold_core::invariant::{self, FenceCheck};
use leasehold_core::lease::Fence;
use leasehold_core::queue::{Lane, Request, RequestState};
use leasehold_core::table::RequestStatus;

use crate::effects::{SettleReply, Transition};
use crate::queue_message::WorkKind;
use crate::queue_names::{lane_key, request_id};
use crate::queue_truth::{QueueTruth, RequestTruth};
use crate::service::MAX_ATTEMPTS;
use crate::settings::{Rule, RulesOff};
use crate::violation::Violation;
use crate::world::World;

/// Checks the changes that the last event made to the queue.
pub(super) fn after_event(world: &World) -> Result<(), Violation> {
    let Some(locks) = world.locks().filter(|locks| locks.terms.lanes > 0) else { return Ok(()) };
    let effects = world.effects();
    if let Some(request) = effects.doubled {
        return Err(Violation::SubmittedTwice { request });
    }
    effects.written_batch.map_or(Ok(()), |fence| check_order(world, &locks.truth, fence))?;
    effects.deadly_batch.map_or(Ok(()), |fence| check_deaths(&locks.truth, fence))?;
    effects.settle_reply.map_or(Ok(()), |reply| check_reply(&locks.truth, reply))?;
    effects.transitions.iter().try_for_each(|transition| check_done(&locks.truth, *transition))?;
    // Without the rule, the rows of a lane forget one of its workers. The checks look for the work of
    // two workers at a time instead.
    if effects.has_queue_changes && world.settings().rules_off.is_on(Rule::OneWorker) {
        let rows = world.service().queue_rows();
        invariant::check_queues(&rows, &FenceCheck::default()).map_err(Violation::Engine)?;
    }
    check_workers(world)
}

/// Checks that no lane has passed on while its worker may still work by its own clock (Q11).
pub(super) fn check_workers(world: &World) -> Result<(), Violation> {
    let Some(locks) = world.locks() else { return Ok(()) };
    for cell in 1..=world.settings().cells {
        let Some(client) = world.client(cell) else { continue };
        let Some((lane, fence)) = client.lane_hold(world.client_clock(cell), locks.terms) else { continue };
        let rules_off = world.settings().rules_off;
        let path = client.batch_in_work().and_then(|batch| locks.queue.path_for(lane, batch.kind, rules_off));
        let row = path.and_then(|path| world.service().lane(path));
        if row.and_then(Lane::hold).is_none_or(|hold| hold.fence != fence) {
            return Err(Violation::LanePassedOn { lane: lane_key(lane).to_owned(), cell, fence: fence.0 });
        }
    }
    Ok(())
}

/// Checks that the create of the resource is settled when a worker writes an update that was added
/// after it (Q02, Q07).
fn check_order(world: &World, truth: &QueueTruth, fence: Fence) -> Result<(), Violation> {
    let Some(hold) = truth.hold(fence) else { return Ok(()) };
    let updates = hold.requests.iter().filter_map(|number| Some((*number, truth.request(*number)?)));
    for (number, update) in updates.filter(|(_, request)| request.kind != WorkKind::Create) {
        let is_before = |create: &RequestTruth| {
            let is_create = create.kind == WorkKind::Create && create.lane == update.lane;
            is_create && create.added.is_some_and(|added| Some(added) < update.added)
        };
        let mut creates = truth.requests().filter(|(_, request)| is_before(request)).map(|(create, _)| create);
        if let Some(create) = creates.find(|create| is_open(world, *create)) {
            return Err(Violation::UpdatedTooEarly { update: number, create });
        }
    }
    Ok(())
}

/// Returns true if the service has a request and it is not settled.
fn is_open(world: &World, number: u32) -> bool {
    let row: Option<&Request> = world.service().request(request_id(number, 0, RulesOff::default()));
    row.is_some_and(|row| matches!(row.state, RequestState::New | RequestState::InProgress))
}

/// Checks that no request has ended more workers than it has attempts (Q03).
fn check_deaths(truth: &QueueTruth, fence: Fence) -> Result<(), Violation> {
    let requests = truth.hold(fence).into_iter().flat_map(|hold| &hold.requests);
    for (request, found) in requests.filter_map(|number| Some((*number, truth.request(*number)?))) {
        if found.deaths > MAX_ATTEMPTS {
            return Err(Violation::DeadlyTooOften { request, deaths: found.deaths });
        }
    }
    Ok(())
}

/// Checks that a worker whose settle took effect is not told that another has the lane (Q10). A lane
/// remembers its last hold only, so this holds until the next worker takes it.
fn check_reply(truth: &QueueTruth, reply: SettleReply) -> Result<(), Violation> {
    let SettleReply { cell, fence, outcome, is_refused } = reply;
    let Some(hold) = truth.hold(fence).filter(|hold| is_refused && hold.settled == Some(outcome)) else {
        return Ok(());
    };
    let is_last = !truth.holds().iter().any(|other| other.lane == hold.lane && other.fence > fence);
    if is_last { Err(Violation::SettleDenied { cell, fence: fence.0 }) } else { Ok(()) }
}

/// Checks that the work of a request is done when it becomes complete (Q08, Q10).
fn check_done(truth: &QueueTruth, transition: Transition) -> Result<(), Violation> {
    match transition {
        Transition::Request { request, to: RequestStatus::Complete, .. }
            if truth.request(request).is_some_and(|found| !found.is_written) =>
        {
            Err(Violation::NotDone { request })
        }
        _ => Ok(()),
    }
}
