//! The calls that wait for a lane of a queue.
//!
//! A saved change that makes a lane ready wakes one call (Q18). A woken call reads the store, so a lost or
//! doubled wake-up costs a read or a delay, never a request.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::queue::{QueuePath, TakeId};
use leasehold_core::session::SessionId;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;

use super::offers::Offers;

/// The most changes of its worker's holds that a call is told of.
const MAX_HOLD_NEWS: usize = 1_024;

/// The calls that wait, and the lanes that are ready for them.
#[derive(Default)]
pub struct Takers {
    pub(super) offers: Offers,
    calls: Mutex<Calls>,
    // Notified when a take of a call was decided.
    decided: Notify,
}

#[derive(Default)]
struct Calls {
    next: u64,
    waiting: FxHashMap<QueuePath, CallsOfQueue>,
    // The takes of calls that are being decided, by session and queue.
    deciding: FxHashMap<(SessionId, QueuePath), u32>,
}

/// The calls of one queue, each by a number: the one that came first is the first to be woken.
#[derive(Default)]
struct CallsOfQueue {
    calls: BTreeMap<u64, WaitingCall>,
    // The calls that are in the state of the same name.
    idle: BTreeSet<u64>,
    looking: BTreeSet<u64>,
    // The last call of each session.
    of_session: FxHashMap<SessionId, u64>,
}

struct WaitingCall {
    woken: Arc<Notify>,
    is_full: bool,
    is_replaced: bool,
    news: HoldNews,
}

/// The holds of a session in a queue that were saved since its call has asked for them.
#[derive(Default)]
pub struct HoldNews {
    /// The takes that have begun.
    pub begun: FxHashSet<TakeId>,
    /// The takes that have ended.
    pub ended: FxHashSet<TakeId>,
    /// True if there were more than are kept, so that the store must be read.
    pub is_cut: bool,
}

impl HoldNews {
    fn add(&mut self, take: TakeId, is_begun: bool) {
        if self.begun.len() + self.ended.len() >= MAX_HOLD_NEWS {
            *self = Self { is_cut: true, ..Self::default() };
        }
        match is_begun {
            true => self.begun.insert(take),
            false => self.ended.insert(take),
        };
    }
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
        let former = of_queue.of_session.insert(session, number);
        if let Some(former) = former.and_then(|former| of_queue.calls.get_mut(&former)) {
            former.is_replaced = true;
            former.woken.notify_one();
        }
        let (is_full, is_replaced, news) = (false, false, HoldNews::default());
        of_queue.calls.insert(number, WaitingCall { woken: woken.clone(), is_full, is_replaced, news });
        of_queue.looking.insert(number);
        drop(calls);
        Taker { takers: self.clone(), queue, session, number, woken }
    }

    /// Wakes one call that is idle. If none is, has one that looks look again, because it may have read before
    /// the change, and returns false.
    pub fn wake_for(&self, queue: &QueuePath) -> bool {
        let mut calls = self.calls();
        let Some(of_queue) = calls.waiting.get_mut(queue) else { return false };
        let is_woken = of_queue.wake_idle();
        if !is_woken && let Some(call) = of_queue.looking.first().and_then(|number| of_queue.calls.get(number)) {
            call.woken.notify_one();
        }
        is_woken
    }

    /// Wakes up to `lanes` calls as [`wake_for`](Self::wake_for) does, and returns the number of those that were
    /// idle.
    pub fn wake_idle(&self, queue: &QueuePath, lanes: u32) -> u32 {
        (0..lanes).take_while(|_| self.wake_for(queue)).map(|_| 1).sum()
    }

    /// Tells the call of a worker that a take of it has begun.
    pub(super) fn begun(&self, queue: &QueuePath, session: SessionId, take: TakeId) {
        let mut calls = self.calls();
        let call = calls.waiting.get_mut(queue).and_then(|of_queue| of_queue.last_call(session));
        call.into_iter().for_each(|call| call.news.add(take, true));
    }

    /// Tells the call of a worker that a take of it has ended, and wakes the call: the worker may hold one batch more.
    pub(super) fn ended(&self, queue: &QueuePath, session: SessionId, take: TakeId) {
        let mut calls = self.calls();
        let Some(call) = calls.waiting.get_mut(queue).and_then(|of_queue| of_queue.last_call(session)) else { return };
        call.news.add(take, false);
        call.woken.notify_one();
    }
}

impl CallsOfQueue {
    /// Wakes the first call that is idle. Returns false if none is.
    fn wake_idle(&mut self) -> bool {
        let Some(number) = self.idle.pop_first() else { return false };
        self.looking.insert(number);
        self.calls.get(&number).into_iter().for_each(|call| call.woken.notify_one());
        true
    }

    fn last_call(&mut self, session: SessionId) -> Option<&mut WaitingCall> {
        self.calls.get_mut(self.of_session.get(&session)?)
    }

    /// Sets the state of a call. Returns false if another has taken its place.
    fn set_state(&mut self, number: u64, state: CallState) -> bool {
        let Some(call) = self.calls.get_mut(&number) else { return false };
        call.is_full = state == CallState::Full;
        for (of_state, numbers) in [(CallState::Idle, &mut self.idle), (CallState::Looking, &mut self.looking)] {
            match state == of_state {
                true => numbers.insert(number),
                false => numbers.remove(&number),
            };
        }
        !call.is_replaced
    }
}

impl Taker {
    /// Begins a look at the store. Returns false if a later call of the session has taken this one's place.
    pub fn begin_look(&self) -> bool {
        self.set_state(CallState::Looking)
    }

    /// Begins a take of the call; `None` if a later call of the session has taken this one's place.
    pub fn begin_take(&self) -> Option<DecidingTake> {
        let mut calls = self.takers.calls();
        let call = calls.waiting.get(&self.queue).and_then(|of_queue| of_queue.calls.get(&self.number));
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
        calls.waiting.get_mut(&self.queue).map(CallsOfQueue::wake_idle);
    }

    /// Returns the news of what the worker holds since the last call of this function.
    pub fn hold_news(&self) -> HoldNews {
        let mut calls = self.takers.calls();
        let call = calls.waiting.get_mut(&self.queue).and_then(|of_queue| of_queue.calls.get_mut(&self.number));
        call.map(|call| std::mem::take(&mut call.news)).unwrap_or_default()
    }

    fn set_state(&self, state: CallState) -> bool {
        let mut calls = self.takers.calls();
        calls.waiting.get_mut(&self.queue).is_some_and(|of_queue| of_queue.set_state(self.number, state))
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let mut calls = self.takers.calls();
        let Some(of_queue) = calls.waiting.get_mut(&self.queue) else { return };
        of_queue.idle.remove(&self.number);
        of_queue.looking.remove(&self.number);
        if of_queue.of_session.get(&self.session) == Some(&self.number) {
            of_queue.of_session.remove(&self.session);
        }
        // The caller has gone. The lane for which it was woken, or would have woken by itself, is another call's.
        if of_queue.calls.remove(&self.number).is_some_and(|call| !call.is_full) {
            of_queue.wake_idle();
        }
        if of_queue.calls.is_empty() {
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
        let take = TakeId(Uuid::from_u128(7));
        takers.begun(&mails, session(1), take);
        assert!(foreign.woken_when_full().now_or_never().is_none());
        takers.ended(&mails, session(1), take);
        assert!(foreign.woken_when_full().now_or_never().is_some());
        let HoldNews { begun, ended, is_cut } = foreign.hold_news();
        assert!(begun.contains(&take) && ended.contains(&take) && !is_cut && foreign.hold_news().begun.is_empty());
    }

    #[test]
    fn a_later_call_of_a_session_ends_the_former_one() {
        let takers = Arc::<Takers>::default();
        let queue = QueuePath::parse("sheets").unwrap();
        let (former, later) = (takers.wait(queue.clone(), session(1)), takers.wait(queue, session(1)));
        assert!(former.woken().now_or_never().is_some());
        assert!(!former.begin_look() && later.begin_look());
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
