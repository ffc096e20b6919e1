//! The checks of queues.

use std::num::NonZeroU32;
use std::ops::Bound;

use uuid::Uuid;

use super::locks::{end, open, principal, random_end, scattered, session, some_session};
use super::{Dice, Harness, Pair};
use crate::command::{Command, Reply};
use crate::lease::Fence;
use crate::locking::LockCommand;
use crate::locking::end::{Cause, Silence};
use crate::locking::forget::ForgetSession;
use crate::queue::{
    BatchSize, HoldEnd, Lane, LanePath, LaneState, MAX_ATTEMPTS, MAX_BATCH_REQUESTS, MAX_BODY_BYTES, MAX_PRIORITY,
    MAX_PROGRESS_BYTES, MAX_SUBMITTED_REQUESTS, Priority, Progress, QueuePath, Request, RequestBody, RequestId,
    RequestKind, RequestState, TakeId,
};
use crate::queueing::forget::{ForgetLane, ForgetRequest};
use crate::queueing::limit::LimitQueue;
use crate::queueing::note::NoteProgress;
use crate::queueing::pause::{Pause, PauseScope};
use crate::queueing::reads::{
    all_taken, delayed_of, idle_before, in_order, ready_of, settled_before, taken_by, taken_of, waiting_of,
};
use crate::queueing::reclaim::Reclaim;
use crate::queueing::retry::Retry;
use crate::queueing::revise::{Resubmit, Withdraw};
use crate::queueing::settle::{SettleWork, WorkOutcome};
use crate::queueing::submit::{NewRequest, Submit};
use crate::queueing::take::{Take, Taken};
use crate::queueing::{QueueCommand, QueueReply, Worker};
use crate::rejection::Rejection;
use crate::rows::{LaneOrder, OrderedRead, State};
use crate::session::{MAX_PRINCIPAL_BYTES, SessionId, Terms};
use crate::store::Store;
use crate::time::Timestamp;

/// The queues and keys of the random lanes. Some begin alike, and one has the largest character.
const LANES: [(&str, &str); 5] = [("a", "k"), ("a", "k1"), ("a.b", "k"), ("a", "\u{10ffff}"), ("é", " ")];
const SECOND: u64 = 1_000_000;

fn queue(name: &str) -> QueuePath {
    QueuePath::parse(name).expect("a valid name")
}

fn lane(name: &str, key: &str) -> LanePath {
    LanePath::parse(queue(name), key).expect("a valid key")
}

fn request(number: u64) -> RequestId {
    RequestId(scattered(2_000_000 + number))
}

fn take_id(number: u64) -> TakeId {
    TakeId(scattered(4_000_000 + number))
}

fn worker(number: u64) -> Worker {
    Worker { session: session(number), principal: principal("svc") }
}

fn update(number: u64, lane: &LanePath, now: u64) -> NewRequest {
    NewRequest {
        request: request(number),
        lane: lane.clone(),
        kind: RequestKind::Update,
        priority: Priority::default(),
        not_before: Timestamp::from_micros(now),
        max_attempts: 2,
        body: RequestBody::parse(&number.to_be_bytes()).expect("a short body"),
    }
}

fn submit(requests: Vec<NewRequest>) -> QueueCommand {
    QueueCommand::Submit(Submit::parse(requests).expect("distinct requests"))
}

fn take(of: u64, number: u64, lane: &LanePath) -> QueueCommand {
    QueueCommand::Take(Take { worker: worker(of), take: take_id(number), lane: lane.clone(), size: BatchSize::MAX })
}

/// Returns the requests of a take, each with its attempt.
fn attempts(taken: &Taken) -> Vec<(RequestId, u32)> {
    taken.requests.iter().map(|taken| (taken.request, taken.attempt)).collect()
}

fn settle(worker: Worker, lane: &LanePath, fence: Fence, outcome: WorkOutcome) -> QueueCommand {
    QueueCommand::SettleWork(SettleWork { worker, lane: lane.clone(), fence, outcome })
}

impl<S: Store> Pair<S> {
    fn queue_commands(&mut self, commands: Vec<QueueCommand>) -> Vec<Result<Reply, Rejection>> {
        self.run(&commands.into_iter().map(Command::Queue).collect::<Vec<_>>())
    }

    /// Runs one command that must not be refused.
    fn queue_command(&mut self, command: QueueCommand) -> QueueReply {
        match self.queue_commands(vec![command]).first() {
            Some(Ok(Reply::Queue(reply))) => reply.clone(),
            other => unreachable!("the command is refused: {other:?}"),
        }
    }

    fn taken(&mut self, of: u64, number: u64, lane: &LanePath) -> Taken {
        match self.queue_command(take(of, number, lane)) {
            QueueReply::Taken(Some(taken)) => taken,
            other => unreachable!("the lane is not ready: {other:?}"),
        }
    }

    fn compare_lanes(&self, read: &OrderedRead<Lane>) -> Vec<(LanePath, Lane)> {
        let rows = self.store.lanes(read).expect("lanes can be read");
        assert_eq!(rows, self.reference.lanes(read).expect("memory"), "{read:?}");
        rows
    }

    fn compare_requests(&self, read: &OrderedRead<Request>) -> Vec<(RequestId, Request)> {
        let rows = self.store.requests(read).expect("requests can be read");
        assert_eq!(rows, self.reference.requests(read).expect("memory"), "{read:?}");
        rows
    }

    fn compare_bodies(&self, ids: &[RequestId]) {
        let bodies = self.store.bodies(ids).expect("bodies can be read");
        assert_eq!(bodies, self.reference.bodies(ids).expect("memory"));
    }

    fn offered(&self, queue: &QueuePath, limit: usize) -> Vec<LanePath> {
        let now = Timestamp::from_micros(self.now);
        in_order(self.compare_lanes(&ready_of(queue, limit)), self.compare_lanes(&delayed_of(queue, now, limit)))
    }
}

fn random_request(now: u64, submitted: &mut u64, dice: &mut Dice) -> NewRequest {
    // A repeated request is mostly the same as before: all follows from its number.
    let number = if dice.one_in(6) { submitted.saturating_sub(dice.roll(8)) } else { *submitted + 1 };
    *submitted = (*submitted).max(number);
    let (name, key) = LANES.get((number % 5) as usize).copied().unwrap_or(("a", "k"));
    let lane = if dice.one_in(40) { lane("other", "k") } else { lane(name, key) };
    NewRequest {
        kind: if number.is_multiple_of(7) { RequestKind::Create } else { RequestKind::Update },
        priority: Priority::parse((number % 3) as u8 * 4).expect("a valid priority"),
        max_attempts: 1 + (number % 3) as u32,
        ..update(number, &lane, if dice.one_in(6) { now + dice.roll(20_000) } else { now })
    }
}

/// Returns the hold that a command may name: the current one, the last that ended, or one that never was.
fn random_hold(lane: Option<&Lane>, dice: &mut Dice) -> (SessionId, Fence) {
    let last = lane.and_then(|lane| lane.last.as_ref()).map(|last| (last.hold.session, last.hold.fence));
    let current = lane.and_then(Lane::hold).map(|hold| (hold.session, hold.fence));
    let hold = if dice.one_in(8) { last } else { current.or(last) };
    hold.filter(|_| !dice.one_in(20)).unwrap_or((session(1), Fence(7)))
}

fn random_settle(state: &State, path: &LanePath, dice: &mut Dice) -> QueueCommand {
    let (session, fence) = random_hold(state.lanes.get(path), dice);
    let worker = Worker { session, principal: principal(if dice.one_in(12) { "other" } else { "svc" }) };
    let retry = random_retry(dice);
    match dice.roll(6) {
        0 => {
            let progress = Progress::parse(&dice.roll(9).to_be_bytes()).expect("a short note");
            QueueCommand::NoteProgress(NoteProgress { worker, lane: path.clone(), fence, progress })
        }
        1 => settle(worker, path, fence, WorkOutcome::GivenBack),
        2 => settle(worker, path, fence, WorkOutcome::Failed { retry }),
        _ => settle(worker, path, fence, WorkOutcome::Completed),
    }
}

fn random_retry(dice: &mut Dice) -> Retry {
    if dice.one_in(4) { Retry::Backoff } else { Retry::After(dice.roll(3) * 5_000) }
}

/// Takes back the first lane whose worker's session has ended, or another one.
fn random_reclaim(state: &State, path: &LanePath, dice: &mut Dice) -> QueueCommand {
    let is_lost = |lane: &Lane| {
        lane.hold().is_some_and(|hold| !state.sessions.get(&hold.session).is_some_and(|session| session.is_live()))
    };
    let lost = state.lanes.iter().find(|(_, lane)| is_lost(lane)).filter(|_| !dice.one_in(4));
    let path = lost.map_or(path, |(path, _)| path);
    let (_, fence) = random_hold(state.lanes.get(path), dice);
    let (quiet_micros, retry) = (SECOND * dice.roll(4), random_retry(dice));
    QueueCommand::Reclaim(Reclaim { lane: path.clone(), fence, quiet_micros, retry })
}

fn random_change(path: &LanePath, submitted: u64, dice: &mut Dice) -> QueueCommand {
    let id = request(submitted.saturating_sub(dice.roll(25)));
    match dice.roll(12) {
        0 | 1 => QueueCommand::Withdraw(Withdraw { request: id }),
        2..=4 => QueueCommand::Resubmit(Resubmit { request: id }),
        5 => {
            let scope =
                if dice.one_in(2) { PauseScope::Queue(path.queue().clone()) } else { PauseScope::Lane(path.clone()) };
            QueueCommand::Pause(Pause { scope, is_paused: dice.one_in(4) })
        }
        6 => {
            let limit = NonZeroU32::new(u32::try_from(dice.roll(3)).unwrap_or(0));
            QueueCommand::LimitQueue(LimitQueue { queue: path.queue().clone(), limit })
        }
        7 => QueueCommand::ForgetLane(ForgetLane { lane: path.clone(), idle_before: Timestamp::MAX }),
        _ => {
            let id = request(submitted.saturating_sub(dice.roll(60)));
            QueueCommand::ForgetRequest(ForgetRequest { request: id, settled_before: Timestamp::MAX })
        }
    }
}

/// Takes a lane that is ready, if there is one, mostly for a session that is live.
fn random_take(state: &State, path: LanePath, take: TakeId, session: SessionId, dice: &mut Dice) -> QueueCommand {
    let ready: Vec<_> = state.lanes.iter().filter(|(_, lane)| lane.is_ready(Timestamp::MAX)).collect();
    let at = usize::try_from(dice.roll(ready.len().max(1) as u64)).unwrap_or(0);
    let lane = ready.get(at).filter(|_| !dice.one_in(5)).map_or(path, |(path, _)| (*path).clone());
    let live: Vec<_> = state.sessions.iter().filter(|(_, session)| session.is_live()).collect();
    let at = usize::try_from(dice.roll(live.len().max(1) as u64)).unwrap_or(0);
    let session = live.get(at).filter(|_| !dice.one_in(5)).map_or(session, |(id, _)| **id);
    QueueCommand::Take(Take { worker: Worker { session, ..worker(0) }, take, lane, size: BatchSize::MAX })
}

fn random_command(now: u64, state: &State, numbers: &mut (u64, u64), dice: &mut Dice) -> Command {
    let (submitted, takes) = numbers;
    let (name, key) = LANES.get(usize::try_from(dice.roll(5)).unwrap_or(0)).copied().unwrap_or(("a", "k"));
    let path = lane(name, key);
    Command::Queue(match dice.roll(24) {
        0..=3 => {
            let mut all: Vec<_> = (0..=dice.roll(3)).map(|_| random_request(now, submitted, dice)).collect();
            all.sort_by_key(|new| new.request);
            all.dedup_by_key(|new| new.request);
            submit(all)
        }
        4..=9 => {
            *takes += 1;
            let number = if dice.one_in(8) { takes.saturating_sub(dice.roll(4)) } else { *takes };
            random_take(state, path, take_id(number), some_session(*takes, dice), dice)
        }
        10..=15 => random_settle(state, &path, dice),
        16 | 17 => random_reclaim(state, &path, dice),
        18..=20 => random_change(&path, *submitted, dice),
        21 | 22 => {
            let session = some_session(*takes, dice);
            return Command::Lock(match open(0) {
                LockCommand::Open(open) => LockCommand::Open(crate::locking::open::Open { session, ..open }),
                other => other,
            });
        }
        _ if dice.one_in(2) => {
            let (session, ended_before) = (some_session(takes.saturating_sub(30), dice), Timestamp::MAX);
            return Command::Lock(LockCommand::ForgetSession(ForgetSession { session, ended_before }));
        }
        _ => return Command::Lock(random_end(state, *takes, dice)),
    })
}

fn compare_random_lists<S: Store>(pair: &Pair<S>, submitted: u64, dice: &mut Dice) {
    let limit = usize::try_from(1 + dice.roll(6)).unwrap_or(1);
    let (name, key) = LANES.get(usize::try_from(dice.roll(5)).unwrap_or(0)).copied().unwrap_or(("a", "k"));
    let (path, at) = (lane(name, key), Timestamp::from_micros(pair.now.saturating_sub(dice.roll(50_000))));
    pair.offered(path.queue(), limit);
    pair.compare_lanes(&all_taken(limit));
    pair.compare_lanes(&taken_by(some_session(submitted / 2, dice), limit));
    pair.compare_lanes(&idle_before(at, limit));
    let paused = |key: &LanePath| Bound::Included(LaneOrder::Paused(key.clone()));
    pair.compare_lanes(&OrderedRead { from: paused(&LanePath::first()), to: paused(&lane("é", " ")), limit });
    let waiting = pair.compare_requests(&waiting_of(&path, limit));
    let taken = pair.compare_requests(&taken_of(&path));
    let settled = pair.compare_requests(&settled_before(at, limit));
    let all = waiting.into_iter().chain(taken).chain(settled).map(|(id, _)| id).chain([request(9_999_999)]);
    pair.compare_bodies(&all.collect::<Vec<_>>());
    let queues = OrderedRead { from: Bound::Unbounded, to: Bound::Included(queue(name)), limit };
    let rows = pair.store.queues(&queues).expect("queues can be read");
    assert_eq!(rows, pair.reference.queues(&queues).expect("memory"), "{queues:?}");
}

/// Q01 to Q03, Q07 to Q13, Q17, Q19, Q20: the store agrees with the reference over many random groups of
/// commands. The store is reopened in between.
pub(super) fn random_groups_agree_with_the_reference(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let (mut dice, mut numbers) = (Dice(30), (0, 0));
    for round in 0..800 {
        // Now and then all backoffs are over.
        pair.now += if round % 20 == 0 { 8 * SECOND } else { dice.roll(5_000) };
        let state = pair.reference.state().expect("memory");
        let commands: Vec<_> =
            (0..=dice.roll(6)).map(|_| random_command(pair.now, &state, &mut numbers, &mut dice)).collect();
        pair.run(&commands);
        if round % 10 == 0 {
            pair.compare();
        }
        if round % 100 == 50 {
            pair.store = harness.reopen(pair.store);
            pair.compare();
        }
        compare_random_lists(&pair, numbers.0, &mut dice);
    }
    let fence = pair.reference.state().expect("memory").fence;
    assert!(fence > Fence(150), "the random commands take too few batches to prove anything: {fence:?}");
}

/// Q02, Q07, Q08: a create is taken alone, then all updates that wait as one, in their order. What is submitted
/// meanwhile is in the next batch, and a stuck lane is in no other's way.
pub(super) fn updates_are_taken_as_one_behind_their_create(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let (sheet, other) = (lane("sheets", "7"), lane("sheets", "8"));
    pair.run(&[Command::Lock(open(1)), Command::Lock(open(2))]);
    let create = NewRequest { kind: RequestKind::Create, ..update(0, &sheet, pair.now) };
    let now = pair.now;
    pair.queue_command(submit(vec![create, update(1, &sheet, now), update(2, &sheet, now), update(3, &other, now)]));
    let taken = pair.taken(1, 1, &sheet);
    assert_eq!(attempts(&taken), [(request(0), 1)]);
    assert_eq!(taken.kind, RequestKind::Create);
    assert_eq!(pair.offered(sheet.queue(), 10), std::slice::from_ref(&other), "the create's lane is taken");
    pair.queue_command(submit(vec![update(4, &sheet, now)]));
    pair.store = harness.reopen(pair.store);
    pair.compare();
    // The same take gets the same requests again (Q10).
    assert_eq!(pair.taken(1, 1, &sheet), taken);
    pair.queue_command(settle(worker(1), &sheet, taken.fence, WorkOutcome::Completed));
    let taken = pair.taken(2, 2, &sheet);
    assert_eq!(attempts(&taken), [1, 2, 4].map(|number| (request(number), 1)));
    pair.queue_command(settle(worker(2), &sheet, taken.fence, WorkOutcome::Failed { retry: Retry::After(0) }));
    let again = pair.taken(1, 3, &sheet);
    assert_eq!(attempts(&again), [1, 2, 4].map(|number| (request(number), 2)));
    pair.queue_command(settle(worker(1), &sheet, again.fence, WorkOutcome::Failed { retry: Retry::After(0) }));
    // It was the last attempt (Q13).
    let state = pair.store.state().expect("the state can be read");
    assert!([1, 2, 4].iter().all(|number| {
        state.requests.get(&request(*number)).is_some_and(|request| request.state == RequestState::Error)
    }));
    pair.compare();
}

/// Q03, Q11, Q17: what an expired session held is new again after a restart, counts its attempt, and frees its
/// place below the limit of the queue.
pub(super) fn what_a_lost_worker_held_comes_back(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let lanes = ["a", "b", "c"].map(|key| lane("limited", key));
    pair.run(&[Command::Lock(open(1)), Command::Lock(open(2))]);
    let now = pair.now;
    let requests = (0..).zip(&lanes).map(|(number, lane)| update(number, lane, now)).collect();
    let limit = QueueCommand::LimitQueue(LimitQueue { queue: queue("limited"), limit: NonZeroU32::new(2) });
    pair.queue_commands(vec![limit, submit(requests)]);
    let [a, b, c] = &lanes;
    let held = [(a, pair.taken(1, 1, a)), (b, pair.taken(1, 2, b))];
    assert_eq!(pair.queue_command(take(2, 3, c)), QueueReply::Taken(None), "the queue is at its limit");
    let silence = Silence { renewals_seen: 2, quiet_micros: 2 * SECOND };
    pair.run(&[Command::Lock(end(1, Cause::Silence(silence)))]);
    pair.store = harness.reopen(pair.store);
    pair.compare();
    assert_eq!(pair.compare_lanes(&taken_by(session(1), 10)).len(), 2);
    for (lane, taken) in held {
        let reclaim = Reclaim { lane: lane.clone(), fence: taken.fence, quiet_micros: 0, retry: Retry::After(0) };
        assert_eq!(pair.queue_command(QueueCommand::Reclaim(reclaim.clone())), QueueReply::Done(true));
        assert_eq!(pair.queue_command(QueueCommand::Reclaim(reclaim)), QueueReply::Done(false));
    }
    let again = pair.taken(2, 4, a);
    assert_eq!(attempts(&again), [(request(0), 2)]);
    pair.taken(2, 5, c);
    assert_eq!(pair.queue_command(take(2, 6, b)), QueueReply::Taken(None));
    pair.compare();
}

/// Q16: more requests than one batch has wait in a lane; they are taken in order over restarts.
pub(super) fn long_lanes_are_worked_in_order(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let path = lane("long", "k");
    pair.run(&[Command::Lock(open(1))]);
    let count = 2 * MAX_BATCH_REQUESTS as u64 + 50;
    let all: Vec<_> = (0..count).map(|number| update(number, &path, pair.now)).collect();
    assert!(all.len() <= MAX_SUBMITTED_REQUESTS);
    pair.queue_command(submit(all));
    pair.queue_commands((0..3).map(|number| QueueCommand::Withdraw(Withdraw { request: request(number) })).collect());
    let mut order = Vec::new();
    for number in 0..3 {
        pair.store = harness.reopen(pair.store);
        let taken = pair.taken(1, number, &path);
        order.extend(taken.requests.iter().map(|taken| taken.request));
        pair.queue_command(settle(worker(1), &path, taken.fence, WorkOutcome::Completed));
        pair.compare();
    }
    assert_eq!(order, (3..count).map(request).collect::<Vec<_>>());
    let is_idle = pair.store.lanes(&idle_before(Timestamp::MAX, 2)).expect("lanes can be read").len() == 1;
    assert!(is_idle, "nothing waits any more");
}

/// Q22: the longest names, body and note, and the largest numbers, are stored and returned whole.
pub(super) fn large_rows_are_kept_whole(harness: &mut impl Harness) {
    let mut pair = Pair::new(harness.open());
    let path = lane(&"q".repeat(crate::lock::MAX_NAMESPACE_BYTES), &"é".repeat(crate::lock::MAX_KEY_BYTES / 2));
    let principal = principal(&"p".repeat(MAX_PRINCIPAL_BYTES));
    let terms = Terms::parse(crate::session::MAX_DURATION_MICROS, crate::session::MAX_GRACE_MICROS);
    let (session, terms) = (SessionId(Uuid::max()), terms.expect("the largest terms"));
    let command = crate::locking::open::Open { session, principal: principal.clone(), terms };
    pair.run(&[Command::Lock(LockCommand::Open(command))]);
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(MAX_BODY_BYTES).collect();
    let body = RequestBody::parse(&bytes).expect("the longest body");
    let new = NewRequest {
        request: RequestId(Uuid::max()),
        priority: Priority::parse(MAX_PRIORITY).expect("the highest priority"),
        max_attempts: MAX_ATTEMPTS,
        body: body.clone(),
        ..update(0, &path, pair.now)
    };
    pair.queue_command(submit(vec![new]));
    let (worker, take) = (Worker { session, principal }, TakeId(Uuid::max()));
    let taken = pair.queue_command(QueueCommand::Take(Take {
        worker: worker.clone(),
        take,
        lane: path.clone(),
        size: BatchSize::MAX,
    }));
    let QueueReply::Taken(Some(Taken { fence, .. })) = taken else { unreachable!("the lane is not ready: {taken:?}") };
    let note: Vec<u8> = (0..=u8::MAX).cycle().take(MAX_PROGRESS_BYTES).collect();
    let progress = Progress::parse(&note).expect("the longest note");
    let command = NoteProgress { worker: worker.clone(), lane: path.clone(), fence, progress: progress.clone() };
    pair.queue_command(QueueCommand::NoteProgress(command));
    pair.queue_command(settle(worker, &path, fence, WorkOutcome::GivenBack));
    let limit = LimitQueue { queue: path.queue().clone(), limit: NonZeroU32::new(u32::MAX) };
    pair.queue_command(QueueCommand::LimitQueue(limit));
    pair.store = harness.reopen(pair.store);
    pair.compare();
    let bodies = pair.store.bodies(&[RequestId(Uuid::max())]).expect("bodies can be read");
    assert_eq!(bodies, [Some(body)]);
    let lanes = pair.store.lanes(&ready_of(path.queue(), 1)).expect("lanes can be read");
    let row = lanes.first().map(|(_, lane)| lane).expect("the lane is ready");
    assert_eq!(row.note.as_ref().map(|note| &note.progress), Some(&progress));
    assert!(row.last.as_ref().is_some_and(|last| last.end == HoldEnd::GivenBack));
    assert!(matches!(row.state, LaneState::Waiting(_)) && !row.is_paused);
}
