//! An observer measures for how long each session has not renewed. It proposes the end of sessions
//! that were silent for their duration and grace. Hosts run the observer; the engine checks each
//! proposal again.
//!
//! The observer counts *ticks* of its host and reads no clock. A tick that comes late counts as one
//! tick, so a host that was stopped, suspended or overloaded expires nobody (K06). A new observer
//! starts at zero, so after a restart each session has its whole duration again (K07).
//!
//! The observer also keeps which grants an operator took from a live session, so that each answer
//! to a renewal tells them: a client whose deadline moves on knows which of its locks do not (K20).
//!
//! ```
//! use leasehold_core::locking::end::Cause;
//! use leasehold_core::observer::{Observer, Renewal};
//! use leasehold_core::session::{SessionId, Terms};
//!
//! let mut observer = Observer::new(1_000_000);
//! let session = SessionId(uuid::Uuid::from_u128(1));
//! observer.watch(session, Terms::parse(2_000_000, 1_000_000).unwrap(), 0);
//! // The first tick may come right after the beginning, so it does not count.
//! (0..3).for_each(|_| observer.tick());
//! assert!(observer.silent(10).is_empty());
//! observer.tick();
//! let proposed = observer.silent(10);
//! assert!(matches!(&proposed[0].cause, Cause::Silence(silence) if silence.quiet_micros == 3_000_000));
//! // A renewal waits until the engine has decided on the proposal.
//! assert_eq!(observer.renew(session), Renewal::EndProposed);
//! ```

use rustc_hash::FxHashMap;

use crate::lease::Fence;
use crate::lock::{LockPath, Withholding};
use crate::locking::elapse::Elapse;
use crate::locking::end::{Cause, End, Silence};
use crate::order::sorted_by;
use crate::session::{SessionId, Terms};

/// The observer's answer to a renewal. The observer keeps renewals in memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The session has its whole duration again.
    Renewed,
    /// The end of the session was proposed, and the engine has not decided yet. The host must wait
    /// for the decision before it answers the renewal.
    EndProposed,
    /// The observer does not watch the session.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    terms: Terms,
    renewals_seen: u64,
    // The number of the tick after which the session renewed last, or after which the window of its
    // former host ends.
    renewed_at: u64,
    is_end_proposed: bool,
}

impl Watched {
    fn renew(&mut self, ticks: u64) {
        self.renewed_at = self.renewed_at.max(ticks);
    }
}

#[derive(Clone, Copy, Debug)]
struct WatchedLock {
    withholding: Withholding,
    since: u64,
}

/// A grant that an operator took from its session.
#[derive(Clone, Copy, Debug)]
struct ForcedGrant {
    session: SessionId,
    fence: Fence,
    since: u64,
    silence_micros: u64,
}

/// The sessions and withheld locks that one host observes.
#[derive(Clone, Debug)]
pub struct Observer {
    tick_micros: u64,
    ticks: u64,
    sessions: FxHashMap<SessionId, Watched>,
    locks: FxHashMap<LockPath, WatchedLock>,
    // Few at a time: an operator's doing, kept for a session's duration and grace.
    forced: Vec<ForcedGrant>,
}

impl Observer {
    /// Returns an observer whose host calls [`tick`](Self::tick) at most once in `tick_micros`
    /// microseconds.
    pub fn new(tick_micros: u64) -> Self {
        let (sessions, locks) = Default::default();
        Self { tick_micros, ticks: 0, sessions, locks, forced: Vec::new() }
    }

    /// Begins to watch a session. Its whole duration starts now. `renewals` is the number in the
    /// session's row, which counts the renewals that moved the session to another host.
    pub fn watch(&mut self, id: SessionId, terms: Terms, renewals: u64) {
        let watched = Watched { terms, renewals_seen: renewals, renewed_at: self.ticks, is_end_proposed: false };
        self.sessions.insert(id, watched);
    }

    /// Begins to watch a session that has moved here from another host. The session's silence starts
    /// a window later, since the former host may renew the session for so long (K06, see
    /// [`vouch`](crate::vouch)).
    pub fn watch_moved(&mut self, id: SessionId, terms: Terms, renewals: u64) {
        self.watch(id, terms, renewals);
        let window = terms.window_micros().div_ceil(self.tick_micros.max(1));
        self.sessions.entry(id).and_modify(|watched| watched.renewed_at = watched.renewed_at.saturating_add(window));
    }

    /// Stops to watch a session that has ended or renews elsewhere.
    pub fn unwatch(&mut self, id: SessionId) {
        self.sessions.remove(&id);
        self.forced.retain(|forced| forced.session != id);
    }

    /// Notes that an operator took a grant from its session. Nothing is noted for a session that is
    /// not watched.
    pub fn force(&mut self, session: SessionId, fence: Fence) {
        let Some(watched) = self.sessions.get(&session) else { return };
        let silence_micros = watched.terms.withholding_micros();
        let mut forced = std::mem::take(&mut self.forced);
        forced.retain(|forced| self.is_believed(forced));
        forced.push(ForcedGrant { session, fence, since: self.ticks, silence_micros });
        self.forced = forced;
    }

    /// Returns the fences of the grants that an operator took from a session, the oldest first, for as
    /// long as its client may believe in them (see [`Terms::withholding_micros`]).
    pub fn forced(&self, id: SessionId) -> impl DoubleEndedIterator<Item = Fence> + '_ {
        let of_session = self.forced.iter().filter(move |forced| forced.session == id && self.is_believed(forced));
        of_session.map(|forced| forced.fence)
    }

    /// True if the client may still work under a grant, by an answer that is older than the force.
    fn is_believed(&self, forced: &ForcedGrant) -> bool {
        self.quiet_micros(forced.since) < forced.silence_micros
    }

    /// Begins to watch a withheld lock. If the lock is watched under this fence already, the time
    /// that it was observed still counts.
    pub fn watch_lock(&mut self, path: LockPath, withholding: Withholding) {
        let watched = WatchedLock { withholding, since: self.ticks };
        let entry = self.locks.entry(path).or_insert(watched);
        if entry.withholding.fence != withholding.fence {
            *entry = watched;
        }
    }

    /// Stops to watch a lock.
    pub fn unwatch_lock(&mut self, path: &LockPath) {
        self.locks.remove(path);
    }

    /// Renews a session in memory.
    pub fn renew(&mut self, id: SessionId) -> Renewal {
        let Some(watched) = self.sessions.get_mut(&id) else { return Renewal::Unknown };
        // While the end of the session is being written, a renewal can't be promised.
        if watched.is_end_proposed {
            return Renewal::EndProposed;
        }
        watched.renew(self.ticks);
        Renewal::Renewed
    }

    /// Counts one tick, however late it comes.
    pub fn tick(&mut self) {
        self.ticks += 1;
    }

    /// Proposes the end of at most `limit` silent sessions, the longest silence first, so that the
    /// end of many sessions at once is spread out. A renewal of a proposed session is answered with
    /// [`Renewal::EndProposed`] until the host calls [`unwatch`](Self::unwatch) or
    /// [`resume`](Self::resume).
    pub fn silent(&mut self, limit: usize) -> Vec<End> {
        let due = |(id, watched): (&SessionId, &Watched)| {
            let quiet = self.quiet_micros(watched.renewed_at);
            let is_due = !watched.is_end_proposed && quiet >= watched.terms.silence_micros();
            is_due.then_some((quiet, *id))
        };
        let mut due = sorted_by(self.sessions.iter().filter_map(due).collect(), |a, b| (b.0, a.1).cmp(&(a.0, b.1)));
        due.truncate(limit);
        due.into_iter().filter_map(|(quiet_micros, session)| self.judge(session, quiet_micros)).collect()
    }

    fn judge(&mut self, session: SessionId, quiet_micros: u64) -> Option<End> {
        let watched = self.sessions.get_mut(&session)?;
        watched.is_end_proposed = true;
        let silence = Silence { renewals_seen: watched.renewals_seen, quiet_micros };
        Some(End { session, cause: Cause::Silence(silence) })
    }

    /// Gives a session its whole duration again. The host calls this if the engine refused the
    /// session's end or the store failed.
    pub fn resume(&mut self, id: SessionId) {
        if let Some(watched) = self.sessions.get_mut(&id) {
            watched.renew(self.ticks);
            watched.is_end_proposed = false;
        }
    }

    /// Gives every session its whole duration again, except those whose end was proposed. A host calls
    /// this after it could not have learnt of renewals (K07).
    pub fn restart(&mut self) {
        let undecided = self.sessions.values_mut().filter(|watched| !watched.is_end_proposed);
        undecided.for_each(|watched| watched.renew(self.ticks));
    }

    /// Proposes the end of the withholding of at most `limit` locks. A lock may be proposed again
    /// until it is unwatched.
    pub fn elapsed(&self, limit: usize) -> Vec<Elapse> {
        let due = |(lock, watched): (&LockPath, &WatchedLock)| {
            let quiet_micros = self.quiet_micros(watched.since);
            let is_due = quiet_micros >= watched.withholding.silence_micros;
            is_due.then(|| Elapse { lock: lock.clone(), fence: watched.withholding.fence, quiet_micros })
        };
        let mut due = sorted_by(self.locks.iter().filter_map(due).collect(), |a: &Elapse, b| a.fence.cmp(&b.fence));
        due.truncate(limit);
        due
    }

    /// Returns the watched sessions in the order of their ids. Each has the number of ticks since its
    /// last renewal, and true if its end was proposed and is not decided.
    pub fn silences(&self) -> Vec<(SessionId, u64, bool)> {
        let silence = |(id, watched): (&SessionId, &Watched)| {
            (*id, self.ticks.saturating_sub(watched.renewed_at), watched.is_end_proposed)
        };
        sorted_by(self.sessions.iter().map(silence).collect(), |a, b| a.0.cmp(&b.0))
    }

    /// Returns the watched locks in the order of their paths, each with the number of ticks for which
    /// it was observed as withheld.
    pub fn withheld(&self) -> Vec<(LockPath, u64)> {
        let observed =
            |(path, watched): (&LockPath, &WatchedLock)| (path.clone(), self.ticks.saturating_sub(watched.since));
        sorted_by(self.locks.iter().map(observed).collect(), |a: &(LockPath, u64), b| a.0.cmp(&b.0))
    }

    /// Returns the microseconds that have certainly passed since an event after the tick `since`.
    /// The tick after the event may have come at once, so it does not count.
    fn quiet_micros(&self, since: u64) -> u64 {
        self.ticks.saturating_sub(since).saturating_sub(1).saturating_mul(self.tick_micros)
    }
}
