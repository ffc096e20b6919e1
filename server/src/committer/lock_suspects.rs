//! Lock suspects: rows that were recently found locked by a database session that does not belong
//! to a Leasehold server.
//!
//! A command that needs a suspect row is tried apart from the other commands of its group, with a
//! short lock timeout. If several commands need the same suspect row, only one of them is tried.
//! Otherwise callers that retry again and again would delay every other command by the full lock
//! timeout.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::bucket::BucketKey;
use leasehold_core::command::Command;
use leasehold_core::lease::{Fence, IdempotencyKey, LeaseId};
use leasehold_core::lock::{AskId, LockPath};
use leasehold_core::queue::{LanePath, QueuePath, RequestId};
use leasehold_core::rows::Workspace;
use leasehold_core::session::SessionId;
use rustc_hash::FxHashMap;

/// The time for which a row stays a suspect after it was found locked.
const SUSPECT: Duration = Duration::from_secs(10);
/// The most suspect rows. If there are more, all are forgotten at once; rows that are still locked
/// are found again.
const MAX_ROWS: usize = 10_000;

/// The key of a row that a command needs.
#[derive(PartialEq, Eq, Hash)]
enum RowKey {
    Claim(BucketKey),
    Lease(LeaseId),
    Replay(IdempotencyKey),
    Session(SessionId),
    Lock(LockPath),
    Ask(AskId),
    Queue(QueuePath),
    Lane(LanePath),
    Request(RequestId),
}

/// The suspect rows, each with the time when it was last found locked.
#[derive(Default)]
pub(super) struct LockSuspects(Mutex<FxHashMap<RowKey, Instant>>);

impl LockSuspects {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<RowKey, Instant>> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last time at which a row that the command needs was found locked; `None` if no
    /// such row is a suspect.
    pub(super) fn suspected_at(&self, command: &Command, now: Instant) -> Option<Instant> {
        let found = self.lock();
        if found.is_empty() {
            return None;
        }
        let newest = rows(command).filter_map(|row| found.get(&row)).max().copied();
        newest.filter(|at| now.saturating_duration_since(*at) < SUSPECT)
    }

    /// Adds all rows that a command needs to the suspects. One of them is locked, but the database
    /// does not say which.
    pub(super) fn note(&self, command: &Command, now: Instant) {
        let mut found = self.lock();
        found.extend(rows(command).map(|row| (row, now)));
        if found.len() > MAX_ROWS {
            found.retain(|_, at| now.saturating_duration_since(*at) < SUSPECT);
        }
        if found.len() > MAX_ROWS {
            found.clear();
        }
    }

    /// Removes the rows that a command needs from the suspects, except those found locked at
    /// `since` or later.
    pub(super) fn forget(&self, command: &Command, since: Instant) {
        let mut found = self.lock();
        for row in rows(command) {
            if found.get(&row).is_some_and(|at| *at < since) {
                found.remove(&row);
            }
        }
    }
}

/// The keys of the rows that a command needs, as far as they are known before any row is read.
fn rows(command: &Command) -> impl Iterator<Item = RowKey> {
    let keys = Workspace::new(Fence::default()).missing(std::iter::once(command));
    let claims = keys.claims.into_iter().map(RowKey::Claim);
    let updates = claims.chain(keys.leases.into_iter().map(RowKey::Lease));
    let updates = updates.chain(keys.replays.into_iter().map(RowKey::Replay));
    let locks = keys.sessions.into_iter().map(RowKey::Session).chain(keys.locks.into_iter().map(RowKey::Lock));
    let locks = locks.chain(keys.asks.into_iter().map(RowKey::Ask));
    let queues = keys.queues.into_iter().map(RowKey::Queue).chain(keys.lanes.into_iter().map(RowKey::Lane));
    updates.chain(locks).chain(queues).chain(keys.requests.into_iter().map(RowKey::Request))
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::Timestamp;
    use leasehold_core::update::Forget;
    use uuid::Uuid;

    use super::*;

    fn command(number: u128) -> Command {
        Command::Forget(Forget { lease: LeaseId(Uuid::from_u128(number)), settled_before: Timestamp::from_micros(0) })
    }

    #[test]
    fn a_locked_row_is_a_suspect_for_a_while() {
        let (locked, at) = (LockSuspects::default(), Instant::now());
        assert_eq!(locked.suspected_at(&command(1), at), None);
        locked.note(&command(1), at);
        let last = at + SUSPECT - Duration::from_millis(1);
        assert_eq!(
            [at, last, at + SUSPECT].map(|now| locked.suspected_at(&command(1), now)),
            [Some(at), Some(at), None]
        );
        assert_eq!(locked.suspected_at(&command(2), at), None, "a row of another command");
    }

    #[test]
    fn a_row_is_forgotten_unless_it_was_found_locked_again() {
        let (locked, at) = (LockSuspects::default(), Instant::now());
        let later = at + Duration::from_millis(1);
        locked.note(&command(1), later);
        locked.forget(&command(1), at);
        assert_eq!(locked.suspected_at(&command(1), later), Some(later));
        locked.forget(&command(1), later + Duration::from_millis(1));
        assert_eq!(locked.suspected_at(&command(1), later), None);
    }

    #[test]
    fn the_number_of_suspects_has_a_bound() {
        let (locked, at) = (LockSuspects::default(), Instant::now());
        for number in 0..2 * MAX_ROWS as u128 {
            locked.note(&command(number), at);
        }
        assert!(locked.lock().len() <= MAX_ROWS);
        locked.note(&command(0), at + SUSPECT);
        assert_eq!(locked.suspected_at(&command(0), at + SUSPECT), Some(at + SUSPECT));
    }
}
