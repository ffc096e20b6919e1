//! Two servers on one cluster: a group is written only if all rows that it was decided on are as they
//! were.

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
use leasehold_core::command::{Command, Reply};
use leasehold_core::invariant;
use leasehold_core::lease::{Fence, LeaseId, Outcome};
use leasehold_core::rejection::Rejection;
use leasehold_core::rows::Workspace;
use leasehold_core::rules::Rules;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::update::Settle;
use leasehold_server::store::{BlockingStore, Creation, StoreError};
use leasehold_tests::etcd::{EtcdCluster, LIMITS};
use uuid::Uuid;

use crate::open;

/// Returns a begin of cell 1 that creates a username.
fn begin(lease: u128, name: &str) -> Command {
    let claim = ClaimRequest {
        bucket_type: BucketType(4),
        value: name.into(),
        subject: Some(Subject { subject_type: 4, id: 7 }),
        source: Some(Source { source_type: SourceType(1), id: SourceId::from(7) }),
        user_data: None,
    };
    let rules = Rules { cells: [CellId(1)].into(), ..Rules::default() };
    let update = UpdateRequest { creates: vec![claim], destroys: vec![] };
    Command::Begin(rules.begin(CellId(1), update, None, LeaseId(Uuid::from_u128(lease))).unwrap())
}

fn settle(lease: u128) -> Command {
    Command::Settle(Settle { cell: CellId(1), lease: LeaseId(Uuid::from_u128(lease)), outcome: Outcome::Committed })
}

/// A group of one command that is decided, and not written yet.
pub(super) struct Decided {
    workspace: Workspace,
    reply: Result<Reply, Rejection>,
}

/// Loads the rows of a command, and decides it.
pub(super) fn decide<S: Store>(store: &S, command: &Command) -> Decided {
    let mut workspace = store.workspace().unwrap();
    loop {
        let keys = workspace.missing([command]);
        if keys.is_empty() {
            break;
        }
        store.load(keys, &mut workspace).unwrap();
    }
    let reply = command.apply(&mut workspace, Timestamp::from_micros(1)).unwrap();
    Decided { workspace, reply }
}

/// Writes what was decided. Returns the reply.
pub(super) fn save<S: Store>(store: &mut S, decided: Decided) -> Result<Result<Reply, Rejection>, S::Error> {
    let fences = store.save(&decided.workspace.into_changes())?;
    Ok(decided.reply.map(|reply| reply.with_fences(&fences)))
}

fn run(store: &mut BlockingStore, command: &Command) -> Result<Reply, Rejection> {
    let decided = decide(store, command);
    save(store, decided).unwrap()
}

fn fence(reply: Result<Reply, Rejection>) -> Fence {
    match reply {
        Ok(Reply::Begun(begun)) => begun.fence,
        other => panic!("no begin: {other:?}"),
    }
}

/// B01, B13: of two servers that claim one name, one is told to decide again, and then finds the name
/// taken.
#[test]
fn a_name_is_given_out_once() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let [mut one, mut two] = [(); 2].map(|()| open(&cluster, "names", Creation::Allowed).unwrap());
    let (first, second) = (decide(&one, &begin(1, "alice")), decide(&two, &begin(2, "alice")));
    let first = fence(save(&mut one, first).unwrap());
    let lost = save(&mut two, second).unwrap_err();
    assert!(matches!(lost, StoreError::Conflict(_)), "{lost}");
    assert!(run(&mut two, &begin(2, "alice")).is_err());
    assert!(fence(run(&mut two, &begin(3, "bob"))) > first);
    assert_eq!(invariant::check(&one.state().unwrap()), Ok(()));
}

/// A refusal is written under guards too: it must be true at the moment of its answer.
#[test]
fn a_refusal_of_a_name_that_was_given_up_is_decided_again() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let [mut one, mut two] = [(); 2].map(|()| open(&cluster, "refusals", Creation::Allowed).unwrap());
    run(&mut one, &begin(1, "alice")).unwrap();
    let refused = decide(&two, &begin(2, "alice"));
    assert!(refused.reply.is_err());
    let rollback =
        Command::Settle(Settle { cell: CellId(1), lease: LeaseId(Uuid::from_u128(1)), outcome: Outcome::RolledBack });
    run(&mut one, &rollback).unwrap();
    assert!(matches!(save(&mut two, refused), Err(StoreError::Conflict(_))));
    run(&mut two, &begin(2, "alice")).unwrap();
}

/// B22: of two servers that settle one lease, the second finds it settled.
#[test]
fn a_lease_is_settled_once() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let [mut one, mut two] = [(); 2].map(|()| open(&cluster, "leases", Creation::Allowed).unwrap());
    run(&mut one, &begin(1, "alice")).unwrap();
    let (first, second) = (decide(&one, &settle(1)), decide(&two, &settle(1)));
    assert_eq!(save(&mut one, first).unwrap(), Ok(Reply::Settled(true)));
    assert!(matches!(save(&mut two, second), Err(StoreError::Conflict(_))));
    assert_eq!(run(&mut two, &settle(1)), Ok(Reply::Settled(false)));
}

/// B30, B20: every answered change is there after the death of a node, and more are written.
#[test]
fn answered_changes_outlive_a_node() {
    let mut cluster = EtcdCluster::start(3, LIMITS).unwrap();
    let mut store = open(&cluster, "nodes", Creation::Allowed).unwrap();
    for dead in 0..3_u128 {
        run(&mut store, &begin(2 * dead + 1, &format!("before{dead}"))).unwrap();
        cluster.kill(usize::try_from(dead).unwrap()).unwrap();
        // The answer of the first group may be lost with the node.
        let lease = 2 * dead + 2;
        let mut attempts = 0;
        while let Err(error) = try_begin(&mut store, lease, &format!("after{dead}")) {
            attempts += 1;
            assert!(attempts < 100, "{error}");
        }
        let claims = store.state().unwrap().claims;
        assert_eq!(claims.len() as u128, 2 * (dead + 1), "{claims:?}");
        cluster.restart(usize::try_from(dead).unwrap()).unwrap();
    }
    assert_eq!(invariant::check(&store.state().unwrap()), Ok(()));
}

/// Begins an update, as a server does again and again during an outage.
fn try_begin(store: &mut BlockingStore, lease: u128, name: &str) -> Result<(), StoreError> {
    let Command::Begin(mut command) = begin(lease, name) else { unreachable!("a begin") };
    command.resumed = true;
    let command = Command::Begin(command);
    let mut workspace = store.workspace()?;
    loop {
        let keys = workspace.missing([&command]);
        if keys.is_empty() {
            break;
        }
        store.load(keys, &mut workspace)?;
    }
    command.apply(&mut workspace, Timestamp::from_micros(1)).unwrap().unwrap();
    store.save(&workspace.into_changes()).map(drop)
}
