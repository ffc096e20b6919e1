//! What a verifier does about one row that was written past the claims, and what becomes of it when something comes in
//! between.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use leasehold_core::reconcile::Summary;
use leasehold_core::verify::Report;
use leasehold_simulation::calm;
use leasehold_simulation::event::{Change, Drift, Event, Process};
use leasehold_simulation::script::Script;
use leasehold_simulation::settings::{Mode, Settings};
use leasehold_simulation::view::View;
use leasehold_simulation::worker::Phase;
use leasehold_simulation::world::World;

/// Longer than a lease is left alone.
const STALE_SECONDS: u32 = 660;
/// Longer than what was changed is left alone by verification.
const OLD_SECONDS: u32 = 3700;

/// A row that claims nothing, and is old; its verifier has come so far.
fn before(step: &str) -> Script {
    before_in(Mode::BeforeCommit, step)
}

fn before_in(mode: Mode, step: &str) -> Script {
    let mut script = Script::new(Settings { cells: 1, workers: 1, modes: vec![mode], ..Settings::default() }).unwrap();
    script.event(Event::Drift { cell: 1, drift: Drift::Insert(0) }).wait(OLD_SECONDS).until_step(1, step);
    script
}

/// The names that are claimed at rest, and how many leases and rows of leases are left.
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
fn a_correction_is_begun_read_again_written_down_committed_and_done() {
    let mut script = before("begin");
    let mut steps: Vec<&str> = Vec::new();
    while let Some(step) = View::of(script.world()).cells.first().unwrap().verifier.step {
        if steps.last() != Some(&step) {
            steps.push(step);
        }
        let next = calm::next(script.world(), None).unwrap();
        script.event(next);
    }
    let expected = ["begin", "read_again", "write_lease", "commit", "delete_row", "page_done", "done"];
    assert_eq!(steps, expected);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 0));
    assert_eq!(last_report(script.world()).created, 1);
}

#[test]
fn what_is_killed_before_the_lease_has_its_row_is_rolled_back() {
    for step in ["read_again", "write_lease"] {
        let mut script = before(step);
        script.event(CRASH);
        assert_eq!(left(&script), (vec![], 1, 0));
        assert_eq!(reconciled(&mut script).rolled_back, 1);
        assert_eq!(left(&script), (vec![], 0, 0));
    }
}

#[test]
fn what_is_killed_after_the_lease_has_its_row_is_committed() {
    let mut script = before("commit");
    script.event(CRASH);
    assert_eq!(left(&script), (vec![], 1, 1));
    assert_eq!(reconciled(&mut script).committed, 1);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 0));
}

#[test]
fn what_is_killed_after_the_commit_leaves_the_row_of_its_lease_to_reconciliation() {
    let mut script = before("delete_row");
    script.event(CRASH);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 1));
    assert_eq!(reconciled(&mut script).looked_up, 1);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 0));
}

#[test]
fn a_row_of_a_lease_that_comes_too_late_is_refused_and_the_lease_rolled_back() {
    let mut script = before("write_lease");
    let reconciled = reconciled(&mut script);
    assert_eq!((reconciled.rolled_back, left(&script)), (1, (vec![], 0, 0)));
    let told =
        leasehold_simulation::words::describe(script.world(), Event::Step { cell: 1, process: Process::Verifier });
    assert_eq!(told, "cell 1's verifier writes the row of its lease, which is refused: it is too late");
    script.run(1, Process::Verifier);
    assert_eq!((last_report(script.world()).failed, left(&script)), (1, (vec![], 0, 0)));
}

#[test]
fn a_row_that_is_renamed_after_its_page_was_read_gets_no_claim_for_its_old_name() {
    let mut script = before("begin");
    script.save(1, 0, Change::Rename { row: 1, name: 1 }).run(1, Process::Verifier);
    assert_eq!((last_report(script.world()).recent, left(&script)), (1, (vec!["bob".to_owned()], 0, 0)));
}

#[test]
fn a_row_that_is_being_written_is_left_to_the_next_run() {
    let mut script = before("begin");
    script.ask(1, 0, Change::Rename { row: 1, name: 1 }).until(1, 0, Phase::Commit).run(1, Process::Verifier);
    assert_eq!((last_report(script.world()).recent, left(&script)), (1, (vec![], 1, 0)));
    script.event(Event::Disconnect { cell: 1, worker: 0 });
    reconciled(&mut script);
    script.run(1, Process::Verifier);
    assert_eq!((last_report(script.world()).created, left(&script)), (1, (vec!["alice".to_owned()], 0, 0)));
}

#[test]
fn a_name_that_was_not_claimed_when_a_lease_came_first_is_given_up_under_the_lock() {
    let mut script = before_in(Mode::LeaseFirst, "begin");
    script.ask(1, 0, Change::Delete(1)).until(1, 0, Phase::Open).run(1, Process::Verifier);
    assert_eq!(left(&script), (vec!["alice".to_owned()], 0, 0));
    script.run(1, Process::Worker(0));
    assert_eq!(left(&script), (vec![], 0, 0));
}
