//! The random choice of the events that only the world of a queue has.

use super::RandomScheduler;
use crate::event::Event;
use crate::process::Process;
use crate::queue_message::WorkKind;
use crate::world::World;

/// The kinds of events that only the world of a queue has.
#[derive(Clone, Copy)]
enum Kind {
    Submit,
    Step,
    TimeOut,
    Crash,
    Fail,
    GiveBack,
    Other,
}

/// The kinds of events with their relative frequencies. The last one stands for all events of
/// sessions.
const WEIGHTS: [(Kind, u32); 7] = [
    (Kind::Submit, 60),
    (Kind::Step, 100),
    (Kind::TimeOut, 6),
    (Kind::Crash, 4),
    (Kind::Fail, 10),
    (Kind::GiveBack, 10),
    (Kind::Other, 900),
];

/// Draws an event that only the world of a queue has, `None` for another one.
pub(super) fn draw(scheduler: &mut RandomScheduler, world: &World) -> Option<Event> {
    let total = WEIGHTS.iter().map(|(_, weight)| weight).sum();
    let mut left = scheduler.below(total);
    for (kind, weight) in WEIGHTS {
        match left.checked_sub(weight) {
            Some(rest) => left = rest,
            None => return event(scheduler, kind, world),
        }
    }
    None
}

fn event(scheduler: &mut RandomScheduler, kind: Kind, world: &World) -> Option<Event> {
    let (cell, process) = (scheduler.cell(), Process::Front);
    Some(match kind {
        Kind::Submit => Event::Submit { cell, lane: lane(scheduler, world), kind: work_kind(scheduler) },
        Kind::Step => Event::Step { cell, process },
        Kind::TimeOut => Event::TimeOut { cell, process },
        Kind::Crash => Event::Crash { cell, process },
        Kind::Fail => Event::FailWork { cell },
        Kind::GiveBack => Event::GiveBack { cell },
        Kind::Other => return None,
    })
}

fn lane(scheduler: &mut RandomScheduler, world: &World) -> u8 {
    let lanes = world.locks().map_or(1, |locks| locks.terms.lanes);
    scheduler.below(lanes.into()) as u8
}

/// Draws the kind of a request: seldom a poison, which ends its workers.
fn work_kind(scheduler: &mut RandomScheduler) -> WorkKind {
    match scheduler.below(12) {
        0 => WorkKind::Poison,
        1..=3 => WorkKind::Create,
        _ => WorkKind::Update,
    }
}
