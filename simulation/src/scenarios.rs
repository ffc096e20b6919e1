//! The failure modes of a save, of a lock and of a queue, each as a recorded run to watch. The ids of
//! the first are the numbers of the protocol's failure points.

mod locks;
mod queues;

use leasehold_core::rejection::Reason;
use serde::Serialize;

use crate::event::{Change, Drift, Event};
use crate::lock_client::WorkResult;
use crate::process::Process;
use crate::script::Script;
use crate::settings::{InvalidSettings, LockSettings, Mode, WorldSettings};
use crate::trace::Trace;
use crate::worker::{Phase, SaveResult};

/// The numbers of the names that scenarios use: `alice`, `bob` and `carol`.
const ALICE: u8 = 0;
const BOB: u8 = 1;
const CAROL: u8 = 2;

/// A time longer than the age at which a lease becomes stale.
const STALE_SECONDS: u32 = 660;

/// A recorded run that a reader watches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scenario {
    /// The scenario's name in links.
    pub id: &'static str,
    /// The scenario's title on a page.
    pub title: &'static str,
    /// A sentence about the point of the scenario.
    pub watch: &'static str,
    /// The state of the world after the last event, which a test compares.
    pub end: End,
    /// The settings and events of the scenario.
    pub trace: Trace,
}

/// The final state of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    /// The claims at rest in the final state, each as number of the name, cell and row.
    pub claims: &'static [(u8, u8, u32)],
    /// The committed rows in the final state, each as cell, row and number of the name.
    pub rows: &'static [(u8, u32, u8)],
    /// The results of the last saves, each as cell, worker and result.
    pub told: &'static [(u8, u8, SaveResult)],
    /// The number of leases that are outstanding in the final state.
    pub outstanding: u32,
    /// The number of lease rows in the cells' databases in the final state.
    pub lease_rows: u32,
    /// The results of the last tasks of clients in the final state, each as cell and result.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub worked: &'static [(u8, WorkResult)],
    /// The requests of the queue in the final state, each as its number and its state.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub requests: &'static [(u32, &'static str)],
    /// The writes to the resources of locks or lanes, each as number of the lock or lane, accepted and
    /// refused writes.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub writes: &'static [(u8, u32, u32)],
}

impl End {
    /// The final state of a world without work.
    const NONE: Self = Self {
        claims: &[],
        rows: &[],
        told: &[],
        outstanding: 0,
        lease_rows: 0,
        worked: &[],
        requests: &[],
        writes: &[],
    };
}

/// The settings in which the worlds of scenarios differ.
struct Shape {
    cells: u8,
    workers: u8,
    mode: Mode,
    locks: Option<LockSettings>,
}

impl Shape {
    fn settings(&self) -> WorldSettings {
        let Self { cells, workers, mode, locks } = *self;
        let mut settings = WorldSettings { cells, workers, modes: vec![mode], locks, ..WorldSettings::default() };
        if locks.is_some() {
            (settings.reconcilers, settings.names) = (0, 1);
        }
        settings
    }
}

/// A scenario whose events have not been played yet. It is a constant: code that builds the drafts
/// would take kilobytes of WebAssembly.
struct Draft {
    id: &'static str,
    title: &'static str,
    watch: &'static str,
    shape: Shape,
    play: fn(&mut Script),
    end: End,
}

impl Draft {
    fn finish(&self) -> Result<Scenario, InvalidSettings> {
        let mut script = Script::new(self.shape.settings())?;
        (self.play)(&mut script);
        let Self { id, title, watch, end, .. } = *self;
        Ok(Scenario { id, title, watch, end, trace: script.into_trace() })
    }
}

/// Returns every scenario, in the order in which a reader should watch them.
///
/// # Errors
/// Never in practice: a test plays every scenario.
pub fn all() -> Result<Vec<Scenario>, InvalidSettings> {
    const DRAFTS: &[Draft] = &[
        happy_path(),
        happy_path_lease_first(),
        invalid(),
        taken(),
        lost_answer(),
        no_answer(),
        local_conflict(),
        crash_in_transaction(),
        crash_after_commit(),
        service_down_at_commit(),
        row_left_behind(),
        collision(),
        transfer(),
        concurrent_creation(),
        staleness_race(),
    ];
    DRAFTS.iter().chain(locks::ALL).chain(queues::ALL).map(Draft::finish).collect()
}

const fn cells(cells: u8, workers: u8, mode: Mode) -> Shape {
    Shape { cells, workers, mode, locks: None }
}

const fn happy_path() -> Draft {
    Draft {
        id: "happy-path",
        title: "Happy path",
        watch: "The name is claimed immediately before the local COMMIT, and becomes active once the lease is committed.",
        shape: cells(1, 1, Mode::BeforeCommit),
        play: |script| _ = script.save(1, 0, Change::Create(ALICE)),
        end: End { claims: &[(ALICE, 1, 1)], rows: &[(1, 1, ALICE)], told: &[(1, 0, SaveResult::Saved)], ..End::NONE },
    }
}

const fn happy_path_lease_first() -> Draft {
    Draft {
        id: "happy-path-lease-first",
        title: "Happy path, the lease first",
        watch: "The lease begins before the local BEGIN, so no transaction waits for the network.",
        shape: cells(1, 1, Mode::LeaseFirst),
        play: |script| _ = script.save(1, 0, Change::CreateTwo([ALICE, BOB])),
        end: End {
            claims: &[(ALICE, 1, 1), (BOB, 1, 2)],
            rows: &[(1, 1, ALICE), (1, 2, BOB)],
            told: &[(1, 0, SaveResult::Saved)],
            ..End::NONE
        },
    }
}

const fn invalid() -> Draft {
    Draft {
        id: "1",
        title: "1: validation fails",
        watch: "No request is sent: an invalid change gets no further than its own cell.",
        shape: cells(1, 1, Mode::BeforeCommit),
        play: |script| _ = script.save(1, 0, Change::Invalid),
        end: End { told: &[(1, 0, SaveResult::Invalid)], ..End::NONE },
    }
}

const fn taken() -> Draft {
    Draft {
        id: "2a",
        title: "2A: the name is taken",
        watch: "The service refuses the second cell for good, and the cell rolls its local transaction back.",
        shape: cells(2, 1, Mode::BeforeCommit),
        play: |script| _ = script.save(1, 0, Change::Create(ALICE)).save(2, 0, Change::Create(ALICE)),
        end: End {
            claims: &[(ALICE, 1, 1)],
            rows: &[(1, 1, ALICE)],
            told: &[(1, 0, SaveResult::Saved), (2, 0, SaveResult::Refused(Reason::ClaimTaken))],
            ..End::NONE
        },
    }
}

const fn lost_answer() -> Draft {
    Draft {
        id: "2b",
        title: "2B: the answer to a begin is lost",
        watch: "The second attempt carries the same key, so it gets the same lease instead of colliding with the first.",
        shape: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            let worker = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::AwaitBegin);
            script.deliver_request(1, worker).lose_answer(1, worker).run(1, worker);
        },
        end: End { claims: &[(ALICE, 1, 1)], rows: &[(1, 1, ALICE)], told: &[(1, 0, SaveResult::Saved)], ..End::NONE },
    }
}

const fn no_answer() -> Draft {
    Draft {
        id: "2b-twice",
        title: "2B: both answers to a begin are lost",
        watch: "After the local rollback the worker repeats the begin with its key and rolls the lease back: the name is free.",
        shape: cells(1, 1, Mode::LeaseFirst),
        play: |script| {
            let worker = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::AwaitBegin);
            script.deliver_request(1, worker).lose_answer(1, worker).run_worker_until(1, 0, Phase::AwaitBegin);
            script.deliver_request(1, worker).lose_answer(1, worker).run(1, worker);
        },
        end: End { told: &[(1, 0, SaveResult::Unavailable)], ..End::NONE },
    }
}

const fn local_conflict() -> Draft {
    Draft {
        id: "3a",
        title: "3A: the local database refuses the rows",
        watch: "The lease begins, the local transaction fails, and the lease is rolled back: the old name stays claimed.",
        shape: cells(1, 1, Mode::LeaseFirst),
        play: |script| {
            script.save(1, 0, Change::Create(ALICE));
            // Plain SQL inserts a row with this name and claims nothing, so that only the local
            // database refuses the name.
            script.event(Event::Drift { cell: 1, drift: Drift::Insert(BOB) });
            script.save(1, 0, Change::Rename { row: 1, name: BOB });
        },
        end: End {
            claims: &[(ALICE, 1, 1)],
            rows: &[(1, 1, ALICE), (1, 2, BOB)],
            told: &[(1, 0, SaveResult::Conflict)],
            ..End::NONE
        },
    }
}

const fn crash_in_transaction() -> Draft {
    Draft {
        id: "3b",
        title: "3B: the process dies in its transaction",
        watch: "No lease row was committed, so reconciliation rolls the lease back once it is stale: the name is free.",
        shape: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            let process = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::Commit);
            script.event(Event::Crash { cell: 1, process });
            script.run(1, Process::Reconciler(0)).wait(STALE_SECONDS).run(1, Process::Reconciler(0));
        },
        end: End { told: &[(1, 0, SaveResult::Unknown)], ..End::NONE },
    }
}

const fn crash_after_commit() -> Draft {
    Draft {
        id: "4a",
        title: "4A: the process dies before it commits the lease",
        watch: "The lease row proves the local COMMIT, so reconciliation commits the lease.",
        shape: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            let process = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::CommitLease);
            script.event(Event::Crash { cell: 1, process });
            script.wait(STALE_SECONDS).run(1, Process::Reconciler(0));
        },
        end: End {
            claims: &[(ALICE, 1, 1)],
            rows: &[(1, 1, ALICE)],
            told: &[(1, 0, SaveResult::Unknown)],
            ..End::NONE
        },
    }
}

const fn service_down_at_commit() -> Draft {
    Draft {
        id: "4b",
        title: "4B: the service is down at commit",
        watch: "The rows are saved, and the user learns that; the lease waits for the service and for reconciliation.",
        shape: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::CommitLease);
            script.event(Event::StopService).run(1, Process::Worker(0));
            script.event(Event::StartService).wait(STALE_SECONDS).run(1, Process::Reconciler(0));
        },
        end: End { claims: &[(ALICE, 1, 1)], rows: &[(1, 1, ALICE)], told: &[(1, 0, SaveResult::Saved)], ..End::NONE },
    }
}

const fn row_left_behind() -> Draft {
    Draft {
        id: "5a",
        title: "5A: the lease row is left behind",
        watch: "Reconciliation finds a lease row without an outstanding lease, asks for the lease's outcome, and deletes the row.",
        shape: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            let process = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::DeleteRow);
            script.event(Event::Crash { cell: 1, process });
            script.wait(STALE_SECONDS).run(1, Process::Reconciler(0));
        },
        end: End {
            claims: &[(ALICE, 1, 1)],
            rows: &[(1, 1, ALICE)],
            told: &[(1, 0, SaveResult::Unknown)],
            ..End::NONE
        },
    }
}

const fn collision() -> Draft {
    Draft {
        id: "collision",
        title: "Collision: a user renames a row that an administrator deletes",
        watch: "The first lease holds the old name, so the second save is refused as busy and can be repeated.",
        shape: cells(1, 2, Mode::LeaseFirst),
        play: |script| {
            script.save(1, 0, Change::Create(ALICE));
            script.request_save(1, 0, Change::Rename { row: 1, name: BOB }).run_worker_until(1, 0, Phase::Write);
            script.save(1, 1, Change::Delete(1)).run(1, Process::Worker(0));
        },
        end: End {
            claims: &[(BOB, 1, 1)],
            rows: &[(1, 1, BOB)],
            told: &[(1, 0, SaveResult::Saved), (1, 1, SaveResult::Refused(Reason::ClaimBusy))],
            ..End::NONE
        },
    }
}

const fn transfer() -> Draft {
    Draft {
        id: "transfer",
        title: "Transfer: two operations move one name",
        watch: "Destroy and create of the same name are one replace without a gap; the second transfer finds the name busy.",
        shape: cells(1, 2, Mode::LeaseFirst),
        play: |script| {
            script.save(1, 0, Change::CreateTwo([ALICE, BOB])).save(1, 0, Change::Create(CAROL));
            script.request_save(1, 0, Change::Transfer { from: 1, to: 2 }).run_worker_until(1, 0, Phase::Write);
            script.save(1, 1, Change::Transfer { from: 1, to: 3 }).run(1, Process::Worker(0));
        },
        end: End {
            claims: &[(ALICE, 1, 2), (CAROL, 1, 3)],
            rows: &[(1, 2, ALICE), (1, 3, CAROL)],
            told: &[(1, 0, SaveResult::Saved), (1, 1, SaveResult::Refused(Reason::ClaimBusy))],
            ..End::NONE
        },
    }
}

const fn concurrent_creation() -> Draft {
    Draft {
        id: "concurrent-creation",
        title: "Concurrent creation: two cells want the same name",
        watch: "The first begin wins; the other cell finds the name busy while the lease is outstanding, and taken once it is committed.",
        shape: cells(2, 1, Mode::BeforeCommit),
        play: |script| {
            script.request_save(1, 0, Change::Create(ALICE)).request_save(2, 0, Change::Create(ALICE));
            script.run_worker_until(1, 0, Phase::AwaitBegin).run_worker_until(2, 0, Phase::AwaitBegin);
            script.deliver_request(1, Process::Worker(0)).run(2, Process::Worker(0));
            script.run(1, Process::Worker(0)).save(2, 0, Change::Create(ALICE));
        },
        end: End {
            claims: &[(ALICE, 1, 1)],
            rows: &[(1, 1, ALICE)],
            told: &[(1, 0, SaveResult::Saved), (2, 0, SaveResult::Refused(Reason::ClaimTaken))],
            ..End::NONE
        },
    }
}

const fn staleness_race() -> Draft {
    Draft {
        id: "staleness-race",
        title: "Staleness race: a process sleeps through its lease",
        watch: "Reconciliation gives the lease up; the process wakes, and its own database refuses the late COMMIT.",
        shape: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::Commit);
            script.wait(STALE_SECONDS).run(1, Process::Reconciler(0)).run(1, Process::Worker(0));
        },
        end: End { told: &[(1, 0, SaveResult::TooLate)], ..End::NONE },
    }
}
