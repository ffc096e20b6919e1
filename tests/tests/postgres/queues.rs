//! Tests of two writers of one lane: whichever commands they decide at the same time, one of them is decided again.

use std::num::NonZeroU32;

use leasehold_core::command::{Command, Reply};
use leasehold_core::invariant;
use leasehold_core::lease::Fence;
use leasehold_core::locking::LockCommand;
use leasehold_core::locking::end::{Cause, End};
use leasehold_core::locking::open::Open;
use leasehold_core::queue::{BatchSize, LanePath, Priority, QueuePath, RequestBody, RequestId, RequestKind, TakeId};
use leasehold_core::queueing::limit::LimitQueue;
use leasehold_core::queueing::reclaim::Reclaim;
use leasehold_core::queueing::retry::Retry;
use leasehold_core::queueing::revise::Withdraw;
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::submit::{NewRequest, Submit};
use leasehold_core::queueing::take::{Take, Taken};
use leasehold_core::queueing::{QueueCommand, QueueReply, Worker};
use leasehold_core::rows::{NetChanges, Workspace};
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_server::store::{BlockingStore, StoreError};
use leasehold_tests::postgres::Cluster;
use uuid::Uuid;

use crate::{NO_SYNC, open_store};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn principal() -> Principal {
    Principal::parse("svc").unwrap()
}

fn worker(number: u128) -> Worker {
    Worker { session: SessionId(Uuid::from_u128(number)), principal: principal() }
}

pub(super) fn open(number: u128) -> Command {
    let terms = Terms::parse(1_000_000, 1_000_000).unwrap();
    Command::Lock(LockCommand::Open(Open { session: worker(number).session, principal: principal(), terms }))
}

fn close(number: u128) -> Command {
    Command::Lock(LockCommand::End(End { session: worker(number).session, cause: Cause::Close(principal()) }))
}

fn lane(key: &str) -> LanePath {
    LanePath::parse(QueuePath::parse("sheets").unwrap(), key).unwrap()
}

fn request(number: u128) -> RequestId {
    RequestId(Uuid::from_u128(100 + number))
}

fn submit(number: u128, key: &str) -> Command {
    submit_all([request(number)], key)
}

/// Returns the command that submits requests with these ids to the lane of a key.
pub(super) fn submit_all(ids: impl IntoIterator<Item = RequestId>, key: &str) -> Command {
    let new = |request| NewRequest {
        request,
        lane: lane(key),
        kind: RequestKind::Update,
        priority: Priority::default(),
        not_before: NOW,
        max_attempts: 5,
        body: RequestBody::parse(b"secret-body").unwrap(),
    };
    Command::Queue(QueueCommand::Submit(Submit::parse(ids.into_iter().map(new).collect()).unwrap()))
}

pub(super) fn take(of: u128, number: u128, key: &str) -> Command {
    let take = TakeId(Uuid::from_u128(number));
    Command::Queue(QueueCommand::Take(Take { worker: worker(of), take, lane: lane(key), size: BatchSize::MAX }))
}

fn settle(of: u128, fence: u64, outcome: WorkOutcome) -> Command {
    let (worker, lane, fence) = (worker(of), lane("7"), Fence(fence));
    Command::Queue(QueueCommand::SettleWork(SettleWork { worker, lane, fence, outcome }))
}

pub(super) fn complete(of: u128, fence: u64) -> Command {
    settle(of, fence, WorkOutcome::Completed)
}

fn withdraw(number: u128) -> Command {
    Command::Queue(QueueCommand::Withdraw(Withdraw { request: request(number) }))
}

fn reclaim(fence: u64) -> Command {
    let reclaim = Reclaim { lane: lane("7"), fence: Fence(fence), quiet_micros: 0, retry: Retry::After(0) };
    Command::Queue(QueueCommand::Reclaim(reclaim))
}

/// Loads the rows of commands and runs them as one group, without saving its changes.
pub(super) fn decided(store: &BlockingStore, commands: &[Command]) -> (NetChanges, Vec<Reply>) {
    let mut workspace: Workspace = store.workspace().unwrap();
    loop {
        let keys = workspace.missing(commands);
        if keys.is_empty() {
            break;
        }
        store.load(keys, &mut workspace).unwrap();
    }
    let replies = commands.iter().map(|command| command.apply(&mut workspace, NOW).unwrap().unwrap()).collect();
    (workspace.into_changes(), replies)
}

/// Runs commands one by one, and returns the last reply.
pub(super) fn run(store: &mut BlockingStore, commands: &[Command]) -> Option<Reply> {
    let mut last = None;
    for command in commands {
        let (changes, replies) = decided(store, std::slice::from_ref(command));
        let fences = store.save(&changes).unwrap();
        last = replies.into_iter().next().map(|reply| reply.with_fences(&fences));
    }
    last
}

pub(super) fn taken(reply: Option<Reply>) -> Taken {
    match reply {
        Some(Reply::Queue(QueueReply::Taken(Some(taken)))) => taken,
        reply => panic!("nothing is taken: {reply:?}"),
    }
}

/// Q08, Q10, Q11: two servers decide two commands on the same lane. The second one to save is refused, and decided again
/// it leaves a sound state: above all, no lane is idle while a request waits, and no request has two workers.
#[test]
fn q08_of_two_commands_on_one_lane_one_is_decided_again() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let held = [open(1), open(2), submit(0, "7"), take(1, 1, "7")];
    let waiting = [open(1), open(2), submit(0, "7")];
    let lost = [open(1), open(2), submit(0, "7"), take(1, 1, "7"), close(1)];
    let pairs: [(&str, &[Command], [Command; 2]); 9] = [
        ("a submit and a settle", &held, [submit(1, "7"), complete(1, 1)]),
        (
            "a submit and a failure",
            &held,
            [submit(1, "7"), settle(1, 1, WorkOutcome::Failed { retry: Retry::After(0) })],
        ),
        ("two submits", &held, [submit(1, "7"), submit(2, "7")]),
        ("two submits of a new lane", &held, [submit(1, "8"), submit(2, "8")]),
        ("two submits of one id to two lanes", &held, [submit(1, "8"), submit(1, "9")]),
        ("two takes", &waiting, [take(1, 1, "7"), take(2, 2, "7")]),
        ("a take and the end of its session", &waiting, [take(1, 1, "7"), close(1)]),
        ("a take and a withdrawal", &waiting, [take(1, 1, "7"), withdraw(0)]),
        ("two reclaims", &lost, [reclaim(1), reclaim(1)]),
    ];
    for (name, before, commands) in pairs {
        for [early, late] in [[0, 1], [1, 0]] {
            let url = cluster.url(&cluster.database().unwrap());
            let mut stores = [open_store(&url), open_store(&url)];
            run(&mut stores[0], before);
            let changes = [0, 1].map(|at| decided(&stores[at], std::slice::from_ref(&commands[at])).0);
            stores[early].save(&changes[early]).unwrap();
            let refused = stores[late].save(&changes[late]);
            assert!(matches!(refused, Err(StoreError::Conflict(_))), "{name}: {refused:?}");
            let state = stores[late].state().unwrap();
            assert_eq!(invariant::check(&state), Ok(()), "{name}");
        }
    }
}

/// Q09: an id that is used for two lanes belongs to the first one, also if its request is settled before the second
/// submit is saved.
#[test]
fn q09_an_id_has_one_request() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let mut stores = [open_store(&url), open_store(&url)];
    let (late, _) = decided(&stores[1], &[submit(0, "8")]);
    run(&mut stores[0], &[open(1), submit(0, "7"), take(1, 1, "7"), complete(1, 1)]);
    let refused = stores[1].save(&late);
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    assert_eq!(invariant::check(&stores[0].state().unwrap()), Ok(()));
}

/// Q17: two servers take the last place below a limit, and one of them is decided again.
#[test]
fn q17_a_limit_is_exact_on_two_servers() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let mut stores = [open_store(&url), open_store(&url)];
    let limit = LimitQueue { queue: lane("7").queue().clone(), limit: NonZeroU32::new(1) };
    let limit = Command::Queue(QueueCommand::LimitQueue(limit));
    run(&mut stores[0], &[open(1), open(2), limit, submit(0, "7"), submit(1, "8")]);
    let takes = [take(1, 1, "7"), take(2, 2, "8")];
    let changes = [0, 1].map(|at| decided(&stores[at], std::slice::from_ref(&takes[at])).0);
    stores[0].save(&changes[0]).unwrap();
    assert!(matches!(stores[1].save(&changes[1]), Err(StoreError::Conflict(_))));
    assert_eq!(run(&mut stores[1], &takes[1..]), Some(Reply::Queue(QueueReply::Taken(None))));
}

/// Q10: the database assigns the fences of holds, also in a group that grants locks or takes several lanes.
#[test]
fn q10_replies_have_the_fences_of_the_database() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let mut store = open_store(&url);
    run(&mut store, &[open(1), submit(0, "7"), submit(1, "8")]);
    let (changes, replies) = decided(&store, &[take(1, 1, "8"), take(1, 2, "7")]);
    let fences = store.save(&changes).unwrap();
    let replies = replies.into_iter().map(|reply| taken(Some(reply.with_fences(&fences))).fence);
    assert_eq!(replies.collect::<Vec<_>>(), [Fence(1), Fence(2)]);
    let state = store.state().unwrap();
    let held = |key| state.lanes.get(&lane(key)).and_then(|lane| lane.hold()).map(|hold| hold.fence);
    assert_eq!([held("8"), held("7")], [Some(Fence(1)), Some(Fence(2))]);
    // A take and its settle in one group, as when the answer of the take was lost.
    let mut group = vec![complete(1, 2), submit(2, "7"), take(1, 3, "7")];
    let (changes, _) = decided(&store, &group);
    store.save(&changes).unwrap();
    assert_eq!(taken(run(&mut store, &group.split_off(2))).fence, Fence(3));
}

/// Seed 001: people see all requests with their states, and which process has each, with psql.
#[test]
fn q05_the_view_shows_all_requests() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let mut store = open_store(&cluster.url(&database));
    let failed = WorkOutcome::Failed { retry: Retry::After(0) };
    run(&mut store, &[open(1), submit(0, "7"), take(1, 1, "7"), complete(1, 1), submit(1, "7"), submit(2, "8")]);
    run(&mut store, &[take(1, 2, "7"), settle(1, 2, failed), take(1, 3, "8")]);
    let sql = "SELECT concat_ws(' ', resource_id, request_status, process_id, attempts) FROM request_queue
               ORDER BY resource_id, number";
    let shown = cluster.execute(&database, sql).unwrap();
    let id = worker(1).session.0;
    assert_eq!(shown, ["7 complete 1".to_owned(), "7 new 1".to_owned(), format!("8 in-progress {id} 1")]);
}

/// Q22: no key and no body is in the database's log after a refused row.
#[test]
fn q22_the_log_of_the_database_has_no_key() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    drop(open_store(&cluster.url(&database)));
    let broken = format!("ROW('sheets', 'secret-key', 9, false, 0, 0{}, now())::new_lane", ", NULL".repeat(21));
    let call = format!("SELECT save_queues({}, ARRAY[{broken}]{})", ["'{}'"; 4].join(", "), ", '{}'".repeat(10));
    let refused = format!("{:?}", cluster.execute(&database, &call).unwrap_err());
    assert!(refused.contains("check constraint") && !refused.contains("secret-key"), "{refused}");
}
