//! Tests of reconciliation over the reference store and a map of local rows: every pair of
//! presences, then every short schedule of a save that may die and of reconcilers that take turns
//! and crash.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::Catalogue;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
use leasehold_core::command::Command;
use leasehold_core::lease::{LeaseId, LeaseState, Outcome};
use leasehold_core::memory::MemoryStore;
use leasehold_core::query::{LeasePosition, LeaseQuery};
use leasehold_core::reconcile::{
    Decision, Event, Fate, LocalRow, OutOfTurn, Presence, Reconciliation, RemoteLease, Settings, Settled, Step,
    Summary, decide,
};
use leasehold_core::rejection::Reason;
use leasehold_core::rules::Rules;
use leasehold_core::store::Store;
use leasehold_core::table::RECONCILE;
use leasehold_core::time::Timestamp;
use leasehold_core::update::Forget;
use uuid::Uuid;

const CELL: CellId = CellId(1);
const STALE: u64 = 600;
const SETTINGS: Settings = Settings { stale_after_micros: STALE, rows_per_page: 2 };

#[derive(Clone, Debug)]
struct World {
    now: u64,
    store: MemoryStore,
    rules: Rules,
    rows: BTreeMap<LeaseId, u64>,
    leases_per_page: i32,
    /// The number of microseconds by which the database's clock is behind the server's clock.
    skew: u64,
}

fn lease(number: u128) -> LeaseId {
    LeaseId(Uuid::from_u128(number << 32))
}

impl World {
    fn new() -> Self {
        Self {
            now: 10_000,
            store: MemoryStore::default(),
            rules: Rules { catalogue: Catalogue::default(), cells: [CELL].into() },
            rows: BTreeMap::new(),
            leases_per_page: 2,
            skew: 0,
        }
    }

    fn begin(&mut self, number: u128) {
        let claim = ClaimRequest {
            bucket_type: BucketType(4),
            value: format!("name{number}").into(),
            subject: Some(Subject { subject_type: 4, id: 1 }),
            source: Some(Source { source_type: SourceType(1), id: SourceId::from(1) }),
            user_data: None,
        };
        let update = UpdateRequest { creates: vec![claim], destroys: vec![] };
        let begin = self.rules.begin(CELL, update, None, lease(number)).unwrap();
        Command::Begin(begin).apply(&mut self.store, Timestamp::from_micros(self.now)).unwrap().unwrap();
    }

    fn settle(&mut self, lease: LeaseId, outcome: Outcome) -> Settled {
        let settle = self.rules.settle(CELL, &lease.to_string(), outcome).unwrap();
        match Command::Settle(settle).apply(&mut self.store, Timestamp::from_micros(self.now)).unwrap() {
            Ok(_) => Settled::Done,
            Err(rejection) => match rejection.reason() {
                Reason::LeaseRolledBack => Settled::RolledBack,
                Reason::LeaseCommitted => Settled::Committed,
                Reason::LeaseNotFound => Settled::NotFound,
                reason => panic!("{reason:?}"),
            },
        }
    }

    fn write_row(&mut self, number: u128) {
        self.rows.insert(lease(number), self.now - self.skew);
    }

    fn outcome(&self, number: u128) -> Option<LeaseState> {
        self.store.state().unwrap().leases.get(&lease(number)).map(|lease| lease.state.clone())
    }

    fn is_outstanding(&self, number: u128) -> bool {
        matches!(self.outcome(number), Some(LeaseState::Outstanding(_)))
    }

    fn database_now(&self) -> Timestamp {
        Timestamp::from_micros(self.now - self.skew)
    }

    fn list_leases(&self, cursor: Option<&str>) -> Event {
        let cursor = cursor.map(|text| {
            let (at, lease) = text.split_once(' ').unwrap();
            let created_at = Timestamp::from_micros(at.parse().unwrap());
            LeasePosition { created_at, lease: LeaseId(lease.parse().unwrap()) }
        });
        let query = LeaseQuery::parse(CELL, Some(self.leases_per_page), None, cursor).unwrap();
        let page = query.page(self.store.leases(&query.scan()).unwrap());
        let next = page.next.map(|next| format!("{} {}", next.created_at.as_micros(), next.lease));
        let lease = |position: LeasePosition| RemoteLease { created_at: position.created_at, lease: position.lease };
        Event::Leases {
            leases: page.leases.iter().map(|row| lease(row.position)).collect(),
            now: Timestamp::from_micros(self.now),
            cursor: next,
        }
    }

    fn list_rows(&self, after: Option<LocalRow>, min_age_micros: u64, limit: usize) -> Event {
        let rows =
            self.rows.iter().map(|(lease, at)| LocalRow { created_at: Timestamp::from_micros(*at), lease: *lease });
        let now = self.database_now();
        let is_old = |row: &LocalRow| now.micros_since(row.created_at) >= min_age_micros;
        let mut rows: Vec<_> = rows.filter(|row| is_old(row) && after.is_none_or(|after| *row > after)).collect();
        rows.sort_unstable();
        rows.truncate(limit);
        Event::Rows { rows, now }
    }

    /// Takes one step of a run. Returns false if the run is done.
    fn take(&mut self, run: &mut Reconciliation) -> bool {
        let event = match run.step() {
            Step::ListLeases { cursor } => self.list_leases(cursor.as_deref()),
            Step::FindRows { leases } => {
                let row = |lease: LeaseId| self.rows.get(&lease).map(|at| (lease, *at));
                let rows = leases.into_iter().filter_map(row);
                let rows = rows.map(|(lease, at)| LocalRow { created_at: Timestamp::from_micros(at), lease }).collect();
                Event::Rows { rows, now: self.database_now() }
            }
            Step::ListRows { after, min_age_micros, limit } => self.list_rows(after, min_age_micros, limit),
            Step::Settle { lease, outcome } => Event::Settled { answer: self.settle(lease, outcome) },
            Step::DeleteRow { lease, .. } => {
                self.rows.remove(&lease);
                Event::Deleted
            }
            Step::Done => return false,
        };
        run.feed(event).unwrap();
        true
    }

    fn reconcile(&mut self) -> Summary {
        let mut run = Reconciliation::new(SETTINGS);
        while self.take(&mut run) {}
        run.summary().clone()
    }

    /// Runs reconciliation to its end and returns the counts. Each step for which `fails` returns
    /// true fails.
    fn reconcile_failing(&mut self, fails: impl Fn(&Step) -> bool) -> Summary {
        let mut run = Reconciliation::new(SETTINGS);
        loop {
            if fails(&run.step()) {
                run.feed(Event::Failed).unwrap();
            } else if !self.take(&mut run) {
                return run.summary().clone();
            }
        }
    }
}

#[test]
fn r01_the_decisions_are_those_of_the_table_for_every_pair() {
    use Presence::{Fresh, Missing, Stale};
    let pairs: Vec<_> = RECONCILE.iter().map(|ruling| (ruling.local, ruling.remote)).collect();
    let every = [Fresh, Stale, Missing].map(|local| [Fresh, Stale, Missing].map(|remote| (local, remote)));
    assert_eq!(pairs, every.concat());
    for ruling in RECONCILE {
        assert_eq!(decide(ruling.local, ruling.remote), ruling.decision, "{ruling:?}");
    }
}

/// The test makes a lease for each pair of presences in the table and reconciles it.
#[test]
fn r01_each_decision_is_carried_out_on_the_lease_and_on_the_row() {
    for ruling in RECONCILE {
        let mut world = World::new();
        let ages = [(Presence::Stale, STALE), (Presence::Fresh, STALE - 1)];
        let start = world.now;
        for (presence, age) in ages {
            world.now = start + STALE - age;
            if ruling.remote == presence {
                world.begin(1);
            }
            if ruling.local == presence {
                world.write_row(1);
            }
        }
        world.now = start + STALE;
        let summary = world.reconcile();
        let (is_outstanding, has_row) = (world.is_outstanding(1), !world.rows.is_empty());
        let was = (ruling.remote != Presence::Missing, ruling.local != Presence::Missing);
        match ruling.decision {
            Decision::Leave => assert_eq!((is_outstanding, has_row), was, "{ruling:?}"),
            Decision::Commit => {
                assert_eq!((world.outcome(1), has_row), (Some(LeaseState::Settled(Outcome::Committed)), false));
                assert_eq!((summary.committed, summary.rows_deleted), (1, 1), "{ruling:?}");
            }
            Decision::RollBack => {
                assert_eq!(world.outcome(1), Some(LeaseState::Settled(Outcome::RolledBack)));
                assert_eq!(summary.rolled_back, 1, "{ruling:?}");
            }
            Decision::LookUp => assert_eq!((summary.looked_up, summary.forgotten, has_row), (1, 1, false)),
        }
    }
}

#[test]
fn r01_a_look_up_distinguishes_committed_rolled_back_and_forgotten_leases() {
    let mut world = World::new();
    for (number, outcome) in [(1, Outcome::Committed), (2, Outcome::RolledBack), (3, Outcome::Committed)] {
        world.begin(number);
        world.write_row(number);
        world.settle(lease(number), outcome);
    }
    let forget = Forget { lease: lease(3), settled_before: Timestamp::MAX };
    Command::Forget(forget).apply(&mut world.store, Timestamp::MAX).unwrap().unwrap();
    world.now += STALE;
    let mut fates = Vec::new();
    let mut run = Reconciliation::new(SETTINGS);
    loop {
        if let Step::DeleteRow { lease, fate } = run.step() {
            fates.push((lease, fate));
        }
        if !world.take(&mut run) {
            break;
        }
    }
    assert_eq!(fates, [(lease(1), Fate::Committed), (lease(2), Fate::Lost), (lease(3), Fate::Forgotten)]);
    let summary = run.summary();
    assert_eq!((&summary.lost[..], summary.looked_up, summary.forgotten), (&[lease(2)][..], 2, 1));
    assert!(world.rows.is_empty());
}

#[test]
fn r03_the_age_on_each_side_is_judged_by_that_sides_clock() {
    // The database's clock is so far behind that its fresh row would be stale by the server's
    // clock.
    let mut world = World { skew: 5 * STALE, ..World::new() };
    world.begin(1);
    world.write_row(1);
    world.begin(2);
    world.now += STALE - 1;
    assert_eq!(world.reconcile(), Summary { leases_seen: 2, ..Summary::default() });
    world.now += 1;
    let summary = world.reconcile();
    assert_eq!((summary.committed, summary.rolled_back), (1, 1));
}

#[test]
fn r05_a_failed_lease_stops_no_other_and_the_next_run_settles_it() {
    let mut broken = World::new();
    for number in 1..=9 {
        broken.begin(number);
        if number % 2 == 1 {
            broken.write_row(number);
        }
    }
    broken.now += STALE;
    for failing in 1..=9 {
        let about = |step: &Step| match step {
            Step::Settle { lease: of, .. } | Step::DeleteRow { lease: of, .. } => *of == lease(failing),
            _ => false,
        };
        let mut world = broken.clone();
        let summary = world.reconcile_failing(about);
        assert_eq!((summary.failed, summary.committed + summary.rolled_back, summary.incomplete), (1, 8, false));
        let left: Vec<_> = (1..=9).filter(|number| world.is_outstanding(*number)).collect();
        assert_eq!(left, [failing]);
        assert_eq!(world.reconcile().failed, 0);
        assert!((1..=9).all(|number| !world.is_outstanding(number)) && world.rows.is_empty());
    }
}

#[test]
fn r05_a_page_that_cannot_be_read_ends_only_its_own_list() {
    let mut broken = World::new();
    broken.begin(1);
    broken.begin(2);
    broken.write_row(2);
    broken.now += STALE;
    type Fails = fn(&Step) -> bool;
    let cases: [(Fails, (u64, u64)); 3] = [
        (|step| matches!(step, Step::ListLeases { .. }), (0, 1)),
        (|step| matches!(step, Step::FindRows { .. }), (0, 1)),
        (|step| matches!(step, Step::ListRows { .. }), (1, 0)),
    ];
    for (fails, (rolled_back, looked_up)) in cases {
        let mut world = broken.clone();
        let summary = world.reconcile_failing(fails);
        assert_eq!((summary.incomplete, summary.rolled_back, summary.looked_up), (true, rolled_back, looked_up));
        let summary = world.reconcile();
        assert!(!summary.incomplete && !world.is_outstanding(1) && world.rows.is_empty());
    }
}

#[test]
fn lists_of_many_pages_are_read_to_the_end() {
    let mut world = World::new();
    for number in 1..=7 {
        world.begin(number);
        world.write_row(number + 100);
    }
    world.now += STALE;
    let summary = world.reconcile();
    assert_eq!((summary.leases_seen, summary.rolled_back, summary.looked_up), (7, 7, 7));
    assert!(world.rows.is_empty());
}

#[test]
fn an_event_that_does_not_answer_the_step_is_refused_and_changes_nothing() {
    let mut run = Reconciliation::new(SETTINGS);
    let answer = Settled::Done;
    for event in [Event::Settled { answer }, Event::Deleted, Event::Rows { rows: vec![], now: Timestamp::MIN }] {
        assert_eq!(run.feed(event), Err(OutOfTurn));
    }
    assert_eq!((run.step(), run.summary()), (Step::ListLeases { cursor: None }, &Summary::default()));
    while run.step() != Step::Done {
        run.feed(Event::Failed).unwrap();
    }
    assert_eq!(run.feed(Event::Failed), Err(OutOfTurn));
}

/// One step of a save. The steps stand in the order in which a save takes them. If the save dies,
/// its later steps never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SaveStep {
    Begin,
    CommitLocally,
    Abort,
    CommitLease,
    RollBackLease,
    DeleteRow,
}

const COMMITTING: [SaveStep; 4] =
    [SaveStep::Begin, SaveStep::CommitLocally, SaveStep::CommitLease, SaveStep::DeleteRow];
const ABORTING: [SaveStep; 3] = [SaveStep::Begin, SaveStep::Abort, SaveStep::RollBackLease];

impl World {
    fn save_step(&mut self, step: SaveStep) {
        match step {
            SaveStep::Begin => self.begin(1),
            // A trigger refuses a COMMIT under a stale lease (R04), so schedules only commit before
            // the lease is stale.
            SaveStep::CommitLocally => self.write_row(1),
            SaveStep::Abort => {}
            SaveStep::CommitLease => assert_eq!(self.settle(lease(1), Outcome::Committed), Settled::Done),
            SaveStep::RollBackLease => assert_eq!(self.settle(lease(1), Outcome::RolledBack), Settled::Done),
            SaveStep::DeleteRow => _ = self.rows.remove(&lease(1)),
        }
    }
}

/// A schedule of a save and two reconcilers: the state after its events, and the events that are
/// still possible.
#[derive(Clone)]
struct Schedule {
    world: World,
    save: &'static [SaveStep],
    done: usize,
    is_dead: bool,
    runs: [Option<Reconciliation>; 2],
    crashes: u8,
    waits: u8,
}

impl Schedule {
    /// Returns true if the local transaction was committed, which decides the lease's fate (R02).
    fn was_committed(&self) -> bool {
        self.save.iter().take(self.done).any(|step| *step == SaveStep::CommitLocally)
    }

    /// Returns every schedule that is one event longer.
    fn successors(&self) -> Vec<Self> {
        let mut successors = Vec::new();
        let mut push = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            successors.push(next);
        };
        let is_in_time = self.waits == 0 || self.save.get(self.done) != Some(&SaveStep::CommitLocally);
        if let Some(step) = self.save.get(self.done).filter(|_| !self.is_dead && is_in_time) {
            push(&|next| {
                next.world.save_step(*step);
                next.done += 1;
            });
            push(&|next| next.is_dead = true);
        }
        if self.waits == 0 {
            push(&|next| {
                next.world.now += STALE;
                next.waits += 1;
            });
        }
        for (at, run) in self.runs.iter().enumerate() {
            match run {
                None => {}
                Some(run) if run.step() == Step::Done => push(&|next| next.runs[at] = None),
                Some(_) => {
                    push(&|next| _ = next.world.take(next.runs[at].as_mut().unwrap()));
                    if self.crashes == 0 {
                        // The reconciler takes the step and crashes before it learns the answer. A
                        // crash before the step equals a crash right after the step before it.
                        push(&|next| {
                            next.world.take(next.runs[at].as_mut().unwrap());
                            next.runs[at] = Some(Reconciliation::new(SETTINGS));
                            next.crashes += 1;
                        });
                    }
                }
            }
        }
        successors
    }

    fn check_at_the_end(mut self) {
        self.world.now += 2 * STALE;
        let begun = self.done > 0;
        let summary = self.world.reconcile();
        assert!(self.world.rows.is_empty() && !self.world.is_outstanding(1));
        assert!(summary.lost.is_empty(), "a committed save lost its claims");
        let outcome = if self.was_committed() { Outcome::Committed } else { Outcome::RolledBack };
        assert_eq!(self.world.outcome(1), begun.then_some(LeaseState::Settled(outcome)));
    }
}

/// R02, R05: a save may die at any step, two reconcilers take turns step by step, one of them may
/// crash, and time may pass at any point. At the end, the lease's outcome is that of the local
/// transaction.
#[test]
fn r02_r05_every_short_schedule_ends_as_the_local_transaction_did() {
    for save in [&COMMITTING[..], &ABORTING[..]] {
        let runs = [Some(Reconciliation::new(SETTINGS)), Some(Reconciliation::new(SETTINGS))];
        let start = Schedule { world: World::new(), save, done: 0, is_dead: false, runs, crashes: 0, waits: 0 };
        let mut open = vec![start];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(schedule) = open.pop() {
            // Schedules with the same state have the same successors.
            let Schedule { world, done, is_dead, runs, crashes, waits, .. } = &schedule;
            let state = (world.state_text(), done, is_dead, crashes, waits);
            if !seen.insert(format!("{state:?} {runs:?}")) {
                continue;
            }
            open.extend(schedule.successors());
            schedule.check_at_the_end();
        }
        assert!(seen.len() > 1000, "{} schedules are few", seen.len());
    }
}

impl World {
    fn state_text(&self) -> String {
        format!("{} {:?} {:?}", self.now, self.rows, self.store.state().unwrap().leases)
    }
}
