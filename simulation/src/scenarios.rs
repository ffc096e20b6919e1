//! The failure modes of a save, and those of a lock, each as a recorded run to watch. The ids of
//! the first are the numbers of the protocol's failure points.

mod locks;

use leasehold_core::rejection::Reason;
use serde::Serialize;

use crate::event::{Change, Drift, Event};
use crate::lock_client::WorkResult;
use crate::process::Process;
use crate::script::Script;
use crate::settings::{InvalidSettings, Mode, WorldSettings};
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct End {
    /// The claims at rest in the final state, each as number of the name, cell and row.
    pub claims: Vec<(u8, u8, u32)>,
    /// The committed rows in the final state, each as cell, row and number of the name.
    pub rows: Vec<(u8, u32, u8)>,
    /// The results of the last saves, each as cell, worker and result.
    pub told: Vec<(u8, u8, SaveResult)>,
    /// The number of leases that are outstanding in the final state.
    pub outstanding: u32,
    /// The number of lease rows in the cells' databases in the final state.
    pub lease_rows: u32,
    /// The results of the last tasks of clients in the final state, each as cell and result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worked: Vec<(u8, WorkResult)>,
    /// The writes to the resources of locks, each as number of the lock, accepted and refused writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<(u8, u32, u32)>,
}

/// A scenario whose events have not been played yet.
struct Draft {
    id: &'static str,
    title: &'static str,
    watch: &'static str,
    settings: WorldSettings,
    play: fn(&mut Script),
    end: End,
}

impl Draft {
    fn finish(self) -> Result<Scenario, InvalidSettings> {
        let mut script = Script::new(self.settings)?;
        (self.play)(&mut script);
        let Self { id, title, watch, end, .. } = self;
        Ok(Scenario { id, title, watch, end, trace: script.into_trace() })
    }
}

/// Returns every scenario, in the order in which a reader should watch them.
///
/// # Errors
/// Never in practice: a test plays every scenario.
pub fn all() -> Result<Vec<Scenario>, InvalidSettings> {
    let drafts = [
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
    drafts.into_iter().chain(locks::all()).map(Draft::finish).collect()
}

fn cells(cells: u8, workers: u8, mode: Mode) -> WorldSettings {
    WorldSettings { cells, workers, modes: vec![mode], ..WorldSettings::default() }
}

fn happy_path() -> Draft {
    Draft {
        id: "happy-path",
        title: "Happy path",
        watch: "The name is claimed immediately before the local COMMIT, and becomes active once the lease is committed.",
        settings: cells(1, 1, Mode::BeforeCommit),
        play: |script| _ = script.save(1, 0, Change::Create(ALICE)),
        end: End {
            claims: vec![(ALICE, 1, 1)],
            rows: vec![(1, 1, ALICE)],
            told: vec![(1, 0, SaveResult::Saved)],
            ..End::default()
        },
    }
}

fn happy_path_lease_first() -> Draft {
    Draft {
        id: "happy-path-lease-first",
        title: "Happy path, the lease first",
        watch: "The lease begins before the local BEGIN, so no transaction waits for the network.",
        settings: cells(1, 1, Mode::LeaseFirst),
        play: |script| _ = script.save(1, 0, Change::CreateTwo([ALICE, BOB])),
        end: End {
            claims: vec![(ALICE, 1, 1), (BOB, 1, 2)],
            rows: vec![(1, 1, ALICE), (1, 2, BOB)],
            told: vec![(1, 0, SaveResult::Saved)],
            ..End::default()
        },
    }
}

fn invalid() -> Draft {
    Draft {
        id: "1",
        title: "1: validation fails",
        watch: "No request is sent: an invalid change gets no further than its own cell.",
        settings: cells(1, 1, Mode::BeforeCommit),
        play: |script| _ = script.save(1, 0, Change::Invalid),
        end: End { told: vec![(1, 0, SaveResult::Invalid)], ..End::default() },
    }
}

fn taken() -> Draft {
    Draft {
        id: "2a",
        title: "2A: the name is taken",
        watch: "The service refuses the second cell for good, and the cell rolls its local transaction back.",
        settings: cells(2, 1, Mode::BeforeCommit),
        play: |script| _ = script.save(1, 0, Change::Create(ALICE)).save(2, 0, Change::Create(ALICE)),
        end: End {
            claims: vec![(ALICE, 1, 1)],
            rows: vec![(1, 1, ALICE)],
            told: vec![(1, 0, SaveResult::Saved), (2, 0, SaveResult::Refused(Reason::ClaimTaken))],
            ..End::default()
        },
    }
}

fn lost_answer() -> Draft {
    Draft {
        id: "2b",
        title: "2B: the answer to a begin is lost",
        watch: "The second attempt carries the same key, so it gets the same lease instead of colliding with the first.",
        settings: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            let worker = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::AwaitBegin);
            script.deliver_request(1, worker).lose_answer(1, worker).run(1, worker);
        },
        end: End {
            claims: vec![(ALICE, 1, 1)],
            rows: vec![(1, 1, ALICE)],
            told: vec![(1, 0, SaveResult::Saved)],
            ..End::default()
        },
    }
}

fn no_answer() -> Draft {
    Draft {
        id: "2b-twice",
        title: "2B: both answers to a begin are lost",
        watch: "After the local rollback the worker repeats the begin with its key and rolls the lease back: the name is free.",
        settings: cells(1, 1, Mode::LeaseFirst),
        play: |script| {
            let worker = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::AwaitBegin);
            script.deliver_request(1, worker).lose_answer(1, worker).run_worker_until(1, 0, Phase::AwaitBegin);
            script.deliver_request(1, worker).lose_answer(1, worker).run(1, worker);
        },
        end: End { told: vec![(1, 0, SaveResult::Unavailable)], ..End::default() },
    }
}

fn local_conflict() -> Draft {
    Draft {
        id: "3a",
        title: "3A: the local database refuses the rows",
        watch: "The lease begins, the local transaction fails, and the lease is rolled back: the old name stays claimed.",
        settings: cells(1, 1, Mode::LeaseFirst),
        play: |script| {
            script.save(1, 0, Change::Create(ALICE));
            // Plain SQL inserts a row with this name and claims nothing, so that only the local
            // database refuses the name.
            script.event(Event::Drift { cell: 1, drift: Drift::Insert(BOB) });
            script.save(1, 0, Change::Rename { row: 1, name: BOB });
        },
        end: End {
            claims: vec![(ALICE, 1, 1)],
            rows: vec![(1, 1, ALICE), (1, 2, BOB)],
            told: vec![(1, 0, SaveResult::Conflict)],
            ..End::default()
        },
    }
}

fn crash_in_transaction() -> Draft {
    Draft {
        id: "3b",
        title: "3B: the process dies in its transaction",
        watch: "No lease row was committed, so reconciliation rolls the lease back once it is stale: the name is free.",
        settings: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            let process = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::Commit);
            script.event(Event::Crash { cell: 1, process });
            script.run(1, Process::Reconciler(0)).wait(STALE_SECONDS).run(1, Process::Reconciler(0));
        },
        end: End { told: vec![(1, 0, SaveResult::Unknown)], ..End::default() },
    }
}

fn crash_after_commit() -> Draft {
    Draft {
        id: "4a",
        title: "4A: the process dies before it commits the lease",
        watch: "The lease row proves the local COMMIT, so reconciliation commits the lease.",
        settings: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            let process = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::CommitLease);
            script.event(Event::Crash { cell: 1, process });
            script.wait(STALE_SECONDS).run(1, Process::Reconciler(0));
        },
        end: End {
            claims: vec![(ALICE, 1, 1)],
            rows: vec![(1, 1, ALICE)],
            told: vec![(1, 0, SaveResult::Unknown)],
            ..End::default()
        },
    }
}

fn service_down_at_commit() -> Draft {
    Draft {
        id: "4b",
        title: "4B: the service is down at commit",
        watch: "The rows are saved, and the user learns that; the lease waits for the service and for reconciliation.",
        settings: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::CommitLease);
            script.event(Event::StopService).run(1, Process::Worker(0));
            script.event(Event::StartService).wait(STALE_SECONDS).run(1, Process::Reconciler(0));
        },
        end: End {
            claims: vec![(ALICE, 1, 1)],
            rows: vec![(1, 1, ALICE)],
            told: vec![(1, 0, SaveResult::Saved)],
            ..End::default()
        },
    }
}

fn row_left_behind() -> Draft {
    Draft {
        id: "5a",
        title: "5A: the lease row is left behind",
        watch: "Reconciliation finds a lease row without an outstanding lease, asks for the lease's outcome, and deletes the row.",
        settings: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            let process = Process::Worker(0);
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::DeleteRow);
            script.event(Event::Crash { cell: 1, process });
            script.wait(STALE_SECONDS).run(1, Process::Reconciler(0));
        },
        end: End {
            claims: vec![(ALICE, 1, 1)],
            rows: vec![(1, 1, ALICE)],
            told: vec![(1, 0, SaveResult::Unknown)],
            ..End::default()
        },
    }
}

fn collision() -> Draft {
    Draft {
        id: "collision",
        title: "Collision: a user renames a row that an administrator deletes",
        watch: "The first lease holds the old name, so the second save is refused as busy and can be repeated.",
        settings: cells(1, 2, Mode::LeaseFirst),
        play: |script| {
            script.save(1, 0, Change::Create(ALICE));
            script.request_save(1, 0, Change::Rename { row: 1, name: BOB }).run_worker_until(1, 0, Phase::Write);
            script.save(1, 1, Change::Delete(1)).run(1, Process::Worker(0));
        },
        end: End {
            claims: vec![(BOB, 1, 1)],
            rows: vec![(1, 1, BOB)],
            told: vec![(1, 0, SaveResult::Saved), (1, 1, SaveResult::Refused(Reason::ClaimBusy))],
            ..End::default()
        },
    }
}

fn transfer() -> Draft {
    Draft {
        id: "transfer",
        title: "Transfer: two operations move one name",
        watch: "Destroy and create of the same name are one replace without a gap; the second transfer finds the name busy.",
        settings: cells(1, 2, Mode::LeaseFirst),
        play: |script| {
            script.save(1, 0, Change::CreateTwo([ALICE, BOB])).save(1, 0, Change::Create(CAROL));
            script.request_save(1, 0, Change::Transfer { from: 1, to: 2 }).run_worker_until(1, 0, Phase::Write);
            script.save(1, 1, Change::Transfer { from: 1, to: 3 }).run(1, Process::Worker(0));
        },
        end: End {
            claims: vec![(ALICE, 1, 2), (CAROL, 1, 3)],
            rows: vec![(1, 2, ALICE), (1, 3, CAROL)],
            told: vec![(1, 0, SaveResult::Saved), (1, 1, SaveResult::Refused(Reason::ClaimBusy))],
            ..End::default()
        },
    }
}

fn concurrent_creation() -> Draft {
    Draft {
        id: "concurrent-creation",
        title: "Concurrent creation: two cells want the same name",
        watch: "The first begin wins; the other cell finds the name busy while the lease is outstanding, and taken once it is committed.",
        settings: cells(2, 1, Mode::BeforeCommit),
        play: |script| {
            script.request_save(1, 0, Change::Create(ALICE)).request_save(2, 0, Change::Create(ALICE));
            script.run_worker_until(1, 0, Phase::AwaitBegin).run_worker_until(2, 0, Phase::AwaitBegin);
            script.deliver_request(1, Process::Worker(0)).run(2, Process::Worker(0));
            script.run(1, Process::Worker(0)).save(2, 0, Change::Create(ALICE));
        },
        end: End {
            claims: vec![(ALICE, 1, 1)],
            rows: vec![(1, 1, ALICE)],
            told: vec![(1, 0, SaveResult::Saved), (2, 0, SaveResult::Refused(Reason::ClaimTaken))],
            ..End::default()
        },
    }
}

fn staleness_race() -> Draft {
    Draft {
        id: "staleness-race",
        title: "Staleness race: a process sleeps through its lease",
        watch: "Reconciliation gives the lease up; the process wakes, and its own database refuses the late COMMIT.",
        settings: cells(1, 1, Mode::BeforeCommit),
        play: |script| {
            script.request_save(1, 0, Change::Create(ALICE)).run_worker_until(1, 0, Phase::Commit);
            script.wait(STALE_SECONDS).run(1, Process::Reconciler(0)).run(1, Process::Worker(0));
        },
        end: End { told: vec![(1, 0, SaveResult::TooLate)], ..End::default() },
    }
}
