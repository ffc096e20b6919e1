//! The events that are possible in the present state of a world. Saves, changes by plain SQL, works
//! under locks or on a queue, submits, waits and jumps of the clock take free parameters, so they are
//! not listed.

use crate::event::Event;
use crate::process::Process;
use crate::world::World;

/// Returns every event that is possible in the present state, except those that take free
/// parameters.
pub fn events(world: &World) -> Vec<Event> {
    let mut events = Vec::with_capacity(32);
    for cell in 1..=world.settings().cells {
        of_cell(world, cell, &mut events);
    }
    for message in world.network().messages() {
        let id = message.id;
        events.extend([Event::Deliver(id), Event::Drop(id), Event::Duplicate(id), Event::CancelCall(id)]);
    }
    events.extend([Event::TakeBack, Event::StopService, Event::StartService, Event::Forget]);
    events.extend([Event::PauseService, Event::ResumeService, Event::Tick, Event::Decide]);
    let locks = world.locks().map_or(0, |locks| locks.terms.count);
    events.extend((0..locks).map(|lock| Event::Force { lock }));
    events.retain(|event| world.is_possible(*event));
    events
}

fn of_cell(world: &World, cell: u8, events: &mut Vec<Event>) {
    for worker in 0..world.settings().workers {
        events.extend([
            Event::FinishCommit { cell, worker },
            Event::LoseCommit { cell, worker },
            Event::Disconnect { cell, worker },
        ]);
        of_process(cell, Process::Worker(worker), events);
    }
    (0..world.settings().reconcilers).for_each(|number| of_process(cell, Process::Reconciler(number), events));
    of_process(cell, Process::Verifier, events);
    events.extend([
        Event::Replicate { cell },
        Event::RestartDatabase { cell },
        Event::Partition { cell },
        Event::Heal { cell },
    ]);
    if world.locks().is_some() {
        of_process(cell, Process::Client, events);
        of_process(cell, Process::Keepalive, events);
        of_process(cell, Process::Front, events);
        events.extend([Event::FailWork { cell }, Event::GiveBack { cell }]);
        events.extend([Event::Close { cell }, Event::Pause { cell }, Event::Resume { cell }, Event::Evict { cell }]);
    }
}

fn of_process(cell: u8, process: Process, events: &mut Vec<Event>) {
    events.extend([Event::Step { cell, process }, Event::TimeOut { cell, process }, Event::Crash { cell, process }]);
}
