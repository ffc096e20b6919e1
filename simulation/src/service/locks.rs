//! Sessions and locks of the simulated service: the engine's commands over the service's store, and
//! the memory of a host, as in `server/src/locks`. No rule is implemented here a second time.
//!
//! The host learns of changes only from the rows that commands have written. It counts ticks,
//! proposes the ends of silent sessions and of elapsed withholdings, and lets an ask leave that no
//! call has attended to for ten seconds (K09). The engine decides each proposal.

use leasehold_core::invariant::LockRows;
use leasehold_core::lease::Fence;
use leasehold_core::lock::{Ask, AskId, AskState, Grant, Lock, LockPath, LockState, LockValue};
use leasehold_core::locking::acquire::{Acquire, Acquired, acquire};
use leasehold_core::locking::elapse::elapse;
use leasehold_core::locking::end::{Cause, End, Silence, end};
use leasehold_core::locking::force::{Force, force};
use leasehold_core::locking::forget::{ForgetLock, ForgetSession, forget_lock, forget_session};
use leasehold_core::locking::leave::{Leave, leave};
use leasehold_core::locking::open::{Open, open};
use leasehold_core::locking::release::{Release, ReleaseOutcome, release};
use leasehold_core::locking::renew::{Renew, renew};
use leasehold_core::locking::{LockCommand, LockReply};
use leasehold_core::memory::MemoryStore;
use leasehold_core::observer::{Observer, Renewal};
use leasehold_core::queueing::reclaim::Reclaim;
use leasehold_core::rejection::{Detail, Reason, Rejection};
use leasehold_core::rows::{Changes, Kind, OrderedRead};
use leasehold_core::session::{Session, SessionId, Terms};
use leasehold_core::table::{LockEvent, LockStatus, SessionEvent, SessionStatus};
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{BrokenState, Transaction};
use leasehold_core::update::Answer;

use super::Service;
use super::queues::QueueHost;
use crate::effects::{Effects, Transition};
use crate::lock_message::{LockAnswer, LockRequest};
use crate::lock_names::LockNames;
use crate::network::{MessageId, Response};
use crate::queue_names::QueueNames;
use crate::queue_truth::QueueTruth;
use crate::settings::{LockSettings, Rule, RulesOff};

/// The time for which an ask that no call attends to keeps its place or its grant, in milliseconds.
const TAKE_UP_MILLIS: u32 = 10_000;
/// The most ends of sessions and of withholdings that one tick proposes, of each.
const PROPOSALS_PER_TICK: usize = 256;
/// The grace without the rule of the grace, in microseconds: the least that the engine allows.
const NO_GRACE_MICROS: u64 = leasehold_core::session::MIN_GRACE_MICROS;

/// The facts and the records of the world that a command of sessions and locks needs.
pub struct LockContext<'a> {
    /// The time by the service's wall clock, which may have jumped.
    pub now: Timestamp,
    /// The terms of every session.
    pub terms: LockSettings,
    /// The rules that are switched off.
    pub rules_off: RulesOff,
    /// The names of the locks.
    pub names: &'a LockNames,
    /// The names of the queue.
    pub queue: &'a QueueNames,
    /// The true history of the queue, to which a command adds its part.
    pub truth: &'a mut QueueTruth,
    /// The changes made by the present event, to which a command adds its own.
    pub effects: &'a mut Effects,
}

impl LockContext<'_> {
    fn parsed_terms(&self) -> Result<Terms, Rejection> {
        let micros = crate::database::micros;
        let grace = match self.rules_off.is_on(Rule::Grace) {
            true => micros(self.terms.grace_seconds),
            false => NO_GRACE_MICROS,
        };
        Terms::parse(micros(self.terms.duration_seconds), grace)
    }
}

/// An ask whose caller does not know yet what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenAsk {
    ask: AskId,
    session: SessionId,
    /// The request of the call that attends to the ask, `None` if no call does.
    call: Option<MessageId>,
    /// The number of the tick at which the last call ended, or at which the ask was granted.
    since: u64,
}

/// A request that waits. `is_open` is true if its caller still waits for the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Deferred {
    id: MessageId,
    request: LockRequest,
    is_open: bool,
}

/// The date of a session's last renewal, which decides its end if a rule is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DatedRenewal {
    session: SessionId,
    renewals: u64,
    at: Timestamp,
    silence_micros: u64,
}

/// A change of a row that the host learns of.
pub(super) enum RowNews {
    Session { id: SessionId, live: Option<(Terms, u64)>, is_moved: bool },
    Lock(LockPath, LockState),
    Forced(Grant),
    Granted { ask: AskId, session: SessionId, fence: Fence },
    Over(AskId),
}

/// A command that the host proposes, and that the engine decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proposal {
    /// The end of a session or of a withholding, or a leave.
    Lock(LockCommand),
    /// Take a lane back from a session that has ended.
    Reclaim(Reclaim),
}

/// The service's memory of sessions and locks, which a stop of the service erases.
#[derive(Clone, Debug)]
pub struct LockHost {
    observer: Observer,
    pub(super) ticks: u64,
    /// The commands that the last tick has proposed and the engine has not decided.
    pub(super) proposals: Vec<Proposal>,
    asks: Vec<OpenAsk>,
    /// The requests that wait until the proposed end of their session or ask is decided.
    deferred: Vec<Deferred>,
    dates: Vec<DatedRenewal>,
    pub(super) answers: Vec<(MessageId, Response)>,
    pub(super) queue: QueueHost,
}

impl LockHost {
    /// Creates the memory of a service that has just started and knows no session.
    pub fn new(terms: LockSettings) -> Self {
        Self {
            observer: Observer::new(u64::from(terms.tick_millis) * 1000),
            ticks: 0,
            proposals: Vec::new(),
            asks: Vec::new(),
            deferred: Vec::new(),
            dates: Vec::new(),
            answers: Vec::new(),
            queue: QueueHost::default(),
        }
    }

    /// Returns the number of proposals that the engine has not decided.
    pub fn undecided(&self) -> usize {
        self.proposals.len()
    }

    /// Returns the watched sessions in the order of their ids. Each has the number of ticks since its
    /// last renewal, and true if its end is proposed.
    pub fn silences(&self) -> Vec<(SessionId, u64, bool)> {
        self.observer.silences()
    }

    /// Returns true if a call of this cell's client waits for the grant of a lock, or for a batch.
    pub fn is_attended(&self, cell: u8) -> bool {
        self.queue.is_attended(cell) || self.asks.iter().any(|open| open.call.is_some_and(|id| id.cell() == cell))
    }

    /// Adds to a hash everything that influences the host's future, but the grants that an operator
    /// took: the explorer plays no force.
    pub(crate) fn hash(&self, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        self.observer.silences().hash(hasher);
        self.observer.withheld().hash(hasher);
        for proposal in &self.proposals {
            match proposal {
                Proposal::Lock(LockCommand::End(end)) => end.session.hash(hasher),
                Proposal::Lock(LockCommand::Elapse(elapse)) => elapse.fence.hash(hasher),
                Proposal::Lock(LockCommand::Leave(leave)) => leave.ask.hash(hasher),
                Proposal::Lock(_) => {}
                Proposal::Reclaim(reclaim) => reclaim.fence.hash(hasher),
            }
        }
        self.queue.hash(self.ticks, hasher);
        (&self.deferred, &self.dates).hash(hasher);
        // The number of ticks since then matters only if no call attends.
        let silence = |open: &OpenAsk| open.call.map_or(self.ticks - open.since, |_| 0);
        self.asks.iter().for_each(|open| (open.ask, open.call, silence(open)).hash(hasher));
    }

    fn answer(&mut self, id: MessageId, answer: LockAnswer) {
        self.answers.push((id, Response::Lock(answer)));
    }

    fn watch(&mut self, id: SessionId, terms: Terms, renewals: u64, at: Timestamp, is_dated: bool) {
        self.observer.watch(id, terms, renewals);
        if is_dated {
            self.dates.retain(|dated| dated.session != id);
            self.dates.push(DatedRenewal { session: id, renewals, at, silence_micros: terms.silence_micros() });
        }
    }

    fn follow(&mut self, news: RowNews, context: &LockContext<'_>) {
        match news {
            RowNews::Session { id, live: Some((terms, renewals)), is_moved: true } => {
                let is_dated = !context.rules_off.is_on(Rule::ObservedSilence);
                self.watch(id, terms, renewals, context.now, is_dated);
            }
            RowNews::Session { live: Some(_), .. } => {}
            RowNews::Session { id, live: None, .. } => self.unwatch(id),
            RowNews::Lock(path, LockState::Withheld(withholding)) => self.observer.watch_lock(path, withholding),
            RowNews::Lock(path, _) => self.observer.unwatch_lock(&path),
            RowNews::Forced(grant) => self.observer.force(grant.session, grant.fence),
            RowNews::Granted { ask, session, fence } => self.tell(ask, session, fence),
            RowNews::Over(ask) => {
                self.refuse(ask, Reason::SessionEnded);
            }
        }
    }

    fn unwatch(&mut self, id: SessionId) {
        self.observer.unwatch(id);
        self.queue.lose(id, self.ticks);
        self.dates.retain(|dated| dated.session != id);
    }

    /// Forgets an ask, and returns the call that attends to it.
    fn take_call(&mut self, ask: AskId) -> Option<MessageId> {
        let at = self.asks.iter().position(|open| open.ask == ask)?;
        self.asks.remove(at).call
    }

    /// Notes that no call attends to an ask from now on, unless the ask is noted already.
    fn leave_unattended(&mut self, ask: AskId, session: SessionId) {
        if !self.asks.iter().any(|open| open.ask == ask) {
            self.asks.push(OpenAsk { ask, session, call: None, since: self.ticks });
        }
    }

    /// Tells the call that attends to an ask that there is no ask.
    fn refuse(&mut self, ask: AskId, reason: Reason) {
        if let Some(id) = self.take_call(ask) {
            self.answer(id, LockAnswer::Refused(reason));
        }
    }

    /// Tells a grant to the call that attends to the ask. If there is none, the ask must be taken up
    /// soon.
    fn tell(&mut self, ask: AskId, session: SessionId, fence: Fence) {
        match self.take_call(ask) {
            Some(id) => self.answer(id, LockAnswer::Holding(fence)),
            None => self.leave_unattended(ask, session),
        }
    }

    /// True if a leave of the ask is proposed and not decided. No call attends to the ask before: it
    /// would be told a grant that ends (K06).
    fn is_leaving(&self, ask: AskId) -> bool {
        self.proposals
            .iter()
            .any(|proposal| matches!(proposal, Proposal::Lock(LockCommand::Leave(leave)) if leave.ask == ask))
    }

    /// Begins the attendance of a call to its ask.
    fn attend(&mut self, ask: AskId, session: SessionId, id: MessageId) {
        self.take_call(ask);
        self.asks.push(OpenAsk { ask, session, call: Some(id), since: self.ticks });
    }

    fn renew(&mut self, id: SessionId, context: &LockContext<'_>) -> Renewal {
        let renewal = self.observer.renew(id);
        if renewal == Renewal::Renewed && context.rules_off.is_on(Rule::ObservedSilence) {
            self.dates.retain(|dated| dated.session != id);
        } else if renewal == Renewal::Renewed {
            self.dates.iter_mut().filter(|dated| dated.session == id).for_each(|dated| dated.at = context.now);
        }
        renewal
    }

    /// Counts a tick, and notes what the host proposes.
    fn tick(&mut self, context: &LockContext<'_>) {
        self.ticks += 1;
        self.observer.tick();
        let silent = self.observer.silent(PROPOSALS_PER_TICK).into_iter().map(LockCommand::End);
        self.proposals.extend(silent.map(Proposal::Lock));
        let elapsed = self.observer.elapsed(PROPOSALS_PER_TICK).into_iter().map(LockCommand::Elapse);
        self.proposals.extend(elapsed.map(Proposal::Lock));
        let dated = self.dated_ends(context.now).into_iter().map(LockCommand::End);
        self.proposals.extend(dated.map(Proposal::Lock));
        let leaves = self.due_leaves(context).into_iter().map(LockCommand::Leave);
        self.proposals.extend(leaves.map(Proposal::Lock));
    }

    /// Returns the ends of sessions by their dates. There are none while all rules are on.
    fn dated_ends(&mut self, now: Timestamp) -> Vec<End> {
        let is_due = |dated: &DatedRenewal| now.micros_since(dated.at) >= dated.silence_micros;
        let due: Vec<_> = self.dates.iter().copied().filter(is_due).collect();
        self.dates.retain(|dated| !is_due(dated));
        let end = |dated: DatedRenewal| {
            let quiet_micros = now.micros_since(dated.at);
            let silence = Silence { renewals_seen: dated.renewals, quiet_micros };
            End { session: dated.session, cause: Cause::Silence(silence) }
        };
        due.into_iter().map(end).collect()
    }

    fn due_leaves(&mut self, context: &LockContext<'_>) -> Vec<Leave> {
        let ticks = u64::from(TAKE_UP_MILLIS / context.terms.tick_millis);
        let now = self.ticks;
        let is_due = |open: &OpenAsk| open.call.is_none() && now - open.since > ticks;
        let due: Vec<_> = self.asks.iter().copied().filter(is_due).collect();
        self.asks.retain(|open| !is_due(open));
        let principal = &context.names.principal;
        let leave = |OpenAsk { session, ask, .. }| Leave { session, principal: principal.clone(), ask };
        due.into_iter().map(leave).collect()
    }
}

impl Service {
    /// Answers a request about sessions and locks, or notes it for a later answer. `is_open` is true
    /// if the caller still waits for this call.
    pub fn receive_lock(&mut self, id: MessageId, request: LockRequest, is_open: bool, context: &mut LockContext<'_>) {
        let principal = context.names.principal.clone();
        let answer = match request {
            LockRequest::Open(session) => self.open_session(session, id, context),
            LockRequest::Renew(session) => self.renew_session(session, id, context),
            LockRequest::Close(session) => {
                let end = End { session, cause: Cause::Close(principal) };
                Some(self.run(LockCommand::End(end), context))
            }
            // No acquire is begun for a caller that is gone, since nobody may let its ask leave.
            LockRequest::Acquire { .. } if !is_open => return,
            LockRequest::Acquire { session, ask, lock } => return self.acquire(id, (session, ask, lock), context),
            LockRequest::Release { session, lock, fence } => {
                let Some(lock) = context.names.path(lock).cloned() else { return };
                let (outcome, value) = (ReleaseOutcome::Succeeded, LockValue::default());
                let release = Release { session, principal, lock, fence, outcome, value };
                Some(self.run(LockCommand::Release(release), context))
            }
            LockRequest::Leave { session, ask } => {
                Some(self.run(LockCommand::Leave(Leave { session, principal, ask }), context))
            }
        };
        if let (Some(answer), Some(host)) = (answer, &mut self.locks) {
            host.answer(id, answer);
        }
    }

    fn open_session(&mut self, session: SessionId, id: MessageId, context: &mut LockContext<'_>) -> Option<LockAnswer> {
        let terms = match context.parsed_terms() {
            Ok(terms) => terms,
            Err(rejection) => return Some(LockAnswer::Refused(rejection.reason())),
        };
        let open = Open { session, principal: context.names.principal.clone(), terms };
        match self.decide(&LockCommand::Open(open), context) {
            // The client of a repeated call counts the duration from this call.
            Ok(LockReply::Done(false)) => self.renew_session(session, id, context),
            decided => Some(answer_of(decided)),
        }
    }

    /// Renews a session in memory. A session that the host does not know is renewed by a write, which
    /// tells a session that has moved here from one that has ended. Returns `None` if the answer has
    /// to wait.
    fn renew_session(
        &mut self,
        session: SessionId,
        id: MessageId,
        context: &mut LockContext<'_>,
    ) -> Option<LockAnswer> {
        let host = self.locks.as_mut()?;
        match host.renew(session, context) {
            Renewal::Renewed => Some(LockAnswer::Renewed(host.observer.forced(session).next_back())),
            Renewal::EndProposed => {
                host.deferred.push(Deferred { id, request: LockRequest::Renew(session), is_open: true });
                None
            }
            // The service knows every live session, so the command is refused.
            Renewal::Unknown => {
                let renew = Renew { session, principal: context.names.principal.clone() };
                Some(self.run(LockCommand::Renew(renew), context))
            }
        }
    }

    fn acquire(
        &mut self,
        id: MessageId,
        (session, ask, number): (SessionId, AskId, u8),
        context: &mut LockContext<'_>,
    ) {
        let Some(lock) = context.names.path(number).cloned() else { return };
        let Some(host) = &mut self.locks else { return };
        if host.is_leaving(ask) {
            let request = LockRequest::Acquire { session, ask, lock: number };
            return host.deferred.push(Deferred { id, request, is_open: true });
        }
        // The call attends before its acquire is decided, so it misses no grant.
        host.attend(ask, session, id);
        let principal = context.names.principal.clone();
        let acquire =
            Acquire { session, principal, ask, lock, share: None, held: Vec::new(), wait: true, reaped: None };
        let decided = self.decide(&LockCommand::Acquire(acquire), context);
        let Some(host) = &mut self.locks else { return };
        match decided {
            // The host has told a grant of this write already. A repeated acquire gets its grant
            // here (K05).
            Ok(LockReply::Acquired(Acquired::Holding(hold))) => {
                host.take_call(ask).into_iter().for_each(|id| host.answer(id, LockAnswer::Holding(hold.fence)));
            }
            Ok(_) => {}
            Err(rejection) => host.refuse(ask, rejection.reason()),
        }
    }

    /// Counts a tick of the service (K06).
    pub fn tick(&mut self, context: &mut LockContext<'_>) {
        self.locks.iter_mut().for_each(|host| host.tick(context));
        self.propose_reclaims(context);
        self.serve_waiting(context);
    }

    /// Has the engine decide the first proposal of the last tick. After the last one, the renewals
    /// that waited are answered.
    pub fn decide_proposal(&mut self, context: &mut LockContext<'_>) {
        let Some(host) = self.locks.as_mut().filter(|host| !host.proposals.is_empty()) else { return };
        match host.proposals.remove(0) {
            Proposal::Lock(command) => self.decide_lock_proposal(&command, context),
            Proposal::Reclaim(command) => self.decide_reclaim(command, context),
        }
        self.propose_reclaims(context);
        self.serve_waiting(context);
        let Some(host) = &mut self.locks else { return };
        if host.proposals.is_empty() {
            for Deferred { id, request, is_open } in std::mem::take(&mut host.deferred) {
                self.receive_lock(id, request, is_open, context);
            }
        }
    }

    fn decide_lock_proposal(&mut self, command: &LockCommand, context: &mut LockContext<'_>) {
        let decided = self.decide(command, context);
        if let (LockCommand::End(end), Err(rejection), Some(host)) = (command, decided, &mut self.locks) {
            match rejection.reason() {
                Reason::SessionNotFound | Reason::SessionEnded => host.unwatch(end.session),
                _ => host.observer.resume(end.session),
            }
        }
    }

    /// Ends a session for an operator (K20).
    pub fn evict(&mut self, session: SessionId, context: &mut LockContext<'_>) {
        _ = self.decide(&LockCommand::End(End { session, cause: Cause::Evict }), context);
    }

    /// Takes a lock from its holder for an operator (K20).
    pub fn force(&mut self, lock: u8, context: &mut LockContext<'_>) {
        let path = context.names.path(lock);
        let grant = path.and_then(|path| self.lock(path)).and_then(|lock| lock.grant().copied());
        if let (Some(path), Some(grant)) = (path.cloned(), grant) {
            _ = self.decide(&LockCommand::Force(Force { lock: path, fence: grant.fence, at_once: false }), context);
        }
    }

    /// Forgets the sessions that ended, and the locks that became free, before a time. Returns their
    /// number.
    pub fn forget_locks(&mut self, before: Timestamp, context: &mut LockContext<'_>) -> usize {
        let LockRows { sessions, locks, .. } = self.lock_rows();
        let is_old = |session: &Session| !session.is_live() && session.updated_at < before;
        let sessions = sessions.iter().filter(|(_, session)| is_old(session));
        let sessions = sessions.map(|(session, _)| ForgetSession { session: *session, ended_before: before });
        let locks = locks.iter().filter(|(_, lock)| lock.state == LockState::Free && lock.updated_at < before);
        let locks = locks.map(|(lock, _)| ForgetLock { lock: lock.clone(), free_before: before });
        let mut commands: Vec<_> = sessions.map(LockCommand::ForgetSession).collect();
        commands.extend(locks.map(LockCommand::ForgetLock));
        commands.iter().for_each(|command| _ = self.decide(command, context));
        commands.len()
    }

    /// Notes that the calls of a cell's client are closed: no call attends to its asks.
    pub fn close_calls(&mut self, cell: u8) {
        let Some(host) = &mut self.locks else { return };
        let ticks = host.ticks;
        for open in host.asks.iter_mut().filter(|open| open.call.is_some_and(|id| id.cell() == cell)) {
            (open.call, open.since) = (None, ticks);
        }
        host.deferred.iter_mut().filter(|deferred| deferred.id.cell() == cell).for_each(|call| call.is_open = false);
        host.queue.close_calls(cell);
    }

    /// Fills the memory of a service that starts, from its store. A session has its whole duration
    /// from now on (K07).
    pub fn load_locks(&mut self, context: &LockContext<'_>) {
        let mut host = LockHost::new(context.terms);
        let is_dated = [Rule::WholeDuration, Rule::ObservedSilence].iter().any(|rule| !context.rules_off.is_on(*rule));
        let LockRows { sessions, locks, .. } = self.lock_rows();
        for (id, session) in sessions.iter().filter(|(_, session)| session.is_live()) {
            let date = if context.rules_off.is_on(Rule::WholeDuration) { context.now } else { session.updated_at };
            host.watch(*id, session.terms, session.renewals, date, is_dated);
        }
        for (path, lock) in locks.iter() {
            Lock::newly_forced(None, Some(lock))
                .into_iter()
                .for_each(|grant| host.observer.force(grant.session, grant.fence));
            if let LockState::Withheld(withholding) = lock.state {
                host.observer.watch_lock(path.clone(), withholding);
            }
        }
        self.locks = Some(host);
        self.find_lost();
    }

    /// Takes the answers that are ready to be sent, each with the request that it answers.
    pub(crate) fn take_lock_answers(&mut self) -> Vec<(MessageId, Response)> {
        self.locks.as_mut().map_or_else(Vec::new, |host| std::mem::take(&mut host.answers))
    }

    /// Returns every row of sessions and locks.
    pub fn lock_rows(&self) -> LockRows<'_> {
        LockRows {
            sessions: self.store.sorted_rows(),
            locks: self.store.sorted_rows(),
            asks: self.store.sorted_rows(),
            turns: self.store.sorted_rows(),
            fence: self.store.last_fence().unwrap_or_default(),
        }
    }

    /// Returns the session with this id, `None` if there is no such session.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.store.row(&id).ok().flatten()
    }

    /// Returns the lock with this path, `None` if it has no row.
    pub fn lock(&self, path: &LockPath) -> Option<&Lock> {
        Transaction::row(&self.store, path).ok().flatten()
    }

    fn run(&mut self, command: LockCommand, context: &mut LockContext<'_>) -> LockAnswer {
        answer_of(self.decide(&command, context))
    }

    /// Runs a command, and tells the host what the command has written. If the store's rows
    /// contradict each other, the command is refused; the checks of the world find the
    /// contradiction.
    fn decide(&mut self, command: &LockCommand, context: &mut LockContext<'_>) -> Result<LockReply, Rejection> {
        let now = context.now;
        let mut decided = Err(Rejection::whole(Reason::SessionNotFound, Detail::None));
        self.record(context, &mut |store| {
            if let Ok(answer) = apply(command, store, now) {
                decided = answer;
            }
        });
        decided
    }

    /// Runs a command of the engine over the store with its record, and tells the host what was written.
    pub(super) fn record(
        &mut self,
        context: &mut LockContext<'_>,
        command: &mut dyn FnMut(&mut RecordingStore<'_, '_>),
    ) {
        let mut store = RecordingStore { store: &mut self.store, context, news: Vec::new() };
        command(&mut store);
        let news = store.news;
        if let Some(host) = &mut self.locks {
            news.into_iter().for_each(|news| host.follow(news, context));
        }
    }
}

/// Does the same as [`LockCommand::apply`] for the commands that the world plays. It reaps no namespace
/// and acquires one lock at a time, and its WebAssembly shall have no code for the rest: cleanups take 2 KB
/// of the 640 that it may have.
fn apply<T: Transaction>(command: &LockCommand, tx: &mut T, now: Timestamp) -> Answer<LockReply, T::Error> {
    Ok(match command {
        LockCommand::Open(command) => open(tx, command, now)?.map(LockReply::Done),
        LockCommand::Renew(command) => renew(tx, command, now)?.map(LockReply::Renewed),
        LockCommand::End(command) => end(tx, command, now)?.map(LockReply::Done),
        LockCommand::Acquire(command) => acquire(tx, command, now)?.map(LockReply::Acquired),
        LockCommand::Release(command) => release(tx, command, now)?.map(LockReply::Done),
        LockCommand::Leave(command) => leave(tx, command, now)?.map(LockReply::Done),
        LockCommand::Force(command) => force(tx, command, now)?.map(LockReply::Done),
        LockCommand::Elapse(command) => elapse(tx, command, now)?.map(LockReply::Done),
        LockCommand::ForgetSession(command) => Ok(LockReply::Done(forget_session(tx, command)?)),
        LockCommand::ForgetLock(command) => Ok(LockReply::Done(forget_lock(tx, command)?)),
        LockCommand::AcquireAll(_) | LockCommand::Reap(_) | LockCommand::Resolve(_) => {
            Err(Rejection::whole(Reason::FencePassed, Detail::None))
        }
    })
}

fn answer_of(decided: Result<LockReply, Rejection>) -> LockAnswer {
    decided.map_or_else(|rejection| LockAnswer::Refused(rejection.reason()), |_| LockAnswer::Done)
}

/// The service's store, with a record of what a command writes: the transitions go to the event's
/// effects, the news to the host.
pub(super) struct RecordingStore<'a, 'b> {
    pub(super) store: &'a mut MemoryStore,
    pub(super) context: &'a mut LockContext<'b>,
    news: Vec<RowNews>,
}

impl RecordingStore<'_, '_> {
    fn note_session(&mut self, id: SessionId, after: Option<&Session>) -> Result<(), BrokenState> {
        let before = self.store.row::<Session>(&id)?;
        let (from, to) = (SessionStatus::of(before), SessionStatus::of(after));
        let renewals = before.map(|before| before.renewals);
        let is_moved = renewals != after.map(|after| after.renewals);
        let event = match to {
            SessionStatus::Absent => Some(SessionEvent::Forget),
            SessionStatus::Live if from == SessionStatus::Absent => Some(SessionEvent::Open),
            SessionStatus::Live => is_moved.then_some(SessionEvent::Renew),
            SessionStatus::Closed => Some(SessionEvent::Close),
            SessionStatus::Expired => Some(SessionEvent::Silence),
            SessionStatus::Evicted => Some(SessionEvent::Evict),
        };
        let transition = event.map(|event| Transition::Session { session: id, from, event, to });
        self.context.effects.transitions.extend(transition);
        let live = after.filter(|session| session.is_live()).map(|session| (session.terms, session.renewals));
        self.news.push(RowNews::Session { id, live, is_moved });
        Ok(())
    }

    fn note_lock(&mut self, path: &LockPath, after: Option<&Lock>) -> Result<(), BrokenState> {
        let before = self.store.row::<Lock>(path)?;
        let fence = |lock: Option<&Lock>| lock.and_then(Lock::grant).map(|grant| grant.fence);
        let (from, to) = (LockStatus::of(before), LockStatus::of(after));
        let is_handed_over = fence(before) != fence(after);
        let event = match (from, to) {
            (_, LockStatus::Absent) => Some(LockEvent::Forget),
            (LockStatus::Held, LockStatus::Held) => is_handed_over.then_some(LockEvent::HandOver),
            (LockStatus::Withheld, LockStatus::Held) => Some(LockEvent::ElapseHandOver),
            (_, LockStatus::Held) => Some(LockEvent::Grant),
            (LockStatus::Held, LockStatus::Free) => Some(LockEvent::Release),
            (LockStatus::Withheld, LockStatus::Free) => Some(LockEvent::Elapse),
            (LockStatus::Held, LockStatus::Withheld) => Some(LockEvent::Withhold),
            _ => None,
        };
        if let (Some(event), Some(lock)) = (event, self.context.names.number(path)) {
            self.context.effects.transitions.push(Transition::Lock { lock, from, event, to });
        }
        let state = after.map_or(LockState::Free, |lock| lock.state);
        self.news.push(RowNews::Lock(path.clone(), state));
        self.news.extend(Lock::newly_forced(before, after).copied().map(RowNews::Forced));
        Ok(())
    }

    fn note_ask(&mut self, id: AskId, after: Option<&Ask>) -> Result<(), BrokenState> {
        let was_holding = self.store.row::<Ask>(&id)?.is_some_and(|ask| matches!(ask.state, AskState::Holding(_)));
        self.news.extend(match after.map(|ask| (ask.session, ask.state)) {
            None => Some(RowNews::Over(id)),
            Some((session, AskState::Holding(fence))) if !was_holding => {
                Some(RowNews::Granted { ask: id, session, fence })
            }
            Some(_) => None,
        });
        Ok(())
    }
}

impl Transaction for RecordingStore<'_, '_> {
    type Error = BrokenState;

    fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, BrokenState> {
        self.store.row(key)
    }

    fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, BrokenState> {
        self.store.first(read)
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        self.store.last_fence()
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        self.context.effects.has_lock_changes = true;
        changes.sessions.iter().try_for_each(|(id, after)| self.note_session(*id, after.as_ref()))?;
        changes.locks.iter().try_for_each(|(path, after)| self.note_lock(path, after.as_ref()))?;
        changes.asks.iter().try_for_each(|(id, after)| self.note_ask(*id, after.as_ref()))?;
        self.note_requests(&changes)?;
        self.store.write(changes)
    }
}
