//! Scenarios of a queue: fronts hand requests over to workers.

use super::{Draft, End, Shape};
use crate::event::Event;
use crate::lock_client::{WorkPhase, WorkResult};
use crate::process::Process;
use crate::queue_message::WorkKind::{self, Create, Poison, Update};
use crate::script::Script;
use crate::settings::{LockSettings, Mode};

/// The numbers of the two sheets of these scenarios.
const BLUE: u8 = 0;
const GREEN: u8 = 1;
/// The terms of sessions: a duration of three seconds, a grace of one, and a tick a second. A session
/// expires at the fifth tick without a renewal.
const TERMS: LockSettings =
    LockSettings { count: 0, lanes: 2, duration_seconds: 3, grace_seconds: 1, tick_millis: 1000 };
const TICKS_TO_EXPIRE: u32 = 5;
/// The number of ticks until the second attempt of a request whose worker was lost. The first one comes
/// some milliseconds too early, since the lane is taken back after a tick.
const TICKS_TO_RETRY: u32 = 2;
/// The most proposals of one tick in these scenarios: the end of a session, and a lane to take back.
const PROPOSALS: u32 = 2;

const fn world() -> Shape {
    Shape { cells: 2, workers: 1, mode: Mode::BeforeCommit, locks: Some(TERMS) }
}

pub(super) const ALL: &[Draft] = &[spreadsheets(), updates(), worker_dies(), worker_sleeps(), poison()];

/// Returns the first requests, at most six, each as complete.
const fn complete(requests: usize) -> &'static [(u32, &'static str)] {
    const ALL: &[(u32, &str)] =
        &[(1, "Complete"), (2, "Complete"), (3, "Complete"), (4, "Complete"), (5, "Complete"), (6, "Complete")];
    ALL.split_at(requests).0
}

/// The example of seed 001. The processes A and B are the clients of the cells 1 and 2.
const fn spreadsheets() -> Draft {
    Draft {
        id: "queue",
        title: "A queue: two workers, two spreadsheets",
        watch: "The first worker creates the blue sheet. The second one skips the updates behind that create, and works on the green sheet.",
        shape: world(),
        play: |script| {
            // The create of the green sheet is complete before the picture begins.
            script.submit(1, GREEN, Create).serve_all(1);
            // Both are idle, until the submit wakes the first.
            script.await_work(1).await_work(2).submit(1, BLUE, Create);
            script.run_client_until(1, WorkPhase::WriteResource);
            script.submit(1, BLUE, Update).submit(1, BLUE, Update);
            script.submit(1, GREEN, Update).submit(1, GREEN, Update);
            script.serve_rest(2).serve_rest(1).serve_all(2).serve_all(1);
        },
        end: End {
            worked: &[(1, WorkResult::Done), (2, WorkResult::Done)],
            requests: complete(6),
            writes: &[(BLUE, 2, 0), (GREEN, 3, 0)],
            ..End::NONE
        },
    }
}

const fn updates() -> Draft {
    Draft {
        id: "queue-updates",
        title: "A queue: updates are taken as one",
        watch: "Three updates come while the worker has the first one. None is lost: they are the next batch, and cost one write.",
        shape: world(),
        play: |script| {
            script.submit(1, BLUE, Update).serve(2, WorkPhase::Check);
            script.submit(1, BLUE, Update).submit(1, BLUE, Update).submit(1, BLUE, Update);
            script.serve_rest(2).serve_all(2);
        },
        end: End {
            worked: &[(2, WorkResult::Done)],
            requests: complete(4),
            writes: &[(BLUE, 2, 0), (GREEN, 0, 0)],
            ..End::NONE
        },
    }
}

const fn worker_dies() -> Draft {
    Draft {
        id: "queue-worker-dies",
        title: "A queue: a worker dies, another one takes over",
        watch: "The session of the dead worker expires, so its request is new again. The attempt counts, and the next fence is larger.",
        shape: world(),
        play: |script| {
            script.submit(1, BLUE, Update).serve(1, WorkPhase::WriteResource);
            script.event(Event::Crash { cell: 1, process: Process::Client }).await_work(2);
            script.decided_ticks(TICKS_TO_EXPIRE + TICKS_TO_RETRY, &[2]).serve_rest(2);
        },
        end: End {
            worked: &[(1, WorkResult::Died), (2, WorkResult::Done)],
            requests: complete(1),
            writes: &[(BLUE, 1, 0), (GREEN, 0, 0)],
            ..End::NONE
        },
    }
}

const fn worker_sleeps() -> Draft {
    Draft {
        id: "queue-worker-sleeps",
        title: "A queue: a worker sleeps, and settles too late",
        watch: "The first worker is paused before it settles. Another one has the lane by then, with more updates, so the late settle is refused.",
        shape: world(),
        play: |script| {
            script.submit(1, BLUE, Update).serve(1, WorkPhase::Settle).event(Event::Pause { cell: 1 });
            script.submit(2, BLUE, Update).await_work(2);
            script.decided_ticks(TICKS_TO_EXPIRE + TICKS_TO_RETRY, &[2]);
            script.run_client_until(2, WorkPhase::WriteResource);
            script.event(Event::Resume { cell: 1 }).serve_rest(1).serve_rest(2);
        },
        end: End {
            worked: &[(1, WorkResult::Lost), (2, WorkResult::Done)],
            requests: complete(2),
            writes: &[(BLUE, 2, 0), (GREEN, 0, 0)],
            ..End::NONE
        },
    }
}

const fn poison() -> Draft {
    Draft {
        id: "queue-poison",
        title: "A queue: a request that ends its workers",
        watch: "Each attempt counts when it is taken. So after the last one the poison is in error, and the update behind it goes on.",
        shape: world(),
        play: |script| {
            script.submit(1, BLUE, Poison).serve_all(1).submit(1, GREEN, Update).await_work(2);
            // The green sheet is not held back by the blue one.
            script.serve_rest(2).await_work(2);
            script.decided_ticks(TICKS_TO_EXPIRE + TICKS_TO_RETRY, &[2]).serve_rest(2);
            script.submit(1, BLUE, Update).await_work(1).decided_ticks(TICKS_TO_EXPIRE, &[1]).serve_rest(1);
        },
        end: End {
            worked: &[(1, WorkResult::Done), (2, WorkResult::Died)],
            requests: &[(1, "Error"), (2, "Complete"), (3, "Complete")],
            writes: &[(BLUE, 1, 0), (GREEN, 1, 0)],
            ..End::NONE
        },
    }
}

impl Script {
    /// Adds the events of a submit that runs without faults to its end.
    fn submit(&mut self, cell: u8, lane: u8, kind: WorkKind) -> &mut Self {
        self.event(Event::Submit { cell, lane, kind }).run(cell, Process::Front)
    }

    /// Adds the event that a program asks for work, and the events of its client until `phase`.
    fn serve(&mut self, cell: u8, phase: WorkPhase) -> &mut Self {
        self.event(Event::Serve { cell }).run_client_until(cell, phase)
    }

    /// Adds the events of a client that serves until its task has ended.
    fn serve_all(&mut self, cell: u8) -> &mut Self {
        self.event(Event::Serve { cell }).serve_rest(cell)
    }

    /// Adds the events of a client until the task that it has begun has ended.
    fn serve_rest(&mut self, cell: u8) -> &mut Self {
        self.run(cell, Process::Client)
    }

    /// Adds the events of a client that asks for work, until its request has arrived.
    fn await_work(&mut self, cell: u8) -> &mut Self {
        self.serve(cell, WorkPhase::AwaitTake).deliver_request(cell, Process::Client)
    }

    /// Adds as many ticks, each with all its decisions. Before each tick these cells renew.
    fn decided_ticks(&mut self, count: u32, renewing: &[u8]) -> &mut Self {
        for _ in 0..count {
            renewing.iter().for_each(|cell| _ = self.run(*cell, Process::Keepalive));
            self.event(Event::Tick);
            (0..PROPOSALS).for_each(|_| _ = self.event(Event::Decide));
        }
        self
    }
}
