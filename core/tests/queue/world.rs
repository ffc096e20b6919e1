//! A world that runs the same steps on the model and on the engine with the reference store: once command by command,
//! and once in groups.

use std::num::NonZeroU32;

use leasehold_core::command::{Command, Reply};
use leasehold_core::invariant::check;
use leasehold_core::lease::Fence;
use leasehold_core::locking::end::{Cause, End, Silence};
use leasehold_core::locking::forget::ForgetSession;
use leasehold_core::locking::open::Open;
use leasehold_core::locking::{LockCommand, LockReply};
use leasehold_core::memory::MemoryStore;
use leasehold_core::queue::{
    BatchSize, Lane, LanePath, Priority, Progress, QueuePath, RequestBody, RequestId, RequestKind, RequestState, TakeId,
};
use leasehold_core::queueing::forget::{ForgetLane, ForgetRequest};
use leasehold_core::queueing::limit::LimitQueue;
use leasehold_core::queueing::news::{opened, readied};
use leasehold_core::queueing::note::NoteProgress;
use leasehold_core::queueing::pause::{Pause, PauseScope};
use leasehold_core::queueing::reads::{delayed_of, in_order, ready_of};
use leasehold_core::queueing::reclaim::Reclaim;
use leasehold_core::queueing::retry::Retry;
use leasehold_core::queueing::revise::{Resubmit, Withdraw};
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::submit::{NewRequest, Submit};
use leasehold_core::queueing::take::Take;
use leasehold_core::queueing::{QueueCommand, QueueReply, Worker};
use leasehold_core::rejection::Rejection;
use leasehold_core::rows::{LaneOrder, NetChanges, RowKind, State, Workspace};
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::Transaction;
use uuid::Uuid;

use super::model::{Answer, LANES, Model, New, QUEUE_OF, Settled, Step};

const DURATION: u64 = 2_000_000;
const GRACE: u64 = 500_000;
/// The time at which a world begins: late enough for the head start of every priority.
pub(crate) const START: u64 = 1_000_000_000_000;

pub(crate) fn request(number: u128) -> RequestId {
    RequestId(Uuid::from_u128(1_000 + number))
}

pub(crate) fn take_id(number: u128) -> TakeId {
    TakeId(Uuid::from_u128(2_000 + number))
}

pub(crate) fn queue(number: usize) -> QueuePath {
    QueuePath::parse(&format!("queue.{number}")).unwrap()
}

pub(crate) fn lane(number: usize) -> LanePath {
    LanePath::parse(queue(QUEUE_OF[number]), &format!("k{number}")).unwrap()
}

pub(crate) fn worker(number: u128) -> Worker {
    Worker { session: SessionId(Uuid::from_u128(3_000 + number)), principal: Principal::parse("service").unwrap() }
}

fn retry(after: Option<u64>) -> Retry {
    after.map_or(Retry::Backoff, Retry::After)
}

pub(crate) fn open(number: u128) -> LockCommand {
    let Worker { session, principal } = worker(number);
    LockCommand::Open(Open { session, principal, terms: Terms::parse(DURATION, GRACE).unwrap() })
}

pub(crate) fn new_request(new: &New, now: u64) -> NewRequest {
    NewRequest {
        request: request(new.id),
        lane: lane(new.lane),
        kind: if new.creates { RequestKind::Create } else { RequestKind::Update },
        priority: Priority::parse(new.priority).unwrap(),
        not_before: Timestamp::from_micros(now + new.delay),
        max_attempts: new.most,
        body: RequestBody::parse(new.text.as_bytes()).unwrap(),
    }
}

#[derive(Clone)]
pub(crate) struct World {
    pub store: MemoryStore,
    grouped: MemoryStore,
    pub model: Model,
}

impl Default for World {
    fn default() -> Self {
        let model = Model::at(START);
        Self { store: MemoryStore::default(), grouped: MemoryStore::default(), model }
    }
}

impl World {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.model.now)
    }

    /// Runs a step by itself.
    pub(crate) fn step(&mut self, step: Step) {
        self.run(&[step]);
    }

    /// Runs steps on the model and on both stores, and compares everything. Commands are grouped, as far as no wait is
    /// between them.
    pub(crate) fn run(&mut self, steps: &[Step]) {
        let (mut group, mut expected) = (Vec::new(), Vec::new());
        self.model.now += 1;
        for step in steps {
            let command = self.command(step);
            let now = self.now();
            let answer = self.model.run(step);
            match command {
                Some(command) => {
                    let reply = command.apply(&mut self.store, now).unwrap();
                    assert_eq!(found(&reply), answer, "{step:?}");
                    group.push(command);
                    expected.push(reply);
                }
                None => self.run_grouped(&mut group, &mut expected, now),
            }
            self.compare();
        }
        let now = self.now();
        self.run_grouped(&mut group, &mut expected, now);
    }

    /// Runs a group over a workspace, as a server does.
    fn run_grouped(&mut self, group: &mut Vec<Command>, expected: &mut Vec<Result<Reply, Rejection>>, now: Timestamp) {
        let mut workspace = loaded(&self.grouped, group);
        let replies: Vec<_> = group.iter().map(|command| command.apply(&mut workspace, now).unwrap()).collect();
        assert_eq!(replies, *expected, "{group:?}");
        let changes = workspace.into_changes();
        let before = self.grouped.state().unwrap();
        self.grouped.save(&changes).unwrap();
        check_news(&before, &self.grouped.state().unwrap(), &changes);
        assert_eq!(self.grouped.state().unwrap(), self.store.state().unwrap(), "{group:?}");
        (*group, *expected) = (Vec::new(), Vec::new());
    }

    fn command(&self, step: &Step) -> Option<Command> {
        let lock = |command| Some(Command::Lock(command));
        let end = |id: u128, cause| lock(LockCommand::End(End { session: worker(id).session, cause }));
        let hold =
            |at, age| self.model.hold_of_age(at, age).map_or((999, Fence(0)), |hold| (hold.session, Fence(hold.fence)));
        Some(Command::Queue(match *step {
            Step::Open(id) => return lock(open(id)),
            Step::Close(id) => return end(id, Cause::Close(worker(id).principal)),
            Step::Silence(id, enough) => {
                let quiet_micros = DURATION + GRACE - u64::from(!enough);
                return end(id, Cause::Silence(Silence { renewals_seen: self.model.renewals(id), quiet_micros }));
            }
            Step::Evict(id) => return end(id, Cause::Evict),
            Step::ForgetSession(id) => {
                let forget = ForgetSession { session: worker(id).session, ended_before: Timestamp::MAX };
                return lock(LockCommand::ForgetSession(forget));
            }
            Step::Wait(_) => return None,
            Step::Submit(ref all) => {
                let all = all.iter().map(|new| new_request(new, self.model.now));
                QueueCommand::Submit(Submit::parse(all.collect()).unwrap())
            }
            Step::Take(id, take, at, most) => {
                let size = BatchSize::parse(most).unwrap();
                QueueCommand::Take(Take { worker: worker(id), take: take_id(take), lane: lane(at), size })
            }
            Step::Settle(at, age, how) => {
                let (session, fence) = hold(at, age);
                let outcome = match how {
                    Settled::Completed => WorkOutcome::Completed,
                    Settled::Failed(after) => WorkOutcome::Failed { retry: retry(after) },
                    Settled::GivenBack => WorkOutcome::GivenBack,
                };
                QueueCommand::SettleWork(SettleWork { worker: worker(session), lane: lane(at), fence, outcome })
            }
            Step::Note(at, age, text) => {
                let (session, fence) = hold(at, age);
                let progress = Progress::parse(text.as_bytes()).unwrap();
                QueueCommand::NoteProgress(NoteProgress { worker: worker(session), lane: lane(at), fence, progress })
            }
            Step::Reclaim(at, age, enough, after) => {
                // The former home may renew the session for half of the grace, then its own time begins (K20).
                let quiet_micros = DURATION + GRACE + GRACE / 2 - u64::from(!enough);
                QueueCommand::Reclaim(Reclaim {
                    lane: lane(at),
                    fence: hold(at, age).1,
                    quiet_micros,
                    retry: retry(after),
                })
            }
            Step::Withdraw(id) => QueueCommand::Withdraw(Withdraw { request: request(id) }),
            Step::Resubmit(id) => QueueCommand::Resubmit(Resubmit { request: request(id) }),
            Step::PauseQueue(at, is_paused) => {
                QueueCommand::Pause(Pause { scope: PauseScope::Queue(queue(at)), is_paused })
            }
            Step::PauseLane(at, is_paused) => {
                QueueCommand::Pause(Pause { scope: PauseScope::Lane(lane(at)), is_paused })
            }
            Step::LimitQueue(at, limit) => {
                QueueCommand::LimitQueue(LimitQueue { queue: queue(at), limit: NonZeroU32::new(limit) })
            }
            Step::ForgetRequest(id) => {
                QueueCommand::ForgetRequest(ForgetRequest { request: request(id), settled_before: Timestamp::MAX })
            }
            Step::ForgetLane(at) => {
                QueueCommand::ForgetLane(ForgetLane { lane: lane(at), idle_before: Timestamp::MAX })
            }
        }))
    }

    /// Compares lanes and requests with those of the model, and checks the invariants.
    fn compare(&self) {
        let state = self.store.state().unwrap();
        assert_eq!(check(&state), Ok(()));
        assert_eq!(state.fence, Fence(self.model.fence));
        for (at, expected) in self.model.lanes.iter().enumerate() {
            let open = expected.line.iter().map(|one| (request(one.id), one.tries));
            assert_eq!(open_of(&state, at), open.collect::<Vec<_>>(), "Q07: the order of the lane");
            let row = state.lanes.get(&lane(at));
            let hold = row.and_then(Lane::hold).map(|hold| (hold.session, hold.fence));
            assert_eq!(hold, expected.hold.map(|hold| (worker(hold.session).session, Fence(hold.fence))));
            assert_eq!(row.is_some_and(|row| row.is_paused), expected.paused);
        }
        let ids = (0..20).map(|id| (id, state.requests.get(&request(id)).map(|row| word(row.state))));
        ids.for_each(|(id, found)| assert_eq!(found, self.model.state(id).map(|(state, _)| state), "{id}"));
        (0..2).for_each(|number| {
            let offered: Vec<_> = self.model.offered(number).into_iter().map(lane).collect();
            assert_eq!(self.offered(number), offered, "Q12: the order of lanes");
        });
    }

    /// Returns the lanes that a host offers to workers.
    pub(crate) fn offered(&self, number: usize) -> Vec<LanePath> {
        let ready = self.store.lanes(&ready_of(&queue(number), LANES)).unwrap();
        let due = self.store.lanes(&delayed_of(&queue(number), self.now(), LANES)).unwrap();
        in_order(ready, due)
    }
}

/// Returns a workspace with all rows that a group reads.
pub(crate) fn loaded(store: &MemoryStore, group: &[Command]) -> Workspace {
    let mut workspace = Workspace::new(store.last_fence().unwrap());
    loop {
        let keys = workspace.missing(group);
        if keys.is_empty() {
            return workspace;
        }
        store.load(keys, &mut workspace).unwrap();
    }
}

/// Checks the lanes and queues for which a host wakes workers (Q18).
fn check_news(before: &State, after: &State, changes: &NetChanges) {
    let told: Vec<_> = readied(changes).collect();
    for at in (0..LANES).map(lane) {
        let is_ready = |state: &State| {
            let row = state.lanes.get(&at)?;
            matches!(Lane::position(&at, row), Some(LaneOrder::Ready(..))).then(|| row.last.clone())
        };
        let is_new = is_ready(after).is_some() && is_ready(after) != is_ready(before);
        assert_eq!(told.contains(&&at), is_new);
    }
    let told: Vec<_> = opened(changes).collect();
    for path in (0..2).map(queue) {
        let is_open = |state: &State| state.queues.get(&path).is_none_or(|row| row.is_open());
        assert_eq!(told.contains(&&path), !is_open(before) && is_open(after));
    }
}

/// Returns the requests of a lane that are not settled, in the order of their numbers.
fn open_of(state: &State, at: usize) -> Vec<(RequestId, u32)> {
    let open = state.requests.iter().filter(|(_, row)| row.lane == lane(at) && !row.is_settled());
    let mut open: Vec<_> = open.map(|(id, row)| (row.number, (*id, row.attempts))).collect();
    open.sort();
    open.into_iter().map(|(_, found)| found).collect()
}

fn word(state: RequestState) -> &'static str {
    match state {
        RequestState::New => "new",
        RequestState::InProgress => "in progress",
        RequestState::Complete => "complete",
        RequestState::Error => "error",
    }
}

fn found(reply: &Result<Reply, Rejection>) -> Answer {
    match reply {
        Err(rejection) => Answer::Refused(rejection.reason().code()),
        Ok(Reply::Lock(LockReply::Done(changed))) => Answer::Done(*changed),
        Ok(Reply::Queue(reply)) => found_in_queue(reply),
        Ok(other) => panic!("{other:?}"),
    }
}

fn found_in_queue(reply: &QueueReply) -> Answer {
    let number = |id: RequestId| id.0.as_u128() - 1_000;
    match reply {
        QueueReply::Done(changed) => Answer::Done(*changed),
        QueueReply::Submitted(all) => {
            Answer::Submitted(all.iter().map(|one| (number(one.request), one.is_new)).collect())
        }
        QueueReply::Found(found) => Answer::Found(found.map(word)),
        QueueReply::Taken(None) => Answer::Nothing,
        QueueReply::Taken(Some(taken)) => {
            let requests = taken.requests.iter().map(|taken| (number(taken.request), taken.attempt)).collect();
            let texts = ["half", "more"].into_iter();
            let note = taken
                .progress
                .as_ref()
                .map(|note| texts.clone().find(|text| text.as_bytes() == note.as_bytes()).expect("one of the notes"));
            Answer::Taken(taken.fence.0, requests, note)
        }
    }
}
