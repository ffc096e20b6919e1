//! Runs the engine's conformance suite on the embedded store, with real files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use leasehold_core::command::Command;
use leasehold_core::conformance::{Harness, run, run_locks, run_queues};
use leasehold_core::lease::Fence;
use leasehold_core::lock::{AskId, LockPath, LockValue};
use leasehold_core::locking::LockCommand;
use leasehold_core::locking::acquire::Acquire;
use leasehold_core::locking::open::Open;
use leasehold_core::locking::release::{Release, ReleaseOutcome};
use leasehold_core::queue::{BatchSize, LanePath, Priority, QueuePath, RequestBody, RequestId, RequestKind, TakeId};
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::submit::{NewRequest, Submit};
use leasehold_core::queueing::take::Take;
use leasehold_core::queueing::{QueueCommand, Worker};
use leasehold_core::rows::State;
use leasehold_core::rules::Rules;
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_server::store::{BlockingStore, Creation, EmbeddedStore, StoreError};
use leasehold_server::transfer::{TransferError, export, import};
use tempfile::TempDir;
use uuid::Uuid;

/// A harness that opens each store in a directory of its own.
struct Directories(Vec<TempDir>);

impl Directories {
    fn last(&self) -> BlockingStore {
        let directory = self.0.last().unwrap().path();
        BlockingStore::open(std::future::ready(EmbeddedStore::open(directory, Creation::Allowed))).unwrap()
    }
}

impl Harness for Directories {
    type Store = BlockingStore;

    fn open(&mut self) -> BlockingStore {
        self.0.push(tempfile::tempdir().unwrap());
        self.last()
    }

    fn reopen(&mut self, store: BlockingStore) -> BlockingStore {
        drop(store);
        self.last()
    }
}

#[test]
fn the_embedded_store_conforms() {
    run(&mut Directories(Vec::new()));
    run_locks(&mut Directories(Vec::new()));
    run_queues(&mut Directories(Vec::new()));
}

#[test]
fn a_data_directory_can_be_open_once_only() {
    let directory = tempfile::tempdir().unwrap();
    let _first = EmbeddedStore::open(directory.path(), Creation::Allowed).unwrap();
    assert!(matches!(EmbeddedStore::open(directory.path(), Creation::Allowed), Err(StoreError::InUse(_))));
}

/// Returns the number of commits that the store in a directory has acknowledged.
fn acknowledged(directory: &TempDir) -> u64 {
    let file = std::fs::read(directory.path().join(EmbeddedStore::WRITTEN)).unwrap();
    u64::from_be_bytes(*file.first_chunk().unwrap())
}

/// A reload of the configuration stores bucket types while the committer commits groups. If both
/// took one number, the last number on disk could be lower than the acknowledged one. The next start
/// would then refuse the store as damaged.
#[test]
fn commits_of_two_threads_have_numbers_of_their_own() {
    const COMMITS: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Creation::Allowed).unwrap();
    let before = acknowledged(&directory);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..COMMITS).for_each(|_| store.remember_bucket_types(&[]).unwrap()));
        }
    });
    assert_eq!(acknowledged(&directory), before + 2 * COMMITS);
    drop(store);
    EmbeddedStore::open(directory.path(), Creation::Refused).unwrap();
}

/// Copies a directory with all files and directories in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Returns a copy of the stored data directory of version 1, which has no keyspaces of locks.
fn data_of_version_1() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let stored = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/stored/v1/data");
    copy(&stored, directory.path());
    directory
}

fn format(directory: &Path) -> u64 {
    EmbeddedStore::open(directory, Creation::Refused).unwrap().format().unwrap()
}

fn opened(directory: &Path) -> BlockingStore {
    BlockingStore::open(std::future::ready(EmbeddedStore::open(directory, Creation::Refused))).unwrap()
}

/// Runs lock commands, each of which must change something.
fn run_commands(store: &mut BlockingStore, commands: Vec<LockCommand>) {
    run_all(store, commands.into_iter().map(Command::Lock).collect());
}

/// Runs commands, none of which may be refused.
fn run_all(store: &mut BlockingStore, commands: Vec<Command>) {
    for command in commands {
        let mut workspace = store.workspace().unwrap();
        loop {
            let keys = workspace.missing([&command]);
            if keys.is_empty() {
                break;
            }
            store.load(keys, &mut workspace).unwrap();
        }
        command.apply(&mut workspace, Timestamp::from_micros(1)).unwrap().unwrap();
        store.save(&workspace.into_changes()).unwrap();
    }
}

/// Returns commands that follow [`lock_commands`]: two asks wait, and the holder releases the lock.
fn more_lock_commands() -> Vec<LockCommand> {
    let (session, principal) = (SessionId(Uuid::from_u128(1)), Principal::parse("svc").unwrap());
    let lock = LockPath::parse_joined("a", "k").unwrap();
    let wait = |ask| {
        let (principal, lock, ask) = (principal.clone(), lock.clone(), AskId(Uuid::from_u128(ask)));
        LockCommand::Acquire(Acquire {
            session,
            principal,
            ask,
            lock,
            share: None,
            held: Vec::new(),
            wait: true,
            reaped: None,
        })
    };
    let (fence, outcome, value) = (Fence(1), ReleaseOutcome::Failed, LockValue::parse(b"value").unwrap());
    let commands = [wait(3), wait(4)];
    let release = Release { session, principal, lock, fence, outcome, value };
    commands.into_iter().chain([LockCommand::Release(release)]).collect()
}

/// Returns commands that open a session and acquire a lock.
fn lock_commands() -> Vec<LockCommand> {
    let (session, principal) = (SessionId(Uuid::from_u128(1)), Principal::parse("svc").unwrap());
    let terms = Terms::parse(1_000_000, 1_000_000).unwrap();
    let (ask, lock) = (AskId(Uuid::from_u128(2)), LockPath::parse_joined("a", "k").unwrap());
    vec![
        LockCommand::Open(Open { session, principal: principal.clone(), terms }),
        LockCommand::Acquire(Acquire {
            session,
            principal,
            ask,
            lock,
            share: None,
            held: Vec::new(),
            wait: false,
            reaped: None,
        }),
    ]
}

/// Returns commands that follow [`lock_commands`]: a create and an update are submitted, the create is taken and done,
/// then the update is taken. `fence` is that of the first take.
fn queue_commands(fence: Fence) -> Vec<Command> {
    let worker = Worker { session: SessionId(Uuid::from_u128(1)), principal: Principal::parse("svc").unwrap() };
    let lane = LanePath::parse(QueuePath::parse("sheets").unwrap(), "7").unwrap();
    let new = |number, kind| NewRequest {
        request: RequestId(Uuid::from_u128(number)),
        lane: lane.clone(),
        kind,
        priority: Priority::default(),
        not_before: Timestamp::from_micros(1),
        max_attempts: 3,
        body: RequestBody::parse(b"body").unwrap(),
    };
    let submit = Submit::parse(vec![new(5, RequestKind::Create), new(6, RequestKind::Update)]).unwrap();
    let take = |number| {
        let take = TakeId(Uuid::from_u128(number));
        QueueCommand::Take(Take { worker: worker.clone(), take, lane: lane.clone(), size: BatchSize::MAX })
    };
    let outcome = WorkOutcome::Completed;
    let settle = SettleWork { worker: worker.clone(), lane: lane.clone(), fence, outcome };
    let commands = [QueueCommand::Submit(submit), take(7), QueueCommand::SettleWork(settle), take(8)];
    commands.into_iter().map(Command::Queue).collect()
}

/// K07: a crash leaves what every answered write has left, so that all that was held is held. Each
/// copy has the files as they are at a crash right after an answer.
#[test]
fn k07_all_answered_writes_survive_a_crash() {
    let (directory, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(EmbeddedStore::open(directory.path(), Creation::Allowed).unwrap());
    let mut store = opened(directory.path());
    let locks = lock_commands().into_iter().map(Command::Lock);
    let more_locks = more_lock_commands().into_iter().map(Command::Lock);
    for (number, command) in locks.chain(queue_commands(Fence(2))).chain(more_locks).enumerate() {
        run_all(&mut store, vec![command]);
        let crashed = copies.path().join(number.to_string());
        copy(directory.path(), &crashed);
        assert_eq!(opened(&crashed).state().unwrap(), store.state().unwrap());
    }
    let state = store.state().unwrap();
    assert_eq!((state.asks.len(), state.turns.len()), (2, 1));
    assert_eq!((state.lanes.len(), state.requests.len(), state.bodies.len()), (1, 2, 2));
}

/// An older program opens the directory until the first session is written. It then refuses the
/// directory, instead of leaving rows out.
#[test]
fn a_data_directory_has_version_3_from_its_first_session_on() {
    let directory = data_of_version_1();
    let before = opened(directory.path()).state().unwrap();
    assert_eq!(format(directory.path()), 1);
    let mut store = opened(directory.path());
    run_commands(&mut store, lock_commands());
    drop(store);
    assert_eq!(format(directory.path()), 3);
    let after = opened(directory.path()).state().unwrap();
    assert_eq!((after.sessions.len(), after.locks.len(), after.asks.len()), (1, 1, 1));
    assert_eq!((&after.claims, &after.leases, after.fence), (&before.claims, &before.leases, before.fence.next()));
}

/// An older program opens the directory until the first request is written, and then refuses it.
#[test]
fn a_data_directory_has_version_6_from_its_first_request_on() {
    let directory = data_of_version_1();
    let mut store = opened(directory.path());
    run_commands(&mut store, lock_commands());
    drop(store);
    assert_eq!(format(directory.path()), 3);
    let mut store = opened(directory.path());
    let fence = store.state().unwrap().fence.next();
    run_all(&mut store, queue_commands(fence));
    drop(store);
    assert_eq!(format(directory.path()), 6);
    let state = opened(directory.path()).state().unwrap();
    assert_eq!((state.lanes.len(), state.requests.len(), state.bodies.len()), (1, 2, 2));
}

/// Imports lines into a new directory, and returns the state there.
fn imported(lines: &[String]) -> Result<State, TransferError> {
    let directory = tempfile::tempdir().unwrap();
    import(&directory.path().join("new").as_path().into(), lines.concat().as_bytes(), Rules::default())?;
    Ok(opened(&directory.path().join("new")).state().unwrap())
}

/// An import accepts the rows of queues in any order, and refuses rows that do not fit together.
#[test]
fn rows_of_queues_are_imported_if_they_fit() {
    let directory = tempfile::tempdir().unwrap();
    drop(EmbeddedStore::open(directory.path(), Creation::Allowed).unwrap());
    let mut store = opened(directory.path());
    run_commands(&mut store, lock_commands());
    run_all(&mut store, queue_commands(Fence(2)));
    let state = store.state().unwrap();
    drop(store);
    let mut exported = Vec::new();
    export(&directory.path().into(), false, &mut exported).unwrap();
    let mut lines: Vec<_> = String::from_utf8(exported).unwrap().lines().map(|line| format!("{line}\n")).collect();
    assert_eq!(imported(&lines).unwrap(), state);
    let last = lines.len() - 1;
    lines[1..last].reverse();
    assert_eq!(imported(&lines).unwrap(), state);
    for (kind, from, to, refusal) in [
        ("body", "626f6479", "626f6478", "is missing or another's"),
        ("lane", r#""waiting":0"#, r#""waiting":1"#, "a lane counts 1 waiting requests and has 0"),
        ("request", r#""InProgress""#, r#""New""#, "a lane counts 0 waiting requests and has 1"),
        ("request", r#""updated_at":1"#, r#""updated_at":253402300800000000"#, "is beyond the year 9999"),
    ] {
        let is_meant = |line: &String| line.starts_with(&format!("{{\"{kind}\"")) && line.contains(from);
        let at = lines.iter().position(is_meant).unwrap();
        let mut spoiled = lines.clone();
        spoiled[at] = lines[at].replacen(from, to, 1);
        let error = imported(&spoiled).unwrap_err().to_string();
        assert!(error.contains(refusal), "{error}");
    }
    let body = lines.iter().find(|line| line.contains("626f6479")).unwrap().clone();
    lines.insert(1, body);
    let error = imported(&lines).unwrap_err().to_string();
    assert!(error.contains("the body is in the export twice"), "{error}");
}

/// A power cut while the keyspaces of locks are added leaves a directory without a manifest.
#[test]
fn keyspaces_are_added_after_a_creation_that_was_cut_short() {
    let directory = data_of_version_1();
    let half = directory.path().join("fjall/keyspaces/8");
    std::fs::create_dir_all(half.join("tables")).unwrap();
    let refused = EmbeddedStore::open(directory.path(), Creation::Refused);
    assert!(matches!(refused, Err(StoreError::Unsalvageable(_))), "without the mark, the rest of a keyspace is damage");
    let mark = directory.path().join("adding-keyspaces");
    std::fs::write(&mark, "").unwrap();
    run_commands(&mut opened(directory.path()), lock_commands());
    assert!(!mark.exists());
    assert_eq!(opened(directory.path()).state().unwrap().asks.len(), 1);
}

/// The mark of added keyspaces must not hide the loss of a keyspace that has rows: the last of locks, or of queues.
#[test]
fn a_missing_keyspace_is_damage_from_the_version_that_added_it_on() {
    for (has_queues, keyspace) in [(false, "13"), (true, "19")] {
        let directory = data_of_version_1();
        let mut store = opened(directory.path());
        run_commands(&mut store, lock_commands());
        let fence = store.state().unwrap().fence.next();
        run_all(&mut store, if has_queues { queue_commands(fence) } else { Vec::new() });
        drop(store);
        std::fs::write(directory.path().join("adding-keyspaces"), "").unwrap();
        std::fs::remove_file(directory.path().join("fjall/keyspaces").join(keyspace).join("current")).unwrap();
        let refused = EmbeddedStore::open(directory.path(), Creation::Refused).map(drop);
        assert!(matches!(refused, Err(StoreError::Unsalvageable(_))), "{refused:?}");
    }
}
