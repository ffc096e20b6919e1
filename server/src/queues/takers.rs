//! The calls that wait for a lane of a queue.
//!
//! A saved change that makes a lane ready wakes one call (Q18). A woken call reads the store, so a lost or
//! doubled wake-up costs a read or a delay, never a request.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::queue::{LanePath, QueuePath};
use leasehold_core::session::SessionId;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;

/// The calls that wait, and the lanes that calls are about to take.
#[derive(Default)]
pub struct Takers {
    calls: Mutex<Calls>,
    // Notified when a take of a call was decided.
    decided: Notify,
}

#[derive(Default)]
struct Calls {
    next: u64,
    // The calls of each queue by a number that each of them has, so that the one that came first is the
    // first to be woken.
    waiting: FxHashMap<QueuePath, BTreeMap<u64, WaitingCall>>,
    tried: FxHashSet<LanePath>,
    // The takes of calls that are being decided, by session and queue.
    deciding: FxHashMap<(SessionId, QueuePath), u32>,
}

struct WaitingCall {
    session: SessionId,
    woken: Arc<Notify>,
    state: CallState,
    is_replaced: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallState {
    /// The call looks for a lane, or was woken to look.
    Looking,
    /// The call waits for a lane.
    Idle,
    /// The call waits until its worker holds fewer batches.
    Full,
}

/// A call that waits for lanes of a queue; dropping it ends the wait.
pub struct Taker {
    takers: Arc<Takers>,
    queue: QueuePath,
    session: SessionId,
    number: u64,
    woken: Arc<Notify>,
}

/// A take of a call that is being decided; dropping it notes the decision.
pub struct DecidingTake {
    takers: Arc<Takers>,
    of: (SessionId, QueuePath),
}

/// A lane that a call is about to take; dropping it leaves the lane to others.
pub struct TriedLane {
    takers: Arc<Takers>,
    lane: LanePath,
}

impl Takers {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the wait of a session's call for lanes of a queue, and ends that of the session's former call.
    /// The call must read the store afterwards, so that it misses no lane.
    pub fn wait(self: &Arc<Self>, queue: QueuePath, session: SessionId) -> Taker {
        let woken = Arc::new(Notify::new());
        let mut calls = self.calls();
        let number = calls.next;
        calls.next += 1;
        let of_queue = calls.waiting.entry(queue.clone()).or_default();
        for former in of_queue.values_mut().filter(|call| call.session == session) {
            former.is_replaced = true;
            former.woken.notify_one();
        }
        let call = WaitingCall { session, woken: woken.clone(), state: CallState::Looking, is_replaced: false };
        of_queue.insert(number, call);
        drop(calls);
        Taker { takers: self.clone(), queue, session, number, woken }
    }

    /// Wakes one call that is idle. If none is, has one that looks look again, because it may have read before
    /// the change.
    pub fn wake_for(&self, queue: &QueuePath) {
        let mut calls = self.calls();
        let Some(of_queue) = calls.waiting.get_mut(queue) else { return };
        if !wake_idle(of_queue)
            && let Some(call) = of_queue.values().find(|call| call.state == CallState::Looking)
        {
            call.woken.notify_one();
        }
    }

    /// Wakes the call of a worker that holds one batch less.
    pub fn wake_worker(&self, queue: &QueuePath, session: SessionId) {
        let calls = self.calls();
        let of_queue = calls.waiting.get(queue).into_iter().flat_map(BTreeMap::values);
        of_queue.filter(|call| call.session == session).for_each(|call| call.woken.notify_one());
    }

    /// Notes that a call is about to take a lane; `None` if another call is. So the calls that look at the same
    /// time try different lanes.
    pub fn try_lane(self: &Arc<Self>, lane: &LanePath) -> Option<TriedLane> {
        self.calls().tried.insert(lane.clone()).then(|| TriedLane { takers: self.clone(), lane: lane.clone() })
    }
}

/// Wakes the first call that is idle. Returns false if none is.
fn wake_idle(of_queue: &mut BTreeMap<u64, WaitingCall>) -> bool {
    let Some(call) = of_queue.values_mut().find(|call| call.state == CallState::Idle) else { return false };
    call.state = CallState::Looking;
    call.woken.notify_one();
    true
}

impl Taker {
    /// Begins a look at the store. Returns false if a later call of the session has taken this one's place.
    pub fn begin_look(&self) -> bool {
        self.set_state(CallState::Looking)
    }

    /// Begins a take of the call; `None` if a later call of the session has taken this one's place.
    pub fn begin_take(&self) -> Option<DecidingTake> {
        let mut calls = self.takers.calls();
        let call = calls.waiting.get(&self.queue).and_then(|of_queue| of_queue.get(&self.number));
        if call.is_none_or(|call| call.is_replaced) {
            return None;
        }
        let of = (self.session, self.queue.clone());
        *calls.deciding.entry(of.clone()).or_default() += 1;
        drop(calls);
        Some(DecidingTake { takers: self.takers.clone(), of })
    }

    /// Waits until no take of the session's former calls for the queue is being decided. None of them begins another,
    /// since this call has taken their place.
    pub async fn former_decided(&self) {
        let of = (self.session, self.queue.clone());
        loop {
            let decided = self.takers.decided.notified();
            if !self.takers.calls().deciding.contains_key(&of) {
                return;
            }
            decided.await;
        }
    }

    /// Notes that the call has found no lane, and waits for one. Returns when it is woken.
    pub async fn woken(&self) {
        self.set_state(CallState::Idle);
        self.woken.notified().await;
    }

    /// Waits until the worker holds one batch less, or another reason wakes the call.
    pub async fn woken_when_full(&self) {
        self.set_state(CallState::Full);
        self.woken.notified().await;
    }

    /// Wakes another call that is idle, because more lanes are ready than this one takes.
    pub fn pass_on(&self) {
        let mut calls = self.takers.calls();
        calls.waiting.get_mut(&self.queue).map(wake_idle);
    }

    fn set_state(&self, state: CallState) -> bool {
        let mut calls = self.takers.calls();
        let call = calls.waiting.get_mut(&self.queue).and_then(|of_queue| of_queue.get_mut(&self.number));
        call.is_some_and(|call| {
            call.state = state;
            !call.is_replaced
        })
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let mut calls = self.takers.calls();
        let Some(of_queue) = calls.waiting.get_mut(&self.queue) else { return };
        // The caller has gone. The lane for which it was woken, or would have woken by itself, is another call's.
        if of_queue.remove(&self.number).is_some_and(|call| call.state != CallState::Full) {
            wake_idle(of_queue);
        }
        if of_queue.is_empty() {
            calls.waiting.remove(&self.queue);
        }
    }
}

impl Drop for DecidingTake {
    fn drop(&mut self) {
        let mut calls = self.takers.calls();
        if let Entry::Occupied(mut count) = calls.deciding.entry(self.of.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(calls);
        self.takers.decided.notify_waiters();
    }
}

impl Drop for TriedLane {
    fn drop(&mut self) {
        self.takers.calls().tried.remove(&self.lane);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::*;

    fn session(number: u128) -> SessionId {
        SessionId(Uuid::from_u128(number))
    }

    #[test]
    fn q18_a_ready_lane_wakes_one_idle_call_of_its_queue() {
        let takers = Arc::<Takers>::default();
        let [sheets, mails] = ["sheets", "mails"].map(|name| QueuePath::parse(name).unwrap());
        let [one, other] = [1, 2].map(|number| takers.wait(sheets.clone(), session(number)));
        let foreign = takers.wait(mails.clone(), session(1));
        let is_woken = |taker: &Taker| taker.woken().now_or_never().is_some();
        let woken = || [&one, &other, &foreign].map(is_woken);
        assert_eq!(woken(), [false; 3]);
        takers.wake_for(&sheets);
        assert_eq!(woken(), [true, false, false]);
        // A call that looks is told to look again only if no call is idle.
        assert!(one.begin_look());
        takers.wake_for(&sheets);
        assert!(is_woken(&other) && other.begin_look());
        takers.wake_for(&sheets);
        assert_eq!(woken(), [true, false, false]);
        // A call that goes passes its lane on.
        drop(one);
        assert!(is_woken(&other));
        takers.wake_worker(&mails, session(1));
        assert!(foreign.woken_when_full().now_or_never().is_some());
    }

    #[test]
    fn a_later_call_of_a_session_ends_the_former_one() {
        let takers = Arc::<Takers>::default();
        let queue = QueuePath::parse("sheets").unwrap();
        let (former, later) = (takers.wait(queue.clone(), session(1)), takers.wait(queue.clone(), session(1)));
        assert!(former.woken().now_or_never().is_some());
        assert!(!former.begin_look() && later.begin_look());
        let lane = LanePath::parse(queue, "7").unwrap();
        let tried = takers.try_lane(&lane);
        assert!(tried.is_some() && takers.try_lane(&lane).is_none());
        drop(tried);
        assert!(takers.try_lane(&lane).is_some());
    }

    #[test]
    fn q11_a_call_that_takes_the_place_of_another_waits_for_its_takes() {
        let takers = Arc::<Takers>::default();
        let queue = QueuePath::parse("sheets").unwrap();
        let former = takers.wait(queue.clone(), session(1));
        let [one, other] = [former.begin_take().unwrap(), former.begin_take().unwrap()];
        let [foreign, mails] =
            [takers.wait(queue.clone(), session(2)), takers.wait(QueuePath::parse("mails").unwrap(), session(1))];
        let later = takers.wait(queue, session(1));
        assert!(former.begin_take().is_none());
        assert!([foreign, mails].iter().all(|call| call.former_decided().now_or_never().is_some()));
        drop(one);
        let mut waiting = Box::pin(later.former_decided());
        assert!((&mut waiting).now_or_never().is_none());
        drop((other, former));
        assert!(waiting.now_or_never().is_some() && later.begin_take().is_some());
    }
}
