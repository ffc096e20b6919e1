//! Tests of the limit on destroys (V11): a run destroys at most a share of the table's claims, or
//! ten claims if that is more, whatever its pages, pieces and moves are.

use leasehold_core::bucket::BucketType;
use leasehold_core::verify::{Checkpoint, Share, TooManyDestroys, Verification, VerifySettings, VerifyStep};
use proptest::prelude::*;

use crate::many::moved;
use crate::properties::config;
use crate::world::{TABLE, Verified, World};

/// The number of rows of a large table. Two thousand destroys fill an update.
const ROWS: u64 = 25_000;

fn share(share: f64) -> Share {
    Share::new(share).unwrap()
}

/// Returns a world in which each row has a claim and calls for it, except that the rows for which
/// `is_emptied` returns true call for none.
fn emptied(rows: u64, is_emptied: impl Fn(u64) -> bool) -> World {
    let mut world = moved(rows, |row| row);
    (1..=rows).filter(|row| is_emptied(*row)).for_each(|row| world.row(row, &[]));
    world.max_destroy_share = Share::default();
    world
}

fn refused(verified: &Verified) -> Option<(u64, u64)> {
    verified.refusal.map(|refusal| (refusal.destroys, refusal.claims))
}

#[test]
fn v11_ten_claims_may_be_destroyed_in_any_table() {
    let mut world = World { max_destroy_share: share(0.0), ..emptied(10, |_| true) };
    let verified = world.verify();
    assert_eq!((refused(&verified), verified.report.destroyed), (None, 10));
    let mut world = emptied(11, |_| true);
    let before = world.state();
    assert_eq!(refused(&world.verify()), Some((11, 11)));
    assert_eq!(world.state(), before);
}

#[test]
fn v11_a_run_stops_before_it_destroys_more_than_a_tenth_and_goes_on_when_told() {
    let mut world = emptied(200, |row| row <= 21);
    let before = world.state();
    let verified = world.verify();
    assert_eq!((refused(&verified), world.state()), (Some((21, 200)), before));
    let needed = verified.refusal.unwrap().needed_share();
    assert_eq!(needed, share(0.11));
    let report =
        world.verify_with(&VerifySettings { max_destroy_share: needed, ..world.settings() }, Some(verified.checkpoint));
    assert_eq!((report.refusal, report.report.destroyed, report.report.records), (None, 21, 0));
    let report = emptied(200, |row| row <= 20).verify();
    assert_eq!((report.refusal, report.report.destroyed), (None, 20));
}

#[test]
fn v11_moves_and_changes_of_a_row_are_no_destroys() {
    let mut world = World { max_destroy_share: share(0.0), ..moved(1000, |row| row % 1000 + 1) };
    let verified = world.verify();
    assert_eq!((refused(&verified), verified.report.replaced), (None, 1000));
}

#[test]
fn v11_destroys_close_together_are_surveyed_and_permitted() {
    let mut world = emptied(ROWS, |row| row <= 2400);
    let report = world.verify();
    assert_eq!((refused(&report), report.report.destroyed), (None, 2400));
    assert_eq!((report.report.pages, report.report.pages_surveyed), (26, 26));
}

#[test]
fn v11_a_survey_stops_a_run_before_its_first_destroy() {
    for first in [0, 4000] {
        let mut world = emptied(ROWS, |row| row > first && row <= first + 2501);
        let before = world.state();
        let verified = world.verify();
        assert_eq!((refused(&verified), world.state()), (Some((2501, ROWS)), before));
        assert!(verified.report.pages < 10, "{:?}", verified.report);
    }
}

#[test]
fn v11_a_run_without_many_destroys_close_together_makes_no_survey() {
    let mut world = emptied(ROWS, |row| row % 10 == 0);
    let verified = world.verify();
    assert_eq!((refused(&verified), verified.report.destroyed), (None, ROWS / 10));
    let mut over = emptied(5000, |row| row % 3 == 0);
    let refusal = over.verify();
    assert_eq!(refused(&refusal), Some((1666, 5000)));
    assert_eq!((verified.report.pages_surveyed, refusal.report.pages_surveyed), (0, 0));
}

#[test]
fn v11_a_dry_run_tells_that_a_run_would_be_refused() {
    let mut world = emptied(ROWS, |row| row <= 2501);
    let dry = VerifySettings { dry_run: true, ..world.settings() };
    let verified = world.verify_with(&dry, None);
    assert_eq!((verified.refusal, verified.report.destroyed), (None, 2501));
    assert!(verified.report.over_destroy_limit);
    let wide = VerifySettings { max_destroy_share: share(0.2), ..dry };
    assert!(!world.verify_with(&wide, None).report.over_destroy_limit);
}

/// Runs a verification in pieces of one page each until it ends. Returns the refusal, `None` if the
/// run came to its end, and the number of pieces.
fn verify_in_pages(world: &mut World) -> (Option<TooManyDestroys>, u32) {
    let settings = world.settings();
    let mut checkpoint = None;
    for pieces in 1.. {
        let mut run = Verification::new(settings.clone(), world.catalogue().clone(), checkpoint);
        let mut pages = 0;
        while pages < 1 || *run.step() != VerifyStep::PageDone {
            pages += u32::from(*run.step() == VerifyStep::PageDone);
            if !world.take(&mut run, &settings) {
                let refusal = if let VerifyStep::Refused(refusal) = run.step() { Some(*refusal) } else { None };
                return (refusal, pieces);
            }
        }
        run.stop().unwrap();
        while world.take(&mut run, &settings) {}
        checkpoint = Some(run.checkpoint());
    }
    unreachable!("the loop has no end")
}

#[test]
fn v07_v11_a_run_in_pieces_counts_and_surveys_like_a_whole_run() {
    // The limit is checked at the end of the scan, without a survey.
    let mut world = World { rows_per_page: 100, ..emptied(1000, |row| row <= 101) };
    assert_eq!(verify_in_pages(&mut world).0, Some(TooManyDestroys { destroys: 101, claims: 1000 }));
    let mut world = World { rows_per_page: 100, ..emptied(1000, |row| row <= 100) };
    assert_eq!(verify_in_pages(&mut world).0, None);
    // The limit is checked by a survey, which also runs in pieces.
    let mut world = World { rows_per_page: 1000, ..emptied(ROWS, |row| row <= 2501) };
    let before = world.state();
    assert_eq!(verify_in_pages(&mut world).0, Some(TooManyDestroys { destroys: 2501, claims: ROWS }));
    assert_eq!(world.state(), before);
    let mut world = World { rows_per_page: 1000, ..emptied(ROWS, |row| row <= 2500) };
    assert_eq!(verify_in_pages(&mut world).0, None);
    assert_eq!(world.state().claims.len() as u64, ROWS - 2500);
}

#[test]
fn v11_a_run_that_is_dropped_at_a_refusal_keeps_its_planned_corrections() {
    let mut world = emptied(200, |row| row <= 30);
    let verified = world.verify();
    assert!(verified.refusal.is_some() && !verified.checkpoint.is_done());
    // The rows call for their claims again: the scope was wrong and is corrected.
    let restored = moved(200, |row| row);
    world.table = restored.table;
    let again = world.verify_with(&world.settings(), Some(verified.checkpoint));
    assert_eq!((again.refusal, again.report.changed, again.report.destroyed), (None, 30, 0));
    assert!(again.checkpoint.is_done());
}

#[test]
fn v11_rows_that_vanish_during_a_run_do_not_exceed_the_limit() {
    // Every claim is to move, but the rows vanish before the run reads them again: each replace
    // becomes a destroy.
    let mut world = World { max_destroy_share: share(0.1), ..moved(1000, |row| row % 1000 + 1) };
    let settings = world.settings();
    let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
    while !matches!(run.step(), VerifyStep::ReadAgain { .. }) {
        assert!(world.take(&mut run, &settings));
    }
    world.table.clear();
    while world.take(&mut run, &settings) {}
    assert_eq!(run.step(), &VerifyStep::Refused(TooManyDestroys { destroys: 1000, claims: 1000 }));
    assert_eq!(world.state().claims.len(), 1000);
}

#[test]
fn v11_a_checkpoint_without_a_count_is_surveyed() {
    let text = r#"{"scan":{"after":"00000000000003e8"},"takes":[],"frees":[]}"#;
    for (last, refusal) in [(1020, None), (1230, Some((230, 2000)))] {
        let mut world = emptied(2000, |row| row > 1000 && row <= last);
        let checkpoint: Checkpoint = serde_json::from_str(text).unwrap();
        let verified = world.verify_with(&world.settings(), Some(checkpoint));
        assert_eq!(refused(&verified), refusal);
        // A tenth of the claims that the run itself lists permits 20 destroys, so no survey is
        // needed.
        assert_eq!(verified.report.pages_surveyed > 0, refusal.is_some());
    }
}

prop_compose! {
    /// Returns a world of up to 400 names. Some have moved to another row, and no row calls for
    /// some others any more.
    fn any_emptied()(
        fates in prop::collection::vec(0..4_u8, 1..400),
        moves in 0..7_u64,
        rows_per_page in prop::sample::select(vec![3, 50, 1000]),
        records_per_page in prop::sample::select(vec![7, 1000]),
        max_share in prop::sample::select(vec![0.0, 0.1, 0.3, 1.0]),
    ) -> World {
        let rows = fates.len() as u64;
        let mut world = moved(rows, |row| (row - 1 + moves) % rows + 1);
        for (row, fate) in (1..).zip(fates) {
            if fate == 0 {
                world.row(row, &[]);
            }
        }
        World { rows_per_page, records_per_page, max_destroy_share: share(max_share), ..world }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..config() })]

    #[test]
    fn v11_no_run_destroys_more_than_the_limit_and_a_run_within_it_is_not_refused(world in any_emptied()) {
        let claims = world.state().claims.len() as u64;
        let called_for = world.table.values().flat_map(|row| &row.wishes).count() as u64;
        let limit = world.max_destroy_share.of(claims).max(10);
        let (mut whole, mut pieces) = (world.clone(), world);
        let refusal = whole.verify().refusal;
        prop_assert_eq!(refusal, verify_in_pages(&mut pieces).0);
        for after in [&whole, &pieces] {
            prop_assert!(after.state().claims.len() as u64 + limit >= claims);
        }
        // A run without a limit would destroy each claim that no row calls for.
        let needed = claims - called_for;
        let expected = (needed > limit).then_some(TooManyDestroys { destroys: needed, claims });
        prop_assert_eq!(refusal, expected);
    }
}

#[test]
fn v11_the_share_of_a_refusal_permits_its_destroys() {
    for (destroys, claims) in [(11, 11), (11, 109), (2501, 25_000), (1, 3), (999_999, 1_000_000)] {
        let refusal = TooManyDestroys { destroys, claims };
        assert!(refusal.needed_share().of(claims) >= destroys, "{refusal:?}");
    }
    assert_eq!([0.0, 0.1, 1.0].map(|part| share(part).of(99)), [0, 9, 99]);
    assert_eq!([-0.1, 1.1, f64::NAN].map(Share::new), [None; 3]);
}

#[test]
fn v11_settings_without_a_share_have_a_tenth() {
    let text = format!(
        r#"{{"source_type":{},"bucket_types":[4],"recent_within_micros":0,"rows_per_page":1,"dry_run":false,"hash_seed":0}}"#,
        TABLE.0
    );
    let settings: VerifySettings = serde_json::from_str(&text).unwrap();
    assert_eq!((settings.max_destroy_share, settings.bucket_types.contains(&BucketType(4))), (share(0.1), true));
    let wrong = text.replace("\"dry_run\"", "\"max_destroy_share\":1.5,\"dry_run\"");
    assert!(serde_json::from_str::<VerifySettings>(&wrong).unwrap_err().to_string().contains("from 0 to 1"));
}
