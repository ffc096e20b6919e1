//! The queue of the simulated service: the engine's commands over the service's store, and the memory
//! of a host, as in `server/src/queues`. No rule is implemented here a second time.
//!
//! The host offers ready lanes to the workers that wait, in the order of the takes. It proposes to
//! take lanes back from sessions that have ended, and the engine decides.
//!
//! The compiler would inline many of these functions at each call, and the WebAssembly file would grow
//! by tens of kilobytes: `inline(never)` keeps them apart.
//!
//! If a rule is switched off, the host changes rows before or after the engine's command: see
//! [`Service::forget_holds`], [`Service::uncount_attempts`] and [`Service::settle_batch`].

use leasehold_core::invariant::QueueRows;
use leasehold_core::lease::Fence;
use leasehold_core::queue::{
    BatchSize, Head, HoldEnd, Lane, LaneHold, LanePath, LaneState, Priority, Request, RequestBody, RequestId,
    RequestKind, TakeId,
};
use leasehold_core::queueing::reads::{all_taken, delayed_of, in_order, ready_of, taken_by, taken_of, waiting_of};
use leasehold_core::queueing::reclaim::{Reclaim, reclaim};
use leasehold_core::queueing::retry::Retry;
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome, settle_work};
use leasehold_core::queueing::submit::{NewRequest, Submit, submit};
use leasehold_core::queueing::take::{Take, take};
use leasehold_core::queueing::{QueueCommand, QueueReply, Worker};
use leasehold_core::rejection::{Detail, Reason, Rejection};
use leasehold_core::rows::{Changes, OrderedRead};
use leasehold_core::session::SessionId;
use leasehold_core::table::{RequestEvent, RequestStatus};
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{BrokenState, Transaction};
use leasehold_core::update::Answer;

use super::Service;
use super::locks::{LockContext, Proposal, RecordingStore};
use crate::effects::{SettleReply, Transition};
use crate::lock_message::LockAnswer;
use crate::lock_names::cell_of;
use crate::network::{MessageId, Response};
use crate::queue_message::{Batch, BatchOutcome, QueueAnswer, QueueRequest, WorkKind};
use crate::queue_names::{request_id, request_number};
use crate::queue_truth::HoldTruth;
use crate::settings::{LockSettings, Rule};

/// The largest number of attempts of a request.
pub const MAX_ATTEMPTS: u32 = 2;
/// The most lanes that one read returns: more than a world has.
const LANES: usize = 16;

/// A take that waits for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenTake {
    id: MessageId,
    session: SessionId,
    take: TakeId,
}

/// A session that has ended and may still hold lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LostSession {
    session: SessionId,
    /// The number of the tick before which the host saw the end.
    since: u64,
    /// True if the worker may be at work for a while, because an operator has evicted its session.
    is_withheld: bool,
}

/// The service's memory of its queue, which a stop of the service erases.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueHost {
    takes: Vec<OpenTake>,
    lost: Vec<LostSession>,
}

impl QueueHost {
    pub(super) fn hash(&self, ticks: u64, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        self.takes.hash(hasher);
        self.lost.iter().for_each(|lost| (lost.session, ticks - lost.since, lost.is_withheld).hash(hasher));
    }

    pub(super) fn is_attended(&self, cell: u8) -> bool {
        self.takes.iter().any(|take| take.id.cell() == cell)
    }

    pub(super) fn close_calls(&mut self, cell: u8) {
        self.takes.retain(|take| take.id.cell() != cell);
    }

    pub(super) fn lose(&mut self, session: SessionId, ticks: u64) {
        if !self.lost.iter().any(|lost| lost.session == session) {
            self.lost.push(LostSession { session, since: ticks, is_withheld: false });
        }
    }
}

impl LostSession {
    /// Returns the proposal to take back a lane, `None` if the worker may still be at work.
    fn proposal(self, lane: LanePath, hold: &LaneHold, ticks: u64, terms: LockSettings) -> Option<Proposal> {
        // The session may have ended shortly before the first tick, so that tick does not count.
        let quiet_ticks = ticks.saturating_sub(self.since + 1);
        let quiet_micros = quiet_ticks * u64::from(terms.tick_millis) * 1000;
        let may_end = !self.is_withheld || quiet_micros >= hold.withholding_micros;
        let reclaim = Reclaim { lane, fence: hold.fence, quiet_micros, retry: Retry::Backoff };
        may_end.then_some(Proposal::Reclaim(reclaim))
    }
}

impl Service {
    /// Answers a request about the queue, or notes it for a later answer. `is_open` is true if the
    /// caller still waits for this call.
    pub fn receive_queue(
        &mut self,
        id: MessageId,
        request: QueueRequest,
        is_open: bool,
        context: &mut LockContext<'_>,
    ) {
        let answer = match request {
            QueueRequest::Submit { number, attempt, lane, kind } => self.submit(number, attempt, (lane, kind), context),
            // Nothing is taken for a caller that is gone, since nobody would work on it.
            QueueRequest::Take { .. } if !is_open => return,
            QueueRequest::Take { session, take, waits } => {
                let open = OpenTake { id, session, take };
                match self.try_take(open, context) {
                    Some(answer) => Some(answer),
                    None if waits => {
                        self.locks.iter_mut().for_each(|host| host.queue.takes.push(open));
                        None
                    }
                    None => Some(Response::Queue(QueueAnswer::Nothing)),
                }
            }
            QueueRequest::Settle { session, batch, outcome } => self.settle_batch(session, batch, outcome, context),
        };
        self.respond(id, answer);
        self.serve_waiting(context);
    }

    #[inline(never)]
    fn respond(&mut self, id: MessageId, answer: Option<Response>) {
        if let (Some(answer), Some(host)) = (answer, &mut self.locks) {
            host.answers.push((id, answer));
        }
    }

    fn submit(
        &mut self,
        number: u32,
        attempt: u8,
        (lane, kind): (u8, WorkKind),
        context: &mut LockContext<'_>,
    ) -> Option<Response> {
        let new = NewRequest {
            request: request_id(number, attempt, context.rules_off),
            lane: context.queue.path_for(lane, kind, context.rules_off)?.clone(),
            kind: if kind == WorkKind::Create { RequestKind::Create } else { RequestKind::Update },
            priority: Priority::default(),
            not_before: context.now,
            max_attempts: MAX_ATTEMPTS,
            body: RequestBody::default(),
        };
        let command = Submit::parse(vec![new]).ok()?;
        Some(match self.decide_queue(&QueueCommand::Submit(command), context) {
            Ok(QueueReply::Submitted(submitted)) => {
                let submitted = submitted.first()?;
                if submitted.is_new && !context.truth.add(number) {
                    context.effects.doubled = Some(number);
                }
                Response::Queue(QueueAnswer::Submitted(request_number(submitted.request)))
            }
            decided => refusal(decided),
        })
    }

    /// Takes the first requests of a lane: of one that the session holds by this take, else of the
    /// first that is ready. Returns `None` if no lane is ready.
    #[inline(never)]
    fn try_take(&mut self, open: OpenTake, context: &mut LockContext<'_>) -> Option<Response> {
        self.forget_holds(context);
        let held = self.store.first::<Lane>(&taken_by(open.session, LANES)).unwrap_or_default();
        let ready = self.first_lanes(&ready_of(&context.queue.queue, LANES));
        let due = self.first_lanes(&delayed_of(&context.queue.queue, context.now, LANES));
        for lane in held.into_iter().chain(in_order(ready, due)) {
            let worker = Worker { session: open.session, principal: context.names.principal.clone() };
            let command = Take { worker, take: open.take, lane: lane.clone(), size: BatchSize::MAX };
            match self.decide_queue(&QueueCommand::Take(command), context) {
                Ok(QueueReply::Taken(Some(taken))) => {
                    let requests = taken.requests.iter().map(|taken| request_number(taken.request)).collect();
                    return self.taken(open, &lane, taken.fence, requests, context);
                }
                Ok(_) => {}
                decided => return Some(refusal(decided)),
            }
        }
        None
    }

    #[inline(never)]
    fn first_lanes(&self, read: &OrderedRead<Lane>) -> Vec<(LanePath, Lane)> {
        let paths = self.store.first(read).unwrap_or_default();
        paths.into_iter().filter_map(|path| Some((path.clone(), self.lane(&path)?.clone()))).collect()
    }

    fn taken(
        &self,
        open: OpenTake,
        path: &LanePath,
        fence: Fence,
        requests: Vec<u32>,
        context: &mut LockContext<'_>,
    ) -> Option<Response> {
        let lane = context.queue.number(path)?;
        let kinds = || requests.iter().filter_map(|number| context.truth.request(*number)).map(|truth| truth.kind);
        let kind = kinds().find(|kind| *kind == WorkKind::Poison).or_else(|| kinds().next())?;
        let batch = Batch { lane, fence, count: requests.len() as u8, kind };
        let cell = cell_of(open.session);
        context.truth.take(HoldTruth { fence, lane, cell, requests: requests.into(), settled: None });
        Some(Response::Queue(QueueAnswer::Taken(batch)))
    }

    /// Gives ready lanes to the workers that wait, in the order of their takes (Q18).
    #[inline(never)]
    pub(super) fn serve_waiting(&mut self, context: &mut LockContext<'_>) {
        let waiting = self.locks.as_ref().map(|host| host.queue.takes.clone()).unwrap_or_default();
        for open in waiting {
            let answer = self.try_take(open, context);
            if answer.is_some() {
                self.locks.iter_mut().for_each(|host| host.queue.takes.retain(|other| *other != open));
            }
            self.respond(open.id, answer);
        }
    }

    /// Settles what a worker has taken. Without the rule of the settle's fence, the engine gets the
    /// hold that the lane has, whoever it belongs to. Without the rule of the settle's memory, the lane
    /// forgets the hold that has ended.
    fn settle_batch(
        &mut self,
        session: SessionId,
        batch: Batch,
        outcome: BatchOutcome,
        context: &mut LockContext<'_>,
    ) -> Option<Response> {
        let (mut session, mut fence, cell) = (session, batch.fence, cell_of(session));
        let path = context.queue.path_for(batch.lane, batch.kind, context.rules_off)?.clone();
        let hold = self.lane(&path).and_then(Lane::hold).cloned();
        if let Some(hold) = hold.filter(|_| !context.rules_off.is_on(Rule::SettleFence)) {
            (session, fence) = (hold.session, hold.fence);
        }
        let command = SettleWork {
            worker: Worker { session, principal: context.names.principal.clone() },
            lane: path.clone(),
            fence,
            outcome: match outcome {
                BatchOutcome::Completed => WorkOutcome::Completed,
                BatchOutcome::Failed => WorkOutcome::Failed { retry: Retry::Backoff },
                BatchOutcome::GivenBack => WorkOutcome::GivenBack,
            },
        };
        let decided = self.decide_queue(&QueueCommand::SettleWork(command), context);
        let is_refused = decided.as_ref().is_err_and(|rejection| rejection.reason() == Reason::FencePassed);
        context.effects.settle_reply = Some(SettleReply { cell, fence: batch.fence, outcome, is_refused });
        Some(match decided {
            Ok(reply) => {
                if reply == QueueReply::Done(true) {
                    context.truth.settle(batch.fence, outcome);
                    self.forget_settle(&path, context);
                }
                Response::Queue(QueueAnswer::Settled)
            }
            decided => refusal(decided),
        })
    }

    /// Makes a lane forget its last hold, if the rule of the settle's memory is off.
    fn forget_settle(&mut self, path: &LanePath, context: &LockContext<'_>) {
        let lane = self.lane(path).filter(|_| !context.rules_off.is_on(Rule::SettleMemory)).cloned();
        let lanes = lane.map(|lane| (path.clone(), Some(Lane { last: None, ..lane })));
        self.overwrite(Changes { lanes: lanes.into_iter().collect(), ..Changes::default() });
    }

    /// Makes lanes forget their workers while requests wait, if the rule of one worker is off.
    fn forget_holds(&mut self, context: &LockContext<'_>) {
        if context.rules_off.is_on(Rule::OneWorker) {
            return;
        }
        let mut lanes = Vec::new();
        for path in self.store.first::<Lane>(&all_taken(LANES)).unwrap_or_default() {
            let first = self.store.first::<Request>(&waiting_of(&path, 1)).unwrap_or_default();
            let first = first.first().and_then(|id| self.request(*id));
            let state = first.map(|request| LaneState::Waiting(Head::of(request)));
            let lane = self.lane(&path).cloned().zip(state);
            lanes.extend(lane.map(|(lane, state)| (path, Some(Lane { state, ..lane }))));
        }
        self.overwrite(Changes { lanes, ..Changes::default() });
    }

    /// Takes back the attempts of the requests that a lost worker has taken, if the rule of the early
    /// count is off.
    pub(super) fn uncount_attempts(&mut self, lane: &LanePath, context: &LockContext<'_>) {
        if context.rules_off.is_on(Rule::EarlyCount) {
            return;
        }
        let taken = self.store.first::<Request>(&taken_of(lane)).unwrap_or_default();
        let rows = taken.into_iter().filter_map(|id| Some((id, self.request(id)?.clone())));
        let uncounted = |request: Request| Request { attempts: request.attempts.saturating_sub(1), ..request };
        let requests = rows.map(|(id, request)| (id, Some(uncounted(request)))).collect();
        self.overwrite(Changes { requests, ..Changes::default() });
    }

    /// Writes rows without the engine. The reference store never fails.
    #[inline(never)]
    fn overwrite(&mut self, changes: Changes) {
        _ = Transaction::write(&mut self.store, changes);
    }

    /// Proposes to take lanes back from the sessions that have ended (Q03, Q11).
    #[inline(never)]
    pub(super) fn propose_reclaims(&mut self, context: &LockContext<'_>) {
        let Some(mut host) = self.locks.take() else { return };
        let mut lost = std::mem::take(&mut host.queue.lost);
        lost.retain(|lost| {
            let lanes = self.first_lanes(&taken_by(lost.session, LANES));
            for (path, lane) in &lanes {
                let proposal =
                    lane.hold().and_then(|hold| lost.proposal(path.clone(), hold, host.ticks, context.terms));
                let proposal = proposal.filter(|proposal| !host.proposals.contains(proposal));
                host.proposals.extend(proposal);
            }
            !lanes.is_empty()
        });
        host.queue.lost = lost;
        self.locks = Some(host);
    }

    /// Has the engine decide the proposal to take a lane back.
    pub(super) fn decide_reclaim(&mut self, command: Reclaim, context: &mut LockContext<'_>) {
        let session = self.lane(&command.lane).and_then(Lane::hold).map(|hold| hold.session);
        self.uncount_attempts(&command.lane, context);
        let decided = self.decide_queue(&QueueCommand::Reclaim(command), context);
        let (Err(rejection), Some(host), Some(session)) = (decided, &mut self.locks, session) else { return };
        let lost = &mut host.queue.lost;
        match rejection.reason() {
            Reason::LockWithheld => {
                let lost = lost.iter_mut().filter(|lost| lost.session == session);
                lost.for_each(|lost| lost.is_withheld = true);
            }
            // A late copy of an open has opened the session again, after the service had forgotten it.
            Reason::SessionAlive => lost.retain(|lost| lost.session != session),
            _ => {}
        }
    }

    /// Finds the sessions that have ended and still hold lanes, when the service starts.
    pub(super) fn find_lost(&mut self) {
        let taken = self.first_lanes(&all_taken(LANES));
        let sessions = taken.iter().filter_map(|(_, lane)| Some(lane.hold()?.session));
        let ended: Vec<_> = sessions.filter(|id| !self.session(*id).is_some_and(|session| session.is_live())).collect();
        let Some(host) = &mut self.locks else { return };
        ended.into_iter().for_each(|session| host.queue.lose(session, host.ticks));
    }

    /// Returns every row of queues.
    #[inline(never)]
    pub fn queue_rows(&self) -> QueueRows<'_> {
        QueueRows {
            locks: self.lock_rows(),
            queues: self.store.sorted_rows(),
            lanes: self.store.sorted_rows(),
            requests: self.store.sorted_rows(),
        }
    }

    /// Returns the lane with this path, `None` if it has no row.
    #[inline(never)]
    pub fn lane(&self, path: &LanePath) -> Option<&Lane> {
        Transaction::row(&self.store, path).ok().flatten()
    }

    /// Returns the request with this id, `None` if it has no row.
    #[inline(never)]
    pub fn request(&self, id: RequestId) -> Option<&Request> {
        Transaction::row(&self.store, &id).ok().flatten()
    }

    /// Returns every request with its id, in the order of the ids.
    #[inline(never)]
    pub fn requests(&self) -> Vec<(&RequestId, &Request)> {
        self.store.sorted_rows().iter().collect()
    }

    /// Returns every lane with its path, in the order of the paths.
    #[inline(never)]
    pub fn lanes(&self) -> Vec<(&LanePath, &Lane)> {
        self.store.sorted_rows().iter().collect()
    }

    #[inline(never)]
    fn decide_queue(&mut self, command: &QueueCommand, context: &mut LockContext<'_>) -> Result<QueueReply, Rejection> {
        let now = context.now;
        let mut decided = Err(Rejection::whole(Reason::SessionNotFound, Detail::None));
        self.record(context, &mut |store| {
            if let Ok(answer) = apply(command, store, now) {
                decided = answer;
            }
        });
        decided
    }
}

/// Does the same as [`QueueCommand::apply`] for the commands that the world plays. Its WebAssembly
/// shall have no code for the rest.
fn apply<T: Transaction>(command: &QueueCommand, tx: &mut T, now: Timestamp) -> Answer<QueueReply, T::Error> {
    Ok(match command {
        QueueCommand::Submit(command) => submit(tx, command, now)?.map(QueueReply::Submitted),
        QueueCommand::Take(command) => take(tx, command, now)?.map(QueueReply::Taken),
        QueueCommand::SettleWork(command) => settle_work(tx, command, now)?.map(QueueReply::Done),
        QueueCommand::Reclaim(command) => reclaim(tx, command, now)?.map(QueueReply::Done),
        QueueCommand::NoteProgress(_)
        | QueueCommand::Withdraw(_)
        | QueueCommand::Resubmit(_)
        | QueueCommand::Pause(_)
        | QueueCommand::LimitQueue(_)
        | QueueCommand::ForgetRequest(_)
        | QueueCommand::ForgetLane(_) => Err(Rejection::whole(Reason::FencePassed, Detail::None)),
    })
}

fn refusal(decided: Result<QueueReply, Rejection>) -> Response {
    let reason = decided.map_or_else(|rejection| rejection.reason(), |_| Reason::FencePassed);
    Response::Lock(LockAnswer::Refused(reason))
}

impl RecordingStore<'_, '_> {
    /// Notes the transitions of requests that a command writes.
    pub(super) fn note_requests(&mut self, changes: &Changes) -> Result<(), BrokenState> {
        for (id, after) in &changes.requests {
            let before = self.store.row::<Request>(id)?;
            let (from, to) = (RequestStatus::of(before), RequestStatus::of(after.as_ref()));
            let path = after.as_ref().or(before).map(|request| &request.lane);
            let lane = changes.lanes.iter().find(|(lane, _)| Some(lane) == path).and_then(|(_, lane)| lane.as_ref());
            let end = lane.and_then(|lane| lane.last.as_ref()).map(|last| last.end);
            let request = request_number(*id);
            let transition = request_event(from, to, end).map(|event| Transition::Request { request, from, event, to });
            self.context.effects.transitions.extend(transition);
        }
        self.context.effects.has_queue_changes |= !changes.lanes.is_empty();
        Ok(())
    }
}

/// Returns the event between two states of a request, as the engine's table names it. `end` is the
/// end of the lane's last hold.
fn request_event(from: RequestStatus, to: RequestStatus, end: Option<HoldEnd>) -> Option<RequestEvent> {
    use RequestStatus::{Absent, Complete, Error, InProgress, New};
    Some(match (from, to, end) {
        (Absent, New, _) => RequestEvent::Submit,
        (New, InProgress, _) => RequestEvent::Take,
        (InProgress, Complete, _) => RequestEvent::Complete,
        (InProgress, New, Some(HoldEnd::GivenBack)) => RequestEvent::GiveBack,
        (InProgress, New, Some(HoldEnd::Failed)) => RequestEvent::Fail,
        (InProgress, Error, Some(HoldEnd::Failed)) => RequestEvent::FailLast,
        (InProgress, New, _) => RequestEvent::Silence,
        (InProgress, Error, _) => RequestEvent::SilenceLast,
        _ => return None,
    })
}
