//! Tests of a verifier's correction of one row that plain SQL has written, with interruptions at
//! each step.

use leasehold_core::reconcile::Summary;
use leasehold_core::verify::Report;
use leasehold_simulation::event::{Change, Drift, Event};
use leasehold_simulation::process::Process;
use leasehold_simulation::quiescence;
use leasehold_simulation::script::Script;
use leasehold_simulation::settings::{Mode, Thresholds, WorldSettings};
use leasehold_simulation::view::View;
use leasehold_simulation::worker::Phase;
use leasehold_simulation::world::World;

/// A time longer than the age at which a lease becomes stale.
const STALE_SECONDS: u32 = 660;
/// A time longer than the period for which verification skips a changed row.
const OLD_SECONDS: u32 = 3700;

/// Returns a script with an old row that has no claim. The next action of the verifier is `step`.
fn before(step: &str) -> Script {
    before_in(Mode::BeforeCommit, step)
}

fn before_in(mode: Mode, step: &str) -> Script {
    let mut script =
        Script::new(WorldSettings { cells: 1, workers: 1, modes: vec![mode], ..WorldSettings::default() }).unwrap();
    script.event(Event::Drift { cell: 1, drift: Drift::Insert(0) }).wait(OLD_SECONDS).run_verifier_until(1, step);
    script
}

/// Returns the names of the claims at rest, the number of outstanding leases and the number of
/// lease rows of cell 1.
fn left(script: &Script) -> (Vec<String>, usize, usize) {
    let view = View::of(script.world());
    let at_rest = view.claims.into_iter().filter(|claim| claim.status == "Active").map(|claim| claim.name).collect();
    let outstanding = view.leases.iter().filter(|lease| lease.status == "Outstanding").count();
    (at_rest, outstanding, view.cells.first().unwrap().lease_rows.len())
}

fn last_report(world: &World) -> Report {
    world.cell(1).unwrap().verifier.last.clone().unwrap()
}

fn reconciled(script: &mut Script) -> Summary {
    script.wait(STALE_SECONDS).run(1, Process::Reconciler(0));
    script.world().cell(1).unwrap().reconcilers.first().unwrap().last.clone().unwrap()
}

const CRASH: Event = Event::Crash { cell: 1, process: Process::Verifier };

#[test]
fn a_correction_begins_reads_its_rows_again_writes_its_lease_row_and_commits() {
    let mut script = before("begin");
    let mut steps: Vec<&str> = Vec::new();
    while let Some(step) = View::of(script.world()).cells.first().unwrap().verifier.step {
        if steps.last() != Some(&step) {
            steps.push(step);
        }
        let next = quiescence::next_event(script.world(), None).unwrap();
        script.event(next);
    }
    let expected = ["begin", "read_again", "write_lease", "commit", "delete_row", "page_done", "done"];
    assert_eq!(steps, expected);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 0));
    assert_eq!(last_report(script.world()).created, 1);
}

#[test]
fn a_correction_that_crashes_before_its_lease_row_is_rolled_back() {
    for step in ["read_again", "write_lease"] {
        let mut script = before(step);
        script.event(CRASH);
        assert_eq!(left(&script), (vec![], 1, 0));
        assert_eq!(reconciled(&mut script).rolled_back, 1);
        assert_eq!(left(&script), (vec![], 0, 0));
    }
}

#[test]
fn a_correction_that_crashes_after_its_lease_row_is_committed() {
    let mut script = before("commit");
    script.event(CRASH);
    assert_eq!(left(&script), (vec![], 1, 1));
    assert_eq!(reconciled(&mut script).committed, 1);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 0));
}

#[test]
fn a_correction_that_crashes_after_its_commit_leaves_its_lease_row_to_reconciliation() {
    let mut script = before("delete_row");
    script.event(CRASH);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 1));
    assert_eq!(reconciled(&mut script).looked_up, 1);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 0));
}

#[test]
fn a_late_lease_row_is_refused_and_the_lease_rolled_back() {
    let mut script = before("write_lease");
    let reconciled = reconciled(&mut script);
    assert_eq!((reconciled.rolled_back, left(&script)), (1, (vec![], 0, 0)));
    let described =
        leasehold_simulation::event_text::describe(script.world(), Event::Step { cell: 1, process: Process::Verifier });
    assert_eq!(described, "cell 1's verifier writes its lease row, which is refused: the lease is too old");
    script.run(1, Process::Verifier);
    assert_eq!((last_report(script.world()).failed, left(&script)), (1, (vec![], 0, 0)));
}

#[test]
fn a_row_renamed_after_its_page_was_read_gets_no_claim_for_its_old_name() {
    let mut script = before("begin");
    script.save(1, 0, Change::Rename { row: 1, name: 1 }).run(1, Process::Verifier);
    assert_eq!((last_report(script.world()).recent, left(&script)), (1, (vec!["bob".to_owned()], 0, 0)));
}

#[test]
fn a_row_in_an_open_transaction_is_left_to_the_next_run() {
    let mut script = before("begin");
    script
        .request_save(1, 0, Change::Rename { row: 1, name: 1 })
        .run_worker_until(1, 0, Phase::Commit)
        .run(1, Process::Verifier);
    assert_eq!((last_report(script.world()).recent, left(&script)), (1, (vec![], 1, 0)));
    script.event(Event::Disconnect { cell: 1, worker: 0 });
    reconciled(&mut script);
    script.run(1, Process::Verifier);
    assert_eq!((last_report(script.world()).created, left(&script)), (1, (vec!["alice".to_owned()], 0, 0)));
}

#[test]
fn lease_first_begins_under_the_row_lock_if_the_old_name_had_no_claim() {
    let mut script = before_in(Mode::LeaseFirst, "begin");
    script.request_save(1, 0, Change::Delete(1)).run_worker_until(1, 0, Phase::Open).run(1, Process::Verifier);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 0));
    script.run(1, Process::Worker(0));
    assert_eq!(left(&script), (vec![], 0, 0));
}

/// A save renames the row between the list of records and the read of rows. Another save renames it
/// back after the read. The row's age counts up to the time of the list, so the row is recent and
/// its claim is not corrected.
#[test]
fn v02_a_row_changed_after_its_records_were_listed_is_left_alone() {
    let thresholds = Thresholds { replica_lag_seconds: 60, ..Thresholds::default() };
    let settings = WorldSettings { cells: 1, workers: 1, thresholds, ..WorldSettings::default() };
    let mut script = Script::new(settings).unwrap();
    script.save(1, 0, Change::Create(0)).wait(OLD_SECONDS).run_verifier_until(1, "read_rows");
    script.save(1, 0, Change::Rename { row: 1, name: 1 }).wait(OLD_SECONDS);
    let verifier = Event::Step { cell: 1, process: Process::Verifier };
    script.event(verifier).save(1, 0, Change::Rename { row: 1, name: 0 }).run(1, Process::Verifier);

    assert_eq!(script.world().violation(), None);
    let report = last_report(script.world());
    assert_eq!((report.updates, report.destroyed), (0, 0));
}
