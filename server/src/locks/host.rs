//! [`LockHost`]: the state in memory, behind one mutex that is never held across a write or a wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::command::{Command, Fences};
use leasehold_core::lease::Fence;
use leasehold_core::lock::{Ask, AskId, Lock, LockPath, LockState, Withholding};
use leasehold_core::locking::end::End;
use leasehold_core::locking::leave::Leave;
use leasehold_core::locking::{LockCommand, granted};
use leasehold_core::observer::{Observer, Renewal};
use leasehold_core::rejection::Reason;
use leasehold_core::rows::{NetChanges, RowChange};
use leasehold_core::session::{Principal, Session, SessionId, Terms};
use leasehold_core::table::LockStatus;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::{Notify, watch};

use super::attendance::Attendance;
use super::news::{AskNews, SessionNews};
use super::reapers::Reapers;
use super::sharing::Sharing;
use crate::queues::QueueHost;

/// The time between two ticks of the host. A session's silence is measured in ticks.
pub const TICK: Duration = Duration::from_millis(250);
/// The time for which an ask that no call attends to keeps its place or its grant.
pub const TAKE_UP: Duration = Duration::from_secs(10);
/// The most ends of sessions, of withholdings and of asks that one tick proposes, of each. The ends
/// of many sessions at once are so spread out.
const PROPOSALS_PER_TICK: usize = 256;

/// A live session, as the host knows it.
pub(super) struct WatchedSession {
    pub(super) principal: Principal,
    pub(super) terms: Terms,
    pub(super) renewals: u64,
    // True if this server watches the session's silence. Always true if the store is not shared.
    pub(super) is_home: bool,
    pub(super) news: watch::Sender<SessionNews>,
}

/// The servers that may have renewed a session before this one watches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// No other server.
    Own,
    /// Another server, which may not have learnt yet that the session has moved.
    Elsewhere,
}

/// An ask that a call attends to.
pub(super) struct AttendedAsk {
    pub(super) news: watch::Sender<AskNews>,
    // Keeps the session in the host's memory if the session renews at another server.
    _session: watch::Receiver<SessionNews>,
    // True if this server wrote the ask, and no call has learnt so yet.
    pub(super) is_created: bool,
    // True if the store has this server as the one that attends to the ask.
    pub(super) is_own: bool,
    // True if the ask waits, so that the store is asked for its grant.
    pub(super) is_waiting: bool,
}

/// An ask that no call attends to.
pub(super) struct Unattended {
    session: SessionId,
    principal: Principal,
    // The number of the tick at which the last call ended, or at which the ask was granted.
    since: u64,
}

pub(super) struct HostState {
    pub(super) observer: Observer,
    pub(super) ticks: u64,
    pub(super) sessions: FxHashMap<SessionId, WatchedSession>,
    // The number of sessions that this server watches, of each principal and of all.
    opened: FxHashMap<Principal, usize>,
    homes: usize,
    pub(super) attended: FxHashMap<AskId, AttendedAsk>,
    pub(super) unattended: FxHashMap<AskId, Unattended>,
    // The asks whose leave is being decided. No call attends to one before the decision: it would be
    // told a grant that ends (K06).
    leaving: FxHashSet<AskId>,
    // The asks whose grant a call has told its caller. They hold their locks until their rows end.
    // Each has the number of the tick at which it was told.
    pub(super) taken_up: FxHashMap<AskId, u64>,
    // `None` if no other server uses the store.
    pub(super) sharing: Option<Sharing>,
}

/// The sizes of the host's memory, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSize {
    /// The number of live sessions.
    pub sessions: usize,
    /// The number of asks that a call attends to.
    pub attended_asks: usize,
}

/// The numbers of changes of locks in a save, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedLocks {
    /// The number of grants.
    pub grants: usize,
    /// The number of locks that began to wait for a cleanup.
    pub orphaned: usize,
    /// The number of locks that were set aside.
    pub set_aside: usize,
}

/// The outcome of a renewal in memory.
pub enum RenewOutcome {
    /// The session has its whole duration again. An operator has taken its grants of these fences
    /// (K20).
    Renewed(Vec<Fence>),
    /// The session's end is being decided. Call again when this receiver has changed.
    Deciding(watch::Receiver<u64>),
    /// This server can't answer from memory: the renewal must be written, which tells if the session
    /// is live.
    Unknown,
}

/// A command that the host proposes to the engine.
pub struct Proposal {
    /// The command.
    pub command: Command,
    // The session whose end is proposed; `None` for other commands.
    ends: Option<SessionId>,
}

/// The server's memory of sessions and locks.
pub struct LockHost {
    pub(super) state: Mutex<HostState>,
    // The number of decided rounds of proposals, and of decided leaves.
    decided: watch::Sender<u64>,
    // Notified when an ask begins to wait whose grant another server may write.
    pub(super) waiting: Notify,
    // Notified when another server rings, because it has written a grant.
    pub(super) rung: Notify,
    // Notified when this server has written a grant for which a call at another server may wait.
    pub(super) granted_elsewhere: Notify,
    /// The calls that wait for an orphaned lock.
    pub reapers: Arc<Reapers>,
    /// The memory of queues, which learns of the same changes.
    pub queues: QueueHost,
}

impl Default for LockHost {
    fn default() -> Self {
        let tick_micros = u64::try_from(TICK.as_micros()).unwrap_or(u64::MAX);
        let state = HostState {
            observer: Observer::new(tick_micros),
            ticks: 0,
            sessions: FxHashMap::default(),
            opened: FxHashMap::default(),
            homes: 0,
            attended: FxHashMap::default(),
            unattended: FxHashMap::default(),
            leaving: FxHashSet::default(),
            taken_up: FxHashMap::default(),
            sharing: None,
        };
        let (decided, reapers, queues) = (watch::Sender::default(), Arc::default(), QueueHost::default());
        let [waiting, rung, granted_elsewhere] = [(); 3].map(|()| Notify::new());
        Self { state: Mutex::new(state), decided, waiting, rung, granted_elsewhere, reapers, queues }
    }
}

impl LockHost {
    pub(super) fn state(&self) -> MutexGuard<'_, HostState> {
        // INVARIANT: every method leaves the state valid at each step, so a panic leaves no half.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to watch sessions and withheld locks that are in the store when the server starts. A
    /// session has its whole duration from now on (K07).
    pub fn load(
        &self,
        sessions: impl IntoIterator<Item = (SessionId, Session)>,
        locks: impl IntoIterator<Item = (LockPath, Lock)>,
    ) {
        let mut state = self.state();
        sessions.into_iter().for_each(|(id, session)| state.become_home(id, &session, Origin::Own));
        locks.into_iter().for_each(|(path, lock)| state.watch_lock(path, None, Some(&lock), &Fences::default()));
    }

    /// Learns from the saved changes of a group, and from the fences that the store has assigned. The
    /// committer calls this after each save, before it answers the callers.
    pub fn saved(&self, changes: &NetChanges, fences: &Fences) -> SavedLocks {
        let mut saved = SavedLocks::default();
        self.queues.saved(changes);
        if changes.sessions.is_empty() && changes.locks.is_empty() && changes.asks.is_empty() {
            return saved;
        }
        let mut state = self.state();
        changes.sessions.iter().for_each(|change| state.follow_session(change));
        for RowChange { key, before, after } in &changes.locks {
            state.watch_lock(key.clone(), before.as_ref(), after.as_ref(), fences);
        }
        changes.asks.iter().filter(|change| change.before.is_none()).for_each(|change| state.follow_ask(change));
        for grant in granted(changes).map(|grant| grant.with_fences(fences)) {
            state.follow_grant(grant.ask, grant.session, AskNews::Granted(grant.hold));
            saved.grants += 1;
        }
        changes.asks.iter().filter(|change| change.after.is_none()).for_each(|change| state.end_ask(change.key));
        let has_grants_elsewhere = state.has_grants_elsewhere();
        drop(state);
        // The calls here have their news by now, so a ring delays none of them.
        if has_grants_elsewhere {
            self.granted_elsewhere.notify_one();
        }
        changes.locks.iter().for_each(|change| self.follow_orphan(change, &mut saved));
        saved
    }

    /// Wakes a call that waits for a lock which a save has orphaned.
    fn follow_orphan(&self, RowChange { key, before, after }: &RowChange<Lock>, saved: &mut SavedLocks) {
        let statuses = (LockStatus::of(before.as_ref()), LockStatus::of(after.as_ref()));
        match statuses {
            (before, after) if before == after => {}
            (_, LockStatus::Orphaned) => {
                saved.orphaned += 1;
                self.reapers.wake_for(key);
            }
            (_, LockStatus::SetAside) => saved.set_aside += 1,
            _ => {}
        }
    }

    /// Renews a session in memory (K02). No disk is written (K12).
    pub fn renew(&self, id: SessionId, principal: &Principal) -> RenewOutcome {
        let mut state = self.state();
        let session = state.sessions.get(&id).filter(|session| session.principal == *principal);
        if session.is_none_or(|session| !state.may_renew(session)) {
            return RenewOutcome::Unknown;
        }
        match state.observer.renew(id) {
            Renewal::Renewed => RenewOutcome::Renewed(state.observer.forced(id).collect()),
            // The receiver is made before the state is unlocked, so no decision is missed.
            Renewal::EndProposed => RenewOutcome::Deciding(self.decided.subscribe()),
            Renewal::Unknown => RenewOutcome::Unknown,
        }
    }

    /// Returns the news of a session; `None` if it is not live, or belongs to another service.
    pub fn watch(&self, id: SessionId, principal: &Principal) -> Option<watch::Receiver<SessionNews>> {
        let state = self.state();
        let session = state.sessions.get(&id).filter(|session| session.principal == *principal)?;
        Some(session.news.subscribe())
    }

    /// Begins the attendance of a call to an ask under a session of this principal. If the session is
    /// not the principal's, the call attends to nothing: a stranger who knows the ids of an ask must
    /// not keep it, nor get its grant. While a leave of the ask is being decided, this method waits.
    pub async fn attend(self: &Arc<Self>, ask: AskId, session: SessionId, principal: &Principal) -> Attendance {
        loop {
            match self.try_attend(ask, session, principal) {
                Ok(attendance) => return attendance,
                // The host, and with it the sender, lives for as long as this method.
                Err(mut decided) => _ = decided.changed().await,
            }
        }
    }

    /// Does what [`attend`](Self::attend) does, unless a leave of the ask is being decided. The
    /// receiver then changes with the decision.
    pub(super) fn try_attend(
        self: &Arc<Self>,
        ask: AskId,
        session: SessionId,
        principal: &Principal,
    ) -> Result<Attendance, watch::Receiver<u64>> {
        let mut state = self.state();
        if state.leaving.contains(&ask) {
            // The receiver is made before the state is unlocked, so no decision is missed.
            return Err(self.decided.subscribe());
        }
        let own = state.sessions.get(&session).filter(|session| session.principal == *principal);
        let news = own.map(|session| session.news.subscribe()).map(|session| {
            state.unattended.remove(&ask);
            state.attended.entry(ask).or_insert_with(|| AttendedAsk::new(session)).news.subscribe()
        });
        drop(state);
        Ok(Attendance::new(self.clone(), ask, session, news))
    }

    /// Notes that a leave of the ask is decided from now on, until [`end_leave`](Self::end_leave).
    /// Returns false, and notes nothing, if a call beside the one that asks attends to the ask, or has
    /// told its grant.
    pub(super) fn begin_leave(&self, ask: AskId) -> bool {
        let mut state = self.state();
        let calls = state.attended.get(&ask).map_or(0, |attended| attended.news.receiver_count());
        let is_alone = calls <= 1 && !state.taken_up.contains_key(&ask);
        if is_alone {
            state.leaving.insert(ask);
        }
        is_alone
    }

    /// Notes that a leave of the ask was decided, or will not be.
    pub fn end_leave(&self, ask: AskId) {
        self.state().leaving.remove(&ask);
        self.round_decided();
    }

    pub(super) fn end_attendance(&self, ask: AskId, session: SessionId, is_finished: bool) {
        let mut state = self.state();
        if state.attended.get(&ask).is_none_or(|attended| attended.news.receiver_count() > 0) {
            return;
        }
        let is_own = state.attended.remove(&ask).is_some_and(|attended| attended.is_own);
        // A call that ends late, after another one has told the caller of the grant, must not take
        // the lock from its working holder (K06).
        if !is_finished && !state.taken_up.contains_key(&ask) && (is_own || state.sharing.is_none()) {
            state.leave_unattended(ask, session);
        }
    }

    pub(super) fn take_up(&self, ask: AskId) {
        let mut state = self.state();
        // An ask that has just ended is told by its attendance, and must not be remembered for ever.
        if state.attended.get(&ask).is_some_and(|attended| *attended.news.borrow() != AskNews::Over) {
            state.unattended.remove(&ask);
            let ticks = state.ticks;
            state.taken_up.insert(ask, ticks);
        }
    }

    /// Counts one tick, and returns the commands that are due.
    pub fn tick(&self) -> Vec<Proposal> {
        let mut state = self.state();
        state.ticks += 1;
        state.observer.tick();
        if !state.may_propose() {
            return Vec::new();
        }
        let ends = state.observer.silent(PROPOSALS_PER_TICK).into_iter().map(Proposal::of_silence);
        let mut proposals: Vec<_> = ends.collect();
        let elapsed = state.observer.elapsed(PROPOSALS_PER_TICK).into_iter();
        proposals.extend(elapsed.map(|elapse| Proposal::of(LockCommand::Elapse(elapse))));
        proposals.extend(state.due_leaves().into_iter().map(|leave| Proposal::of(LockCommand::Leave(leave))));
        proposals
    }

    /// Tells that a proposal was decided: as `refused` if the engine refused it, as `None` if the
    /// engine accepted it. [`saved`](Self::saved) has told the changes before, unless an earlier
    /// attempt made them and its answer was lost.
    pub fn proposal_decided(&self, proposal: &Proposal, refused: Option<Reason>) {
        if let Command::Lock(LockCommand::Leave(leave)) = &proposal.command {
            self.end_leave(leave.ask);
        }
        let Some(session) = proposal.ends else { return };
        match refused {
            None | Some(Reason::SessionNotFound | Reason::SessionEnded) => self.state().end_session(session),
            Some(_) => self.state().resume(session),
        }
    }

    /// Tells that a proposal was not decided, because the store could not be written.
    pub fn proposal_failed(&self, proposal: &Proposal) {
        if let Some(session) = proposal.ends {
            self.state().observer.resume(session);
        }
        if let Command::Lock(LockCommand::Leave(Leave { session, ask, .. })) = &proposal.command {
            self.state().leave_unattended(*ask, *session);
            self.end_leave(*ask);
        }
    }

    /// Tells that all proposals of a tick were decided, so that waiting renewals go on.
    pub fn round_decided(&self) {
        self.decided.send_modify(|rounds| *rounds += 1);
    }

    /// Returns the number of live sessions that this server watches, and of those that this principal
    /// opened.
    pub fn sessions(&self, principal: &Principal) -> (usize, usize) {
        let state = self.state();
        (state.homes, state.opened.get(principal).copied().unwrap_or_default())
    }

    /// Returns the sizes of the host's memory.
    pub fn size(&self) -> HostSize {
        let state = self.state();
        HostSize { sessions: state.homes, attended_asks: state.attended.len() }
    }
}

impl Proposal {
    fn of(command: LockCommand) -> Self {
        Self { command: Command::Lock(command), ends: None }
    }

    fn of_silence(end: End) -> Self {
        let session = end.session;
        Self { command: Command::Lock(LockCommand::End(end)), ends: Some(session) }
    }
}

impl WatchedSession {
    /// Returns a live session that this server does not watch.
    pub(super) fn elsewhere(session: &Session) -> Self {
        let Session { principal, terms, renewals, .. } = session;
        let news = watch::Sender::default();
        Self { principal: principal.clone(), terms: *terms, renewals: *renewals, is_home: false, news }
    }
}

impl AttendedAsk {
    fn new(session: watch::Receiver<SessionNews>) -> Self {
        let news = watch::Sender::default();
        Self { news, _session: session, is_created: false, is_own: false, is_waiting: false }
    }
}

impl HostState {
    /// Begins to watch a session, whose whole duration starts now. A row that is older than what the
    /// host knows changes nothing: the saves of several writers are told in any order.
    pub(super) fn become_home(&mut self, id: SessionId, session: &Session, origin: Origin) {
        let Session { principal, terms, renewals, .. } = session;
        let is_old = |known: &WatchedSession| known.renewals > *renewals;
        if self.sessions.get(&id).is_some_and(is_old) || self.has_departed(id, *renewals) {
            return;
        }
        match origin {
            Origin::Own => self.observer.watch(id, *terms, *renewals),
            Origin::Elsewhere => self.observer.watch_moved(id, *terms, *renewals),
        }
        let watched = self.sessions.entry(id).or_insert_with(|| WatchedSession::elsewhere(session));
        watched.renewals = *renewals;
        if !std::mem::replace(&mut watched.is_home, true) {
            self.homes += 1;
            *self.opened.entry(principal.clone()).or_default() += 1;
        }
    }

    pub(super) fn end_session(&mut self, id: SessionId) {
        self.observer.unwatch(id);
        self.depart(id, u64::MAX);
        let Some(session) = self.sessions.remove(&id) else { return };
        session.news.send_modify(|news| news.has_ended = true);
        if session.is_home {
            self.count_leaving(&session.principal);
        }
    }

    /// Counts one session less of a principal.
    pub(super) fn count_leaving(&mut self, principal: &Principal) {
        self.homes = self.homes.saturating_sub(1);
        if let Some(opened) = self.opened.get_mut(principal) {
            *opened = opened.saturating_sub(1);
            if *opened == 0 {
                self.opened.remove(principal);
            }
        }
    }

    fn follow_session(&mut self, change: &RowChange<Session>) {
        match &change.after {
            Some(session) if session.is_live() => {
                let is_counted = change.before.as_ref().map(|before| before.renewals) != Some(session.renewals);
                // In a shared store, a session whose renewal is not counted stays where it is.
                if is_counted || self.sharing.is_none() && !self.sessions.contains_key(&change.key) {
                    let is_own = change.before.is_none() || self.sharing.is_none();
                    self.become_home(change.key, session, if is_own { Origin::Own } else { Origin::Elsewhere });
                }
            }
            Some(_) | None => self.end_session(change.key),
        }
    }

    pub(super) fn watch_lock(&mut self, path: LockPath, before: Option<&Lock>, after: Option<&Lock>, fences: &Fences) {
        match after.map(|lock| lock.state) {
            Some(LockState::Withheld(withholding)) => {
                let fence = fences.of_grant(withholding.fence);
                self.observer.watch_lock(path, Withholding { fence, ..withholding });
            }
            _ => self.observer.unwatch_lock(&path),
        }
        if let Some(grant) = Lock::newly_forced(before, after) {
            self.force(grant.session, fences.of_grant(grant.fence));
        }
    }

    /// Notes that an operator took a grant from its session.
    pub(super) fn force(&mut self, id: SessionId, fence: Fence) {
        if self.observer.forced(id).any(|known| known == fence) {
            return;
        }
        self.observer.force(id, fence);
        let session = self.sessions.get(&id);
        session.iter().for_each(|session| session.news.send_modify(|news| news.forced += 1));
    }

    /// Notes that this server wrote an ask.
    fn follow_ask(&mut self, change: &RowChange<Ask>) {
        let (Some(ask), true) = (&change.after, self.sharing.is_some()) else { return };
        match self.attended.get_mut(&change.key) {
            Some(attended) => (attended.is_created, attended.is_own) = (true, true),
            None => self.leave_unattended(change.key, ask.session),
        }
    }

    /// Notes that no call attends to an ask.
    pub(super) fn leave_unattended(&mut self, ask: AskId, session: SessionId) {
        // The end of a session ends its asks.
        let Some(watched) = self.sessions.get(&session) else { return };
        let unattended = Unattended { session, principal: watched.principal.clone(), since: self.ticks };
        self.unattended.insert(ask, unattended);
    }

    /// Tells a grant to the calls that attend to the ask. If there are none, the ask must be taken
    /// up soon. In a shared store, a call at another server may attend to it.
    fn follow_grant(&mut self, ask: AskId, session: SessionId, news: AskNews) {
        match self.attended.get(&ask) {
            Some(attended) => _ = attended.news.send_replace(news),
            None if self.sharing.is_none() => self.leave_unattended(ask, session),
            None => self.note_grant_elsewhere(ask),
        }
    }

    pub(super) fn end_ask(&mut self, ask: AskId) {
        self.unattended.remove(&ask);
        self.taken_up.remove(&ask);
        if let Some(attended) = self.attended.get(&ask) {
            attended.news.send_replace(AskNews::Over);
        }
    }

    /// Returns the leaves of asks that no call has attended to for [`TAKE_UP`]. They are being decided
    /// from now on.
    fn due_leaves(&mut self) -> Vec<Leave> {
        let ticks = u64::try_from(TAKE_UP.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX);
        let is_due = |unattended: &Unattended| self.ticks.saturating_sub(unattended.since) > ticks;
        let due = self.unattended.iter().filter(|(_, unattended)| is_due(unattended));
        let due: Vec<_> = due.map(|(ask, _)| *ask).take(PROPOSALS_PER_TICK).collect();
        let leave = |ask| {
            let Unattended { session, principal, .. } = self.unattended.remove(&ask)?;
            self.leaving.insert(ask);
            Some(Leave { session, principal, ask })
        };
        due.into_iter().filter_map(leave).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use leasehold_core::lock::{Ended, Grant, GrantEnd, LockValue};
    use leasehold_core::locking::HeldSlot;
    use leasehold_core::locking::elapse::Elapse;
    use leasehold_core::session::SessionState;
    use leasehold_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    const SESSION: SessionId = SessionId(Uuid::from_u128(1));
    const ASK: AskId = AskId(Uuid::from_u128(2));

    fn principal() -> Principal {
        Principal::parse("service/a").unwrap()
    }

    fn host() -> Arc<LockHost> {
        let session = Session {
            principal: principal(),
            terms: Terms::parse(1_000_000, 250_000).unwrap(),
            opened_at: Timestamp::MIN,
            updated_at: Timestamp::MIN,
            renewals: 0,
            asks: 0,
            state: SessionState::Live,
        };
        let host = LockHost::default();
        host.load([(SESSION, session)], []);
        Arc::new(host)
    }

    fn grant() -> NetChanges {
        let lock = LockPath::parse(&["a"], "k").unwrap();
        let ask = leasehold_core::lock::Ask {
            session: SESSION,
            lock,
            share: None,
            held: Vec::new(),
            asked_at: Timestamp::MIN,
            state: leasehold_core::lock::AskState::Holding(Fence(7)),
        };
        let change = RowChange { key: ASK, before: None, after: Some(ask) };
        NetChanges { asks: vec![change], ..NetChanges::default() }
    }

    fn attend(host: &Arc<LockHost>) -> Attendance {
        host.try_attend(ASK, SESSION, &principal()).ok().unwrap()
    }

    /// Renews the session at each tick, so that only asks are proposed.
    fn ticks(host: &LockHost, count: u128) -> Vec<Proposal> {
        let tick = |_| {
            assert!(matches!(host.renew(SESSION, &principal()), RenewOutcome::Renewed(_)));
            host.tick()
        };
        (0..count).flat_map(tick).collect()
    }

    #[test]
    fn k06_a_silent_session_is_proposed_once_and_its_renewal_waits_for_the_decision() {
        let host = host();
        // Duration and grace are five ticks, and the first tick does not count.
        let silent: Vec<_> = (0..5).flat_map(|_| host.tick()).collect();
        assert!(silent.is_empty());
        let proposed = host.tick();
        assert_eq!((proposed.len(), host.tick().len()), (1, 0));
        let RenewOutcome::Deciding(decided) = host.renew(SESSION, &principal()) else { unreachable!() };
        host.proposal_decided(&proposed[0], Some(Reason::SessionAlive));
        host.round_decided();
        assert!(decided.has_changed().unwrap());
        assert!(matches!(host.renew(SESSION, &principal()), RenewOutcome::Renewed(_)));
        // Another service learns nothing of the session.
        let stranger = Principal::parse("service/b").unwrap();
        assert!(matches!(host.renew(SESSION, &stranger), RenewOutcome::Unknown));
        assert!(host.watch(SESSION, &stranger).is_none());
    }

    #[test]
    fn k09_a_grant_leaves_if_no_call_attends_to_it_in_time() {
        let ticks_of_take_up = TAKE_UP.as_millis() / TICK.as_millis();
        let host = host();
        assert_eq!(host.saved(&grant(), &Fences::default()).grants, 1);
        assert!(ticks(&host, ticks_of_take_up).is_empty());
        let proposed = ticks(&host, 1);
        assert_eq!(proposed.len(), 1);
        host.proposal_decided(&proposed[0], None);
        // A call that attends in time, and tells its caller, keeps the grant.
        host.saved(&grant(), &Fences::default());
        assert!(ticks(&host, ticks_of_take_up).is_empty());
        let mut attendance = attend(&host);
        attendance.finish();
        drop(attendance);
        assert!(ticks(&host, 2 * ticks_of_take_up).is_empty());
        // A call that ends without telling its caller does not.
        drop(attend(&host));
        let proposed = ticks(&host, ticks_of_take_up + 1);
        assert_eq!(proposed.len(), 1);
        host.proposal_decided(&proposed[0], None);
        // Nor does a call of another service, though it is told that it has no ask.
        host.saved(&grant(), &Fences::default());
        let stranger = host.try_attend(ASK, SESSION, &Principal::parse("service/b").unwrap());
        let mut stranger = stranger.ok().unwrap();
        host.saved(&grant(), &Fences::default());
        stranger.finish();
        drop(stranger);
        assert_eq!(ticks(&host, ticks_of_take_up + 1).len(), 1);
    }

    #[test]
    fn k06_a_call_that_ends_late_takes_no_lock_from_its_holder() {
        let ticks_of_take_up = TAKE_UP.as_millis() / TICK.as_millis();
        let host = host();
        let late = attend(&host);
        host.saved(&grant(), &Fences::default());
        let mut repeated = attend(&host);
        repeated.take_up();
        drop(repeated);
        drop(late);
        assert!(ticks(&host, 2 * ticks_of_take_up).is_empty());
        // The end of the ask is the end of this memory: its id may be used again.
        let ended = RowChange { key: ASK, before: grant().asks[0].after.clone(), after: None };
        host.saved(&NetChanges { asks: vec![ended], ..NetChanges::default() }, &Fences::default());
        host.saved(&grant(), &Fences::default());
        assert_eq!(ticks(&host, ticks_of_take_up + 1).len(), 1);
    }

    #[tokio::test]
    async fn k06_no_call_attends_to_an_ask_whose_leave_is_being_decided() {
        let ticks_of_take_up = TAKE_UP.as_millis() / TICK.as_millis();
        let host = host();
        host.saved(&grant(), &Fences::default());
        let proposed = ticks(&host, ticks_of_take_up + 1);
        let repeated = tokio::spawn({
            let host = host.clone();
            async move { host.attend(ASK, SESSION, &principal()).await.take_created() }
        });
        // The test runs on one thread: the call has its turn, and waits.
        tokio::task::yield_now().await;
        assert_eq!((proposed.len(), host.size().attended_asks, repeated.is_finished()), (1, 0, false));
        // A leave that could not be written is proposed again, unless a call attends meanwhile.
        host.proposal_failed(&proposed[0]);
        repeated.await.unwrap();
        // The wait of a call is over: it may let the ask leave if it is alone.
        let (call, other) = (attend(&host), attend(&host));
        assert!(!call.begin_leave());
        drop(other);
        assert!(call.begin_leave());
        assert!(host.try_attend(ASK, SESSION, &principal()).is_err());
        host.end_leave(ASK);
        assert!(host.try_attend(ASK, SESSION, &principal()).is_ok());
    }

    #[test]
    fn k20_a_renewal_tells_which_grants_an_operator_took() {
        let host = host();
        let path = LockPath::parse(&["user"], "7").unwrap();
        let grant = Grant { ask: ASK, session: SESSION, fence: Fence(7), granted_at: Timestamp::MIN };
        let held = Lock { state: LockState::Held(grant), ..Lock::new(Timestamp::MIN) };
        let ended = Ended { grant, end: GrantEnd::Forced, value: LockValue::default(), ended_at: Timestamp::MIN };
        let free = Lock { last: Some(ended), ..Lock::new(Timestamp::MIN) };
        let change = |before: &Lock, after: &Lock| {
            let locks = vec![RowChange { key: path.clone(), before: Some(before.clone()), after: Some(after.clone()) }];
            host.saved(&NetChanges { locks, ..NetChanges::default() }, &Fences::default());
        };
        let told = || match host.renew(SESSION, &principal()) {
            RenewOutcome::Renewed(forced) => forced,
            RenewOutcome::Deciding(_) | RenewOutcome::Unknown => unreachable!(),
        };
        let mut news = host.watch(SESSION, &principal()).unwrap();
        change(&free, &held);
        assert_eq!(told(), []);
        change(&held, &free);
        assert_eq!((told(), news.borrow_and_update().forced), (vec![Fence(7)], 1));
        // A later change of the lock is no news. A client that renews must hear of it for as long as
        // it may work by an older answer.
        change(&free, &Lock { waiting: 1, ..free.clone() });
        assert_eq!((told(), news.has_changed().unwrap()), (vec![Fence(7)], false));
        // Duration, grace and half of the grace.
        for _ in 0..1_375_000_u64.div_ceil(250_000) {
            host.tick();
            assert_eq!(told(), [Fence(7)]);
        }
        host.tick();
        assert_eq!(told(), []);
    }

    #[test]
    fn k20_the_fences_of_withheld_and_forced_locks_are_those_of_the_store() {
        let (host, placeholder) = (host(), Fence(Fence::PLACEHOLDER.0 + 1));
        let fences = Fences { grants: [(placeholder, Fence(7))].into_iter().collect(), ..Fences::default() };
        let path = |key| LockPath::parse(&["user"], key).unwrap();
        let grant = Grant { ask: ASK, session: SESSION, fence: placeholder, granted_at: Timestamp::MIN };
        let ended = Ended { grant, end: GrantEnd::Forced, value: LockValue::default(), ended_at: Timestamp::MIN };
        let forced = Lock { last: Some(ended), ..Lock::new(Timestamp::MIN) };
        let withholding = Withholding { fence: placeholder, silence_micros: 0 };
        let withheld = Lock { state: LockState::Withheld(withholding), ..Lock::new(Timestamp::MIN) };
        let change = |key, after| RowChange { key: path(key), before: None, after: Some(after) };
        let locks = vec![change("forced", forced), change("withheld", withheld)];
        host.saved(&NetChanges { locks, ..NetChanges::default() }, &fences);
        let RenewOutcome::Renewed(told) = host.renew(SESSION, &principal()) else { unreachable!() };
        assert_eq!(told, [Fence(7)]);
        let elapse = Elapse { lock: path("withheld"), fence: Fence(7), quiet_micros: 0 };
        assert_eq!(host.tick()[0].command, Command::Lock(LockCommand::Elapse(elapse)));
    }

    #[tokio::test]
    async fn k08_a_grant_reaches_the_call_that_attends() {
        let host = host();
        let mut attendance = host.attend(ASK, SESSION, &principal()).await;
        host.saved(&grant(), &Fences::default());
        assert_eq!(attendance.news().await, AskNews::Granted(HeldSlot { fence: Fence(7), slot: 0 }));
        attendance.finish();
        assert_eq!(host.size(), HostSize { sessions: 1, attended_asks: 1 });
    }
}
