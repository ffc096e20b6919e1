//! Tests of stored rows of each version: a data directory, an export and a database dump. Every
//! later version of the program must be able to read these files.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::{BucketRule, Form};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject, UserData};
use leasehold_core::command::Command;
use leasehold_core::division::ShareMode;
use leasehold_core::invariant;
use leasehold_core::lease::{Fence, LeaseId, Outcome};
use leasehold_core::lock::{AskId, LockPath, LockState, LockValue};
use leasehold_core::locking::LockCommand;
use leasehold_core::locking::acquire::Acquire;
use leasehold_core::locking::end::{Cause, End, Silence};
use leasehold_core::locking::open::Open;
use leasehold_core::locking::reap::Reap;
use leasehold_core::locking::release::{Release, ReleaseOutcome};
use leasehold_core::locking::renew::Renew;
use leasehold_core::memory::MemoryStore;
use leasehold_core::organization::OrganizationId;
use leasehold_core::queue::{
    BatchSize, LanePath, Priority, Progress, QueuePath, RequestBody, RequestId, RequestKind, TakeId,
};
use leasehold_core::queueing::limit::LimitQueue;
use leasehold_core::queueing::note::NoteProgress;
use leasehold_core::queueing::pause::{Pause, PauseScope};
use leasehold_core::queueing::retry::Retry;
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::submit::{NewRequest, Submit};
use leasehold_core::queueing::take::Take;
use leasehold_core::queueing::{QueueCommand, Worker};
use leasehold_core::rows::State;
use leasehold_core::rules::Rules;
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::update::Settle;
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{Backend, BlockingStore, Creation, EmbeddedStore, PostgresStore};
use leasehold_server::transfer;
use leasehold_tests::postgres::Cluster;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::{NO_SYNC, open_store};

/// The versions of stored rows. Version 2 adds leases for an organization, version 3 sessions, locks,
/// asks and turns, version 4 reaped locks, version 5 shared locks, version 6 queues.
const VERSIONS: [u64; 6] = [1, 2, 3, 4, 5, 6];
const NEWEST: u64 = 6;

/// Returns the path of the file `name` in the repository's folder of stored rows of a version.
fn stored(version: u64, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("stored/v{version}")).join(name)
}

fn claim(value: &str, row: u64) -> ClaimRequest {
    ClaimRequest {
        bucket_type: BucketType(4),
        value: value.into(),
        subject: Some(Subject { subject_type: 4, id: 7 }),
        source: Some(Source { source_type: SourceType(1), id: SourceId::from(row) }),
        user_data: None,
    }
}

/// Returns the id of the lease with this number.
fn lease(number: u128) -> LeaseId {
    LeaseId(Uuid::from_u128(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
}

fn begin(number: u128, cell: i64, creates: &[ClaimRequest], destroys: &[ClaimRequest], key: Option<&str>) -> Command {
    let rules = Rules { cells: (1..=2).map(CellId).collect(), ..Rules::default() };
    let request = UpdateRequest { creates: creates.to_vec(), destroys: destroys.to_vec() };
    Command::Begin(rules.begin(CellId(cell), request, key, lease(number)).unwrap())
}

/// Returns a begin of cell 1 for an organization.
fn begin_for(organization: i64, number: u128, name: &str, key: Option<&str>) -> Command {
    let Command::Begin(begin) = begin(number, 1, &[claim(name, 20)], &[], key) else { unreachable!() };
    Command::Begin(begin.for_organization(OrganizationId::try_from(organization).ok()))
}

fn settle(number: u128, outcome: Outcome) -> Command {
    Command::Settle(Settle { cell: CellId(1), lease: lease(number), outcome })
}

/// Returns commands that leave rows of every kind of a version, and claims in every state. [`run`]
/// executes one command each second.
fn commands(version: u64) -> Vec<Command> {
    let mut commands = commands_of_version_1();
    if version >= 2 {
        commands.extend([
            begin_for(5, 7, "for-5", Some("for-5")),
            settle(7, Outcome::Committed),
            begin_for(i64::MAX, 8, "rolled-back-for-max", None),
            settle(8, Outcome::RolledBack),
            begin_for(300, 9, "outstanding-for-300", Some("for-300")),
        ]);
    }
    if version >= 3 {
        commands.extend(commands_of_locks().into_iter().map(Command::Lock));
    }
    if version >= 4 {
        commands.extend(commands_of_reaped_locks().into_iter().map(Command::Lock));
    }
    if version >= 5 {
        commands.extend(commands_of_shared_locks().into_iter().map(Command::Lock));
    }
    if version >= 6 {
        let mut before = MemoryStore::default();
        run(&mut before, commands.clone());
        let fence = before.state().unwrap().fence;
        commands.extend([Command::Lock(open(13)), Command::Lock(open(14))]);
        commands.extend(commands_of_queues(fence).into_iter().map(Command::Queue));
        commands.push(Command::Lock(end(14, Cause::Evict)));
    }
    commands
}

fn session(number: u128) -> SessionId {
    SessionId(lease(number).0)
}

fn principal() -> Principal {
    Principal::parse("billing").unwrap()
}

fn lock(key: &str) -> LockPath {
    LockPath::parse_joined("user.update", key).unwrap()
}

fn open(number: u128) -> LockCommand {
    LockCommand::Open(Open { session: session(number), principal: principal(), terms: terms() })
}

fn terms() -> Terms {
    Terms::parse(10_000_000, 1_000_000).unwrap()
}

fn acquire(number: u128, ask: u128, key: &str) -> LockCommand {
    let (session, ask) = (session(number), AskId(lease(ask).0));
    LockCommand::Acquire(Acquire {
        session,
        principal: principal(),
        ask,
        lock: lock(key),
        share: None,
        held: Vec::new(),
        wait: true,
        reaped: None,
    })
}

fn end(number: u128, cause: Cause) -> LockCommand {
    LockCommand::End(End { session: session(number), cause })
}

/// Returns commands that leave sessions and locks in every state, and asks that wait. The commands
/// of the versions before give out 9 fences.
fn commands_of_locks() -> Vec<LockCommand> {
    let release = Release {
        session: session(1),
        principal: principal(),
        lock: lock("free"),
        fence: Fence(10),
        outcome: ReleaseOutcome::Failed,
        value: LockValue::parse(&[0, 0x7f, 0xff]).unwrap(),
    };
    vec![
        open(1),
        open(2),
        open(3),
        open(4),
        LockCommand::Renew(Renew { session: session(1), principal: principal() }),
        acquire(1, 11, "free"),
        LockCommand::Release(release),
        acquire(3, 12, "withheld"),
        acquire(4, 13, "held-\u{dc}"),
        acquire(1, 14, "held-\u{dc}"),
        acquire(2, 15, "held-\u{dc}"),
        acquire(1, 16, "withheld"),
        end(3, Cause::Evict),
        end(2, Cause::Close(principal())),
        end(4, Cause::Silence(Silence { renewals_seen: 0, quiet_micros: 11_000_000 })),
    ]
}

/// Returns an acquire of a lock that is reaped with at most two cleanups.
fn acquire_reaped(number: u128, ask: u128, key: &str) -> LockCommand {
    let LockCommand::Acquire(acquire) = acquire(number, ask, key) else { unreachable!() };
    LockCommand::Acquire(Acquire { reaped: NonZeroU32::new(2), ..acquire })
}

fn reap(number: u128, ask: u128, key: &str, fence: u64) -> LockCommand {
    let (session, ask, lock, fence) = (session(number), AskId(lease(ask).0), lock(key), Fence(fence));
    LockCommand::Reap(Reap { session, principal: principal(), ask, lock, fence })
}

/// Returns commands that leave reaped locks in every state. The commands of the versions before give
/// out 13 fences.
fn commands_of_reaped_locks() -> Vec<LockCommand> {
    let keys = ["orphaned", "cleaned-\u{dc}", "taken-from-cleaner", "set-aside"];
    let mut commands: Vec<_> = (5..=9).map(open).collect();
    commands.extend([acquire_reaped(9, 40, "held-reaped"), acquire_reaped(9, 41, "free-reaped")]);
    commands.push(LockCommand::Release(Release {
        session: session(9),
        principal: principal(),
        lock: lock("free-reaped"),
        fence: Fence(15),
        outcome: ReleaseOutcome::Succeeded,
        value: LockValue::default(),
    }));
    commands.extend((20..).zip(keys).map(|(ask, key)| acquire_reaped(5, ask, key)));
    commands.push(acquire_reaped(9, 42, "orphaned"));
    commands.push(end(5, Cause::Silence(Silence { renewals_seen: 0, quiet_micros: 11_000_000 })));
    commands.extend([reap(6, 30, "cleaned-\u{dc}", 17), reap(7, 31, "taken-from-cleaner", 18)]);
    commands.extend([end(7, Cause::Evict), reap(8, 32, "set-aside", 19), end(8, Cause::Close(principal()))]);
    commands.push(reap(6, 33, "set-aside", 19));
    commands.push(LockCommand::Release(Release {
        session: session(6),
        principal: principal(),
        lock: lock("set-aside"),
        fence: Fence(23),
        outcome: ReleaseOutcome::Failed,
        value: LockValue::default(),
    }));
    commands
}

/// Returns commands that leave slots of shared locks in every state, asks that wait to share, and one
/// whose caller holds another lock.
fn commands_of_shared_locks() -> Vec<LockCommand> {
    let share = |share: ShareMode, command: LockCommand| {
        let LockCommand::Acquire(acquire) = command else { unreachable!() };
        LockCommand::Acquire(Acquire { share: Some(share), ..acquire })
    };
    let permit = |command| share(ShareMode::permits(2).unwrap(), command);
    let mut commands: Vec<_> = (10..=12).map(open).collect();
    commands.extend([share(ShareMode::Shared, acquire(10, 50, "shared-\u{dc}")), acquire(10, 51, "alone")]);
    commands.extend([permit(acquire(10, 52, "permits")), permit(acquire(11, 53, "permits"))]);
    commands.extend([permit(acquire(10, 54, "permits")), acquire(10, 55, "permits")]);
    commands.extend([permit(acquire_reaped(10, 56, "reaped")), permit(acquire_reaped(12, 57, "reaped"))]);
    commands.extend([share(ShareMode::Shared, acquire(10, 58, "alone")), end(11, Cause::Evict)]);
    let LockCommand::Acquire(nested) = acquire(10, 59, "alone") else { unreachable!() };
    commands.push(LockCommand::Acquire(Acquire { held: vec![AskId(lease(50).0)], ..nested }));
    commands.push(end(12, Cause::Silence(Silence { renewals_seen: 0, quiet_micros: 11_000_000 })));
    commands
}

fn lane(key: &str) -> LanePath {
    LanePath::parse(QueuePath::parse("sheets.refresh").unwrap(), key).unwrap()
}

fn update(number: u128, key: &str) -> NewRequest {
    NewRequest {
        request: RequestId(lease(100 + number).0),
        lane: lane(key),
        kind: RequestKind::Update,
        priority: Priority::parse(9).unwrap(),
        not_before: Timestamp::from_micros(1_700_000_000_000_000),
        max_attempts: 1,
        body: RequestBody::parse(&[0, 0x7f, 0xff]).unwrap(),
    }
}

fn worker(number: u128) -> Worker {
    Worker { session: session(number), principal: principal() }
}

fn take(number: u128, take: u128, key: &str) -> QueueCommand {
    QueueCommand::Take(Take {
        worker: worker(number),
        take: TakeId(lease(200 + take).0),
        lane: lane(key),
        size: BatchSize::MAX,
    })
}

/// Returns commands that leave lanes and requests in every state. `before` is the newest fence before them.
fn commands_of_queues(before: Fence) -> Vec<QueueCommand> {
    let nth = |number| Fence(before.0 + number);
    let settle = |fence, key, outcome| {
        let fence = nth(fence);
        QueueCommand::SettleWork(SettleWork { worker: worker(13), lane: lane(key), fence, outcome })
    };
    let create = NewRequest { kind: RequestKind::Create, ..update(0, "created") };
    let delayed = NewRequest { not_before: Timestamp::from_micros(1_710_000_000_000_000), ..update(1, "delayed") };
    let keys = ["taken-\u{dc}", "failed", "paused", "given-back", "of-evicted"];
    let mut requests = vec![create, delayed, update(2, "created")];
    requests.extend((3..).zip(keys).map(|(number, key)| update(number, key)));
    let pause = Pause { scope: PauseScope::Lane(lane("paused")), is_paused: true };
    let (fence, progress) = (nth(2), Progress::parse(&[0, 0xff]).unwrap());
    vec![
        QueueCommand::Submit(Submit::parse(requests).unwrap()),
        QueueCommand::LimitQueue(LimitQueue { queue: lane("a").queue().clone(), limit: NonZeroU32::new(9) }),
        take(13, 0, "created"),
        settle(1, "created", WorkOutcome::Completed),
        take(13, 1, "taken-\u{dc}"),
        QueueCommand::NoteProgress(NoteProgress { worker: worker(13), lane: lane("taken-\u{dc}"), fence, progress }),
        QueueCommand::Submit(Submit::parse(vec![update(10, "taken-\u{dc}")]).unwrap()),
        take(13, 2, "failed"),
        settle(3, "failed", WorkOutcome::Failed { retry: Retry::After(0) }),
        QueueCommand::Pause(pause),
        take(13, 3, "given-back"),
        settle(4, "given-back", WorkOutcome::GivenBack),
        take(14, 4, "of-evicted"),
    ]
}

fn commands_of_version_1() -> Vec<Command> {
    let user_data = Some(UserData { type_url: "type.example/x".into(), value: vec![0, 0x7f, 0xff] });
    let alice = ClaimRequest { user_data, ..claim("Alice", 7) };
    let carol = claim("Carol-\u{dc}", 9);
    vec![
        begin(1, 1, &[alice.clone(), claim("at-rest", 8)], &[], Some("committed")),
        settle(1, Outcome::Committed),
        begin(2, 1, &[claim("gone", 8)], &[], Some("rolled-back")),
        settle(2, Outcome::RolledBack),
        begin(3, 1, std::slice::from_ref(&carol), &[], None),
        settle(3, Outcome::Committed),
        begin(4, 2, &[claim("being-created", 1)], &[], Some("outstanding")),
        begin(5, 1, &[], &[carol], None),
        begin(6, 1, &[claim("ALICE", 10)], &[alice], None),
    ]
}

/// Executes commands on a store, each at a fixed time.
fn run<S: Store>(store: &mut S, commands: Vec<Command>) {
    for (second, command) in (1_700_000_000..).zip(commands) {
        let commands = [command];
        let mut workspace = store.workspace().unwrap();
        loop {
            let keys = workspace.missing(&commands);
            if keys.is_empty() {
                break;
            }
            store.load(keys, &mut workspace).unwrap();
        }
        commands[0].apply(&mut workspace, Timestamp::from_micros(second * 1_000_000)).unwrap().unwrap();
        store.save(&workspace.into_changes()).unwrap();
    }
}

/// Returns the claims, leases and keys that each of the stored files of a version must contain.
fn expected(version: u64) -> State {
    let mut reference = MemoryStore::default();
    run(&mut reference, commands(version));
    let mut state = reference.state().unwrap();
    for lock in state.locks.values_mut().filter(|_| version < 4) {
        if let LockState::Withheld(withholding) = &mut lock.state {
            // The files are of a program that withheld a lock for duration and grace alone.
            withholding.silence_micros = terms().silence_micros();
        }
    }
    assert_eq!(invariant::check(&state), Ok(()));
    state
}

/// Returns the number of rows of all kinds.
fn rows_of(state: &State) -> usize {
    let updates = state.claims.len() + state.leases.len() + state.replays.len();
    let locks = state.sessions.len() + state.locks.len() + state.asks.len() + state.turns.len();
    updates + locks + state.queues.len() + state.lanes.len() + state.requests.len() + state.bodies.len()
}

/// Returns the configured bucket types that the stored files must contain.
fn bucket_types() -> Vec<BucketRule> {
    let rule = BucketRule {
        number: BucketType(100),
        name: "TEAMS".into(),
        form: Form::Word,
        fold_case: true,
        refuse_confusables: false,
    };
    vec![rule]
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

fn embedded(directory: &Path) -> BlockingStore {
    BlockingStore::open(std::future::ready(EmbeddedStore::open(directory, Creation::Allowed))).unwrap()
}

/// Returns the version of the rows in a data directory.
fn format(directory: &Path) -> u64 {
    EmbeddedStore::open(directory, Creation::Refused).unwrap().format().unwrap()
}

/// Returns a copy of the repository's data directory of a version.
fn stored_data(version: u64) -> TempDir {
    let directory = TempDir::new().unwrap();
    copy(&stored(version, "data"), directory.path());
    directory
}

#[test]
fn a_data_directory_of_each_version_opens() {
    for version in VERSIONS {
        let directory = stored_data(version);
        assert_eq!(embedded(directory.path()).state().unwrap(), expected(version));
        assert_eq!(format(directory.path()), version);
        let reader = EmbeddedStore::open(directory.path(), Creation::Refused).unwrap().reader();
        let rules = Runtime::new().unwrap().block_on(reader.bucket_types()).unwrap();
        assert_eq!(rules, bucket_types());
    }
}

/// An older program opens the directory as long as it has version 1. From version 2 on it refuses
/// the directory, instead of taking rows for damaged that it does not know.
#[test]
fn a_data_directory_has_version_2_from_its_first_lease_for_an_organization_on() {
    let directory = stored_data(1);
    run(&mut embedded(directory.path()), vec![begin(10, 1, &[claim("no-organization", 21)], &[], None)]);
    assert_eq!(format(directory.path()), 1);
    run(&mut embedded(directory.path()), vec![begin_for(5, 11, "for-5", None)]);
    assert_eq!(format(directory.path()), 2);
    run(&mut embedded(directory.path()), vec![settle(11, Outcome::RolledBack), settle(10, Outcome::RolledBack)]);
    assert_eq!(format(directory.path()), 2);
    let settled = embedded(directory.path()).state().unwrap().leases.remove(&lease(11)).unwrap();
    assert_eq!(settled.organization, OrganizationId::try_from(5).ok());
}

#[test]
fn an_export_of_each_version_is_imported_and_exported_again_byte_for_byte() {
    for version in VERSIONS {
        let (directory, lines) = (TempDir::new().unwrap(), std::fs::read(stored(version, "export.jsonl")).unwrap());
        let data = directory.path().join("data");
        let rows = transfer::import(&data.as_path().into(), lines.as_slice(), Rules::default()).unwrap();
        let state = expected(version);
        assert_eq!(usize::try_from(rows).unwrap(), rows_of(&state));
        assert_eq!(embedded(&data).state().unwrap(), state);
        let mut exported = Vec::new();
        transfer::export(&data.as_path().into(), false, &mut exported).unwrap();
        assert_eq!(String::from_utf8(exported).unwrap(), String::from_utf8(lines).unwrap());
    }
}

#[test]
fn a_database_dump_of_each_version_opens() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    for version in VERSIONS {
        let database = cluster.database().unwrap();
        cluster.execute(&database, &std::fs::read_to_string(stored(version, "postgres.dump")).unwrap()).unwrap();
        let store = open_store(&cluster.url(&database));
        let (mut state, expected) = (store.state().unwrap(), expected(version));
        let fence = std::mem::replace(&mut state.fence, expected.fence);
        // The dump may be an older copy, so its fences are raised (B13).
        assert!(fence.0 > 1 << 50 && fence > expected.fence, "{fence:?}");
        assert_eq!(state, expected);
        let reader = async {
            PostgresStore::open(&PostgresConfig::at(cluster.url(&database)), Creation::Refused).await.unwrap().reader()
        };
        let rules = Runtime::new().unwrap().block_on(async { reader.await.bucket_types().await }).unwrap();
        assert_eq!(rules, bucket_types());
    }
}

/// A server of table version 4 may still run after another one has migrated the tables. Its
/// statement must work, and its settle must keep the organization of a lease.
#[test]
fn the_function_of_table_version_4_keeps_organizations() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let mut store = open_store(&cluster.url(&database));
    run(&mut store, vec![begin_for(5, 1, "for-5", None)]);
    let (old, new) = (lease(1), lease(2));
    let parameters = format!(
        "NULL, '{{4}}', '{{for-5}}', ARRAY[now()], '{{}}', ARRAY['{old}'::uuid], '{{true}}', ARRAY[now()],
         ARRAY[ROW('{new}', 1, now(), NULL, '{{4}}', '{{bob}}')]::new_lease[], '{{}}'"
    );
    let begun = format!("SELECT lease FROM try_write_rows({parameters})");
    assert_eq!(cluster.execute(&database, &begun).unwrap(), [new.to_string()]);
    let leases = store.state().unwrap().leases;
    assert_eq!(leases[&old].organization, OrganizationId::try_from(5).ok());
    assert_eq!((leases[&old].outcome(), leases[&new].organization), (Some(Outcome::Committed), None));
}

/// Writes a data directory, its export and a database dump into a folder, each with the rows that
/// the [`commands`] of a version leave.
fn write_files(version: u64, folder: &Path) {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let mut store = embedded(&data);
    run(&mut store, commands(version));
    drop(store);
    EmbeddedStore::open(&data, Creation::Refused).unwrap().remember_bucket_types(&bucket_types()).unwrap();
    copy(&data, &folder.join("data"));
    transfer::export(&data.as_path().into(), false, std::fs::File::create(folder.join("export.jsonl")).unwrap())
        .unwrap();

    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let settings = PostgresConfig::at(cluster.url(&database));
    run(&mut open_store(&settings.url), commands(version));
    let remember =
        async { PostgresStore::open(&settings, Creation::Refused).await?.remember_bucket_types(&bucket_types()).await };
    Runtime::new().unwrap().block_on(remember).unwrap();
    let dump = Program::new("pg_dump").args(["--column-inserts", "--no-owner", &settings.url]).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    // Newer versions of `pg_dump` write commands of psql, which begin with a backslash and are not
    // SQL.
    let sql = String::from_utf8(dump.stdout).unwrap();
    let sql: Vec<_> = sql.lines().filter(|line| !line.starts_with('\\')).collect();
    std::fs::write(folder.join("postgres.dump"), sql.join("\n")).unwrap();
}

/// With `UPDATE_STORED=1` the test writes the files into the repository's folder of the newest
/// version. A new version of stored rows needs a new folder.
#[test]
fn this_program_writes_rows_of_each_version() {
    for version in VERSIONS {
        let directory = TempDir::new().unwrap();
        let is_update = version == NEWEST && std::env::var_os("UPDATE_STORED").is_some();
        let folder = if is_update { stored(version, "") } else { directory.path().to_owned() };
        write_files(version, &folder);
        let [written, expected] =
            [&folder, &stored(version, "")].map(|path| std::fs::read_to_string(path.join("export.jsonl")));
        let mut written = written.unwrap();
        if version < 4 {
            // A lock is withheld for longer now, see `expected`.
            let [now, then] = [terms().withholding_micros(), terms().silence_micros()].map(|micros| micros.to_string());
            written = written.replace(&now, &then);
        }
        assert_eq!(written, expected.unwrap());
        assert!(std::fs::read_to_string(folder.join("postgres.dump")).unwrap().contains("INSERT INTO public.claims "));
    }
}
