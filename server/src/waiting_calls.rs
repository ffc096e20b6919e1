//! The calls whose heads have arrived, but not their bodies. Each holds a stream, a head and a task,
//! which are many times the bytes that were sent, so their number is bounded.
//!
//! If a caller has as many of them as its share allows, its oldest gives way to a new one. A body
//! follows its head within moments, so a commit is not refused because other calls wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::config::Config;
use crate::shares::{LimitShares, Sharer};

/// The setting of the bound on the bytes of requests, and once more on those of waiting calls.
pub const REQUEST_SETTING: &str = "limits.request_mib";

/// The memory of a call whose body has not arrived: its stream, its head and its task.
const CALL_BYTES: usize = 6 * 1024;

/// The calls of all connections that wait for their bodies.
#[derive(Debug)]
pub struct WaitingCalls(Mutex<State>);

#[derive(Debug)]
struct State {
    shares: LimitShares,
    // A call gives way when its sender is dropped.
    calls: BTreeMap<(Sharer, u64), oneshot::Sender<()>>,
    next: u64,
}

/// A call that waits for its body. Dropping the value ends the wait.
#[derive(Debug)]
pub struct WaitingCall {
    calls: Arc<WaitingCalls>,
    key: (Sharer, u64),
    gives_way: oneshot::Receiver<()>,
}

impl WaitingCalls {
    /// Room for calls that take `max` bytes.
    pub fn new(max: usize) -> Arc<Self> {
        let shares = LimitShares::new(REQUEST_SETTING, max, Sharer::nobody());
        Arc::new(Self(Mutex::new(State { shares, calls: BTreeMap::new(), next: 0 })))
    }

    /// Changes the bound, and the callers who share it.
    pub fn set_bound(&self, max: usize, config: &Config) {
        self.lock().shares.resize(max, Sharer::all(config));
    }

    /// Adds a call of this caller. If the caller's share is used up, its oldest call gives way.
    pub fn add(self: &Arc<Self>, sharer: Sharer) -> WaitingCall {
        let (sender, gives_way) = oneshot::channel();
        let mut state = self.lock();
        if state.shares.check(sharer.0, CALL_BYTES).is_err() {
            let oldest = state.calls.range((sharer, 0)..=(sharer, u64::MAX)).next().map(|(key, _)| *key);
            oldest.into_iter().for_each(|key| state.remove(key));
        }
        let key = (sharer, state.next);
        state.next += 1;
        state.shares.add(sharer.0, CALL_BYTES);
        state.calls.insert(key, sender);
        drop(state);
        WaitingCall { calls: self.clone(), key, gives_way }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // INVARIANT: each change of the calls is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, key: (Sharer, u64)) {
        if self.calls.remove(&key).is_some() {
            self.shares.subtract(key.0.0, CALL_BYTES);
        }
    }
}

impl WaitingCall {
    /// Completes when the call must give way to a newer one.
    pub async fn gives_way(&mut self) {
        // The sender never sends.
        let _ = (&mut self.gives_way).await;
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.calls.lock().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_oldest_call_of_the_same_caller_gives_way() {
        let calls = WaitingCalls::new(2 * CALL_BYTES);
        let mut other = calls.add(Sharer::ANONYMOUS);
        let [mut first, mut second] = [(); 2].map(|()| calls.add(Sharer::CELL_ONE));
        let mut third = calls.add(Sharer::CELL_ONE);
        assert!(first.gives_way().now_or_never().is_some() && second.gives_way().now_or_never().is_some());
        assert!(other.gives_way().now_or_never().is_none() && third.gives_way().now_or_never().is_none());
        drop((first, second, other, third));
        assert!(calls.lock().calls.is_empty());
        assert_eq!(calls.lock().shares.total(), 0);
    }
}
