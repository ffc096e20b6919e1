//! Offers the ready lanes of queues to the calls that take. Each lane is offered to one call at a time, so calls that
//! look at the same time try different lanes, and one read of the store serves all of them.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::queue::{LanePath, QueuePath};
use leasehold_core::rows::NetChanges;
use leasehold_core::time::Timestamp;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Takers;
use super::ready::{Change, Found, Freshness, Offer, Place, Window};

/// The most queues whose ready lanes are in memory. If there are more, those that no call uses now are forgotten.
const MAX_WINDOWS: usize = 256;
/// The longest time for which a window offers lanes if other servers change them too.
const SHARED_AGE: Duration = Duration::from_millis(50);
/// The longest time for which a window offers lanes after one of them was not ready any more.
const DOUBTFUL_AGE: Duration = Duration::from_millis(5);
/// The longest time for which a window is trusted that has no lane, although this server alone changes them.
const EMPTY_AGE: Duration = Duration::from_secs(1);

/// The ready lanes of the queues that are in use.
#[derive(Default)]
pub(super) struct Offers {
    windows: Mutex<FxHashMap<QueuePath, Window>>,
    // Notified when a read has ended.
    read: Notify,
}

/// The next step of a call that looks for a lane.
pub enum Next {
    /// The call may take this lane.
    Offered(Offered),
    /// No lane is ready. The first delayed lane is due then.
    Nothing(Option<Timestamp>),
    /// The call must read what the store offers.
    Read(OfferRead),
}

/// A lane that is offered to one call. If it is dropped, the lane is offered to others.
pub struct Offered {
    takers: Arc<Takers>,
    lane: LanePath,
    place: Place,
    is_decided: bool,
    /// True if more lanes were ready.
    pub has_more: bool,
}

/// A read that is under way. If it is dropped, another call reads.
pub struct OfferRead {
    takers: Arc<Takers>,
    queue: QueuePath,
    began: Instant,
    offer: Option<Offer>,
    /// The most lanes to read of each list.
    pub limit: usize,
}

impl Offers {
    fn windows(&self) -> MutexGuard<'_, FxHashMap<QueuePath, Window>> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, queue: &QueuePath, change: impl FnOnce(&mut Window)) {
        self.windows().get_mut(queue).map(change);
    }

    /// Follows the saved changes of a group.
    pub(super) fn saved(&self, changes: &NetChanges) {
        if changes.lanes.is_empty() && changes.queues.is_empty() {
            return;
        }
        let mut windows = self.windows();
        for change in &changes.lanes {
            let Some(window) = windows.get_mut(change.key.queue()) else { continue };
            let [before, after] =
                [&change.before, &change.after].map(|lane| lane.as_ref().and_then(|lane| Place::of(&change.key, lane)));
            if before != after {
                window.follow(&Change::Lane(change.key.clone(), before, after));
            }
        }
        for change in &changes.queues {
            let is_open = change.after.unwrap_or_default().is_open();
            windows.get_mut(&change.key).into_iter().for_each(|window| window.follow(&Change::Queue(is_open)));
        }
    }
}

impl Takers {
    /// Returns the next step of a call that has begun to look at `began`. Waits while another call reads.
    /// `is_shared` is true if other servers change the lanes too.
    pub async fn next_lane(
        self: &Arc<Self>,
        queue: &QueuePath,
        now: impl Fn() -> Timestamp,
        (began, is_shared): (Instant, bool),
    ) -> Next {
        let ago = |age| began.checked_sub(age).unwrap_or(began);
        let freshness = Freshness {
            of_offer: is_shared.then(|| ago(SHARED_AGE)),
            of_doubtful_offer: ago(DOUBTFUL_AGE),
            of_nothing: if is_shared { began } else { ago(EMPTY_AGE) },
        };
        loop {
            let read = self.offers.read.notified();
            if let Some(next) = self.try_next(queue, now(), freshness) {
                return next;
            }
            read.await;
        }
    }

    /// Returns the next step of a call; `None` if it has to wait for another call's read.
    fn try_next(self: &Arc<Self>, queue: &QueuePath, now: Timestamp, freshness: Freshness) -> Option<Next> {
        let mut windows = self.offers.windows();
        if windows.len() >= MAX_WINDOWS && !windows.contains_key(queue) {
            windows.retain(|_, window| !window.is_idle());
        }
        let window = match windows.entry(queue.clone()) {
            Entry::Occupied(window) => window.into_mut(),
            Entry::Vacant(place) => place.insert(Window::default()),
        };
        match window.find(now, freshness) {
            Found::Lane(lane, place, has_more) => {
                let takers = self.clone();
                Some(Next::Offered(Offered { takers, lane, place, is_decided: false, has_more }))
            }
            Found::Nothing(due_at) => Some(Next::Nothing(due_at)),
            Found::Unknown if window.is_reading() => None,
            Found::Unknown => {
                let limit = window.begin_read();
                let (takers, queue) = (self.clone(), queue.clone());
                Some(Next::Read(OfferRead { takers, queue, began: Instant::now(), offer: None, limit }))
            }
        }
    }
}

impl OfferRead {
    /// Ends the read with what the store offers.
    pub fn end(mut self, offer: Offer) {
        self.offer = Some(offer);
    }
}

impl Drop for OfferRead {
    fn drop(&mut self) {
        let read = self.offer.take().map(|offer| (offer, self.began));
        self.takers.offers.with(&self.queue, |window| window.end_read(read));
        self.takers.offers.read.notify_waiters();
    }
}

impl Offered {
    /// Returns the lane.
    pub fn lane(&self) -> &LanePath {
        &self.lane
    }

    /// Notes that the lane was taken, or was not ready any more.
    pub fn decided(mut self, is_taken: bool) {
        self.is_decided = true;
        self.takers.offers.with(self.lane.queue(), |window| match is_taken {
            true => window.taken(&self.lane),
            false => window.not_ready(&self.lane),
        });
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if !self.is_decided {
            self.takers.offers.with(self.lane.queue(), |window| window.put_back(&self.lane, self.place));
            self.takers.wake_for(self.lane.queue());
        }
    }
}
