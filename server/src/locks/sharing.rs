//! The host's part in sharing sessions with other servers of one store. The rules, and the reason why
//! they hold, are in [`leasehold_core::vouch`].

use std::time::Duration;

use leasehold_core::lease::{Fence, Fences};
use leasehold_core::lock::{AskId, Lock, LockPath};
use leasehold_core::rows::{NetChanges, RowChange};
use leasehold_core::session::{Session, SessionId, Terms};
use leasehold_core::vouch;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::watch;

use super::host::{HostState, LockHost, Origin, WatchedSession};
use super::news::{AskNews, SessionNews};
use crate::awake::Awake;
use crate::store::{SessionChange, WaitingRows};

/// The number of ticks for which the host remembers that a session has moved away or ended, and that
/// a grant was told: longer than a writer needs to tell a save.
const REMEMBERED: u64 = 240;
/// The most asks that wait for a ring. Calls for further ones read their grants without a ring.
const MAX_GRANTED_ELSEWHERE: usize = 1_000;

/// The additional state of a host whose store other servers use too.
#[derive(Default)]
pub(super) struct Sharing {
    // The moment at which the last vouch was sent whose answer has arrived.
    vouched: Option<Awake>,
    // The sessions that have moved away or ended: the number of renewals from which on a session may
    // be watched again, and the number of the tick.
    departed: FxHashMap<SessionId, (u64, u64)>,
    // The number of reasons to read the homes: the host may watch a session that has moved away, or
    // miss one of its own. The homes are as they were read at `settled` of these reasons.
    doubts: u64,
    settled: u64,
    // The writes of this server that end sessions or take grants, from their sending until the host
    // knows what became of them.
    writes: Vec<OwnWrite>,
    // True if this server forgets ended sessions and free locks for all.
    is_first: bool,
    // True if another server can be rung.
    can_ring: bool,
    // The asks that this server has granted and to which no call here attends, until they are taken for
    // a ring.
    granted_elsewhere: Vec<AskId>,
}

/// A write of this server that ends a session or takes a grant.
struct OwnWrite {
    // The number of the writer, which retries the write before it begins another.
    writer: usize,
    sent: Awake,
    // The number of doubts when the write ended without an answer; `None` before. The homes that are
    // read at this number tell what became of it.
    ended_at: Option<u64>,
}

impl OwnWrite {
    /// True if this is the write that the writer still waits for.
    fn is_of(&self, writer: usize) -> bool {
        self.writer == writer && self.ended_at.is_none()
    }
}

impl Sharing {
    /// True if no write of this server has waited for its answer for longer than a session's window. A
    /// session that the write ends, or a lock that it takes, may be passed on a window later (K06).
    fn knows_own_writes(&self, terms: Terms) -> bool {
        let is_young = |write: &OwnWrite| write.sent.elapsed().is_some_and(|age| vouch::may_renew(micros(age), terms));
        self.writes.iter().all(is_young)
    }

    /// Returns the age of the last vouch in microseconds; `None` if there is none, or no clock.
    fn age_micros(&self) -> Option<u64> {
        self.vouched.and_then(Awake::elapsed).map(micros)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The sessions that the host watches at one moment, each with its number of written renewals, and the
/// number of doubts at this moment.
pub struct Homes(Vec<(SessionId, u64)>, u64);

impl LockHost {
    /// Returns the host of a server whose store other servers use too. It answers no renewal before
    /// the first [`vouched`](Self::vouched).
    pub fn shared() -> Self {
        let host = Self::default();
        host.state().sharing = Some(Sharing { doubts: 1, ..Sharing::default() });
        host
    }

    /// Tells that the store has answered a vouch which was sent at this moment, and that the host has
    /// learnt the news.
    pub fn vouched(&self, sent: Awake, is_first: bool) {
        if let Some(sharing) = &mut self.state().sharing {
            (sharing.vouched, sharing.is_first) = (Some(sent), is_first);
        }
    }

    /// Tells if another server can be rung.
    pub fn set_can_ring(&self, can_ring: bool) {
        if let Some(sharing) = &mut self.state().sharing {
            sharing.can_ring = can_ring;
        }
    }

    /// Waits for grants for which calls at other servers may wait, and returns their asks. Each is
    /// returned once.
    pub async fn granted_elsewhere(&self) -> Vec<AskId> {
        loop {
            let asks = self.state().sharing.as_mut().map(|sharing| std::mem::take(&mut sharing.granted_elsewhere));
            match asks {
                Some(asks) if !asks.is_empty() => return asks,
                _ => self.granted_elsewhere.notified().await,
            }
        }
    }

    /// Tells that news may be lost, so that the homes must be read.
    pub fn doubt(&self) {
        if let Some(sharing) = &mut self.state().sharing {
            sharing.doubts += 1;
        }
    }

    /// Tells that a writer sends these changes to the store now.
    pub fn saving(&self, writer: usize, changes: &NetChanges) {
        let ends = |change: &RowChange<Session>| change.after.as_ref().is_some_and(|after| !after.is_live());
        let forces =
            |change: &RowChange<Lock>| Lock::newly_forced(change.before.as_ref(), change.after.as_ref()).is_some();
        if !changes.sessions.iter().any(ends) && !changes.locks.iter().any(forces) {
            return;
        }
        let mut state = self.state();
        let (Some(sharing), Some(sent)) = (&mut state.sharing, Awake::now()) else { return };
        // A retry is as old as the first attempt.
        if !sharing.writes.iter().any(|write| write.is_of(writer)) {
            sharing.writes.push(OwnWrite { writer, sent, ended_at: None });
        }
    }

    /// Tells that the write of a writer was answered, and that the host has learnt its changes.
    pub fn answered(&self, writer: usize) {
        if let Some(sharing) = &mut self.state().sharing {
            sharing.writes.retain(|write| !write.is_of(writer));
        }
    }

    /// Tells that a write without an answer has ended: it was committed before, or never will be. The
    /// homes must be read.
    pub fn ended_unanswered(&self, writer: usize) {
        if let Some(sharing) = &mut self.state().sharing {
            sharing.doubts += 1;
            let doubts = sharing.doubts;
            let unanswered = sharing.writes.iter_mut().filter(|write| write.is_of(writer));
            unanswered.for_each(|write| write.ended_at = Some(doubts));
        }
    }

    /// True if the homes must be read from the store.
    pub fn is_unsure(&self) -> bool {
        self.state().sharing.as_ref().is_some_and(|sharing| sharing.doubts > sharing.settled)
    }

    /// True if this server forgets ended sessions and free locks. Of several servers one does so.
    pub fn may_forget(&self) -> bool {
        self.state().sharing.as_ref().is_none_or(|sharing| sharing.is_first)
    }

    /// Learns what other servers have written.
    pub fn learn(&self, news: &[SessionChange]) {
        let mut state = self.state();
        for SessionChange { session, renewals, has_ended, forced } in news {
            match forced {
                Some(fence) => state.force(*session, *fence),
                None if *has_ended => state.end_session(*session),
                None => state.leave_home(*session, *renewals),
            }
        }
        // Calls may go on to watch a session that has moved away.
        if !news.is_empty() {
            self.waiting.notify_one();
        }
    }

    /// Learns all withheld locks of the store.
    pub fn learn_withheld(&self, locks: Vec<(LockPath, Lock)>) {
        let mut state = self.state();
        let found: FxHashSet<&LockPath> = locks.iter().map(|(path, _)| path).collect();
        let gone = state.observer.withheld().into_iter().filter(|(path, _)| !found.contains(path));
        gone.collect::<Vec<_>>().into_iter().for_each(|(path, _)| state.observer.unwatch_lock(&path));
        for (path, lock) in locks {
            state.watch_lock(path, Some(&lock), Some(&lock), &Fences::default());
        }
    }

    /// Returns the sessions that the host watches.
    pub fn homes(&self) -> Homes {
        let state = self.state();
        let homes = state.sessions.iter().filter(|(_, session)| session.is_home);
        let doubts = state.sharing.as_ref().map_or(0, |sharing| sharing.doubts);
        Homes(homes.map(|(id, session)| (*id, session.renewals)).collect(), doubts)
    }

    /// Learns which sessions are this server's, as the store says. `before` are the sessions that the
    /// host watched before the store was asked: others may be newer than the store's answer.
    pub fn keep_homes(&self, before: &Homes, own: Vec<(SessionId, Session)>) {
        let mut state = self.state();
        let found: FxHashSet<SessionId> = own.iter().map(|(id, _)| *id).collect();
        for (id, renewals) in before.0.iter().filter(|(id, _)| !found.contains(id)) {
            if state.sessions.get(id).is_some_and(|session| session.renewals == *renewals) {
                state.stop_watching(*id);
            }
        }
        let known: FxHashMap<SessionId, u64> = before.0.iter().copied().collect();
        for (id, session) in own {
            state.keep_home(id, known.get(&id).copied(), &session);
        }
        if let Some(sharing) = &mut state.sharing {
            // A doubt that arose while the store was read is not settled.
            sharing.settled = before.1;
            sharing.writes.retain(|write| write.ended_at.is_none_or(|doubts| doubts > before.1));
        }
        self.waiting.notify_one();
    }

    /// Begins to watch sessions that this server has adopted.
    pub fn adopt(&self, sessions: Vec<(SessionId, Session)>) {
        let mut state = self.state();
        sessions.into_iter().for_each(|(id, session)| state.become_home(id, &session, Origin::Elsewhere));
    }

    /// Learns which grants of sessions an operator has taken.
    pub fn learn_forced(&self, forced: FxHashMap<SessionId, Vec<Fence>>) {
        let mut state = self.state();
        for (id, fences) in forced {
            fences.into_iter().for_each(|fence| state.force(id, fence));
        }
    }

    /// Returns the fences of the session's grants that an operator has taken.
    pub fn forced(&self, id: SessionId) -> Vec<Fence> {
        self.state().observer.forced(id).collect()
    }

    /// Remembers a live session that renews at another server, for as long as a call waits for its
    /// news. Returns the news; `None` if the session has ended since.
    pub fn follow(&self, id: SessionId, session: &Session) -> Option<watch::Receiver<SessionNews>> {
        let mut state = self.state();
        if state.has_ended(id) {
            return None;
        }
        self.waiting.notify_one();
        Some(state.sessions.entry(id).or_insert_with(|| WatchedSession::elsewhere(session)).news.subscribe())
    }

    /// Returns true if this server wrote the ask, for the first call that asks so.
    pub(super) fn take_created(&self, ask: AskId) -> bool {
        let mut state = self.state();
        state.attended.get_mut(&ask).is_some_and(|attended| std::mem::take(&mut attended.is_created))
    }

    /// Notes that the store has this server as the one that attends to the ask.
    pub(super) fn own(&self, ask: AskId) {
        if let Some(attended) = self.state().attended.get_mut(&ask) {
            attended.is_own = true;
        }
    }

    /// Begins to ask the store for the grant of an ask that waits.
    pub(super) fn wait_for_grant(&self, ask: AskId) {
        let mut state = self.state();
        let is_shared = state.sharing.is_some();
        if let Some(attended) = state.attended.get_mut(&ask).filter(|_| is_shared) {
            attended.is_waiting = true;
            self.waiting.notify_one();
        }
    }

    /// Waits until an ask begins to wait.
    pub async fn waiting_began(&self) {
        self.waiting.notified().await;
    }

    /// Makes the poll read the grants of asks that wait at once, because another server says that it has
    /// written one.
    pub fn ring(&self) {
        self.rung.notify_one();
    }

    /// Waits until another server rings.
    pub async fn rung(&self) {
        self.rung.notified().await;
    }

    /// Returns the asks that wait, and the sessions elsewhere whose news calls wait for.
    pub fn waiting(&self) -> (Vec<AskId>, Vec<SessionId>) {
        let mut state = self.state();
        state.sessions.retain(|_, session| session.is_home || session.news.receiver_count() > 0);
        let waiting = state.attended.iter().filter(|(_, ask)| ask.is_waiting && *ask.news.borrow() == AskNews::None);
        let asks = waiting.map(|(id, _)| *id).collect();
        let elsewhere = state.sessions.iter().filter(|(_, session)| !session.is_home);
        (asks, elsewhere.map(|(id, _)| *id).collect())
    }

    /// Learns the rows of asks and sessions, and returns true if there was news.
    pub fn learn_waiting(&self, asks: &[AskId], sessions: &[SessionId], rows: &WaitingRows) -> bool {
        let mut state = self.state();
        let mut has_news = false;
        for ask in asks {
            let attended = state.attended.get(ask);
            match rows.asks.get(ask) {
                Some(None) => continue,
                Some(Some(fence)) => _ = attended.map(|ask| ask.news.send_replace(AskNews::Granted(*fence))),
                None => state.end_ask(*ask),
            }
            has_news = true;
        }
        for id in sessions {
            match (rows.sessions.get(id), state.sessions.get(id)) {
                (None, Some(_)) => state.end_session(*id),
                (Some(forced), Some(session)) => _ = session.news.send_if_modified(|news| raise(news, *forced)),
                (_, None) => {}
            }
        }
        has_news
    }
}

fn raise(news: &mut SessionNews, forced: u64) -> bool {
    let is_news = news.forced < forced;
    news.forced = news.forced.max(forced);
    is_news
}

impl HostState {
    /// True if this server may answer a renewal of the session from memory.
    pub(super) fn may_renew(&self, session: &WatchedSession) -> bool {
        let Some(sharing) = &self.sharing else { return true };
        let is_young = sharing.age_micros().is_some_and(|age| vouch::may_renew(age, session.terms));
        session.is_home && is_young && sharing.knows_own_writes(session.terms)
    }

    /// Notes that this server has granted an ask to which no call here attends.
    pub(super) fn note_grant_elsewhere(&mut self, ask: AskId) {
        if let Some(sharing) = self.sharing.as_mut().filter(|sharing| sharing.can_ring)
            && sharing.granted_elsewhere.len() < MAX_GRANTED_ELSEWHERE
        {
            sharing.granted_elsewhere.push(ask);
        }
    }

    /// True if a granted ask waits for a ring.
    pub(super) fn has_grants_elsewhere(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| !sharing.granted_elsewhere.is_empty())
    }

    /// True if the ticks count, see [`vouch::counts_ticks`].
    pub(super) fn may_propose(&mut self) -> bool {
        let Some(sharing) = &mut self.sharing else { return true };
        let ticks = self.ticks;
        sharing.departed.retain(|_, (_, since)| ticks.saturating_sub(*since) < REMEMBERED);
        // The release of an ask may be written at another server, so this memory must end by itself.
        self.taken_up.retain(|_, since| ticks.saturating_sub(*since) < REMEMBERED);
        let is_fresh = sharing.age_micros().is_some_and(vouch::counts_ticks);
        if !is_fresh {
            self.observer.restart();
        }
        is_fresh
    }

    /// Gives a session its whole duration again, after the engine refused its end. In a shared store,
    /// the session has renewed at another server.
    pub(super) fn resume(&mut self, id: SessionId) {
        self.observer.resume(id);
        if let Some(sharing) = &mut self.sharing {
            sharing.doubts += 1;
        }
    }

    /// Stops to watch a session that has this number of written renewals, unless the host knows of a
    /// later one.
    fn leave_home(&mut self, id: SessionId, renewals: u64) {
        if self.sessions.get(&id).is_some_and(|session| session.renewals >= renewals) {
            return;
        }
        self.depart(id, renewals);
        self.stop_watching(id);
    }

    fn stop_watching(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.is_home) else { return };
        session.is_home = false;
        let principal = session.principal.clone();
        self.observer.unwatch(id);
        self.count_leaving(&principal);
    }

    /// Watches a session that the store has as this server's. After a failover, its row may have
    /// fewer renewals than the host knew.
    fn keep_home(&mut self, id: SessionId, known: Option<u64>, session: &Session) {
        let present = self.sessions.get_mut(&id).map(|watched| (watched.is_home, &mut watched.renewals));
        match present {
            Some((true, renewals)) if *renewals == session.renewals => return,
            Some((_, renewals)) if Some(*renewals) == known => *renewals = session.renewals,
            _ => {}
        }
        if let Some(sharing) = &mut self.sharing {
            sharing.departed.remove(&id);
        }
        self.become_home(id, session, Origin::Elsewhere);
    }

    /// Remembers that a session has moved away or ended.
    pub(super) fn depart(&mut self, id: SessionId, renewals: u64) {
        let ticks = self.ticks;
        if let Some(sharing) = &mut self.sharing {
            let departed = sharing.departed.entry(id).or_insert((renewals, ticks));
            *departed = (departed.0.max(renewals), ticks);
        }
    }

    /// True if the host has learnt that a session has ended.
    fn has_ended(&self, id: SessionId) -> bool {
        self.has_departed(id, u64::MAX - 1)
    }

    /// True if a session with this number of renewals was watched elsewhere later.
    pub(super) fn has_departed(&self, id: SessionId, renewals: u64) -> bool {
        let departed = self.sharing.as_ref().and_then(|sharing| sharing.departed.get(&id));
        departed.is_some_and(|(from, _)| renewals < *from)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use leasehold_core::lock::{Ask, AskState};
    use leasehold_core::session::{Principal, SessionState};
    use leasehold_core::time::Timestamp;
    use uuid::Uuid;

    use super::super::{RenewOutcome, TICK};
    use super::*;

    const ID: SessionId = SessionId(Uuid::from_u128(1));
    const SECOND: Duration = Duration::from_secs(1);

    fn principal() -> Principal {
        Principal::parse("service/a").unwrap()
    }

    /// A session of 4 s and a grace of 4 s.
    fn session(renewals: u64) -> Session {
        Session {
            principal: principal(),
            terms: Terms::parse(4_000_000, 4_000_000).unwrap(),
            opened_at: Timestamp::MIN,
            updated_at: Timestamp::MIN,
            renewals,
            asks: 0,
            state: SessionState::Live,
        }
    }

    fn save(host: &LockHost, before: Option<u64>, after: u64) {
        let change = RowChange { key: ID, before: before.map(session), after: Some(session(after)) };
        host.saved(&NetChanges { sessions: vec![change], ..NetChanges::default() }, &Fences::default());
    }

    fn moved(renewals: u64) -> SessionChange {
        SessionChange { session: ID, renewals, has_ended: false, forced: None }
    }

    fn is_renewed(host: &LockHost) -> bool {
        matches!(host.renew(ID, &principal()), RenewOutcome::Renewed(_))
    }

    /// Saves the grant of an ask of the session.
    fn grant(host: &LockHost, key: AskId) {
        let lock = LockPath::parse(&["a"], "k").unwrap();
        let ask = Ask {
            session: ID,
            lock,
            share: None,
            held: Vec::new(),
            asked_at: Timestamp::MIN,
            state: AskState::Holding(Fence(7)),
        };
        let change = RowChange { key, before: None, after: Some(ask) };
        host.saved(&NetChanges { asks: vec![change], ..NetChanges::default() }, &Fences::default());
    }

    /// Returns the host of a server that has just vouched and opened the session.
    fn host() -> LockHost {
        let host = LockHost::shared();
        save(&host, None, 0);
        host.vouched(Awake::ago(Duration::ZERO), true);
        host
    }

    /// Ticks for longer than the session's window, duration and grace, and returns the number of
    /// proposals.
    fn silence(host: &LockHost) -> usize {
        (0..10 * SECOND.as_millis() / TICK.as_millis() + 1).map(|_| host.tick().len()).sum()
    }

    #[test]
    fn k06_a_renewal_is_answered_from_memory_only_after_a_young_vouch() {
        let host = LockHost::shared();
        save(&host, None, 0);
        assert!(!is_renewed(&host), "the server has never vouched");
        host.vouched(Awake::ago(Duration::from_millis(1_900)), true);
        assert!(is_renewed(&host));
        host.vouched(Awake::ago(2 * SECOND), true);
        assert!(!is_renewed(&host), "the vouch is as old as half of the grace");
    }

    #[test]
    fn k06_a_session_that_has_moved_away_is_neither_renewed_nor_ended_here() {
        let host = host();
        assert!(is_renewed(&host));
        host.learn(&[moved(1)]);
        assert!(!is_renewed(&host));
        // A writer may tell its save only after the news.
        save(&host, None, 0);
        assert!(!is_renewed(&host));
        assert_eq!((silence(&host), host.sessions(&principal())), (0, (0, 0)));
        // The session comes back by a counted renewal, and news of an earlier move come late.
        save(&host, Some(1), 2);
        host.learn(&[moved(1)]);
        assert!(is_renewed(&host));
        assert_eq!((silence(&host), host.sessions(&principal())), (1, (1, 1)));
    }

    #[test]
    fn k07_ticks_without_a_vouch_do_not_count() {
        let host = host();
        assert_eq!(silence(&host), 1);
        let host = self::host();
        host.vouched(Awake::ago(Duration::from_micros(vouch::STALE_MICROS)), true);
        assert_eq!(silence(&host), 0);
        host.vouched(Awake::ago(Duration::ZERO), true);
        assert_eq!(host.tick().len(), 0, "the whole duration begins again");
        assert_eq!(silence(&host), 1);
    }

    #[tokio::test]
    async fn k08_a_grant_asks_for_a_ring_if_a_call_elsewhere_may_wait_for_it() {
        let host = Arc::new(host());
        let ask = |number| AskId(Uuid::from_u128(number));
        grant(&host, ask(1));
        host.set_can_ring(true);
        let _attendance = host.try_attend(ask(2), ID, &principal()).ok().unwrap();
        grant(&host, ask(2));
        grant(&host, ask(3));
        assert_eq!(host.granted_elsewhere().await, [ask(3)], "no server could be rung for 1, and 2 has a call here");
        (0..2_000).for_each(|number| grant(&host, ask(10 + number)));
        assert_eq!(host.granted_elsewhere().await.len(), MAX_GRANTED_ELSEWHERE);
    }

    #[test]
    fn k06_the_store_says_which_sessions_are_at_home() {
        let host = host();
        let before = host.homes();
        // The session moves away and comes back while the store is read.
        save(&host, Some(1), 2);
        host.keep_homes(&before, vec![]);
        assert!(is_renewed(&host) && !host.is_unsure());
        host.keep_homes(&host.homes(), vec![]);
        assert!(!is_renewed(&host));
        host.keep_homes(&host.homes(), vec![(ID, session(2))]);
        assert!(is_renewed(&host));
        // A failover has lost a counted renewal.
        host.keep_homes(&host.homes(), vec![(ID, session(1))]);
        assert!(is_renewed(&host));
    }
}
