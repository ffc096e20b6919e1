//! Rows that somebody who is no server was found to keep locked. A command that wants one is tried apart from
//! the others and briefly, one for all that come together: callers who try again and again must not hold up their neighbours.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::bucket::BucketKey;
use leasehold_core::lease::{Fence, IdempotencyKey, LeaseId};
use leasehold_core::transaction::Workspace;
use leasehold_core::update::Command;
use rustc_hash::FxHashMap;

/// How long a row that was found locked is remembered as that.
const SUSPECT: Duration = Duration::from_secs(10);
/// Rows that are remembered at the most; more are forgotten all at once, and found again.
const MAX_ROWS: usize = 10_000;

/// A row, by its key.
#[derive(PartialEq, Eq, Hash)]
enum Row {
    Claim(BucketKey),
    Lease(LeaseId),
    Replay(IdempotencyKey),
}

/// When rows were found locked.
#[derive(Default)]
pub(super) struct Locked(Mutex<FxHashMap<Row, Instant>>);

impl Locked {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Row, Instant>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When one of the rows that a command wants was last found locked, where that was lately.
    pub(super) fn found_at(&self, command: &Command, now: Instant) -> Option<Instant> {
        let found = self.lock();
        if found.is_empty() {
            return None;
        }
        let newest = rows(command).filter_map(|row| found.get(&row)).max().copied();
        newest.filter(|at| now.saturating_duration_since(*at) < SUSPECT)
    }

    /// Notes that one of the rows that a command wants is locked.
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

    /// Forgets a command's rows that were not found locked since.
    pub(super) fn forget(&self, command: &Command, since: Instant) {
        let mut found = self.lock();
        for row in rows(command) {
            if found.get(&row).is_some_and(|at| *at < since) {
                found.remove(&row);
            }
        }
    }
}

/// The rows that a command is known to want before any is read.
fn rows(command: &Command) -> impl Iterator<Item = Row> {
    let keys = Workspace::new(Fence::default()).missing(std::iter::once(command));
    let claims = keys.claims.into_iter().map(Row::Claim);
    claims.chain(keys.leases.into_iter().map(Row::Lease)).chain(keys.replays.into_iter().map(Row::Replay))
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
    fn a_locked_row_is_suspect_for_a_while() {
        let (locked, at) = (Locked::default(), Instant::now());
        assert_eq!(locked.found_at(&command(1), at), None);
        locked.note(&command(1), at);
        let last = at + SUSPECT - Duration::from_millis(1);
        assert_eq!([at, last, at + SUSPECT].map(|now| locked.found_at(&command(1), now)), [Some(at), Some(at), None]);
        assert_eq!(locked.found_at(&command(2), at), None, "a row of others");
    }

    #[test]
    fn a_row_is_forgotten_unless_it_was_found_locked_again() {
        let (locked, at) = (Locked::default(), Instant::now());
        let later = at + Duration::from_millis(1);
        locked.note(&command(1), later);
        locked.forget(&command(1), at);
        assert_eq!(locked.found_at(&command(1), later), Some(later));
        locked.forget(&command(1), later + Duration::from_millis(1));
        assert_eq!(locked.found_at(&command(1), later), None);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (locked, at) = (Locked::default(), Instant::now());
        for number in 0..2 * MAX_ROWS as u128 {
            locked.note(&command(number), at);
        }
        assert!(locked.lock().len() <= MAX_ROWS);
        locked.note(&command(0), at + SUSPECT);
        assert_eq!(locked.found_at(&command(0), at + SUSPECT), Some(at + SUSPECT));
    }
}
