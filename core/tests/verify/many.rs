//! Tests of tables in which more names have moved than the creates that a run can defer: one run
//! still corrects all of them (V05).

use leasehold_core::batch::UpdateRequest;
use leasehold_core::verify::{CorrectionOutcome, Verification};

use crate::world::{OTHER, OWN, RECENT, START, TABLE, Wish, World, request, wish};

/// The number of rows of the table: more than twice the number of creates that a run defers.
const ROWS: u64 = 25_000;
/// The id of a row whose create a run drops: in a reversed table, the number of deferred creates is
/// at its bound by then.
const DROPPED: u64 = 11_500;

fn name(number: u64) -> Wish {
    wish(4, &format!("name{number}"), 1)
}

/// Returns a world in which row `n` has the claim of name `n`, and row `wanted_by(n)` calls for
/// this name.
pub(crate) fn moved(rows: u64, wanted_by: impl Fn(u64) -> u64) -> World {
    let mut world = World { rows_per_page: 1000, ..World::new() };
    let numbers: Vec<u64> = (1..=rows).collect();
    for some in numbers.chunks(2000) {
        let creates = some.iter().map(|row| request(&name(*row), TABLE, *row)).collect();
        world.update(OWN, UpdateRequest { creates, destroys: vec![] }).unwrap();
    }
    for row in numbers {
        world.row(wanted_by(row), &[name(row)]);
    }
    world.now = START;
    world
}

/// Returns the ids of the rows that lack a claim which they call for.
fn uncorrected(world: &World) -> Vec<u64> {
    let holds = |row: u64, wish: &Wish| world.holder(4, &wish.value) == Some((OWN, row));
    let rows = world.table.iter().filter(|(id, row)| !row.wishes.iter().all(|wish| holds(**id, wish)));
    rows.map(|(id, _)| *id).collect()
}

#[test]
fn v05_one_run_corrects_more_names_than_are_deferred() {
    let mut world = moved(ROWS, |row| ROWS + 1 - row);
    let verified = world.verify();
    assert_eq!(uncorrected(&world), Vec::<u64>::new());
    let report = verified.report;
    // The number of rows is even, so no row keeps its name.
    assert_eq!((report.missing, report.extra, report.other_row, report.failed), (ROWS, ROWS, 0, 0));
    assert_eq!(report.created + report.replaced, ROWS);
    assert!(verified.checkpoint.is_done());
}

#[test]
fn v05_names_that_moved_around_a_ring_change_hands_without_a_gap() {
    for step in [1, ROWS - 1] {
        let mut world = moved(ROWS, |row| (row - 1 + step) % ROWS + 1);
        let report = world.verify().report;
        assert_eq!(uncorrected(&world), Vec::<u64>::new(), "{step}");
        assert_eq!(report.rows, ROWS, "none is looked at again");
        assert!(report.replaced >= ROWS - 1, "{report:?}");
    }
}

#[test]
fn v05_names_swapped_within_a_page_change_hands_without_a_gap_beside_many_destroys() {
    let (extra, swapped) = (1500, 1000);
    let mut world = moved(extra + swapped, |row| if row <= extra { row } else { ((row - extra - 1) ^ 1) + extra + 1 });
    (1..=extra).for_each(|row| world.row(row, &[]));
    let report = world.verify().report;
    assert_eq!((report.destroyed, report.replaced, report.created), (extra, swapped, 0));
}

#[test]
fn v05_v07_more_names_than_are_deferred_are_corrected_in_pieces() {
    for pages in [1, 7] {
        let mut world = moved(ROWS, |row| ROWS + 1 - row);
        world.verify_in_pieces(pages);
        assert_eq!(uncorrected(&world), Vec::<u64>::new());
    }
}

#[test]
fn v07_a_run_that_is_dropped_among_many_leaves_nothing_out() {
    // The runs are dropped while creates are deferred, when their number reaches the bound, and
    // while spans are compared again.
    for pages in [5, 12, 27] {
        let mut world = moved(ROWS, |row| ROWS + 1 - row);
        world.verify_dropped(pages);
        assert_eq!(uncorrected(&world), Vec::<u64>::new(), "dropped after page {pages}");
    }
}

#[test]
fn v06_a_name_that_another_cell_takes_before_the_second_look_is_left_and_reported() {
    let mut world = moved(ROWS, |row| ROWS + 1 - row);
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    let lost = name(ROWS + 1 - DROPPED);
    while world.holder(4, &lost.value).is_some() {
        assert!(world.take(&mut run, &settings));
    }
    world.claim(OTHER, TABLE, 7, &lost);
    let mut other_cell = 0;
    while world.take(&mut run, &settings) {
        other_cell +=
            run.take_findings().iter().filter(|finding| finding.outcome == CorrectionOutcome::OtherCell).count();
    }
    assert_eq!((other_cell, run.report().other_cell), (1, 1));
    assert_eq!(uncorrected(&world), [DROPPED]);
    assert_eq!(world.holder(4, &lost.value), Some((OTHER, 7)));
}

#[test]
fn v02_a_row_that_is_changed_before_the_second_look_is_left_alone() {
    let mut world = moved(ROWS, |row| ROWS + 1 - row);
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    while run.report().pages < 25 {
        assert!(world.take(&mut run, &settings));
    }
    world.table.get_mut(&DROPPED).unwrap().updated_at = START;
    let before = run.report().rows_recent;
    while world.take(&mut run, &settings) {}
    assert_eq!((before, run.report().rows_recent), (0, 1));
    assert_eq!(uncorrected(&world), [DROPPED]);
    world.now += RECENT;
    world.verify();
    assert_eq!(uncorrected(&world), Vec::<u64>::new());
}
