//! Speculation: a group of commands is decided on rows that are assumed instead of read.
//!
//! Leases that this server has begun are in its cache, and most names that begins ask for are free.
//! The commit writes every assumed row, and fails if an assumption is wrong. Sessions and locks that
//! this server has read or written lately are in another cache, and the commit compares them. If all
//! assumptions are right, the group takes one round trip instead of two. After each failure, the next 1, 2, 4, up
//! to 64 groups read their rows, so that a store with many conflicts loses little time to failed
//! speculation.

use leasehold_core::lease::LeaseId;
use leasehold_core::rows::{Keys, NetChanges};

use super::lease_cache::{CachedLease, LeaseCache};
use super::lock_cache::{AssumedLocks, LockCache};
use super::lock_reads::LoadedLocks;

/// The most groups that read their rows after a failed speculation, before a group speculates
/// again.
const MAX_BACKOFF: u32 = 64;

/// The state by which a writer decides if its next group speculates.
#[derive(Debug)]
pub(super) struct Speculation {
    is_enabled: bool,
    // The number of groups that must still read their rows before a group speculates again.
    groups_to_read: u32,
    // The number of groups that must read their rows after the next failure.
    backoff: u32,
    // The rows that the current group assumed; `None` if the group has assumed none.
    assumed: Option<Assumed>,
}

/// The rows that a group assumed instead of reading them: those of claims, or those of locks.
#[derive(Debug)]
pub(super) enum Assumed {
    Claims(AssumedRows),
    Locks(AssumedLocks),
}

/// For each kind of row, the number of rows that a group assumed instead of reading them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AssumedRows {
    claims: usize,
    leases: usize,
    replays: usize,
}

impl Default for Speculation {
    fn default() -> Self {
        Self { is_enabled: false, groups_to_read: 0, backoff: 1, assumed: None }
    }
}

impl Speculation {
    pub(super) fn enable(&mut self) {
        self.is_enabled = true;
    }

    /// Begins a group of commands, without assumptions.
    pub(super) fn begin_group(&mut self) {
        self.assumed = None;
    }

    /// Returns the cached leases among `keys`, which the group may assume. The group may also
    /// assume that all other rows of `keys` are absent. Returns `None` if the rows must be read.
    /// The reasons are: speculation is off or failed recently, a lease is not cached, the keys
    /// name sessions, locks or queues, or this is not the group's first load.
    pub(super) fn assume(&mut self, keys: &Keys, cache: &LeaseCache) -> Option<Vec<(LeaseId, CachedLease)>> {
        if has_locks(keys) || has_queues(keys) || !self.may_assume() {
            return None;
        }
        let cached: Vec<_> = keys.leases.iter().map(|id| Some((*id, cache.lease(*id)?))).collect::<Option<_>>()?;
        let held: usize = cached.iter().map(|(_, cached)| cached.claims.len()).sum();
        let (claims, leases) = (keys.claims.len() + held, cached.len());
        self.assumed = Some(Assumed::Claims(AssumedRows { claims, leases, replays: keys.replays.len() }));
        Some(cached)
    }

    /// Returns the cached sessions and locks among `keys` as loaded rows, which the group may assume.
    /// Returns `None` if the rows must be read. The reasons are those of [`assume`](Self::assume), or
    /// `keys` name other rows than sessions, locks and asks.
    pub(super) fn assume_locks(&mut self, keys: &Keys, cache: &LockCache) -> Option<LoadedLocks> {
        if !has_locks(keys) || has_more_than_locks(keys) || has_queues(keys) || !self.may_assume() {
            return None;
        }
        let assumed = cache.assume(keys)?;
        let loaded = assumed.loaded();
        self.assumed = Some(Assumed::Locks(assumed));
        Some(loaded)
    }

    /// True if the current group may assume rows: speculation is on, has not failed recently, and this
    /// is the group's first load.
    fn may_assume(&mut self) -> bool {
        if !self.is_enabled || self.assumed.is_some() {
            return false;
        }
        let may_assume = self.groups_to_read == 0;
        self.groups_to_read = self.groups_to_read.saturating_sub(1);
        may_assume
    }

    /// True if the current group has assumed locks.
    pub(super) fn has_assumed_locks(&self) -> bool {
        matches!(self.assumed, Some(Assumed::Locks(_)))
    }

    /// Lets the next group read its rows. The commit did not find a wrong assumption, so the groups
    /// after it may speculate.
    pub(super) fn read_next(&mut self) {
        self.groups_to_read = self.groups_to_read.max(1);
    }

    /// Takes the rows that the current group assumed; `None` if its rows were read.
    pub(super) fn take(&mut self) -> Option<Assumed> {
        self.assumed.take()
    }

    /// Adapts the backoff after a speculative group. `was_right` is true if the group's assumptions
    /// were right.
    pub(super) fn record(&mut self, was_right: bool) {
        if was_right {
            self.backoff = (self.backoff / 2).max(1);
        } else {
            self.groups_to_read = self.backoff;
            self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        }
    }
}

/// True if the keys name rows of queues, which no group assumes.
fn has_queues(keys: &Keys) -> bool {
    let Keys { queues, lanes, requests, bodies, requests_of_lane, .. } = keys;
    queues.len() + lanes.len() + requests.len() + bodies.len() + requests_of_lane.len() > 0
}

/// True if the keys name rows of sessions and locks.
fn has_locks(keys: &Keys) -> bool {
    let Keys { sessions, locks, asks, turns, asks_of_session, turns_of_lock, .. } = keys;
    let by_key = sessions.len() + locks.len() + asks.len() + turns.len();
    by_key + asks_of_session.len() + turns_of_lock.len() > 0
}

/// True if the keys name rows that the cache of locks does not have. The queues of the locks come
/// with them.
fn has_more_than_locks(keys: &Keys) -> bool {
    let Keys { claims, leases, replays, turns, asks_of_session, .. } = keys;
    claims.len() + leases.len() + replays.len() + turns.len() + asks_of_session.len() > 0
}

impl AssumedRows {
    /// True if the changes of the group write every assumed row, so that the commit proves the
    /// assumptions.
    pub(super) fn are_proved_by(&self, changes: &NetChanges) -> bool {
        let settled = changes.leases.iter().filter(|change| change.before.is_some()).count();
        *self == Self { claims: changes.claims.len(), leases: settled, replays: changes.replays.len() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn enabled() -> Speculation {
        let mut speculation = Speculation::default();
        speculation.enable();
        speculation
    }

    /// True if the next group speculates.
    fn speculates(speculation: &mut Speculation) -> bool {
        speculation.begin_group();
        speculation.assume(&Keys::default(), &LeaseCache::default()).is_some()
    }

    #[test]
    fn the_backoff_grows_with_failures_and_shrinks_with_successes() {
        let mut speculation = enabled();
        let reading = |speculation: &mut Speculation| (0..).find(|_| speculates(speculation)).unwrap();
        let after_failure = |speculation: &mut Speculation| {
            speculation.record(false);
            reading(speculation)
        };
        let groups: Vec<i32> = (0..8).map(|_| after_failure(&mut speculation)).collect();
        assert_eq!(groups, [1, 2, 4, 8, 16, 32, 64, 64]);
        (0..3).for_each(|_| speculation.record(true));
        assert_eq!(after_failure(&mut speculation), 8);
    }

    #[test]
    fn a_lease_outside_of_the_cache_must_be_read() {
        let keys = Keys { leases: vec![LeaseId(uuid::Uuid::nil())], ..Keys::default() };
        assert!(enabled().assume(&keys, &LeaseCache::default()).is_none());
    }
}
