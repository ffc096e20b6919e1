//! Tests of two writers of one lock: whichever commands they decide at the same time, one of them is
//! decided again.

use leasehold_core::command::{Command, Reply};
use leasehold_core::invariant;
use leasehold_core::lease::Fence;
use leasehold_core::lock::{AskId, LockPath, LockState, LockValue};
use leasehold_core::locking::acquire::{Acquire, Acquired};
use leasehold_core::locking::elapse::Elapse;
use leasehold_core::locking::end::{Cause, End};
use leasehold_core::locking::force::Force;
use leasehold_core::locking::leave::Leave;
use leasehold_core::locking::open::Open;
use leasehold_core::locking::release::{Release, ReleaseOutcome};
use leasehold_core::locking::{HeldSlot, LockCommand, LockReply, granted};
use leasehold_core::rows::{NetChanges, Workspace};
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_server::store::{BlockingStore, StoreError};
use leasehold_tests::postgres::Cluster;
use uuid::Uuid;

use crate::{NO_SYNC, open_store};

const SECOND: u64 = 1_000_000;

fn principal() -> Principal {
    Principal::parse("svc").unwrap()
}

fn session(number: u128) -> SessionId {
    SessionId(Uuid::from_u128(number))
}

fn ask(number: u128) -> AskId {
    AskId(Uuid::from_u128(number))
}

fn lock() -> LockPath {
    LockPath::parse_joined("user.update", "7").unwrap()
}

fn open(number: u128) -> LockCommand {
    let terms = Terms::parse(SECOND, SECOND).unwrap();
    LockCommand::Open(Open { session: session(number), principal: principal(), terms })
}

fn acquire(session_number: u128, ask_number: u128) -> LockCommand {
    let (session, ask) = (session(session_number), ask(ask_number));
    LockCommand::Acquire(Acquire {
        session,
        principal: principal(),
        ask,
        lock: lock(),
        share: None,
        held: Vec::new(),
        wait: true,
        reaped: None,
    })
}

fn release(number: u128, fence: Fence) -> LockCommand {
    let (outcome, value) = (ReleaseOutcome::Succeeded, LockValue::default());
    LockCommand::Release(Release {
        session: session(number),
        principal: principal(),
        lock: lock(),
        fence,
        outcome,
        value,
    })
}

fn leave(session_number: u128, ask_number: u128) -> LockCommand {
    LockCommand::Leave(Leave { session: session(session_number), principal: principal(), ask: ask(ask_number) })
}

fn close(number: u128) -> LockCommand {
    LockCommand::End(End { session: session(number), cause: Cause::Close(principal()) })
}

/// Loads the rows of a command and runs the command, without saving its changes.
fn decided(store: &BlockingStore, command: LockCommand) -> (NetChanges, LockReply) {
    let command = Command::Lock(command);
    let mut workspace: Workspace = store.workspace().unwrap();
    loop {
        let keys = workspace.missing([&command]);
        if keys.is_empty() {
            break;
        }
        store.load(keys, &mut workspace).unwrap();
    }
    match command.apply(&mut workspace, Timestamp::from_micros(SECOND)).unwrap().unwrap() {
        Reply::Lock(reply) => (workspace.into_changes(), reply),
        reply => unreachable!("{reply:?}"),
    }
}

fn run(store: &mut BlockingStore, commands: Vec<LockCommand>) {
    for command in commands {
        let (changes, _) = decided(store, command);
        store.save(&changes).unwrap();
    }
}

fn fence(store: &BlockingStore) -> Fence {
    match store.lock(&lock()).unwrap().unwrap().state {
        LockState::Held(grant) => grant.fence,
        LockState::Withheld(withholding) => withholding.fence,
        LockState::Free | LockState::Orphaned | LockState::Divided(_) => unreachable!("nobody holds the lock"),
    }
}

/// K08, K09: two servers decide two commands on the same rows. The second one to save is refused, and
/// decided again it leaves a sound state: above all, no lock is free while an ask waits.
#[test]
fn k09_of_two_commands_on_one_lock_one_is_decided_again() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    type Commands = fn(Fence) -> [LockCommand; 2];
    let held: [(&str, Commands); 6] = [
        ("an ask and a release", |fence| [acquire(2, 9), release(1, fence)]),
        ("two asks", |_| [acquire(2, 9), acquire(3, 8)]),
        ("an ask and a close", |_| [acquire(2, 9), close(1)]),
        ("a leave and a release", |fence| [leave(2, 2), release(1, fence)]),
        ("a force and a release", |fence| {
            [LockCommand::Force(Force { lock: lock(), fence, at_once: false }), release(1, fence)]
        }),
        ("a close of a waiter and a release", |fence| [close(2), release(1, fence)]),
    ];
    for (name, commands) in held {
        for order in [[0, 1], [1, 0]] {
            let url = cluster.url(&cluster.database().unwrap());
            let mut stores = [open_store(&url), open_store(&url)];
            run(&mut stores[0], vec![open(1), open(2), open(3), acquire(1, 1), acquire(2, 2)]);
            let commands = commands(fence(&stores[0]));
            let [first, second] = [0, 1].map(|at| decided(&stores[at], commands[at].clone()).0);
            let changes = [first, second];
            let [early, late] = order;
            stores[early].save(&changes[early]).unwrap();
            let refused = stores[late].save(&changes[late]);
            assert!(matches!(refused, Err(StoreError::Conflict(_))), "{name}, {order:?}: {refused:?}");
            let state = stores[0].state().unwrap();
            assert_eq!(invariant::check(&state), Ok(()), "{name}, {order:?}");
        }
    }
}

/// K20: an ask and the end of a withholding conflict in the same way.
#[test]
fn k20_an_ask_and_an_elapse_conflict() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let mut stores = [open_store(&url), open_store(&url)];
    run(&mut stores[0], vec![open(1), open(2), acquire(1, 1)]);
    let fence = fence(&stores[0]);
    run(&mut stores[0], vec![LockCommand::Force(Force { lock: lock(), fence, at_once: false })]);
    let elapse = LockCommand::Elapse(Elapse { lock: lock(), fence, quiet_micros: 3 * SECOND });
    let (waits, _) = decided(&stores[0], acquire(2, 2));
    let (elapsed, _) = decided(&stores[1], elapse.clone());
    stores[0].save(&waits).unwrap();
    assert!(matches!(stores[1].save(&elapsed), Err(StoreError::Conflict(_))));
    run(&mut stores[1], vec![elapse]);
    assert!(matches!(stores[0].lock(&lock()).unwrap().unwrap().state, LockState::Held(grant) if grant.ask == ask(2)));
}

/// K05: the database assigns the fence of a grant. The reply and the news of the grant get it, and it
/// is larger than the fence before, on whichever server.
#[test]
fn k05_replies_and_grants_have_the_fence_of_the_database() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let mut stores = [open_store(&url), open_store(&url)];
    run(&mut stores[0], vec![open(1), open(2)]);
    let (changes, reply) = decided(&stores[0], acquire(1, 1));
    let fences = stores[0].save(&changes).unwrap();
    let reply = Reply::Lock(reply).with_fences(&fences);
    let held = LockReply::Acquired(Acquired::Holding(HeldSlot { fence: Fence(1), slot: 0 }));
    assert_eq!(reply, Reply::Lock(held.clone()));
    // A repeated acquire gets the same grant.
    assert_eq!(decided(&stores[1], acquire(1, 1)).1, held);
    run(&mut stores[1], vec![acquire(2, 2)]);
    let (changes, _) = decided(&stores[1], release(1, Fence(1)));
    let fences = stores[1].save(&changes).unwrap();
    let told: Vec<_> = granted(&changes).map(|grant| grant.with_fences(&fences)).collect();
    assert_eq!(told.iter().map(|grant| (grant.ask, grant.hold.fence)).collect::<Vec<_>>(), [(ask(2), Fence(2))]);
    assert_eq!(fence(&stores[0]), Fence(2));
}

/// V09, K24: no key of a lock is in the database's log after a lost race or a refused row.
#[test]
fn k24_the_log_of_the_database_has_no_key() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let mut store = open_store(&cluster.url(&database));
    run(&mut store, vec![open(1), acquire(1, 1)]);
    let broken = "ROW('user.update', 'secret-key', 2, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
                  NULL, NULL, now())::new_lock";
    let call = format!("SELECT write_locks(0, '{{}}', '{{}}', '{{}}', ARRAY[{broken}], {})", ["'{}'"; 8].join(", "));
    let refused = cluster.execute(&database, &call).unwrap_err();
    let text = format!("{refused:?}");
    assert!(text.contains("check constraint") && !text.contains("secret-key"), "{text}");
}
