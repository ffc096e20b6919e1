//! Each invariant of queues finds the state that breaks it.

use std::num::NonZeroU32;

use leasehold_core::invariant::{QueueViolation, Violation, check};
use leasehold_core::lease::Fence;
use leasehold_core::queue::{Lane, LaneState, Priority, Queue, Request, RequestBody, RequestState};
use leasehold_core::rows::State;
use leasehold_core::store::Store;

use super::model::{New, Settled, Step};
use super::world::{World, lane, queue, request};

/// A world with a limited queue: in the lane 0 two updates are taken and one waits, in the lane 1 a create and an
/// update wait after a former hold.
fn state() -> State {
    let mut world = World::default();
    let new = |id, lane, creates| New { id, lane, creates, priority: 0, delay: 0, most: 2, text: "a" };
    for step in [
        Step::Open(0),
        Step::LimitQueue(0, 5),
        Step::Submit(vec![new(0, 0, false), new(1, 0, false), new(2, 1, true)]),
        Step::Take(0, 0, 1, 100),
        Step::Settle(1, 0, Settled::Failed(Some(0))),
        Step::Take(0, 1, 0, 100),
        Step::Submit(vec![new(3, 0, false), new(4, 1, false)]),
    ] {
        world.step(step);
    }
    world.store.state().unwrap()
}

/// Breaks a state in one way, and returns the violation that is found.
#[track_caller]
fn violation(break_it: impl FnOnce(&mut State)) -> QueueViolation {
    let mut state = state();
    assert_eq!(check(&state), Ok(()));
    break_it(&mut state);
    match check(&state).unwrap_err() {
        Violation::Queue(violation) => violation,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn of_lane(at: usize, break_it: impl FnOnce(&mut Lane)) -> QueueViolation {
    violation(|state| break_it(state.lanes.get_mut(&lane(at)).unwrap()))
}

#[track_caller]
fn of_request(number: u128, break_it: impl FnOnce(&mut Request)) -> QueueViolation {
    violation(|state| break_it(state.requests.get_mut(&request(number)).unwrap()))
}

fn with_fence(row: &mut Lane, fence: u64) {
    let LaneState::Taken(hold) = &mut row.state else { panic!("nobody holds it") };
    hold.fence = Fence(fence);
}

#[test]
fn a_lane_and_its_requests_tell_the_same() {
    use QueueViolation::{BatchDiffers, LaneMiscounts, LaneOutOfOrder, RequestOutOfPlace};
    assert_eq!(of_request(3, |row| row.number = 99), RequestOutOfPlace(request(3)));
    assert_eq!(of_request(1, |row| row.number = 1), RequestOutOfPlace(request(1)));
    assert!(matches!(violation(|state| _ = state.lanes.remove(&lane(0))), RequestOutOfPlace(_)));
    assert_eq!(of_lane(0, |row| row.waiting = 2), LaneMiscounts { counted: 2, waiting: 1 });
    assert_eq!(of_lane(1, |row| row.state = LaneState::Idle), LaneOutOfOrder { waiting: 2 });
    assert_eq!(of_request(2, |row| row.priority = Priority::parse(1).unwrap()), LaneOutOfOrder { waiting: 2 });
    // Requests in progress are those that were taken, and the first ones.
    assert_eq!(of_request(1, |row| (row.number, row.lane) = (9, lane(0))), RequestOutOfPlace(request(1)));
    let swapped = violation(|state| {
        state.requests.get_mut(&request(1)).unwrap().number = 3;
        state.requests.get_mut(&request(3)).unwrap().number = 2;
    });
    assert_eq!(swapped, BatchDiffers(Fence(2)));
    let half_settled = of_request(1, |row| row.state = RequestState::Complete);
    assert_eq!(half_settled, BatchDiffers(Fence(2)));
}

#[test]
fn q09_a_resource_has_one_create() {
    use QueueViolation::CreateDiffers;
    assert_eq!(of_lane(1, |row| row.create = None), CreateDiffers(request(2)));
    assert_eq!(of_lane(1, |row| row.create = Some(request(4))), CreateDiffers(request(2)));
    assert_eq!(of_lane(0, |row| row.create = Some(request(2))), CreateDiffers(request(2)));
}

#[test]
fn q03_attempts_are_within_their_bounds() {
    use QueueViolation::AttemptsOutOfRange;
    for (attempts, state) in [(2, RequestState::New), (1, RequestState::Error)] {
        let found = of_request(2, |row| (row.attempts, row.state) = (attempts, state));
        assert_eq!(found, AttemptsOutOfRange(request(2)));
    }
    assert_eq!(of_request(0, |row| row.attempts = 0), AttemptsOutOfRange(request(0)));
    assert_eq!(of_request(0, |row| row.attempts = 3), AttemptsOutOfRange(request(0)));
}

#[test]
fn a_request_has_its_body() {
    use QueueViolation::BodyDiffers;
    assert_eq!(violation(|state| _ = state.bodies.remove(&request(0))), BodyDiffers(request(0)));
    let other = || RequestBody::parse(b"b").unwrap();
    assert_eq!(violation(|state| _ = state.bodies.insert(request(0), other())), BodyDiffers(request(0)));
    assert_eq!(violation(|state| _ = state.bodies.insert(request(9), other())), BodyDiffers(request(9)));
}

#[test]
fn q10_q17_fences_are_distinct_and_queues_count_what_is_taken() {
    use QueueViolation::{FenceOutOfOrder, QueueMiscounts};
    for fence in [0, 1, 3] {
        assert_eq!(of_lane(0, |row| with_fence(row, fence)), FenceOutOfOrder(Fence(fence)));
    }
    let limit = NonZeroU32::new(5);
    let with = |taken| {
        violation(move |state| {
            state.queues.insert(queue(0), Queue { is_paused: false, limit, taken });
        })
    };
    assert_eq!(with(0), QueueMiscounts { counted: 0, taken: 1 });
    assert_eq!(with(2), QueueMiscounts { counted: 2, taken: 1 });
    assert_eq!(violation(|state| state.queues.clear()), QueueMiscounts { counted: 0, taken: 1 });
    let empty = violation(|state| _ = state.queues.insert(queue(1), Queue::default()));
    assert_eq!(empty, QueueMiscounts { counted: 0, taken: 0 });
}
