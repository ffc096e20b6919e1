//! Tests of export, import and salvage of sessions and locks.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::Path;

use leasehold_core::command::Command;
use leasehold_core::invariant;
use leasehold_core::lease::Fence;
use leasehold_core::lock::{AskId, LockPath, LockState, LockValue};
use leasehold_core::locking::LockCommand;
use leasehold_core::locking::acquire::Acquire;
use leasehold_core::locking::open::Open;
use leasehold_core::locking::release::{Release, ReleaseOutcome};
use leasehold_core::rows::State;
use leasehold_core::rules::Rules;
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_server::store::{BlockingStore, Creation, EmbeddedStore};
use leasehold_server::transfer::{self, Exported};
use tempfile::TempDir;
use uuid::Uuid;

/// The silence of the sessions in these tests, in microseconds.
const SILENCE: u64 = 3_000_000;

fn opened(directory: &Path) -> BlockingStore {
    BlockingStore::open(std::future::ready(EmbeddedStore::open(directory, Creation::Allowed))).unwrap()
}

fn session(number: u128) -> SessionId {
    SessionId(Uuid::from_u128(number))
}

fn principal() -> Principal {
    Principal::parse("svc").unwrap()
}

fn path(key: &str) -> LockPath {
    LockPath::parse_joined("a", key).unwrap()
}

fn open(number: u128) -> LockCommand {
    let terms = Terms::parse(2_000_000, 1_000_000).unwrap();
    LockCommand::Open(Open { session: session(number), principal: principal(), terms })
}

fn acquire(session_number: u128, ask: u128, key: &str) -> LockCommand {
    let (session, ask) = (session(session_number), AskId(Uuid::from_u128(ask)));
    LockCommand::Acquire(Acquire {
        session,
        principal: principal(),
        ask,
        lock: path(key),
        share: None,
        held: Vec::new(),
        wait: true,
        reaped: None,
    })
}

/// Returns a store with two sessions. The first holds the locks `x` and `y`, the second waits for
/// both and holds `z`. The lock `free` is free.
fn filled() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut store = opened(directory.path());
    let (lock, fence, value) = (path("free"), Fence(1), LockValue::parse(b"value").unwrap());
    let (session, outcome) = (session(1), ReleaseOutcome::Succeeded);
    let release = LockCommand::Release(Release { session, principal: principal(), lock, fence, outcome, value });
    let asks =
        [acquire(1, 11, "x"), acquire(1, 12, "y"), acquire(2, 21, "x"), acquire(2, 22, "y"), acquire(2, 23, "z")];
    let commands = [open(1), open(2), acquire(1, 10, "free"), release].into_iter().chain(asks);
    for command in commands.map(Command::Lock) {
        let mut workspace = store.workspace().unwrap();
        loop {
            let keys = workspace.missing([&command]);
            if keys.is_empty() {
                break;
            }
            store.load(keys, &mut workspace).unwrap();
        }
        command.apply(&mut workspace, Timestamp::from_micros(5)).unwrap().unwrap();
        store.save(&workspace.into_changes()).unwrap();
    }
    directory
}

fn state(directory: &Path) -> State {
    opened(directory).state().unwrap()
}

fn export(directory: &Path, salvage: bool) -> (Exported, String) {
    let mut lines = Vec::new();
    let exported = transfer::export(&directory.into(), salvage, &mut lines).unwrap();
    (exported, String::from_utf8(lines).unwrap())
}

/// Imports lines into a new directory.
fn import(lines: &str) -> Result<TempDir, String> {
    let directory = tempfile::tempdir().unwrap();
    let imported = transfer::import(&directory.path().into(), lines.as_bytes(), Rules::default());
    imported.map(|_| directory).map_err(|error| error.to_string())
}

#[test]
fn k07_an_export_brings_back_every_session_and_lock() {
    let directory = filled();
    let (exported, lines) = export(directory.path(), false);
    assert_eq!(exported, Exported { rows: 13, damaged: 0, is_exact: true });
    assert!(lines.starts_with(r#"{"header":{"format":3}}"#), "{lines}");
    let imported = import(&lines).unwrap();
    assert_eq!(state(imported.path()), state(directory.path()));
    assert_eq!(export(imported.path(), true), (exported, lines));
}

/// An import refuses rows that the engine could not have made.
#[test]
fn sessions_and_locks_that_do_not_fit_together_are_not_imported() {
    let (_, lines) = export(filled().path(), false);
    let rows: Vec<&str> = lines.lines().collect();
    let at = |kind: &str| rows.iter().rposition(|row| row.starts_with(&format!(r#"{{"{kind}""#))).unwrap();
    let without = |kind: &str| {
        let left = rows.iter().enumerate().filter(|(place, _)| *place != at(kind)).map(|(_, row)| format!("{row}\n"));
        left.collect::<String>().replace(r#""rows":13"#, r#""rows":12"#)
    };
    for (kind, cause) in [
        ("session", "has no live session"),
        ("lock", "is not where its lock has it"),
        ("ask", "counts another number of asks"),
        ("turn", "is not where its lock has it"),
    ] {
        let refused = import(&without(kind)).unwrap_err();
        assert!(refused.contains(cause) || refused.contains("names ask"), "{kind}: {refused}");
        let twice = lines.replacen(rows[at(kind)], &format!("{0}\n{0}", rows[at(kind)]), 1);
        let refused = import(&twice).unwrap_err();
        assert!(refused.contains(&format!("the {kind} is in the export twice")), "{refused}");
    }
    let refused = import(&lines.replacen(r#""fence":1,"#, r#""fence":3,"#, 1)).unwrap_err();
    assert!(refused.contains("doubled or out of order"), "{refused}");
    let refused = import(&lines.replacen(r#""opened_at":5"#, r#""opened_at":18446744073709551615"#, 1)).unwrap_err();
    assert!(refused.contains("beyond the year 9999"), "{refused}");
}

/// Replaces the value of each row whose key ends with `end` with bytes that are no row.
fn damage(directory: &Path, keyspace: &str, end: &[u8]) {
    let database = fjall::Database::builder(directory.join("fjall")).open().unwrap();
    let rows = database.keyspace(keyspace, fjall::KeyspaceCreateOptions::default).unwrap();
    let keys: Vec<_> = rows.iter().map(|row| row.into_inner().unwrap().0).collect();
    keys.into_iter().filter(|key| key.ends_with(end)).for_each(|key| rows.insert(key, [0xff; 3]).unwrap());
    database.persist(fjall::PersistMode::SyncAll).unwrap();
}

/// K06: a salvage leaves out a damaged session or lock. No lock becomes free by that: its holder is
/// known from the ask, or the lock is withheld.
#[test]
fn k06_a_salvage_frees_no_lock_whose_holder_may_still_work() {
    for (keyspace, end) in [("sessions", session(1).0.as_bytes().as_slice()), ("locks", b"x"), ("locks", b"y")] {
        let directory = filled();
        damage(directory.path(), keyspace, end);
        let (exported, lines) = export(directory.path(), true);
        assert_eq!(exported.damaged, 1);
        let state = state(import(&lines).unwrap().path());
        assert_eq!(invariant::check(&state), Ok(()));
        let is_lost_session = keyspace == "sessions";
        for (key, fence) in [("x", Fence(2)), ("y", Fence(3))] {
            match state.locks[&path(key)].state {
                LockState::Held(grant) => assert!(!is_lost_session && grant.fence == fence),
                LockState::Withheld(withheld) => {
                    assert!(is_lost_session && withheld.fence == fence && withheld.silence_micros > SILENCE);
                }
                LockState::Free | LockState::Orphaned | LockState::Divided(_) => unreachable!("`{key}` is not held"),
            }
            assert_eq!(state.locks[&path(key)].waiting, 1);
        }
    }
}
