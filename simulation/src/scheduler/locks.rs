//! The random choice of the next event in a world of locks.

use super::RandomScheduler;
use crate::event::Event;
use crate::process::Process;
use crate::world::World;

/// The durations of waits, in seconds: ticks that come late.
const WAITS: [u32; 3] = [1, 3, 10];
/// The jumps of the service's wall clock, in seconds.
const JUMPS: [i32; 4] = [-3600, -5, 5, 3600];

/// A kind of event in a world of locks.
#[derive(Clone, Copy)]
enum Kind {
    Work,
    Close,
    Step,
    Renew,
    Deliver,
    Tick,
    Decide,
    Drop,
    Duplicate,
    TimeOut,
    Crash,
    Pause,
    Partition,
    PauseService,
    Restart,
    Operator,
    Wait,
    Jump,
    Forget,
}

/// The kinds of events with their relative frequencies.
const WEIGHTS: [(Kind, u32); 19] = [
    (Kind::Work, 60),
    (Kind::Close, 60),
    (Kind::Step, 220),
    (Kind::Renew, 100),
    (Kind::Deliver, 330),
    (Kind::Tick, 100),
    (Kind::Decide, 60),
    (Kind::Drop, 10),
    (Kind::Duplicate, 8),
    (Kind::TimeOut, 14),
    (Kind::Crash, 6),
    (Kind::Pause, 22),
    (Kind::Partition, 14),
    (Kind::PauseService, 8),
    (Kind::Restart, 8),
    (Kind::Operator, 6),
    (Kind::Wait, 6),
    (Kind::Jump, 4),
    (Kind::Forget, 10),
];
/// Draws an event of a world of locks. The event may be impossible.
pub(super) fn draw(scheduler: &mut RandomScheduler, world: &World) -> Option<Event> {
    if world.has_queue()
        && let Some(event) = super::queues::draw(scheduler, world)
    {
        return Some(event);
    }
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
    let cell = scheduler.cell();
    let process = if scheduler.below(3) == 0 { Process::Keepalive } else { Process::Client };
    let is_paused = world.client(cell)?.is_paused;
    Some(match kind {
        Kind::Work if world.has_queue() => Event::Serve { cell },
        Kind::Work => Event::Work { cell, lock: lock(scheduler, world) },
        Kind::Close => Event::Close { cell },
        Kind::Step => Event::Step { cell, process: Process::Client },
        Kind::Renew => Event::Step { cell, process: Process::Keepalive },
        Kind::Deliver => Event::Deliver(scheduler.message(world)?),
        Kind::Tick => Event::Tick,
        Kind::Decide => Event::Decide,
        Kind::Drop => Event::Drop(scheduler.message(world)?),
        Kind::Duplicate => Event::Duplicate(scheduler.message(world)?),
        Kind::TimeOut => Event::TimeOut { cell, process },
        Kind::Crash => Event::Crash { cell, process: Process::Client },
        Kind::Pause if is_paused => Event::Resume { cell },
        Kind::Pause if scheduler.below(3) == 0 => Event::Pause { cell },
        Kind::Partition if world.cell(cell)?.is_cut_off => Event::Heal { cell },
        Kind::Partition if scheduler.below(3) == 0 => Event::Partition { cell },
        Kind::PauseService if world.service().is_paused => Event::ResumeService,
        Kind::PauseService if scheduler.below(3) == 0 => Event::PauseService,
        Kind::Restart if !world.service().is_up => Event::StartService,
        Kind::Restart if scheduler.below(3) == 0 => Event::StopService,
        Kind::Pause | Kind::Partition | Kind::PauseService | Kind::Restart => return None,
        Kind::Operator if scheduler.below(2) == 0 => Event::Evict { cell },
        Kind::Operator if world.has_queue() => return None,
        Kind::Operator => Event::Force { lock: lock(scheduler, world) },
        Kind::Wait => Event::Wait { seconds: scheduler.pick(&WAITS)? },
        // A retry waits by the wall clock (Q13), so a jump back by an hour delays it for an hour of ticks.
        Kind::Jump if world.has_queue() => Event::JumpClock { seconds: scheduler.pick(&[-5, 5])? },
        Kind::Jump => Event::JumpClock { seconds: scheduler.pick(&JUMPS)? },
        Kind::Forget => Event::Forget,
    })
}

fn lock(scheduler: &mut RandomScheduler, world: &World) -> u8 {
    let count = world.locks().map_or(1, |locks| locks.terms.count);
    scheduler.below(count.into()) as u8
}
