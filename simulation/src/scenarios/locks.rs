//! Scenarios of sessions and locks.

use super::{Draft, End, Shape};
use crate::event::Event;
use crate::lock_client::{WorkPhase, WorkResult};
use crate::process::Process;
use crate::script::Script;
use crate::settings::{LockSettings, Mode};

/// The number of the one lock of these scenarios.
const BACKUP: u8 = 0;
/// The terms of sessions: a duration of three seconds, a grace of one, and a tick a second. A session
/// expires at the fifth tick without a renewal.
const TERMS: LockSettings =
    LockSettings { count: 1, lanes: 0, duration_seconds: 3, grace_seconds: 1, tick_millis: 1000 };
const TICKS_TO_EXPIRE: u32 = 5;

const fn cells(cells: u8) -> Shape {
    Shape { cells, workers: 1, mode: Mode::BeforeCommit, locks: Some(TERMS) }
}

pub(super) const ALL: &[Draft] = &[happy_lock(), holder_dies(), holder_sleeps(), restart(), queue()];

/// The end of a scenario in which two clients work one after the other.
const DONE: End =
    End { worked: &[(1, WorkResult::Done), (2, WorkResult::Done)], writes: &[(BACKUP, 4, 0)], ..End::NONE };

const fn happy_lock() -> Draft {
    Draft {
        id: "lock",
        title: "A lock: one holder after the other",
        watch: "The second client waits. The release writes the next holder in the same step, with a larger fence.",
        shape: cells(2),
        play: |script| {
            script.work(1, BACKUP, WorkPhase::WriteResource).work(2, BACKUP, WorkPhase::AwaitGrant);
            script.renew(1).deliver_request(2, Process::Client).run_client(1).run_client(2);
        },
        end: DONE,
    }
}

const fn holder_dies() -> Draft {
    Draft {
        id: "lock-holder-dies",
        title: "A lock: its holder dies",
        watch: "The session is silent for duration and grace, counted in ticks. Then the lock passes on to the client that waits.",
        shape: cells(2),
        play: |script| {
            script.work(1, BACKUP, WorkPhase::Check).work(2, BACKUP, WorkPhase::AwaitGrant);
            script.deliver_request(2, Process::Client);
            script.event(Event::Crash { cell: 1, process: Process::Client });
            script.ticks(TICKS_TO_EXPIRE, &[2]).run_client(2);
        },
        end: End { worked: &[(1, WorkResult::Died), (2, WorkResult::Done)], writes: &[(BACKUP, 2, 0)], ..End::NONE },
    }
}

const fn holder_sleeps() -> Draft {
    Draft {
        id: "lock-holder-sleeps",
        title: "A lock: its holder sleeps, and wakes with an old fence",
        watch: "The first client is paused between its look at the clock and its write. The resource has seen a newer fence, and refuses the late write.",
        shape: cells(2),
        play: |script| {
            script.work(1, BACKUP, WorkPhase::WriteResource).work(2, BACKUP, WorkPhase::AwaitGrant);
            script.deliver_request(2, Process::Client).event(Event::Pause { cell: 1 });
            script.ticks(TICKS_TO_EXPIRE, &[2]).run_client(2);
            script.event(Event::Resume { cell: 1 }).run_client(1);
        },
        end: End { worked: &[(1, WorkResult::Fenced), (2, WorkResult::Done)], writes: &[(BACKUP, 2, 1)], ..End::NONE },
    }
}

const fn restart() -> Draft {
    Draft {
        id: "lock-restart",
        title: "A lock: the service restarts",
        watch: "Renewals are in memory only, so a restart forgets them. It gives each session its whole duration again, and no lock passes on.",
        shape: cells(2),
        play: |script| {
            script.work(1, BACKUP, WorkPhase::Check).work(2, BACKUP, WorkPhase::AwaitGrant);
            script.deliver_request(2, Process::Client).ticks(2, &[1, 2]);
            script.event(Event::StopService).wait(2).event(Event::StartService);
            script.event(Event::TimeOut { cell: 2, process: Process::Client });
            script.run_client_until(2, WorkPhase::AwaitGrant).deliver_request(2, Process::Client);
            script.ticks(2, &[1, 2]).run_client(1).run_client(2);
        },
        end: DONE,
    }
}

const fn queue() -> Draft {
    Draft {
        id: "lock-queue",
        title: "A lock: a queue of three that wait",
        watch: "Each release wakes one client, in the order of arrival. A client that leaves the queue costs the others nothing.",
        shape: cells(4),
        play: |script| {
            script.work(1, BACKUP, WorkPhase::Check);
            for cell in [2, 3, 4] {
                script.work(cell, BACKUP, WorkPhase::AwaitGrant).deliver_request(cell, Process::Client);
            }
            // The client of cell 3 has no more patience: it asks twice more, and then leaves.
            for _ in 0..3 {
                script.event(Event::TimeOut { cell: 3, process: Process::Client });
                script.event(Event::Step { cell: 3, process: Process::Client });
                script.deliver_request(3, Process::Client);
            }
            script.run_client(3).run_client(1).run_client(2).run_client(4);
        },
        end: End {
            worked: &[(1, WorkResult::Done), (2, WorkResult::Done), (3, WorkResult::GaveUp), (4, WorkResult::Done)],
            writes: &[(BACKUP, 6, 0)],
            ..End::NONE
        },
    }
}

impl Script {
    /// Adds the event that a program asks for work under a lock, and the events of its client until
    /// `phase`.
    fn work(&mut self, cell: u8, lock: u8, phase: WorkPhase) -> &mut Self {
        self.event(Event::Work { cell, lock }).run_client_until(cell, phase)
    }

    /// Adds the events of a client until its task has ended.
    fn run_client(&mut self, cell: u8) -> &mut Self {
        self.run(cell, Process::Client)
    }

    /// Adds the events of one renewal.
    fn renew(&mut self, cell: u8) -> &mut Self {
        self.run(cell, Process::Keepalive)
    }

    /// Adds as many ticks, each with its decisions. Before each tick these cells renew.
    fn ticks(&mut self, count: u32, renewing: &[u8]) -> &mut Self {
        for _ in 0..count {
            renewing.iter().for_each(|cell| _ = self.renew(*cell));
            self.event(Event::Tick).event(Event::Decide);
        }
        self
    }
}
