//! Salvages of stores whose journals lack entries, after the random commands of the conformance
//! suite.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ops::Range;
use std::path::{Path, PathBuf};

use leasehold_core::conformance::{Harness, run, run_locks, run_queues};
use leasehold_core::invariant;
use leasehold_core::lock::{LockPath, LockState};
use leasehold_core::rows::State;
use leasehold_core::store::Store;
use leasehold_server::store::{BlockingStore, Creation, DamagedStore, EmbeddedStore, Salvaged, StoreError};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

/// The salvages after each time that the suite opens a store again.
const SALVAGES: usize = 6;
const KEYSPACES: [&str; 9] =
    ["claims", "outstanding", "settled", "locks", "asks", "lanes", "requests", "bodies", "meta"];

/// A harness that salvages damaged copies of each store that is opened again.
struct DamagedCopies {
    directories: Vec<TempDir>,
    random: SmallRng,
    salvages: usize,
}

impl DamagedCopies {
    fn new(seed: u64) -> Self {
        Self { directories: Vec::new(), random: SmallRng::seed_from_u64(seed), salvages: 0 }
    }

    fn last(&self) -> BlockingStore {
        let directory = self.directories.last().unwrap().path();
        BlockingStore::open(std::future::ready(EmbeddedStore::open(directory, Creation::Allowed))).unwrap()
    }

    /// Salvages a copy that lacks one to three entries. Half of the copies have a keyspace whose
    /// rows are in a table, so that they are as new as the last entry.
    fn salvage_a_copy(&mut self, directory: &Path, state: &State) {
        let copy = tempfile::tempdir().unwrap();
        copy_files(directory, copy.path());
        if self.random.random() {
            flush_to_table(copy.path(), KEYSPACES.choose(&mut self.random).unwrap());
        }
        let journal = copy.path().join("fjall/0.jnl");
        let bytes = std::fs::read(&journal).unwrap();
        let entries = entries(&bytes);
        // No number tells that the first entry is missing.
        let lost: Vec<_> = entries[1..].sample(&mut self.random, 1 + self.salvages % 3).cloned().collect();
        let left = entries.iter().filter(|entry| !lost.contains(entry));
        std::fs::write(&journal, left.flat_map(|entry| bytes[entry.clone()].to_vec()).collect::<Vec<_>>()).unwrap();
        self.salvages += 1;
        let (salvaged, rows) = salvage(copy.path()).unwrap();
        assert_eq!((salvaged.damaged, salvaged.is_exact), (lost.len() as u64, false));
        assert!(salvaged.fence > state.fence, "B13: {salvaged:?}");
        let has = |part: &[u8]| lost.iter().any(|entry| contains(&bytes[entry.clone()], part));
        for key in state.claims.keys().filter(|key| !rows.claims.contains_key(key)) {
            assert!(has(key.canonical.as_bytes()), "the claim `{key}` is missing");
        }
        let is_free = |path: &LockPath| rows.locks.get(path).is_none_or(|lock| lock.state == LockState::Free);
        for (path, grant) in state.locks.iter().filter_map(|(path, lock)| Some((path, lock.grant()?))) {
            assert!(!is_free(path) || has(grant.ask.0.as_bytes()), "K06: {path:?} is free");
        }
        for (id, _) in state.requests.iter().filter(|(_, request)| !request.is_settled()) {
            assert!(rows.requests.contains_key(id) || has(id.0.as_bytes()), "Q01: request {id} is missing");
        }
    }
}

impl Harness for DamagedCopies {
    type Store = BlockingStore;

    fn open(&mut self) -> BlockingStore {
        self.directories.push(tempfile::tempdir().unwrap());
        self.last()
    }

    fn reopen(&mut self, store: BlockingStore) -> BlockingStore {
        let state = store.state().unwrap();
        drop(store);
        let directory = self.directories.last().unwrap().path().to_owned();
        let is_short = entries(&std::fs::read(directory.join("fjall/0.jnl")).unwrap()).len() < 5;
        let salvages = if is_short { 0 } else { SALVAGES };
        (0..salvages).for_each(|_| self.salvage_a_copy(&directory, &state));
        self.last()
    }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for path in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() { copy_files(&path, &to) } else { std::fs::copy(path, to).map(drop).unwrap() }
    }
}

fn flush_to_table(data: &Path, keyspace: &str) {
    let database = fjall::Database::builder(data.join("fjall")).open().unwrap();
    let rows = database.keyspace(keyspace, fjall::KeyspaceCreateOptions::default).unwrap();
    rows.rotate_memtable_and_wait().unwrap();
}

/// Returns the places of the entries of a journal. Each ends with a mark.
fn entries(journal: &[u8]) -> Vec<Range<usize>> {
    let mut ends: Vec<_> = (4..=journal.len()).filter(|end| journal[..*end].ends_with(b"FJL\x03")).collect();
    ends.insert(0, 0);
    ends.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// Returns a journal without the space that fjall reserves after the last entry.
fn written(journal: &[u8]) -> &[u8] {
    let end = journal.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &journal[..end]
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Salvages the store in a directory, and returns its rows, which break no invariant.
fn salvage(data: &Path) -> Result<(Salvaged, State), StoreError> {
    let (mut state, mut rows) = (State::default(), 0);
    let store = DamagedStore::open(data)?;
    let salvaged = store.salvage(|row| {
        rows += 1;
        state.insert(row);
        Ok::<_, StoreError>(())
    })?;
    drop(store);
    assert!(!data.join("salvage-copy").exists());
    state.fence = salvaged.fence;
    assert_eq!(invariant::check(&state), Ok(()));
    let State { claims, leases, replays, sessions, locks, asks, turns, queues, lanes, requests, bodies, fence: _ } =
        &state;
    let of_locks = sessions.len() + locks.len() + asks.len() + turns.len();
    let of_queues = queues.len() + lanes.len() + requests.len() + bodies.len();
    assert_eq!(rows, claims.len() + leases.len() + replays.len() + of_locks + of_queues, "a row is there twice");
    Ok((salvaged, state))
}

/// S12, B13, K06, Q01: whatever entries are lost, the rest is salvaged, and an import accepts it.
#[test]
fn s12_a_salvage_passes_lost_entries_of_the_journal() {
    let mut copies = DamagedCopies::new(1);
    run(&mut copies);
    run_locks(&mut copies);
    run_queues(&mut copies);
    assert!(copies.salvages > 100, "{}", copies.salvages);
}

/// The journal is lost, and only some rows are in a table: they are salvaged, and no start takes the
/// directory for that of a new store.
#[test]
fn s12_rows_without_a_journal_are_salvaged() {
    for keyspace in ["claims", "settled", "sessions", "locks", "lanes"] {
        for (journal, has_watermark) in
            [(None, true), (None, false), (Some(0), true), (Some(0), false), (Some(9), false)]
        {
            let dir = filled_store();
            flush_to_table(dir.path(), keyspace);
            let folder = dir.path().join("fjall");
            let journals = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
            let journals: Vec<_> = journals.filter(|path| path.extension().is_some_and(|end| end == "jnl")).collect();
            journals.iter().for_each(|path| std::fs::remove_file(path).unwrap());
            if let Some(zeros) = journal {
                std::fs::write(journals.last().unwrap(), vec![0; zeros]).unwrap();
            }
            if !has_watermark {
                std::fs::remove_file(dir.path().join(EmbeddedStore::WRITTEN)).unwrap();
            }
            for creation in [Creation::Refused, Creation::Allowed] {
                let refused = EmbeddedStore::open(dir.path(), creation).map(drop);
                let is_refused = matches!(refused, Err(StoreError::RowsDamaged { .. }));
                assert!(is_refused, "{keyspace} {journal:?} {has_watermark}: {refused:?}");
            }
            let (salvaged, rows) = salvage(dir.path()).unwrap();
            let State { claims, leases, sessions, locks, lanes, .. } = rows;
            let rows = claims.len() + leases.len() + sessions.len() + locks.len() + lanes.len();
            assert!(rows > 0, "{keyspace}: nothing is salvaged");
            assert!(!salvaged.is_exact);
        }
    }
}

/// Returns a store with claims, leases, sessions, locks and lanes.
fn filled_store() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/stored/v6/data"), directory.path());
    directory
}

/// Returns a store with some entries, and its journal.
fn small_store() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), Creation::Allowed).unwrap();
    (0..5).for_each(|_| store.remember_bucket_types(&[]).unwrap());
    drop(store);
    let journal = dir.path().join("fjall/0.jnl");
    (dir, journal)
}

/// S12: two changed bytes of an entry, a part that is gone, a cut acknowledged end, an empty journal:
/// the start names a remedy that works, and the salvage changes no file of the store.
#[test]
fn s12_a_damaged_journal_is_salvaged_and_left_as_it_is() {
    let (_dir, journal) = small_store();
    let bytes = std::fs::read(&journal).unwrap();
    let entries = entries(&bytes);
    let (third, last) = (entries[2].clone(), entries.last().unwrap().clone());
    let mut changed = bytes.clone();
    changed[third.start + 30] ^= 1;
    changed[third.start + 31] ^= 1;
    let gone = [&bytes[..third.start + 20], &bytes[third.end..]].concat();
    let cut = bytes[..last.end - 20].to_vec();
    let without_first = bytes[entries[0].end..].to_vec();
    let all = entries.len() as u64;
    for (damaged, lost) in [(changed, 1), (gone, 1), (cut, 1), (without_first, 1), (Vec::new(), all)] {
        let (dir, journal) = small_store();
        std::fs::write(&journal, &damaged).unwrap();
        for _ in 0..2 {
            let refused = EmbeddedStore::open(dir.path(), Creation::Refused).map(drop);
            assert!(matches!(refused, Err(StoreError::RowsDamaged { .. })), "{refused:?}");
            assert_eq!(salvage(dir.path()).unwrap().0.damaged, lost);
            assert!(written(&std::fs::read(&journal).unwrap()) == written(&damaged));
        }
    }
}
