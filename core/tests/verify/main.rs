//! Tests of verification. The server is the engine over the reference store, and the table is a
//! map. Some tests check single cases; others compare random worlds with a model that works without
//! pages and plans.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod destroy_limit;
mod many;
mod model;
mod phases;
#[path = "../../src/properties.rs"]
mod properties;
mod world;

use leasehold_core::batch::UpdateRequest;
use leasehold_core::claim::SourceId;
use leasehold_core::lease::Outcome;
use leasehold_core::time::Timestamp;
use leasehold_core::verify::{CorrectionOutcome, Misuse, Records, Rows, UpdateResult, Verification, VerifyStep};
use world::{OTHER, OTHER_TABLE, OWN, START, TABLE, World, request, wish};

/// Returns a world whose runs have pages of one row.
fn small_pages() -> World {
    World { rows_per_page: 1, ..World::new() }
}

fn created(wish: &world::Wish, row: u64) -> UpdateRequest {
    UpdateRequest { creates: vec![request(wish, TABLE, row)], destroys: vec![] }
}

#[test]
fn v01_missing_different_and_extra_claims_are_corrected_by_one_run() {
    let mut world = World::new();
    world.row(1, &[wish(4, "missing", 1)]);
    world.row(2, &[wish(4, "Spelled", 2), wish(5, "a@b", 2)]);
    world.claim(OWN, TABLE, 2, &wish(4, "spelled", 2));
    world.claim(OWN, TABLE, 2, &wish(5, "a@b", 3));
    world.row(3, &[]);
    world.claim(OWN, TABLE, 3, &wish(4, "extra", 3));
    world.now = START;
    let report = world.verify().report;
    assert_eq!((report.missing, report.different, report.extra), (1, 2, 1));
    assert_eq!((report.created, report.replaced, report.destroyed), (1, 2, 1));
    world.now += START;
    let before = world.state();
    let report = world.verify().report;
    assert_eq!((report.missing, report.different, report.extra, report.updates), (0, 0, 0, 0));
    assert_eq!(world.state(), before);
}

#[test]
fn v02_recent_rows_and_recent_records_are_left_alone() {
    let mut world = World::new();
    world.row(1, &[wish(4, "new", 1)]);
    world.claim(OWN, TABLE, 1, &wish(4, "old", 1));
    world.table.get_mut(&1).unwrap().updated_at = START - 1;
    world.now = START;
    world.row(2, &[]);
    world.claim(OWN, TABLE, 2, &wish(4, "just-made", 2));
    world.claim(OWN, TABLE, 9, &wish(4, "rowless", 9));
    let before = world.state();
    let report = world.verify().report;
    assert_eq!(world.state(), before);
    assert_eq!((report.rows_recent, report.records_recent, report.updates), (1, 2, 0));
    world.now += START;
    assert_eq!(world.verify().report.destroyed, 3);
}

#[test]
fn v03_rows_are_read_again_before_a_destroy() {
    let mut world = World::new();
    for row in 1..=3 {
        world.row(row, &[]);
        world.claim(OWN, TABLE, row, &wish(4, &format!("name{row}"), 1));
    }
    world.now = START;
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    while !matches!(run.step(), VerifyStep::ReadAgain { .. }) {
        assert!(world.take(&mut run, &settings));
    }
    // Row 1 now calls for its claim, and row 2 was changed just now.
    world.row(1, &[wish(4, "name1", 1)]);
    world.table.get_mut(&2).unwrap().updated_at = world.now;
    while world.take(&mut run, &settings) {}
    assert_eq!([1, 2, 3].map(|row| world.holder(4, &format!("name{row}")).is_some()), [true, true, false]);
    assert_eq!((run.report().changed, run.report().recent, run.report().destroyed), (1, 1, 1));
}

#[test]
fn v03_a_bucket_is_destroyed_if_its_new_row_no_longer_calls_for_it() {
    let mut world = World::new();
    world.row(1, &[]);
    world.row(2, &[wish(4, "a", 1), wish(4, "A", 2)]);
    world.claim(OWN, TABLE, 1, &wish(4, "a", 1));
    world.now = START;
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    while !matches!(run.step(), VerifyStep::ReadAgain { .. }) {
        assert!(world.take(&mut run, &settings));
    }
    world.row(2, &[]);
    while world.take(&mut run, &settings) {}
    assert_eq!((world.holder(4, "a"), run.report().destroyed, run.report().replaced), (None, 1, 0));
}

#[test]
fn v03_a_claim_that_moves_after_the_last_read_is_not_destroyed() {
    let mut world = World::new();
    world.claim(OWN, TABLE, 1, &wish(4, "a", 1));
    world.now = START;
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    while !matches!(run.step(), VerifyStep::Begin(_)) {
        assert!(world.take(&mut run, &settings));
    }
    let moves = UpdateRequest {
        creates: vec![request(&wish(4, "a", 1), TABLE, 2)],
        destroys: vec![request(&wish(4, "a", 1), TABLE, 1)],
    };
    world.row(2, &[wish(4, "a", 1)]);
    world.update(OWN, moves).unwrap();
    while world.take(&mut run, &settings) {}
    assert_eq!(world.holder(4, "a"), Some((OWN, 2)));
    assert_eq!(run.report().changed, 1);
}

/// Runs a verification over three rows whose claims are missing, and makes `change` before the
/// first step for which `is_at` returns true. Returns the world after the run and the report.
fn overtaken(is_at: fn(&VerifyStep) -> bool, change: impl Fn(&mut World)) -> (World, leasehold_core::verify::Report) {
    let mut world = World::new();
    (1..=3).for_each(|row| world.row(row, &[wish(4, &format!("name{row}"), 1)]));
    world.now = START;
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    while !is_at(run.step()) {
        assert!(world.take(&mut run, &settings));
    }
    change(&mut world);
    while world.take(&mut run, &settings) {}
    (world, run.report().clone())
}

#[test]
fn v03_a_row_that_no_longer_calls_for_its_name_gets_no_claim() {
    let renamed = |world: &mut World| world.row(2, &[wish(4, "other", 1)]);
    let gone = |world: &mut World| _ = world.table.remove(&2);
    let recent = |world: &mut World| world.table.get_mut(&2).unwrap().updated_at = START - 1;
    for is_at in [
        |step: &VerifyStep| matches!(step, VerifyStep::Begin(_)),
        |step: &VerifyStep| matches!(step, VerifyStep::ReadAgain { .. }),
    ] {
        for (change, changed, recent) in [(&renamed as &dyn Fn(&mut World), 1, 0), (&gone, 1, 0), (&recent, 0, 1)] {
            let (world, report) = overtaken(is_at, change);
            assert_eq!([1, 2, 3].map(|row| world.holder(4, &format!("name{row}")).is_some()), [true, false, true]);
            assert_eq!((report.created, report.changed, report.recent, report.updates), (2, changed, recent, 2));
            assert!(world.state().leases.values().all(|lease| lease.outcome().is_some()));
        }
    }
}

#[test]
fn v03_a_row_that_spells_its_name_in_another_way_by_now_gets_that_spelling() {
    let (world, report) =
        overtaken(|step| matches!(step, VerifyStep::ReadAgain { .. }), |world| world.row(2, &[wish(4, "Name2", 9)]));
    let claim = world.state().claims.into_iter().find(|(key, _)| &*key.canonical == "name2").unwrap().1;
    assert_eq!((&*claim.record().spelling, claim.record().subject.id), ("Name2", 9));
    assert_eq!((report.created, report.changed, report.updates), (3, 0, 2));
}

#[test]
fn v03_a_row_that_changes_at_every_try_is_left_to_the_next_run() {
    let mut world = World::new();
    world.row(1, &[wish(4, "name", 1)]);
    world.now = START;
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    while *run.step() != VerifyStep::Done {
        if matches!(run.step(), VerifyStep::ReadAgain { .. }) {
            let subject_id = i64::try_from(run.report().updates).unwrap() + 1;
            world.row(1, &[wish(4, "name", subject_id + 1)]);
        }
        world.take(&mut run, &settings);
    }
    assert_eq!((world.holder(4, "name"), run.report().changed, run.report().updates), (None, 1, 6));
}

#[test]
fn v03_an_update_of_rows_of_a_dump_is_committed_without_reading_them_again() {
    let mut world = World::new();
    world.row(1, &[wish(4, "a", 1)]);
    world.claim(OWN, TABLE, 2, &wish(4, "b", 1));
    world.now = START;
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    let mut read_again = 0;
    while *run.step() != VerifyStep::Done {
        if matches!(run.step(), VerifyStep::ReadAgain { .. }) && run.unchanged().is_ok() {
            assert_eq!(run.step(), &VerifyStep::Commit);
        } else {
            read_again += u32::from(matches!(run.step(), VerifyStep::ReadAgain { .. }));
            assert_eq!(run.unchanged(), Err(Misuse::OutOfTurn), "nothing is begun");
            world.take(&mut run, &settings);
        }
    }
    assert_eq!((run.report().created, run.report().destroyed, read_again), (1, 1, 1));
}

#[test]
fn held_records_are_counted_even_if_they_do_not_differ() {
    let mut world = World::new();
    world.row(1, &[wish(4, "a", 1)]);
    world.row(2, &[wish(4, "B", 1), wish(4, "c", 1)]);
    for (row, name) in [(1, "a"), (2, "B")] {
        world.begin(OWN, created(&wish(4, name, 1), row)).unwrap();
    }
    world.now = START;
    let report = world.verify().report;
    assert_eq!((report.records_held, report.missing, report.different, report.extra), (2, 1, 0, 0));
}

#[test]
fn v04_claims_beyond_the_last_row_are_found_however_many() {
    let mut world = World { records_per_page: 2, ..small_pages() };
    world.row(1, &[wish(4, "kept", 1)]);
    world.claim(OWN, TABLE, 1, &wish(4, "kept", 1));
    for row in 10..17 {
        world.claim(OWN, TABLE, row, &wish(4, &format!("beyond{row}"), 1));
    }
    world.now = START;
    let report = world.verify().report;
    assert_eq!((report.extra, report.destroyed, report.updates), (7, 7, 1));
    assert_eq!(world.holder(4, "kept"), Some((OWN, 1)));
}

/// Verifies buckets that moved from the rows `held_by` to the rows `wanted_by`. Checks after each
/// step that every bucket has a claim.
fn moved(rows_per_page: usize, held_by: [u64; 4], wanted_by: [u64; 4]) {
    let names = ["a", "b", "c", "d"].map(|name| wish(4, name, 1));
    let mut world = World { rows_per_page, ..World::new() };
    (1..=4).for_each(|row| world.row(row, &[]));
    for ((name, from), to) in names.iter().zip(held_by).zip(wanted_by) {
        world.claim(OWN, TABLE, from, name);
        world.table.get_mut(&to).unwrap().wishes.push(name.clone());
    }
    world.now = START;
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    loop {
        let goes_on = world.take(&mut run, &settings);
        names.iter().for_each(|name| assert!(world.holder(4, &name.value).is_some(), "nobody held {name:?}"));
        if !goes_on {
            break;
        }
    }
    let holders = names.map(|name| world.holder(4, &name.value).unwrap());
    assert_eq!(holders, wanted_by.map(|row| (OWN, row)), "{rows_per_page} {held_by:?}");
    assert_eq!((run.report().destroyed, run.report().created), (0, 0));
}

#[test]
fn v05_buckets_that_moved_change_hands_without_a_gap() {
    for rows_per_page in [1, 2, 3, 10] {
        for held_by in [[2, 1, 4, 3], [4, 3, 2, 1], [2, 3, 4, 1], [4, 1, 2, 3], [1, 1, 4, 4], [4, 4, 1, 1]] {
            moved(rows_per_page, held_by, [1, 2, 3, 4]);
            moved(rows_per_page, [1, 2, 3, 4], held_by);
        }
    }
}

#[test]
fn v05_a_bucket_that_moved_between_tables_is_created_once_the_other_table_lets_go() {
    let mut world = World::new();
    world.claim(OWN, OTHER_TABLE, 5, &wish(4, "a", 1));
    world.row(1, &[wish(4, "a", 1), wish(4, "b", 1)]);
    world.now = START;
    let verified = world.verify();
    assert_eq!((verified.report.created, verified.report.other_row), (1, 1));
    // The next run verifies the other table, in which no row calls for the bucket any more.
    let rows = std::mem::take(&mut world.table);
    let other = leasehold_core::verify::VerifySettings { source_type: OTHER_TABLE, ..world.settings() };
    assert_eq!(world.verify_with(&other, None).report.destroyed, 1);
    world.table = rows;
    let again = world.verify();
    assert_eq!((again.report.created, again.report.other_row), (1, 0));
    assert_eq!(world.holder(4, "a"), Some((OWN, 1)));
}

#[test]
fn v11_a_run_without_bucket_types_does_nothing() {
    let mut world = World::new();
    (1..=3).for_each(|row| world.claim(OWN, TABLE, row, &wish(4, &format!("name{row}"), 1)));
    world.now = START;
    let before = world.state();
    let none = leasehold_core::verify::VerifySettings { bucket_types: Default::default(), ..world.settings() };
    let run = Verification::new(none.clone(), world.catalogue().clone(), None);
    assert_eq!(run.step(), &VerifyStep::Done);
    assert_eq!(world.verify_with(&none, None).report.records, 0);
    assert_eq!(world.state(), before);
}

#[test]
fn v05_of_two_rows_that_call_for_one_bucket_the_first_keeps_it() {
    let mut world = small_pages();
    world.row(1, &[wish(4, "name", 1)]);
    world.row(2, &[wish(4, "NAME", 2)]);
    world.row(3, &[wish(4, "free", 3)]);
    world.now = START;
    let verified = world.verify();
    assert_eq!((verified.report.created, verified.report.other_row), (2, 1));
    let before = world.state();
    world.now += START;
    assert_eq!(world.verify().report.other_row, 1);
    assert_eq!((world.state(), world.holder(4, "name")), (before, Some((OWN, 1))));
}

#[test]
fn v07_corrections_that_one_run_could_not_make_do_not_keep_the_next_from_scanning() {
    let mut world = small_pages();
    world.row(1, &[wish(4, "name", 1)]);
    world.row(2, &[wish(4, "NAME", 2)]);
    world.now = START;
    let verified = world.verify();
    world.row(3, &[wish(4, "later", 3)]);
    world.now += START;
    let checkpoint = Some(verified.checkpoint).filter(|checkpoint| !checkpoint.is_done());
    assert_eq!(world.verify_with(&world.settings(), checkpoint).report.created, 1);
}

#[test]
fn v05_creates_wait_for_claims_under_a_lease_and_are_left_at_the_end() {
    let mut world = World::new();
    world.row(1, &[wish(4, "held", 1), wish(4, "other", 1)]);
    let lease = world.begin(OTHER, created(&wish(4, "held", 1), 8)).unwrap();
    world.now = START;
    let verified = world.verify();
    assert_eq!((verified.report.busy, verified.report.created), (1, 1));
    world.settle(OTHER, lease, Outcome::RolledBack);
    assert_eq!(world.verify().report.created, 1);
}

#[test]
fn v06_buckets_of_another_cell_are_reported_and_left_alone() {
    let mut world = World::new();
    let names: Vec<_> = (0..50).map(|n| wish(4, &format!("name{n}"), 1)).collect();
    world.row(1, &names);
    for name in &names[..20] {
        world.claim(OTHER, TABLE, 1, name);
    }
    world.now = START;
    let verified = world.verify();
    assert_eq!((verified.report.other_cell, verified.report.created), (20, 30));
    // The first update is refused because of 20 taken buckets, the second creates the other 30
    // claims, and the third probes the taken buckets.
    assert_eq!(verified.report.updates, 3);
    assert!(verified.checkpoint.is_done());
    assert_eq!(world.holder(4, "name0"), Some((OTHER, 1)));
    let other_cell = verified.findings.iter().filter(|finding| finding.outcome == CorrectionOutcome::OtherCell);
    assert_eq!(other_cell.count(), 20);
}

#[test]
fn v07_a_run_in_pieces_makes_the_same_corrections_as_a_whole_run() {
    for pages in 1..=4 {
        let mut world = small_pages();
        for row in 1..=8 {
            world.row(row, &[wish(4, &format!("new{row}"), 1), wish(5, &format!("{row}@x"), 1)]);
            world.claim(OWN, TABLE, 9 - row, &wish(5, &format!("{row}@x"), 1));
        }
        world.now = START;
        let mut whole = world.clone();
        whole.verify();
        world.verify_in_pieces(pages);
        let holders = |world: &World| {
            let of = |row: u64| [world.holder(4, &format!("new{row}")), world.holder(5, &format!("{row}@x"))];
            (1..=8).map(of).collect::<Vec<_>>()
        };
        assert_eq!(holders(&world), (1..=8).map(|row| [Some((OWN, row)); 2]).collect::<Vec<_>>());
        assert_eq!(holders(&world), holders(&whole));
    }
}

#[test]
fn v07_a_run_that_is_dropped_leaves_nothing_out() {
    for pages in 1..=8 {
        let mut world = World { rows_per_page: 3, ..World::new() };
        for row in 0..20 {
            world.row(row, &[wish(4, &format!("name{}", (row + 1) % 20), 1)]);
            world.claim(OWN, TABLE, row, &wish(4, &format!("name{row}"), 1));
        }
        world.now = START;
        world.verify_dropped(pages);
        let holders: Vec<_> = (0..20_u64).map(|row| world.holder(4, &format!("name{}", (row + 1) % 20))).collect();
        assert_eq!(holders, (0..20).map(|row| Some((OWN, row))).collect::<Vec<_>>(), "dropped after page {pages}");
    }
}

#[test]
fn v08_a_backfill_fills_its_updates() {
    let mut world = World { rows_per_page: 300, ..World::new() };
    for row in 1..=5000 {
        world.row(row, &[wish(4, &format!("name{row}"), 1)]);
    }
    world.now = START;
    let report = world.verify().report;
    assert_eq!((report.created, report.updates, report.pages), (5000, 3, 17));
}

#[test]
fn v08_a_lone_correction_does_not_wait_for_others() {
    let mut world = small_pages();
    for row in 1..=3 {
        world.row(row, &[wish(4, &format!("name{row}"), 1), wish(5, &format!("{row}@x"), 1)]);
        world.claim(OWN, TABLE, row, &wish(4, &format!("name{row}"), 1));
    }
    world.now = START;
    assert_eq!(world.verify().report.updates, 3);
}

#[test]
fn v09_findings_contain_no_value() {
    let mut world = World::new();
    world.row(1, &[wish(4, "two words", 1), wish(4, "secret", 1)]);
    world.claim(OTHER, TABLE, 1, &wish(4, "secret", 1));
    world.claim(OWN, TABLE, 2, &wish(4, "hidden", 1));
    world.now = START;
    let findings = world.verify().findings;
    let outcomes: Vec<_> = findings.iter().map(|finding| finding.outcome).collect();
    assert_eq!(outcomes, [CorrectionOutcome::Invalid, CorrectionOutcome::OtherCell, CorrectionOutcome::Destroyed]);
    let text = format!("{findings:?}");
    assert!(["two words", "secret", "hidden"].iter().all(|value| !text.contains(value)), "{text}");
    let hashes: std::collections::BTreeSet<_> = findings.iter().map(|finding| &finding.value_hash).collect();
    assert_eq!(hashes.len(), 3);
}

/// An earlier version allowed characters that are refused today.
#[test]
fn v01_a_claim_whose_value_is_refused_today_is_given_up_with_its_row() {
    let mut world = World::new();
    let refused = "\u{2800}";
    world.row(1, &[wish(4, &format!("changed{refused}"), 1)]);
    world.row(3, &[wish(4, &format!("same{refused}"), 3)]);
    world.claim_of_an_earlier_version(1, &wish(4, "changed", 2), refused);
    world.claim_of_an_earlier_version(2, &wish(4, "extra", 2), refused);
    world.claim_of_an_earlier_version(3, &wish(4, "same", 3), refused);
    world.now = START;
    let outcomes: Vec<_> = world.verify().findings.iter().map(|finding| finding.outcome).collect();
    assert_eq!(outcomes, [CorrectionOutcome::Invalid, CorrectionOutcome::Destroyed]);
    assert_eq!(world.verify().report.records, 2);
}

#[test]
fn a_dry_run_reports_the_corrections_of_a_run_and_changes_nothing() {
    let mut world = small_pages();
    world.row(1, &[wish(4, "missing", 1)]);
    world.row(2, &[wish(4, "b", 2)]);
    world.claim(OWN, TABLE, 2, &wish(4, "b", 3));
    world.claim(OWN, TABLE, 3, &wish(4, "extra", 3));
    world.now = START;
    let before = world.state();
    let dry = world.verify_with(&leasehold_core::verify::VerifySettings { dry_run: true, ..world.settings() }, None);
    assert_eq!(world.state(), before);
    let counts = |report: &leasehold_core::verify::Report| (report.created, report.replaced, report.destroyed);
    assert_eq!((counts(&dry.report), dry.report.dry_run, dry.findings.len()), ((1, 1, 1), true, 3));
    assert_eq!(counts(&world.verify().report), counts(&dry.report));
}

#[test]
fn a_failed_update_is_left_to_the_next_run_and_stops_no_other() {
    let mut world = World::new();
    world.row(1, &[wish(4, "a", 1)]);
    world.claim(OWN, TABLE, 2, &wish(4, "b", 1));
    world.now = START;
    let settings = world.settings();
    for result in [UpdateResult::Failed, UpdateResult::Refused(vec![])] {
        let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
        loop {
            if matches!(run.step(), VerifyStep::Begin(_)) {
                assert_eq!(run.updated(UpdateResult::Settled), Err(Misuse::OutOfTurn));
                run.updated(result.clone()).unwrap();
            } else if !world.take(&mut run, &settings) {
                break;
            }
        }
        assert_eq!((run.report().failed, run.report().updates), (2, 2), "{result:?}");
    }
    let report = world.verify().report;
    assert_eq!((report.created, report.destroyed), (1, 1));
}

#[test]
fn a_settle_that_fails_leaves_its_corrections_to_the_next_run() {
    for changes in [false, true] {
        let mut world = World::new();
        world.row(1, &[wish(4, "a", 1)]);
        world.now = START;
        let settings = world.settings();
        let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
        while !matches!(run.step(), VerifyStep::Commit | VerifyStep::RollBack) {
            if changes && matches!(run.step(), VerifyStep::ReadAgain { .. }) {
                world.row(1, &[wish(4, "A", 1)]);
            }
            assert!(world.take(&mut run, &settings));
        }
        for wrong in [UpdateResult::Begun, UpdateResult::Refused(vec![])] {
            assert_eq!(run.updated(wrong), Err(Misuse::OutOfTurn));
        }
        run.updated(UpdateResult::Failed).unwrap();
        while world.take(&mut run, &settings) {}
        assert_eq!((run.report().failed, run.report().created, run.report().updates), (1, 0, 1));
    }
}

#[test]
fn a_row_that_is_deleted_while_its_page_is_read_gets_no_claim() {
    let mut world = World::new();
    world.row(1, &[wish(4, "a", 1)]);
    world.claim(OWN, TABLE, 1, &wish(4, "a", 1));
    world.now = START;
    let settings = world.settings();
    for goes_before in 0..4 {
        let mut world = world.clone();
        let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
        (0..goes_before).for_each(|_| assert!(world.take(&mut run, &settings)));
        world.table.clear();
        let destroys = vec![request(&wish(4, "a", 1), TABLE, 1)];
        world.update(OWN, UpdateRequest { creates: vec![], destroys }).unwrap();
        while world.take(&mut run, &settings) {}
        assert_eq!(world.holder(4, "a"), None, "gone before step {goes_before}");
    }
}

#[test]
fn misuse_by_the_host_is_refused_and_changes_nothing() {
    let world = World::new();
    let id = SourceId::from(5);
    let mut run = Verification::new(world.settings(), world.catalogue().clone(), None);
    let (rows, records) = (Rows::new(Timestamp::MIN), Records::new(Timestamp::MIN));
    assert_eq!(run.rows(rows.clone()), Err(Misuse::OutOfTurn));
    assert_eq!(run.records(records.clone(), false), Err(Misuse::OutOfTurn));
    assert_eq!(run.updated(UpdateResult::Settled), Err(Misuse::OutOfTurn));
    assert_eq!(run.proceed(), Err(Misuse::OutOfTurn));
    run.bound(Some(id)).unwrap();
    assert_eq!(run.bound(None), Err(Misuse::OutOfTurn));
    assert_eq!(run.records(records.clone(), true), Err(Misuse::OutOfOrder));
    run.records(records, false).unwrap();
    let with = |ids: &[u64], bucket_type: i32| {
        let mut rows = Rows::new(Timestamp::MIN);
        for id in ids {
            rows.row(&id.to_be_bytes(), None);
            rows.claim(bucket_type, "a", 4, 1);
        }
        rows
    };
    assert_eq!(run.rows(with(&[3, 2], 4)), Err(Misuse::OutOfOrder));
    assert_eq!(run.rows(with(&[3, 6], 4)), Err(Misuse::OutOfOrder));
    assert_eq!(run.rows(with(&[3], 9)), Err(Misuse::ForeignBucketType));
    assert_eq!(run.step(), &VerifyStep::ReadRows { after: SourceId::default(), upto: SourceId::from(5) });
    run.rows(with(&[3, 5], 4)).unwrap();
}
