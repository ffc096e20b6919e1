//! The permits of list calls: how many run, how many wait, and the share of each caller in both.
//!
//! Lists that wait run in turns: a place that is free goes to the caller with the fewest running
//! lists. So one caller's lists keep another caller's list waiting for one place at most.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::cell::CellId;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use crate::identity::Caller;
use crate::shares::{LimitReached, LimitShares, Sharer};

const RUNNING: &str = "limits.concurrent_lists";
const QUEUED: &str = "limits.queued_lists";

/// The sharer of a list about `cell`. A caller without a certificate, on a server in plain text,
/// speaks for any cell.
pub(super) fn list_sharer(caller: &Caller, cell: CellId) -> Sharer {
    match caller {
        Caller::Authenticated(_) => Sharer::of(caller),
        _ => Sharer(cell),
    }
}

/// The sharer of a list of locks. On a server in plain text, all who list locks share one part.
pub(super) fn lock_list_sharer(caller: &Caller) -> Sharer {
    match caller {
        Caller::Authenticated(_) => Sharer::of(caller),
        _ => Sharer::SERVICES,
    }
}

/// The permits of all list calls.
pub(super) struct ListPermits {
    lists: Mutex<Lists>,
    /// Wakes the lists that wait.
    changed: Notify,
}

struct Lists {
    queued: usize,
    running: LimitShares,
    // Lists that run or wait.
    admitted: LimitShares,
    waiting: FxHashMap<CellId, usize>,
}

/// A permit of a list to wait; dropping it returns it.
pub(super) struct Admitted {
    permits: Arc<ListPermits>,
    sharer: Sharer,
}

/// A permit of a list to run; dropping it returns it.
pub(super) struct Running {
    admitted: Admitted,
}

/// A list in the count of those that wait.
struct Waiting<'a>(&'a Admitted);

impl ListPermits {
    /// The permits for `concurrent` running lists and `queued` waiting ones of these cells.
    pub(super) fn new(concurrent: usize, queued: usize, cells: BTreeSet<CellId>) -> Arc<Self> {
        let shares = |setting| LimitShares::new(setting, 0, BTreeSet::new());
        let lists = Lists { queued, running: shares(RUNNING), admitted: shares(QUEUED), waiting: FxHashMap::default() };
        let permits = Self { lists: Mutex::new(lists), changed: Notify::new() };
        permits.resize(concurrent, queued, cells);
        Arc::new(permits)
    }

    /// Changes the limits and the cells that share them. Lists that run or wait go on.
    pub(super) fn resize(&self, concurrent: usize, queued: usize, mut sharers: BTreeSet<CellId>) {
        sharers.extend([Sharer::ADMINS.0, Sharer::SERVICES.0]);
        let mut lists = self.lock();
        lists.queued = queued;
        lists.running.resize(concurrent, sharers.clone());
        lists.admitted.resize(concurrent.saturating_add(queued), sharers);
        drop(lists);
        self.changed.notify_waiters();
    }

    /// Admits a list, which may then wait.
    ///
    /// # Errors
    /// Too many lists wait already, or too many of this caller.
    pub(super) fn admit(self: &Arc<Self>, sharer: Sharer) -> Result<Admitted, LimitReached> {
        let mut lists = self.lock();
        let max = lists.queued;
        lists.admitted.check(sharer.0, 1).map_err(|limit| match limit {
            LimitReached::OfCell { setting, .. } => LimitReached::ListsOfCaller { setting, max },
            _ => LimitReached::OfServer { setting: QUEUED, max },
        })?;
        lists.admitted.add(sharer.0, 1);
        Ok(Admitted { permits: self.clone(), sharer })
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        // INVARIANT: each change of the counts is complete before anything can panic.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// Waits until the list may run.
    pub(super) async fn run(self) -> Running {
        self.turn().await;
        Running { admitted: self }
    }

    async fn turn(&self) {
        let _waiting = Waiting::new(self);
        loop {
            // The wait begins before the attempt, so that no change in between is missed.
            let changed = self.permits.changed.notified();
            if self.permits.lock().start(self.sharer.0) {
                return;
            }
            changed.await;
        }
    }
}

impl Lists {
    /// Counts one more running list of this caller and returns true, if it may run now.
    fn start(&mut self, sharer: CellId) -> bool {
        let may_run = self.may_run(sharer);
        if may_run {
            self.running.add(sharer, 1);
        }
        may_run
    }

    /// True if a list of this caller may run now: there is room in the caller's share, and no other
    /// caller who waits and has room runs fewer lists.
    fn may_run(&self, sharer: CellId) -> bool {
        let has_room = |sharer| self.running.check(sharer, 1).is_ok();
        let runs = self.running.used(sharer);
        has_room(sharer) && !self.waiting.keys().any(|other| self.running.used(*other) < runs && has_room(*other))
    }
}

impl<'a> Waiting<'a> {
    fn new(admitted: &'a Admitted) -> Self {
        *admitted.permits.lock().waiting.entry(admitted.sharer.0).or_default() += 1;
        Self(admitted)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Admitted { permits, sharer } = self.0;
        let mut lists = permits.lock();
        let count = lists.waiting.get(&sharer.0).copied().unwrap_or(0);
        match count.checked_sub(1) {
            Some(rest) if rest > 0 => lists.waiting.insert(sharer.0, rest),
            _ => lists.waiting.remove(&sharer.0),
        };
        drop(lists);
        // Others may have waited for this list's turn.
        permits.changed.notify_waiters();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Admitted { permits, sharer } = &self.admitted;
        permits.lock().running.subtract(sharer.0, 1);
        permits.changed.notify_waiters();
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.permits.lock().admitted.subtract(self.sharer.0, 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const ONE: Sharer = Sharer(CellId(1));
    const TWO: Sharer = Sharer(CellId(2));

    fn permits(concurrent: usize, queued: usize) -> Arc<ListPermits> {
        ListPermits::new(concurrent, queued, [CellId(1), CellId(2)].into())
    }

    #[test]
    fn one_caller_leaves_others_their_part_of_the_queue() {
        let permits = permits(2, 10);
        // Of 12 places, one is kept for each of the four.
        let admitted: Vec<_> = (0..9).map(|_| permits.admit(ONE).unwrap()).collect();
        let refused = permits.admit(ONE).map(drop);
        assert_eq!(refused, Err(LimitReached::ListsOfCaller { setting: QUEUED, max: 10 }));
        permits.admit(TWO).unwrap();
        permits.admit(Sharer::ADMINS).unwrap();
        drop(admitted);
        permits.admit(ONE).unwrap();
    }

    #[test]
    fn a_free_place_goes_to_the_caller_who_runs_the_fewest() {
        let permits = permits(2, 20);
        let running: Vec<_> =
            (0..2).map(|_| permits.admit(ONE).unwrap().run().now_or_never().expect("there is room")).collect();
        let mut own = Box::pin(permits.admit(ONE).unwrap().run());
        let mut other = Box::pin(permits.admit(TWO).unwrap().run());
        assert!((&mut own).now_or_never().is_none() && (&mut other).now_or_never().is_none());
        let mut running = running.into_iter();
        drop(running.next());
        assert!((&mut own).now_or_never().is_none(), "the other caller runs none");
        let others = (&mut other).now_or_never().expect("it is its turn");
        assert!((&mut own).now_or_never().is_none(), "no place is free");
        drop(others);
        assert!((&mut own).now_or_never().is_some());
    }
}
