//! The places of the connections whose clients have shown an identity. Each identity has a share of
//! them, as in [`LimitShares`]. At the end of its share, its connection that is unused the longest
//! gives way to a new one. Administrators always find a place, because they can end the cause.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use leasehold_core::cell::CellId;
use tokio::sync::oneshot;

use crate::shares::{LimitReached, LimitShares, Sharer};

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    /// The origin of the times in [`Usage`].
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    max: usize,
    sharers: BTreeSet<CellId>,
    shares: LimitShares,
    // A connection gives way when its sender is dropped.
    connections: BTreeMap<(Sharer, u64), (Arc<Usage>, oneshot::Sender<()>)>,
    next: u64,
}

/// The time since which a connection runs no call, in milliseconds; [`Usage::BUSY`] while it runs one.
#[derive(Debug)]
struct Usage(AtomicU64);

impl Usage {
    const BUSY: u64 = u64::MAX;
}

/// The place of one connection. Dropping the value returns the place.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    key: (Sharer, u64),
    usage: Arc<Usage>,
    gives_way: oneshot::Receiver<()>,
}

/// A place that was found, and if another connection gave way for it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) another_gave_way: bool,
}

impl Places {
    /// Places of a listener on which no connection is open.
    pub(super) fn new() -> Arc<Self> {
        let shares = LimitShares::new("limits.connections", 0, BTreeSet::new());
        let state = State { max: 0, sharers: BTreeSet::new(), shares, connections: BTreeMap::new(), next: 0 };
        Arc::new(Self { started: Instant::now(), state: Mutex::new(state) })
    }

    /// Changes the number of places, and the identities that share them. Connections go on.
    pub(super) fn resize(&self, max: usize, sharers: BTreeSet<CellId>) {
        let mut state = self.lock();
        if state.max != max || state.sharers != sharers {
            state.shares.resize(max, sharers.clone());
            (state.max, state.sharers) = (max, sharers);
        }
    }

    /// True if connections with an identity have all places.
    pub(super) fn are_taken(&self) -> bool {
        let state = self.lock();
        state.shares.total() >= state.max
    }

    /// Takes a place for a new connection of this identity.
    ///
    /// # Errors
    /// The identity has used up its share, or all places are taken, and each of its connections runs
    /// a call.
    pub(super) fn take(self: &Arc<Self>, sharer: Sharer) -> Result<Found, LimitReached> {
        let mut state = self.lock();
        let mut another_gave_way = false;
        if let Err(limit) = state.shares.check(sharer.0, 1) {
            let victim = state.unused_of(sharer).or_else(|| state.place_for_admin(sharer)).ok_or(limit)?;
            state.remove(victim);
            another_gave_way = true;
        }
        let (sender, gives_way) = oneshot::channel();
        let usage = Arc::new(Usage(AtomicU64::new(self.now())));
        let key = (sharer, state.next);
        state.next += 1;
        state.shares.add(sharer.0, 1);
        state.connections.insert(key, (usage.clone(), sender));
        drop(state);
        Ok(Found { place: Place { places: self.clone(), key, usage, gives_way }, another_gave_way })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(Usage::BUSY - 1)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // INVARIANT: each change of the places is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The connection of this identity that runs no call for the longest; `None` if each runs one.
    fn unused_of(&self, sharer: Sharer) -> Option<(Sharer, u64)> {
        self.first_of(sharer).filter(|(since, _)| *since != Usage::BUSY).map(|(_, key)| key)
    }

    /// The connection that gives way to an administrator's: one of the identity with the most.
    fn place_for_admin(&self, sharer: Sharer) -> Option<(Sharer, u64)> {
        if sharer != Sharer::ADMINS {
            return None;
        }
        let most = self.connections.keys().map(|(sharer, _)| *sharer).max_by_key(|one| self.shares.used(one.0))?;
        self.first_of(most).map(|(_, key)| key)
    }

    /// The first connection of an identity to give way: those that run no call come first.
    fn first_of(&self, sharer: Sharer) -> Option<(u64, (Sharer, u64))> {
        let connections = self.connections.range((sharer, 0)..=(sharer, u64::MAX));
        connections.map(|(key, (usage, _))| (usage.0.load(Ordering::Relaxed), *key)).min()
    }

    fn remove(&mut self, key: (Sharer, u64)) {
        if self.connections.remove(&key).is_some() {
            self.shares.subtract(key.0.0, 1);
        }
    }
}

impl Place {
    /// Notes if the connection runs a call now.
    pub(super) fn note(&self, is_busy: bool) {
        let was_busy = self.usage.0.load(Ordering::Relaxed) == Usage::BUSY;
        if is_busy != was_busy {
            self.usage.0.store(if is_busy { Usage::BUSY } else { self.places.now() }, Ordering::Relaxed);
        }
    }

    /// Ready when the connection must give way to a newer one.
    pub(super) fn poll_gives_way(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The sender never sends.
        Pin::new(&mut self.gives_way).poll(cx).map(drop)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::task::noop_waker_ref;

    use super::*;

    const ONE: Sharer = Sharer(CellId(1));
    const TWO: Sharer = Sharer(CellId(2));

    /// Twelve places, of which each of the three identities has two of its own.
    fn places() -> Arc<Places> {
        let places = Places::new();
        places.resize(12, [ONE.0, TWO.0, Sharer::ADMINS.0].into());
        places
    }

    fn take(places: &Arc<Places>, sharer: Sharer, count: usize) -> Vec<Place> {
        (0..count).map(|_| places.take(sharer).unwrap().place).collect()
    }

    fn gives_way(place: &mut Place) -> bool {
        place.poll_gives_way(&mut Context::from_waker(noop_waker_ref())).is_ready()
    }

    #[test]
    fn the_connection_of_the_same_identity_that_is_unused_the_longest_gives_way() {
        let places = places();
        let (mut ones, mut twos) = (take(&places, ONE, 8), take(&places, TWO, 2));
        ones[0].note(true);
        let found = places.take(ONE).unwrap();
        assert!(found.another_gave_way);
        let gone: Vec<_> = ones.iter_mut().map(gives_way).collect();
        assert_eq!(gone, [false, true, false, false, false, false, false, false]);
        assert!(!twos.iter_mut().any(gives_way));
        ones.iter().chain([&found.place]).for_each(|place| place.note(true));
        let refused = places.take(ONE).map(drop);
        assert_eq!(refused, Err(LimitReached::OfCell { setting: "limits.connections", max: 12 }));
        drop((ones, twos, found));
        let state = places.lock();
        assert_eq!((state.shares.total(), state.connections.len()), (0, 0));
    }

    #[test]
    fn an_administrator_always_finds_a_place() {
        let places = places();
        let (mut ones, twos, admins) = (take(&places, ONE, 8), take(&places, TWO, 2), take(&places, Sharer::ADMINS, 2));
        ones.iter().chain(&twos).chain(&admins).for_each(|place| place.note(true));
        assert!(places.are_taken());
        assert!(places.take(TWO).is_err());
        let found = places.take(Sharer::ADMINS).unwrap();
        assert!(found.another_gave_way && gives_way(&mut ones[0]));
        assert!(places.are_taken());
    }
}
