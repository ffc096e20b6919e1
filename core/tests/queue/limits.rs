//! The bounds of batches and reads, the order of lanes, and the limits of commands.

use leasehold_core::command::Command;
use leasehold_core::lease::Fence;
use leasehold_core::locking::LockCommand;
use leasehold_core::locking::end::{Cause, End, Silence};
use leasehold_core::memory::MemoryStore;
use leasehold_core::queue::{
    BatchSize, Lane, LanePath, MAX_BATCH_BYTES, MAX_BATCH_REQUESTS, MAX_BODY_BYTES, MAX_DELAY_MICROS,
    MAX_SUBMITTED_REQUESTS, MAX_WAITING_PER_LANE, Priority, RequestBody, RequestKind,
};
use leasehold_core::queueing::forget::{ForgetLane, ForgetRequest};
use leasehold_core::queueing::news::readied;
use leasehold_core::queueing::reads::{
    all_taken, delayed_of, idle_before, in_order, ready_of, settled_before, taken_by,
};
use leasehold_core::queueing::reclaim::Reclaim;
use leasehold_core::queueing::retry::Retry;
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::submit::{NewRequest, Submit, is_full_lane};
use leasehold_core::queueing::take::{Take, Taken};
use leasehold_core::queueing::{QueueCommand, QueueReply};
use leasehold_core::rejection::{Reason, Rejection};
use leasehold_core::rows::{Changes, OrderedRead, Workspace};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::Transaction;

use super::world::{START, lane, loaded, open, queue, request, take_id, worker};

const NOW: Timestamp = Timestamp::from_micros(START);

fn opened() -> MemoryStore {
    let mut store = MemoryStore::default();
    open(0).apply(&mut store, NOW).unwrap().unwrap();
    store
}

fn update(number: u128, lane: LanePath) -> NewRequest {
    NewRequest {
        request: request(number),
        lane,
        kind: RequestKind::Update,
        priority: Priority::default(),
        not_before: NOW,
        max_attempts: 3,
        body: RequestBody::default(),
    }
}

fn submit(store: &mut MemoryStore, requests: Vec<NewRequest>, now: Timestamp) {
    for part in requests.chunks(MAX_SUBMITTED_REQUESTS) {
        let command = QueueCommand::Submit(Submit::parse(part.to_vec()).unwrap());
        command.apply(store, now).unwrap().unwrap();
    }
}

fn take(store: &mut MemoryStore, number: u128, lane: LanePath) -> Option<Taken> {
    let command = QueueCommand::Take(Take { worker: worker(0), take: take_id(number), lane, size: BatchSize::MAX });
    match command.apply(store, NOW).unwrap() {
        Ok(QueueReply::Taken(taken)) => taken,
        other => panic!("{other:?}"),
    }
}

fn settle(lane: LanePath, fence: Fence, outcome: WorkOutcome) -> QueueCommand {
    QueueCommand::SettleWork(SettleWork { worker: worker(0), lane, fence, outcome })
}

fn lanes(store: &MemoryStore, read: OrderedRead<Lane>) -> Vec<(LanePath, Lane)> {
    store.lanes(&read).unwrap()
}

fn numbered(number: usize) -> LanePath {
    LanePath::parse(queue(0), &format!("{number:05}")).unwrap()
}

fn refusal(store: &mut MemoryStore, command: &QueueCommand) -> (Reason, String) {
    let before = store.state().unwrap();
    let refused = command.apply(store, NOW).unwrap().unwrap_err();
    assert_eq!(store.state().unwrap(), before, "a refusal changes nothing");
    (refused.reason(), refused.to_string())
}

/// Q02, Q08: updates are taken as one up to the limit of their number, and the next batch has those behind.
#[test]
fn q02_a_batch_is_bounded_in_requests() {
    let mut store = opened();
    submit(&mut store, (0..150).map(|number| update(number, lane(0))).collect(), NOW);
    let first = take(&mut store, 0, lane(0)).unwrap();
    assert_eq!(first.requests.len(), MAX_BATCH_REQUESTS);
    settle(lane(0), first.fence, WorkOutcome::Completed).apply(&mut store, NOW).unwrap().unwrap();
    let second = take(&mut store, 1, lane(0)).unwrap();
    let requests = second.requests.iter().map(|taken| (taken.request, taken.attempt));
    assert!(requests.eq((100..150).map(|number| (request(number), 1))));
}

/// Q02: updates are taken as one up to the limit of their bytes.
#[test]
fn q02_a_batch_is_bounded_in_bytes() {
    let mut store = opened();
    let body = RequestBody::parse(&[0; MAX_BODY_BYTES]).unwrap();
    let large = |number| NewRequest { body: body.clone(), ..update(number, lane(0)) };
    submit(&mut store, (0..20).map(large).collect(), NOW);
    let first = take(&mut store, 0, lane(0)).unwrap();
    assert_eq!(first.requests.len(), MAX_BATCH_BYTES / MAX_BODY_BYTES);
}

/// Returns the number of rows that a host loads at most for a command.
fn loaded_rows(store: &MemoryStore, command: &QueueCommand) -> usize {
    let (mut workspace, mut rows) = (Workspace::default(), 0);
    let group = [Command::Queue(command.clone())];
    loop {
        let keys = workspace.missing(&group);
        if keys.is_empty() {
            command.apply(&mut workspace, NOW).unwrap().unwrap();
            return rows;
        }
        rows += keys.sessions.len() + keys.queues.len() + keys.lanes.len();
        rows += keys.requests.len() + keys.bodies.len();
        rows += keys.requests_of_lane.iter().map(|read| read.limit).sum::<usize>();
        store.load(keys, &mut workspace).unwrap();
    }
}

/// Q16: a take and a settle read as many rows at ten thousand waiting requests as at a hundred.
#[test]
fn q16_the_reads_of_a_take_and_a_settle_do_not_grow_with_the_lane() {
    let costs = [100, 10_000].map(|waiting| {
        let mut store = opened();
        submit(&mut store, (0..waiting).map(|number| update(number, lane(0))).collect(), NOW);
        let taking =
            QueueCommand::Take(Take { worker: worker(0), take: take_id(0), lane: lane(0), size: BatchSize::MAX });
        let cost = loaded_rows(&store, &taking);
        let fence = take(&mut store, 0, lane(0)).unwrap().fence;
        let submitting = QueueCommand::Submit(Submit::parse(vec![update(waiting, lane(0))]).unwrap());
        (cost, loaded_rows(&store, &settle(lane(0), fence, WorkOutcome::Completed)), loaded_rows(&store, &submitting))
    });
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].0 <= 2 * MAX_BATCH_REQUESTS + 10 && costs[0].2 == 2, "{costs:?}");
}

/// Q07: lanes that are taken, delayed or paused are in no other's way, whatever their number.
#[test]
fn q07_stuck_lanes_are_not_in_the_ready_order() {
    let mut store = opened();
    for at in 0..300 {
        let number = at as u128;
        submit(&mut store, vec![update(number, numbered(at))], NOW);
        let taken = take(&mut store, number, numbered(at)).unwrap();
        let retry_micros = MAX_DELAY_MICROS;
        if at % 2 == 0 {
            settle(numbered(at), taken.fence, WorkOutcome::Failed { retry: Retry::After(retry_micros) })
                .apply(&mut store, NOW)
                .unwrap()
                .unwrap();
        }
    }
    submit(&mut store, vec![update(1_000, numbered(1_000)), update(1_001, numbered(999))], NOW);
    let later = NOW.plus_micros(MAX_DELAY_MICROS);
    let offered = |now| in_order(lanes(&store, ready_of(&queue(0), 10)), lanes(&store, delayed_of(&queue(0), now, 10)));
    assert_eq!(offered(NOW), [numbered(999), numbered(1_000)]);
    assert_eq!(offered(later.minus_micros(1)).len(), 2);
    assert_eq!(offered(later).len(), 12, "the delayed lanes are due");
    assert_eq!(lanes(&store, taken_by(worker(0).session, 1_000)).len(), 150);
    assert_eq!(lanes(&store, taken_by(worker(1).session, 1_000)), []);
    assert_eq!(lanes(&store, all_taken(1_000)).len(), 150);
}

/// Q12: a higher priority comes first, and a request that has waited for the head start comes before it.
#[test]
fn q12_priority_never_starves_the_lowest() {
    let mut store = opened();
    let urgent = |number, at, now: Timestamp, store: &mut MemoryStore| {
        let priority = Priority::parse(9).unwrap();
        submit(store, vec![NewRequest { priority, not_before: now, ..update(number, numbered(at)) }], now);
    };
    submit(&mut store, vec![update(0, numbered(0))], NOW);
    urgent(1, 1, NOW.plus_micros(1), &mut store);
    urgent(2, 2, NOW.plus_micros(9 * 60_000_000 - 1), &mut store);
    urgent(3, 3, NOW.plus_micros(9 * 60_000_000 + 1), &mut store);
    let offered = in_order(lanes(&store, ready_of(&queue(0), 10)), Vec::new());
    assert_eq!(offered, [1, 2, 0, 3].map(numbered));
}

/// Q11: a take is written beside no end of its session that another host proposes for silence before the take.
#[test]
fn q11_a_take_renews_its_session() {
    let mut store = opened();
    submit(&mut store, vec![update(0, lane(0))], NOW);
    take(&mut store, 0, lane(0)).unwrap();
    let silence = Silence { renewals_seen: 0, quiet_micros: 10_000_000 };
    let end = LockCommand::End(End { session: worker(0).session, cause: Cause::Silence(silence) });
    assert_eq!(end.apply(&mut store, NOW).unwrap().unwrap_err().reason(), Reason::SessionAlive);
}

/// The lists of settled requests and idle lanes end before the given time.
#[test]
fn settled_requests_and_idle_lanes_are_listed_by_their_age() {
    let mut store = opened();
    submit(&mut store, vec![update(0, lane(0)), update(1, lane(0))], NOW);
    let taken = take(&mut store, 0, lane(0)).unwrap();
    assert_eq!(lanes(&store, idle_before(Timestamp::MAX, 9)), []);
    settle(lane(0), taken.fence, WorkOutcome::Completed).apply(&mut store, NOW).unwrap().unwrap();
    let (at, after) = (NOW, NOW.plus_micros(1));
    let settled = |before, limit| store.requests(&settled_before(before, limit)).unwrap().into_iter().map(|(id, _)| id);
    assert_eq!(settled(at, 9).count(), 0);
    assert_eq!(settled(after, 9).collect::<Vec<_>>(), [request(0), request(1)]);
    assert_eq!(settled(after, 1).collect::<Vec<_>>(), [request(0)]);
    assert_eq!(lanes(&store, idle_before(at, 9)), []);
    assert_eq!(lanes(&store, idle_before(after, 9)).len(), 1);
}

#[test]
fn a_submit_without_requests_with_one_twice_or_with_too_many_is_refused() {
    let parse = |requests: Vec<NewRequest>| -> Rejection { Submit::parse(requests).unwrap_err() };
    assert_eq!(parse(vec![]).reason(), Reason::InvalidUpdate);
    let twice = parse(vec![update(0, lane(0)), update(0, lane(1))]);
    assert!(twice.to_string().ends_with("`requests` has the same id twice"), "{twice}");
    let never = parse(vec![NewRequest { max_attempts: 0, ..update(0, lane(0)) }]);
    assert!(never.to_string().ends_with("`max_attempts` is 0"), "{never}");
    let many = parse((0..1_001).map(|number| update(number, lane(0))).collect());
    assert!(many.to_string().ends_with("`submitted_requests` is 1001, at most 1000 is allowed"), "{many}");
    let body = RequestBody::parse(&[0; MAX_BODY_BYTES]).unwrap();
    let large = parse((0..65).map(|number| NewRequest { body: body.clone(), ..update(number, lane(0)) }).collect());
    assert!(large.to_string().ends_with("`submitted_bytes` is 4259840, at most 4194304 is allowed"), "{large}");
}

#[test]
fn a_request_or_a_retry_that_is_put_off_too_far_is_refused() {
    let mut store = opened();
    submit(&mut store, vec![update(0, lane(0))], NOW);
    let fence = take(&mut store, 0, lane(0)).unwrap().fence;
    let (retry_micros, not_before) = (MAX_DELAY_MICROS + 1, NOW.plus_micros(MAX_DELAY_MICROS + 1));
    let late = NewRequest { not_before, ..update(1, lane(1)) };
    for command in [
        QueueCommand::Submit(Submit::parse(vec![update(2, lane(0)), late]).unwrap()),
        settle(lane(0), fence, WorkOutcome::Failed { retry: Retry::After(retry_micros) }),
        QueueCommand::Reclaim(Reclaim { lane: lane(0), fence, quiet_micros: 0, retry: Retry::After(retry_micros) }),
    ] {
        let (reason, text) = refusal(&mut store, &command);
        assert_eq!(reason, Reason::LimitExceeded);
        assert!(text.ends_with("`delay_micros` is 31536000000001, at most 31536000000000 is allowed"), "{text}");
    }
}

#[test]
fn the_waiting_requests_of_a_lane_are_limited() {
    let mut store = opened();
    submit(&mut store, vec![update(0, lane(0))], NOW);
    let row = store.row::<Lane>(&lane(0)).unwrap().unwrap().clone();
    let full = Lane { waiting: MAX_WAITING_PER_LANE, ..row };
    let changes = Changes { lanes: vec![(lane(0), Some(full))], ..Changes::default() };
    store.write(changes).unwrap();
    let command = QueueCommand::Submit(Submit::parse(vec![update(1, lane(0))]).unwrap());
    let refused = command.apply(&mut store, NOW).unwrap().unwrap_err();
    assert!(is_full_lane(&refused), "{refused}");
    assert!(refused.to_string().ends_with("`waiting_per_lane` is 1000001, at most 1000000 is allowed"), "{refused}");
    let other = Submit::parse(vec![]).unwrap_err();
    assert!(!is_full_lane(&other), "{other}");
}

/// Q18: a submit tells of one lane, a submit behind others of none, and a settle of the lane whose next requests wait.
#[test]
fn q18_a_lane_that_becomes_ready_is_told() {
    let mut store = opened();
    let new = |number| QueueCommand::Submit(Submit::parse(vec![update(number, lane(0))]).unwrap());
    let taking = QueueCommand::Take(Take { worker: worker(0), take: take_id(0), lane: lane(0), size: BatchSize::MAX });
    let settling = settle(lane(0), Fence(1), WorkOutcome::Completed);
    let mut told = |group: &[QueueCommand]| {
        let group: Vec<_> = group.iter().cloned().map(Command::Queue).collect();
        let mut workspace = loaded(&store, &group);
        group.iter().for_each(|command| _ = command.apply(&mut workspace, NOW).unwrap().unwrap());
        let changes = workspace.into_changes();
        store.save(&changes).unwrap();
        readied(&changes).count()
    };
    assert_eq!(told(&[new(0)]), 1);
    assert_eq!(told(&[new(1)]), 0);
    assert_eq!(told(&[taking, new(2), settling]), 1);
}

/// A request or lane that was settled or idle at a time is forgotten by a command that names a later time.
#[test]
fn requests_and_lanes_are_forgotten_after_their_time() {
    let mut store = opened();
    submit(&mut store, vec![update(0, lane(0))], NOW);
    let taken = take(&mut store, 0, lane(0)).unwrap();
    let forget_request =
        |settled_before| QueueCommand::ForgetRequest(ForgetRequest { request: request(0), settled_before });
    let forget_lane = |idle_before| QueueCommand::ForgetLane(ForgetLane { lane: lane(0), idle_before });
    let mut run = |command: QueueCommand| match command.apply(&mut store, NOW).unwrap() {
        Ok(QueueReply::Done(changed)) => changed,
        other => panic!("{other:?}"),
    };
    assert!(!run(forget_request(Timestamp::MAX)) && !run(forget_lane(Timestamp::MAX)));
    assert!(run(settle(lane(0), taken.fence, WorkOutcome::Completed)));
    assert!(!run(forget_request(NOW)) && !run(forget_lane(NOW)));
    let later = NOW.plus_micros(1);
    assert!(run(forget_request(later)) && run(forget_lane(later)));
    let state = store.state().unwrap();
    assert!(state.lanes.is_empty() && state.requests.is_empty() && state.bodies.is_empty());
}
