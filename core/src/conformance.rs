//! The suite of tests that every store passes. A host's test implements [`Harness`], which opens
//! and reopens the store, and calls [`run`]:
//!
//! ```
//! use leasehold_core::conformance::{self, Harness};
//! use leasehold_core::memory::MemoryStore;
//!
//! struct Memory;
//!
//! impl Harness for Memory {
//!     type Store = MemoryStore;
//!
//!     fn open(&mut self) -> MemoryStore {
//!         MemoryStore::default()
//!     }
//!
//!     fn reopen(&mut self, store: MemoryStore) -> MemoryStore {
//!         store
//!     }
//! }
//!
//! # if false {
//! conformance::run(&mut Memory);
//! # }
//! ```
//!
//! Each check runs the same commands on the store and on the reference store, and compares replies,
//! rows, lists and the whole state. A store may work in any way as long as all of these are equal.
//! Only the fences of a store that skips some ([`Store::skips_fences`]) are compared by their order.

#![allow(clippy::expect_used, reason = "a suite of assertions: a store that fails an expectation has failed the suite")]

mod locks;
mod queues;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

use uuid::Uuid;

use crate::batch::{ClaimRequest, UpdateRequest};
use crate::bucket::{BucketKey, BucketType};
use crate::cell::CellId;
use crate::claim::{Source, SourceId, SourceType, Subject, UserData};
use crate::command::{Command, Reply};
use crate::invariant;
use crate::lease::{Fence, LeaseId, Outcome};
use crate::memory::MemoryStore;
use crate::organization::OrganizationId;
use crate::query::{LeasePosition, LeaseScan, RecordPlace, RecordPosition, RecordRow, RecordScan};
use crate::rejection::Rejection;
use crate::rows::State;
use crate::rules::Rules;
use crate::store::Store;
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::{Begin, Forget, Settle};

/// The suite's access to the store that it tests.
pub trait Harness {
    /// The type of the store.
    type Store: Store;

    /// Returns an empty store.
    fn open(&mut self) -> Self::Store;

    /// Closes the store, opens it again and returns it with the same data. For a store that keeps
    /// nothing on disk, the harness returns `store` unchanged.
    fn reopen(&mut self, store: Self::Store) -> Self::Store;
}

/// Runs every check of the suite on stores that the harness opens.
///
/// # Panics
/// The store differs from the reference store.
pub fn run(harness: &mut impl Harness) {
    random_groups_agree_with_the_reference(harness);
    a_group_sees_its_own_effects(harness);
    records_are_listed_in_byte_order(harness);
    leases_are_listed_by_the_time_of_their_begin(harness);
    settled_leases_are_found_and_forgotten(harness);
    large_rows_are_kept_whole(harness);
}

/// Runs the checks of sessions and locks on stores that the harness opens.
///
/// # Panics
/// The store differs from the reference store.
pub fn run_locks(harness: &mut impl Harness) {
    locks::random_groups_agree_with_the_reference(harness);
    locks::asks_are_served_in_the_order_of_their_arrival(harness);
    locks::all_that_is_held_is_held_after_a_restart(harness);
    locks::the_end_of_a_session_ends_all_its_asks(harness);
    locks::large_rows_are_kept_whole(harness);
    locks::slots_are_held_and_given_back(harness);
    locks::several_locks_are_asked_for_together(harness);
}

/// Runs the checks of queues on stores that the harness opens.
///
/// # Panics
/// The store differs from the reference store.
pub fn run_queues(harness: &mut impl Harness) {
    queues::random_groups_agree_with_the_reference(harness);
    queues::updates_are_taken_as_one_behind_their_create(harness);
    queues::what_a_lost_worker_held_comes_back(harness);
    queues::long_lanes_are_worked_in_order(harness);
    queues::large_rows_are_kept_whole(harness);
}

/// A small random generator (SplitMix64) with a fixed seed, so that every store runs the same
/// commands.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

/// A store under test and the reference store, which run the same commands.
struct Pair<S> {
    store: S,
    reference: MemoryStore,
    rules: Rules,
    now: u64,
    minted: u128,
    // The fences of a store that skips some, with those that the reference store gave out instead.
    fences: BTreeMap<Fence, Fence>,
}

impl<S: Store> Pair<S> {
    fn new(store: S) -> Self {
        let rules = Rules { cells: (1..=3).map(CellId).collect(), ..Rules::default() };
        Self { store, reference: MemoryStore::default(), rules, now: 1_000_000, minted: 0, fences: BTreeMap::new() }
    }

    fn mint(&mut self) -> LeaseId {
        self.minted += 1;
        // The ids are scattered like random ones, so that the order of ids is not the order of
        // begins.
        LeaseId(Uuid::from_u128(self.minted.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
    }

    fn run(&mut self, commands: &[Command]) -> Vec<Result<Reply, Rejection>> {
        let now = Timestamp::from_micros(self.now);
        let replies = run_group(&mut self.store, commands, now);
        let expected = run_group(&mut self.reference, commands, now);
        let replies = self.renumbered(replies, &expected);
        assert_eq!(replies, expected, "the store's replies differ from the reference's to {commands:?}");
        replies
    }

    /// Returns the replies with the reference's fences in the place of those of a store that skips
    /// some.
    fn renumbered(
        &mut self,
        mut replies: Vec<Result<Reply, Rejection>>,
        expected: &[Result<Reply, Rejection>],
    ) -> Vec<Result<Reply, Rejection>> {
        if !self.store.skips_fences() {
            return replies;
        }
        for (reply, expected) in replies.iter_mut().zip(expected) {
            if let (Ok(Reply::Begun(begun)), Ok(Reply::Begun(expected))) = (reply, expected) {
                self.learn(begun.fence, expected.fence);
                begun.fence = self.numbered(begun.fence);
            }
        }
        replies
    }

    /// Notes a fence of the store with the reference's. A new fence must be larger than all before
    /// it (B13).
    fn learn(&mut self, fence: Fence, expected: Fence) {
        let newest = self.fences.last_key_value().map(|(newest, _)| *newest);
        self.fences.entry(fence).or_insert_with(|| {
            assert!(Some(fence) > newest, "{fence:?} is not larger than {newest:?}");
            expected
        });
    }

    /// Returns the reference's fence for a fence of the store, or `fence` itself if it is unknown.
    fn numbered(&self, fence: Fence) -> Fence {
        self.fences.get(&fence).copied().unwrap_or(fence)
    }

    /// Returns a state of the store with the reference's fences, if the store skips some.
    fn renumbered_state(&self, mut state: State) -> State {
        if self.store.skips_fences() {
            state.leases.values_mut().for_each(|lease| lease.fence = self.numbered(lease.fence));
            state.replays.values_mut().for_each(|replay| replay.fence = self.numbered(replay.fence));
            let newest = self.fences.last_key_value().map_or((Fence(0), Fence(0)), |(own, expected)| (*own, *expected));
            assert!(state.fence >= newest.0, "{:?} is below {newest:?}", state.fence);
            state.fence = newest.1;
        }
        state
    }

    fn parsed(&mut self, cell: i64, request: UpdateRequest, key: Option<&str>) -> Option<Begin> {
        let lease = self.mint();
        self.rules.begin(CellId(cell), request, key, lease).ok()
    }

    fn begin(&mut self, cell: i64, request: UpdateRequest, key: Option<&str>) -> Option<Command> {
        self.parsed(cell, request, key).map(Command::Begin)
    }

    fn begun(&mut self, cell: i64, creates: Vec<ClaimRequest>) -> LeaseId {
        let command = self.begin(cell, UpdateRequest { creates, destroys: vec![] }, None);
        match self.run(&[command.expect("a valid update")]).first() {
            Some(Ok(Reply::Begun(begun))) => begun.lease,
            other => unreachable!("the begin is refused: {other:?}"),
        }
    }

    fn settled(&mut self, cell: i64, lease: LeaseId, outcome: Outcome) {
        let replies = self.run(&[Command::Settle(Settle { cell: CellId(cell), lease, outcome })]);
        assert_eq!(replies, [Ok(Reply::Settled(true))]);
    }

    fn compare(&self) {
        let state = self.store.state().expect("the state can be read");
        assert_eq!(invariant::check(&state), Ok(()));
        let state = self.renumbered_state(state);
        assert_eq!(state, self.reference.state().expect("memory"), "the states differ");
        for (key, claim) in &state.claims {
            assert_eq!(self.store.claim(key).expect("a claim can be read").as_ref(), Some(claim));
        }
    }

    fn compare_leases(&self, scan: &LeaseScan) {
        let rows = self.store.leases(scan).expect("leases can be read");
        assert_eq!(rows, self.reference.leases(scan).expect("memory"), "{scan:?}");
    }

    /// Scans the store to the end, part by part. Compares all rows with those of one unlimited scan
    /// of the reference store.
    fn compare_records(&self, scan: &RecordScan) {
        let whole = RecordScan { limit: usize::MAX, max_bytes: usize::MAX, ..scan.clone() };
        let expected = self.reference.records(&whole).expect("memory");
        assert_eq!(expected.next, None);
        let (mut rows, mut next) = (Vec::new(), scan.clone());
        loop {
            let part = self.store.records(&next).expect("records can be read");
            assert!(part.damaged.is_empty(), "{next:?}");
            let bytes = part.rows.iter().rev().skip(1).map(RecordRow::bytes).sum::<usize>();
            assert!(part.rows.len() <= scan.limit && bytes < scan.max_bytes, "{next:?}: {part:?}");
            rows.extend(part.rows);
            let Some(place) = part.next else { break };
            let last = rows.last().map(|row| (row.claim.record().source.id.clone(), row.key.clone()));
            assert!(last.is_none_or(|last| last <= place), "{next:?} leaves out rows before {place:?}");
            let after = RecordPosition::Claim(place.clone());
            assert!(is_before(&next.after, &place), "{next:?} does not get past its beginning");
            next.after = after;
        }
        assert_eq!(rows, expected.rows, "{scan:?}");
    }

    fn compare_settled(&self, before: u64, limit: usize) -> Vec<LeaseId> {
        let before = Timestamp::from_micros(before);
        let ids = self.store.settled(before, limit).expect("settled leases can be read");
        assert_eq!(ids, self.reference.settled(before, limit).expect("memory"));
        ids
    }
}

fn is_before(position: &RecordPosition, place: &RecordPlace) -> bool {
    (position.bound(), Bound::Unbounded).contains(place)
}

/// Loads the rows of a group of commands, runs the commands and saves their changes, as a server
/// does. Returns the replies.
fn run_group<S: Store>(store: &mut S, commands: &[Command], now: Timestamp) -> Vec<Result<Reply, Rejection>> {
    let mut workspace = store.workspace().expect("the fence can be read");
    loop {
        let keys = workspace.missing(commands);
        if keys.is_empty() {
            break;
        }
        store.load(keys, &mut workspace).expect("rows can be loaded");
    }
    let replies: Vec<_> =
        commands.iter().map(|command| command.apply(&mut workspace, now).expect("loaded rows are sound")).collect();
    let fences = store.save(&workspace.into_changes()).expect("changes can be saved");
    replies.into_iter().map(|reply| reply.map(|reply| reply.with_fences(&fences))).collect()
}

fn claim(bucket_type: i32, value: &str, source: Source) -> ClaimRequest {
    ClaimRequest {
        bucket_type: BucketType(bucket_type),
        value: value.into(),
        subject: Some(Subject { subject_type: 4, id: 7 }),
        source: Some(source),
        user_data: None,
    }
}

fn source(source_type: i32, id: &[u8]) -> Source {
    Source { source_type: SourceType(source_type), id: SourceId::from_bytes(id) }
}

fn random_claim(dice: &mut Dice) -> ClaimRequest {
    let name = dice.roll(60);
    let value = if dice.one_in(2) { format!("Name{name}") } else { format!("name{name}") };
    let id = dice.roll(3);
    let user_data = dice.one_in(4).then(|| UserData { type_url: "t".into(), value: vec![0xff; 3] });
    let source = source(1 + i32::try_from(dice.roll(2)).unwrap_or(0), &id.to_be_bytes());
    ClaimRequest { user_data, ..claim(4, &value, source) }
}

/// Returns no organization in half of all cases, else one of three.
fn random_organization(dice: &mut Dice) -> Option<OrganizationId> {
    let id = [0, 0, 0, 1, 300, i64::MAX].get(usize::try_from(dice.roll(6)).unwrap_or(0)).copied();
    OrganizationId::try_from(id?).ok()
}

fn random_command<S: Store>(pair: &mut Pair<S>, dice: &mut Dice, leases: &[LeaseId]) -> Option<Command> {
    let cell = 1 + i64::try_from(dice.roll(3)).unwrap_or(0);
    // The last leases are the likeliest to be outstanding.
    let age = usize::try_from(1 + dice.roll(8)).unwrap_or(1);
    match (dice.roll(5), leases.len().checked_sub(age).and_then(|at| leases.get(at))) {
        (0 | 1, Some(&lease)) => {
            let owner = pair.reference.lease(lease).expect("memory").map(|lease| lease.cell.0);
            let cell = owner.filter(|_| !dice.one_in(5)).unwrap_or(cell);
            let outcome = if dice.one_in(3) { Outcome::RolledBack } else { Outcome::Committed };
            Some(Command::Settle(Settle { cell: CellId(cell), lease, outcome }))
        }
        (2, Some(&lease)) if dice.one_in(4) => {
            Some(Command::Forget(Forget { lease, settled_before: Timestamp::from_micros(pair.now) }))
        }
        _ => {
            let creates = (0..dice.roll(3)).map(|_| random_claim(dice)).collect();
            let owned = pair.reference.state().expect("memory").claims;
            let rested: Vec<_> = owned.iter().filter(|(_, claim)| claim.hold().is_none()).collect();
            let destroys = (0..dice.roll(3)).map(|_| match rested.get(usize::try_from(dice.roll(20)).unwrap_or(0)) {
                Some((key, _)) => ClaimRequest { value: key.canonical.clone(), source: None, ..random_claim(dice) },
                None => random_claim(dice),
            });
            let destroys: Vec<_> = destroys.collect();
            let key = dice.one_in(3).then(|| format!("key{}", dice.roll(60)));
            let organization = random_organization(dice);
            let begin = pair.parsed(cell, UpdateRequest { creates, destroys }, key.as_deref())?;
            Some(Command::Begin(begin.for_organization(organization)))
        }
    }
}

/// B01 to B09, B13, B20 to B24, B30: the store agrees with the reference over many random groups of
/// commands. The store is reopened in between.
fn random_groups_agree_with_the_reference(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let mut dice = Dice(7);
    let mut leases: Vec<LeaseId> = Vec::new();
    for round in 0..600 {
        pair.now += dice.roll(2_000);
        let size = 1 + dice.roll(6);
        let commands: Vec<_> = (0..size).filter_map(|_| random_command(&mut pair, &mut dice, &leases)).collect();
        for reply in pair.run(&commands).into_iter().flatten() {
            if let Reply::Begun(begun) = reply {
                leases.push(begun.lease);
            }
        }
        if round % 10 == 0 {
            pair.compare();
        }
        if round % 100 == 0 {
            pair.store = harness.reopen(pair.store);
            pair.compare();
        }
        compare_random_lists(&pair, &mut dice);
    }
    let fence = pair.reference.state().expect("memory").fence;
    assert!(fence > Fence(100), "the random commands begin too few updates to prove anything: {fence:?}");
}

fn compare_random_lists<S: Store>(pair: &Pair<S>, dice: &mut Dice) {
    let cell = CellId(1 + i64::try_from(dice.roll(3)).unwrap_or(0));
    let limit = usize::try_from(1 + dice.roll(20)).unwrap_or(1);
    let created_at = Timestamp::from_micros(pair.now - dice.roll(pair.now - 1_000_000 + 1));
    pair.compare_leases(&LeaseScan { cell, from: Bound::Unbounded, limit });
    pair.compare_leases(&LeaseScan {
        cell,
        from: Bound::Included(LeasePosition { created_at, lease: LeaseId(Uuid::nil()) }),
        limit,
    });
    let id = |dice: &mut Dice| if dice.one_in(2) { SourceId::default() } else { SourceId::from(dice.roll(3)) };
    let (source_id_gt, source_id_lte) = (id(dice), id(dice));
    let source_type = SourceType(1 + i32::try_from(dice.roll(2)).unwrap_or(0));
    pair.compare_records(&RecordScan {
        cell,
        source_type,
        bucket_types: if dice.one_in(2) { BTreeSet::new() } else { [BucketType(9)].into() },
        after: RecordPosition::Source(source_id_gt),
        source_id_lte,
        limit,
        max_bytes: if dice.one_in(2) { usize::MAX } else { 500 },
    });
    pair.compare_settled(pair.now, limit);
}

/// A begin and its settle leave the same state in one group as in two groups.
fn a_group_sees_its_own_effects(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    for outcome in [Outcome::Committed, Outcome::RolledBack] {
        let value = format!("{outcome:?}");
        let creates = vec![claim(4, &value, source(1, &[1]))];
        let request = UpdateRequest { creates, destroys: vec![] };
        let begin = pair.begin(1, request.clone(), None).expect("a valid update");
        let Command::Begin(first) = &begin else { unreachable!("begin makes begins") };
        let settle = Command::Settle(Settle { cell: CellId(1), lease: first.lease, outcome });
        let again = pair.begin(2, request, None).expect("a valid update");
        let replies = pair.run(&[begin, again, settle]);
        assert_eq!(replies.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        pair.compare();
    }
}

/// B32: records come in byte order of their source ids, and an id stands before the ids that begin
/// with its bytes. The range may be open at either end, and may be limited to some bucket types.
fn records_are_listed_in_byte_order(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let ids: [&[u8]; 8] = [&[0], &[0, 0], &[0, 1], &[1], &[0x7f, 0xff], &[0x80], &[0xff], &[0xff, 0xff, 0xff]];
    for (n, id) in ids.into_iter().enumerate() {
        let creates = vec![
            claim(5, &format!("z{n}@example.org"), source(2, id)),
            claim(4, &format!("b{n}"), source(2, id)),
            claim(4, &format!("a{n}"), source(2, id)),
            claim(4, &format!("other-table-{n}"), source(3, id)),
        ];
        let lease = pair.begun(1 + i64::from(n == 3), creates);
        pair.settled(1 + i64::from(n == 3), lease, Outcome::Committed);
    }
    pair.store = harness.reopen(pair.store);
    let ends: Vec<SourceId> = std::iter::once(&[][..]).chain(ids).map(SourceId::from_bytes).collect();
    for (gt, lte) in ends.iter().flat_map(|gt| ends.iter().map(move |lte| (gt, lte))) {
        for (types, limit) in [(vec![], 100), (vec![], 4), (vec![4], 100), (vec![5, 9], 3)] {
            pair.compare_records(&RecordScan {
                cell: CellId(1),
                source_type: SourceType(2),
                bucket_types: types.into_iter().map(BucketType).collect(),
                after: RecordPosition::Source(gt.clone()),
                source_id_lte: lte.clone(),
                limit,
                max_bytes: usize::MAX,
            });
        }
    }
}

/// B31, B33: leases are listed by the time of their begin, then by id. Settled leases are not in
/// the list.
fn leases_are_listed_by_the_time_of_their_begin(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let mut leases = Vec::new();
    for n in 0..40_u64 {
        pair.now += n % 3;
        leases.push(pair.begun(1, vec![claim(4, &format!("n{n}"), source(1, &[1]))]));
    }
    for lease in leases.iter().step_by(3) {
        pair.settled(1, *lease, Outcome::Committed);
    }
    pair.store = harness.reopen(pair.store);
    let all =
        pair.reference.leases(&LeaseScan { cell: CellId(1), from: Bound::Unbounded, limit: 100 }).expect("memory");
    assert_eq!(all.len(), 26);
    for row in &all {
        for from in [Bound::Excluded(row.position), Bound::Included(row.position)] {
            pair.compare_leases(&LeaseScan { cell: CellId(1), from, limit: 5 });
        }
    }
    let future = LeasePosition { created_at: Timestamp::MAX, lease: LeaseId(Uuid::nil()) };
    pair.compare_leases(&LeaseScan { cell: CellId(1), from: Bound::Included(future), limit: 5 });
}

/// B22, B24: settled leases are listed by the time of their settle. A forgotten lease is gone
/// together with its idempotency key.
fn settled_leases_are_found_and_forgotten(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    for n in 0..20 {
        pair.now += 1_000;
        let creates = vec![claim(4, &format!("n{n}"), source(1, &[1]))];
        let key = format!("key{n}");
        let begin = pair.begin(1, UpdateRequest { creates, destroys: vec![] }, Some(&key)).expect("a valid update");
        let Command::Begin(first) = &begin else { unreachable!("begin makes begins") };
        let lease = first.lease;
        pair.run(&[begin]);
        let outcome = if n % 2 == 0 { Outcome::Committed } else { Outcome::RolledBack };
        pair.settled(1, lease, outcome);
    }
    let before = pair.now - 10_000;
    let settled_before = Timestamp::from_micros(before);
    assert_eq!(pair.compare_settled(before, 3).len(), 3);
    let old = pair.compare_settled(before, 100);
    let forgets: Vec<_> = old.iter().map(|&lease| Command::Forget(Forget { lease, settled_before })).collect();
    assert!(pair.run(&forgets).iter().all(|reply| *reply == Ok(Reply::Forgotten(true))));
    assert!(pair.run(&forgets).iter().all(|reply| *reply == Ok(Reply::Forgotten(false))));
    pair.store = harness.reopen(pair.store);
    pair.compare();
    assert_eq!(pair.compare_settled(pair.now, 100).len(), 20 - old.len() - 1);
}

/// B11: the largest update, the longest value, the longest source id and attached data are stored
/// and returned whole.
fn large_rows_are_kept_whole(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let long = "é".repeat(512);
    let mut creates: Vec<_> = (0..1999_u64).map(|n| claim(4, &format!("n{n}"), source(1, &n.to_be_bytes()))).collect();
    let user_data = Some(UserData { type_url: "type.example/x".into(), value: (0..=255).collect() });
    creates.push(ClaimRequest { user_data, ..claim(1, &long, source(1, &[0xff; 128])) });
    let lease = pair.begun(1, creates);
    pair.compare();
    pair.settled(1, lease, Outcome::Committed);
    pair.store = harness.reopen(pair.store);
    pair.compare();
    let key = BucketKey { bucket_type: BucketType(1), canonical: long.into() };
    assert!(pair.store.claim(&key).expect("a claim can be read").is_some());
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory;

    impl Harness for Memory {
        type Store = MemoryStore;

        fn open(&mut self) -> MemoryStore {
            MemoryStore::default()
        }

        fn reopen(&mut self, store: MemoryStore) -> MemoryStore {
            store
        }
    }

    #[test]
    fn the_memory_store_conforms() {
        run(&mut Memory);
        run_locks(&mut Memory);
        run_queues(&mut Memory);
    }
}
