//! The ended sessions whose lanes come back to their queues (Q11).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::queue::LaneHold;
use leasehold_core::session::SessionId;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

/// The sessions that have ended, and may hold lanes. Their number is that of the sessions whose lanes have
/// not come back yet.
#[derive(Default)]
pub struct LostSessions {
    state: Mutex<LostState>,
    added: Notify,
}

#[derive(Default)]
struct LostState {
    ticks: u64,
    sessions: FxHashMap<SessionId, LostSession>,
}

#[derive(Clone, Copy)]
struct LostSession {
    since: u64,
    // True if the worker may be at work for a while, because an operator has evicted its session.
    is_withheld: bool,
}

/// An ended session that may hold lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The session.
    pub session: SessionId,
    /// The microseconds for which this server was awake and saw the session as ended.
    pub quiet_micros: u64,
    is_withheld: bool,
}

impl Lost {
    /// True if the hold of a lane by the session may be over by now.
    pub fn may_end(&self, hold: &LaneHold) -> bool {
        !self.is_withheld || self.quiet_micros >= hold.withholding_micros
    }
}

impl LostSessions {
    fn state(&self) -> MutexGuard<'_, LostState> {
        // INVARIANT: every method leaves the state valid at each step, so a panic leaves no half.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session that has ended. A session that is known already stays as it is.
    pub fn add(&self, session: SessionId) {
        let mut state = self.state();
        let lost = LostSession { since: state.ticks, is_withheld: false };
        state.sessions.entry(session).or_insert(lost);
        drop(state);
        self.added.notify_one();
    }

    /// Waits until a session was added. Only one task at a time may wait.
    pub async fn added(&self) {
        self.added.notified().await;
    }

    /// Counts one tick. A tick that comes late counts once, so a server that was suspended has seen no more than
    /// it was awake.
    pub fn tick(&self) {
        self.state().ticks += 1;
    }

    /// Returns the sessions. `tick` is the time between two ticks.
    pub fn all(&self, tick: Duration) -> Vec<Lost> {
        let state = self.state();
        let lost = |(session, lost): (&SessionId, &LostSession)| {
            // The session may have ended shortly before the first tick, so that tick does not count.
            let ticks = u32::try_from(state.ticks.saturating_sub(lost.since + 1)).unwrap_or(u32::MAX);
            let quiet_micros = u64::try_from((tick * ticks).as_micros()).unwrap_or(u64::MAX);
            Lost { session: *session, quiet_micros, is_withheld: lost.is_withheld }
        };
        state.sessions.iter().map(lost).collect()
    }

    /// Notes that the engine withholds what the session held.
    pub fn withhold(&self, session: SessionId) {
        if let Some(lost) = self.state().sessions.get_mut(&session) {
            lost.is_withheld = true;
        }
    }

    /// Forgets a session that holds no lane any more.
    pub fn remove(&self, session: SessionId) {
        self.state().sessions.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

    use leasehold_core::lease::Fence;
    use leasehold_core::queue::TakeId;
    use leasehold_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    const TICK: Duration = Duration::from_millis(250);

    #[test]
    fn q11_an_evicted_session_is_observed_for_the_time_of_its_withholding() {
        let (lost, session) = (LostSessions::default(), SessionId(Uuid::from_u128(1)));
        let hold = LaneHold {
            take: TakeId(Uuid::nil()),
            session,
            fence: Fence(1),
            taken_at: Timestamp::MIN,
            withholding_micros: 500_000,
            last_number: 1,
            is_counted: false,
        };
        lost.add(session);
        assert!(lost.all(TICK)[0].may_end(&hold));
        lost.withhold(session);
        (0..2).for_each(|_| lost.tick());
        assert!(!lost.all(TICK)[0].may_end(&hold));
        lost.add(session);
        lost.tick();
        assert!(lost.all(TICK)[0].may_end(&hold) && lost.all(TICK)[0].quiet_micros == 500_000);
        lost.remove(session);
        assert!(lost.all(TICK).is_empty());
    }
}
