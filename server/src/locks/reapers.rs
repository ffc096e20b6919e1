//! The calls that wait for an orphaned lock.
//!
//! A saved change that orphans a lock wakes one of the calls whose namespace has the lock. A woken call
//! reads the store, so a lost or doubled wake-up costs a read or a delay, never a cleanup (K17).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::lock::LockPath;
use leasehold_core::locking::scan::is_within;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

/// The calls that wait, by a number that each of them has.
#[derive(Default)]
pub struct Reapers {
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    next: u64,
    waiting: FxHashMap<u64, WaitingCall>,
}

struct WaitingCall {
    namespace: Arc<str>,
    woken: Arc<Notify>,
    // The orphan for which the call was woken and is looking, so that the next orphan wakes another.
    looks_for: Option<LockPath>,
}

/// A call that waits for an orphaned lock; dropping it ends the wait.
pub struct Reaper {
    reapers: Arc<Reapers>,
    number: u64,
    woken: Arc<Notify>,
}

impl Reapers {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the wait of a call for an orphaned lock of a namespace. The call must read the store
    /// afterwards, so that it misses no lock.
    pub fn wait(self: &Arc<Self>, namespace: Arc<str>) -> Reaper {
        let woken = Arc::new(Notify::new());
        let mut calls = self.calls();
        let number = calls.next;
        calls.next += 1;
        calls.waiting.insert(number, WaitingCall { namespace, woken: woken.clone(), looks_for: None });
        drop(calls);
        Reaper { reapers: self.clone(), number, woken }
    }

    /// True if no call waits.
    pub fn is_empty(&self) -> bool {
        self.calls().waiting.is_empty()
    }

    /// Wakes one call that waits for this orphaned lock: a call that is idle, or else one that looks for
    /// another lock, which then looks once more.
    pub fn wake_for(&self, orphan: &LockPath) {
        let mut calls = self.calls();
        let waiting = calls.waiting.values_mut().filter(|call| is_within(orphan.namespace(), &call.namespace));
        if let Some(call) = waiting.min_by_key(|call| call.looks_for.is_some()) {
            call.looks_for = Some(orphan.clone());
            call.woken.notify_one();
        }
    }
}

impl Reaper {
    /// Notes that the call has looked: it has found a lock, or waits for the next one.
    pub fn has_looked(&self) {
        if let Some(call) = self.reapers.calls().waiting.get_mut(&self.number) {
            call.looks_for = None;
        }
    }

    /// Waits until the call is woken.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        let call = self.reapers.calls().waiting.remove(&self.number);
        // The caller has gone, and its orphan is another call's.
        call.and_then(|call| call.looks_for).iter().for_each(|orphan| self.reapers.wake_for(orphan));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn k17_an_orphan_wakes_one_call_of_its_namespace() {
        let reapers = Arc::<Reapers>::default();
        let [user, all_users, cron] = ["user.update", "user", "cron"].map(|namespace| reapers.wait(namespace.into()));
        let orphan = LockPath::parse_joined("user.update", "7").unwrap();
        let is_woken = |reaper: &Reaper| reaper.woken().now_or_never().is_some();
        let woken = || [&user, &all_users, &cron].map(is_woken);
        assert_eq!(woken(), [false; 3]);
        reapers.wake_for(&orphan);
        assert_eq!(woken().iter().filter(|is_woken| **is_woken).count(), 1);
        // The next orphan wakes the call that is still idle, and a third one has one of them look again.
        (0..2).for_each(|_| reapers.wake_for(&orphan));
        let again = woken();
        assert!((1..=2).contains(&again.iter().filter(|is_woken| **is_woken).count()) && !again[2]);
        [&user, &all_users].into_iter().for_each(Reaper::has_looked);
        // A call that goes before it has looked passes its orphan on.
        (0..2).for_each(|_| reapers.wake_for(&orphan));
        all_users.has_looked();
        assert_eq!(woken(), [true, true, false]);
        drop(user);
        assert!(is_woken(&all_users) && !is_woken(&cron));
        drop((all_users, cron));
        assert!(reapers.is_empty());
    }
}
