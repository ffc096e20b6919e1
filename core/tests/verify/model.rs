//! The model of verification: for each bucket, the claims that one run may leave if nothing else
//! changes meanwhile. Tests compare runs over random worlds with the model.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::batch::UpdateRequest;
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, Record, SourceId, Subject};
use leasehold_core::lease::Outcome;
use leasehold_core::rejection::{List, Reason, Rejection};
use leasehold_core::verify::Verification;
use proptest::prelude::*;

use crate::properties::config;
use crate::world::{LONG_AGO, OTHER, OTHER_TABLE, OWN, RECENT, Row, START, TABLE, Wish, World, number, request, wish};

/// The claims that a bucket may have after a run.
#[derive(Debug)]
enum Expected {
    Untouched(Option<Claim>),
    /// The bucket has the claim of one of these rows, each given as source id, spelling and subject
    /// id.
    One(Vec<(SourceId, String, i64)>),
    Absent,
}

impl Expected {
    fn allows(&self, claim: Option<&Claim>) -> bool {
        match (self, claim) {
            (Self::Untouched(before), claim) => before.as_ref() == claim,
            (Self::Absent, claim) => claim.is_none(),
            (Self::One(_), None) => false,
            (Self::One(rows), Some(claim)) => {
                let record = claim.record();
                let is_theirs = |(row, spelling, subject): &(SourceId, String, i64)| {
                    record.source.id == *row
                        && *record.spelling == **spelling
                        && record.subject == Subject { subject_type: 4, id: *subject }
                };
                claim.owner == OWN && claim.hold().is_none() && rows.iter().any(is_theirs)
            }
        }
    }
}

fn key(world: &World, wish: &Wish) -> Option<BucketKey> {
    let bucket = world.catalogue().bucket(BucketType(wish.bucket_type), wish.value.as_str().into());
    bucket.ok().map(|bucket| bucket.key)
}

/// Returns the spelling and the subject id of a row's first wish for a bucket, `None` if the row
/// has no such wish.
fn called_for(world: &World, row: &Row, bucket: &BucketKey) -> Option<(String, i64)> {
    let mut wishes = row.wishes.iter().filter(|_| row.in_scope);
    let wish = wishes.find(|wish| key(world, wish).as_ref() == Some(bucket))?;
    Some((wish.value.clone(), wish.subject_id))
}

fn is_recent(world: &World, row: &Row) -> bool {
    world.now - row.updated_at < RECENT
}

/// The ids of the rows that call for each bucket, without rows that were changed lately.
type Calls = BTreeMap<BucketKey, BTreeSet<u64>>;

fn calls(world: &World) -> Calls {
    let mut calls = Calls::new();
    for (id, row) in world.table.iter().filter(|(_, row)| row.in_scope && !is_recent(world, row)) {
        for bucket in row.wishes.iter().filter_map(|wish| key(world, wish)) {
            calls.entry(bucket).or_default().insert(*id);
        }
    }
    calls
}

fn expected(world: &World, calls: &Calls, bucket: &BucketKey, claim: Option<&Claim>) -> Expected {
    let callers = calls.get(bucket).into_iter().flatten();
    let candidates: Vec<_> = callers
        .filter_map(|id| called_for(world, &world.table[id], bucket).map(|(value, subject)| (*id, value, subject)))
        .map(|(id, value, subject)| (SourceId::from(id), value, subject))
        .collect();
    let corrected = || if candidates.is_empty() { Expected::Absent } else { Expected::One(candidates.clone()) };
    let Some(claim) = claim else { return corrected() };
    let record = claim.record();
    let holder = u64::from_be_bytes(record.source.id.as_bytes().try_into().unwrap());
    let row = world.table.get(&holder);
    let is_mine = claim.owner == OWN && record.source.source_type == TABLE;
    let is_young = world.now - record.updated_at.as_micros() < RECENT;
    if !is_mine || claim.hold().is_some() || is_young || row.is_some_and(|row| is_recent(world, row)) {
        return Expected::Untouched(Some(claim.clone()));
    }
    match row.and_then(|row| called_for(world, row, bucket)) {
        Some((value, subject)) if *record.spelling == *value && record.subject.id == subject => {
            Expected::Untouched(Some(claim.clone()))
        }
        Some((value, subject)) => Expected::One(vec![(record.source.id.clone(), value, subject)]),
        None => corrected(),
    }
}

fn check(before: &World, after: &World) {
    let (old, new) = (before.state().claims, after.state().claims);
    let wished = before.table.values().flat_map(|row| &row.wishes).filter_map(|wish| key(before, wish));
    let calls = calls(before);
    let buckets: BTreeSet<_> = old.keys().chain(new.keys()).cloned().chain(wished).collect();
    for bucket in buckets {
        let expected = expected(before, &calls, &bucket, old.get(&bucket));
        let is = new.get(&bucket);
        assert!(expected.allows(is), "{bucket}: {expected:?}\nis {is:?}\nwas {:?}", old.get(&bucket));
    }
}

fn any_wish() -> impl Strategy<Value = Wish> {
    let value = prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "c", "d", "A", "B", "ß", "ss"]),
        1 => Just("not allowed"),
    ];
    let wishes = (4..=4, value, 1..3_i64).prop_map(|(bucket_type, value, subject)| wish(bucket_type, value, subject));
    let ids = (6..=6, prop::sample::select(vec!["1", "2", "x"]), 1..3_i64);
    prop_oneof![4 => wishes, 1 => ids.prop_map(|(bucket_type, value, subject)| wish(bucket_type, value, subject))]
}

fn any_row() -> impl Strategy<Value = Row> {
    let updated_at = prop_oneof![5 => Just(LONG_AGO), 1 => Just(START - RECENT), 1 => Just(START - RECENT + 1)];
    let in_scope = prop_oneof![9 => Just(true), 1 => Just(false)];
    (updated_at, in_scope, prop::collection::vec(any_wish(), 0..3)).prop_map(|(updated_at, in_scope, wishes)| Row {
        updated_at,
        in_scope,
        wishes,
    })
}

/// A claim that the server has before the run begins.
#[derive(Clone, Debug)]
struct Planted {
    cell: CellId,
    row: u64,
    wish: Wish,
    begun_at: u64,
    is_settled: bool,
    is_other_table: bool,
}

fn any_planted() -> impl Strategy<Value = Planted> {
    let cell = prop_oneof![6 => Just(OWN), 1 => Just(OTHER)];
    let begun_at = prop_oneof![6 => Just(LONG_AGO), 1 => Just(START - RECENT + 1)];
    let rarely = || prop_oneof![8 => Just(false), 1 => Just(true)];
    (cell, 1..8_u64, any_wish(), begun_at, rarely(), rarely()).prop_map(
        |(cell, row, wish, begun_at, is_held, is_other_table)| Planted {
            cell,
            row,
            wish,
            begun_at,
            is_settled: !is_held,
            is_other_table,
        },
    )
}

prop_compose! {
    fn any_world()(
        table in prop::collection::btree_map(1..8_u64, any_row(), 0..7),
        planted in prop::collection::vec(any_planted(), 0..10),
        rows_per_page in 1..5_usize,
        records_per_page in 1..5_usize,
    ) -> World {
        let mut world = World { table, rows_per_page, records_per_page, ..World::new() };
        for planted in planted {
            world.now = planted.begun_at;
            let table = if planted.is_other_table { OTHER_TABLE } else { TABLE };
            let creates = vec![request(&planted.wish, table, planted.row)];
            // If the bucket is taken or the value is not allowed, the world lacks this claim.
            let Ok(lease) = world.begin(planted.cell, UpdateRequest { creates, destroys: vec![] }) else { continue };
            if planted.is_settled {
                world.settle(planted.cell, lease, Outcome::Committed);
            }
        }
        world.now = START;
        world
    }
}

/// A save of the cell during a run: a row gets other wishes or is deleted, and one update changes
/// the row's claims.
#[derive(Clone, Debug)]
struct Save {
    at_step: usize,
    row: u64,
    wishes: Option<Vec<Wish>>,
}

fn any_save() -> impl Strategy<Value = Save> {
    let wishes = prop::option::of(prop::collection::vec(any_wish(), 0..3));
    (0..25_usize, 1..8_u64, wishes).prop_map(|(at_step, row, wishes)| Save { at_step, row, wishes })
}

/// Makes a save as the gem's Rails concern does: the update only destroys claims that the row has.
/// Returns false if the save was refused, so nothing has changed.
fn save(world: &mut World, save: &Save) -> bool {
    let old = world.table.get(&save.row).map(|row| row.wishes.clone()).unwrap_or_default();
    let new = save.wishes.clone().unwrap_or_default();
    let requests = |wishes: &[Wish], other: &[Wish]| {
        let changed = wishes.iter().filter(|wish| !other.contains(wish));
        changed.map(|wish| request(wish, TABLE, save.row)).collect::<Vec<_>>()
    };
    let mut update = UpdateRequest { creates: requests(&new, &old), destroys: requests(&old, &new) };
    while !update.creates.is_empty() || !update.destroys.is_empty() {
        let Err(rejection) = world.update(OWN, update.clone()) else { break };
        let Some(gone) = gone(&rejection) else { return false };
        update.destroys.remove(gone);
    }
    match &save.wishes {
        Some(wishes) => {
            let row = Row { updated_at: world.now, in_scope: true, wishes: wishes.clone() };
            world.table.insert(save.row, row);
        }
        None => _ = world.table.remove(&save.row),
    }
    true
}

/// Returns the position of a destroy that was refused because its row has no such claim.
fn gone(rejection: &Rejection) -> Option<usize> {
    let is_gone = |reason| matches!(reason, Reason::ClaimNotFound | Reason::ClaimChanged | Reason::NotOwner);
    let mut offences = rejection.offences().iter().filter(|offence| is_gone(offence.reason));
    let places = offences.find_map(|offence| offence.place.filter(|place| place.list == List::Destroys));
    places.map(|place| place.position as usize)
}

/// Returns the record that a claim has after a rollback of its lease, `None` if the rollback
/// removes the claim.
fn at_rest(claim: &Claim) -> Option<&Record> {
    match &claim.state {
        ClaimState::Active(record) | ClaimState::Destroying(_, record) => Some(record),
        ClaimState::Replacing(_, both) => Some(&both.old),
        ClaimState::Creating(..) => None,
    }
}

/// Returns the claims of the given rows that these rows call for, each as bucket key and source id.
/// The rows are those that were saved during a run.
fn claims_of(world: &World, rows: &BTreeSet<u64>) -> BTreeMap<BucketKey, SourceId> {
    let is_called_for = |key: &BucketKey, record: &Record| {
        let row = rows.iter().find(|row| record.source.id == SourceId::from(**row));
        let row = row.and_then(|row| world.table.get(row));
        record.source.source_type == TABLE && row.is_some_and(|row| called_for(world, row, key).is_some())
    };
    let claims = world.state().claims.into_iter().filter(|(_, claim)| claim.owner == OWN);
    let records = claims.filter_map(|(key, claim)| at_rest(&claim).cloned().map(|record| (key, record)));
    let called_for = records.filter(|(key, record)| is_called_for(key, record));
    called_for.map(|(key, record)| (key, record.source.id)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..config() })]

    #[test]
    fn v01_to_v06_one_run_corrects_all_that_may_be_corrected_and_touches_nothing_else(world in any_world()) {
        let mut after = world.clone();
        after.verify();
        check(&world, &after);
        // A second run at the same time changes nothing.
        let mut second = after.clone();
        second.verify();
        prop_assert_eq!(second.state(), after.state());
    }

    #[test]
    fn v07_stopping_anywhere_changes_nothing_in_the_end(world in any_world(), pages in 1..4_u64) {
        let mut after = world.clone();
        after.verify_in_pieces(pages);
        check(&world, &after);
    }

    #[test]
    fn v02_v03_v05_saves_during_a_run_are_not_undone(
        world in any_world(),
        saves in prop::collection::vec(any_save(), 1..6),
    ) {
        let mut world = world;
        let settings = world.settings();
        let mut run = Verification::new(settings.clone(), world.catalogue().clone(), None);
        let (initial, mut saved) = (world.state().claims, BTreeSet::new());
        let (mut step, mut goes_on) = (0, true);
        while goes_on {
            world.now += 1;
            for at in saves.iter().filter(|at| at.at_step == step) {
                let is_done = save(&mut world, at);
                saved.extend(is_done.then_some(at.row));
            }
            let before = claims_of(&world, &saved);
            goes_on = world.take(&mut run, &settings);
            let after = claims_of(&world, &saved);
            for (key, row) in before {
                prop_assert_eq!(after.get(&key), Some(&row), "a step took {} from a row that was saved", key);
            }
            step += 1;
        }
        for (key, claim) in &world.state().claims {
            let is_new = initial.get(key) != Some(claim) && claim.record().source.source_type == TABLE;
            let calls = || Some(called_for(&world, world.table.get(&number(&claim.record().source.id)?)?, key).is_some());
            prop_assert!(!is_new || calls() == Some(true), "{} was made for a row that does not call for it", key);
        }
        // The next run corrects what was saved too late for this run.
        world.now += 2 * RECENT;
        let before = world.clone();
        world.verify();
        check(&before, &world);
    }
}

prop_compose! {
    /// Returns a world with 24,000 names that have moved far: the names of each half of the table
    /// moved to rows of the other half, in any order. Some rows were changed lately, and some names
    /// belong to another cell.
    fn any_world_of_many()(
        (low, high) in (Just(names(0..HALF)).prop_shuffle(), Just(names(HALF..2 * HALF)).prop_shuffle()),
        recent in prop::collection::btree_set(0..ROWS, 0..5),
        lost in prop::collection::btree_set(0..2 * HALF, 0..20),
        rows_per_page in prop::sample::select(vec![37, 300, 1000, 9000]),
        records_per_page in prop::sample::select(vec![150, 1000]),
    ) -> World {
        let mut world = World { rows_per_page, records_per_page, ..World::new() };
        let row = |at: u64| at / (2 * HALF / ROWS);
        let name = |number: u64| wish(4, &format!("name{number}"), 1);
        let numbers: Vec<u64> = (0..2 * HALF).filter(|number| !lost.contains(number)).collect();
        for some in numbers.chunks(2000) {
            let creates = some.iter().map(|number| request(&name(*number), TABLE, row(*number))).collect();
            world.update(OWN, UpdateRequest { creates, destroys: vec![] }).unwrap();
        }
        lost.iter().for_each(|number| world.claim(OTHER, TABLE, 1, &name(*number)));
        (0..ROWS).for_each(|id| world.row(id, &[]));
        for (at, number) in high.into_iter().chain(low).enumerate() {
            world.table.get_mut(&row(at as u64)).unwrap().wishes.push(name(number));
        }
        recent.iter().for_each(|id| world.table.get_mut(id).unwrap().updated_at = START - 1);
        world.now = START;
        world
    }
}

/// The number of names in each half of the table: more than the creates that a run can defer. Each
/// row has four names.
const HALF: u64 = 12_000;
const ROWS: u64 = 6000;

fn names(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 100, ..config() })]

    #[test]
    fn v05_one_run_corrects_more_than_can_wait_whatever_moved_where(world in any_world_of_many()) {
        let mut after = world.clone();
        let report = after.verify().report;
        check(&world, &after);
        prop_assert!(report.rows > ROWS, "no page was looked at again: {:?}", report);
    }

    #[test]
    fn v07_stopping_anywhere_among_many_changes_nothing_in_the_end(world in any_world_of_many(), pages in 1..9_u64) {
        let mut after = world.clone();
        after.verify_in_pieces(pages);
        check(&world, &after);
    }
}
