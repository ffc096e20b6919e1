//! The lanes that have become ready while no call of this server was idle: rings tell other servers of the store.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::queue::QueuePath;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

/// The most queues whose lanes wait for a ring. Workers find the lanes of further ones by themselves.
const MAX_QUEUES: usize = 256;

/// The lanes that wait for a ring, and the servers that can be rung.
#[derive(Default)]
pub struct UnservedLanes {
    state: Mutex<State>,
    // Notified when a lane begins to wait for a ring.
    added: Notify,
}

#[derive(Default)]
struct State {
    // The addresses of the servers.
    peers: BTreeSet<String>,
    // The number of ready lanes of each queue.
    lanes: FxHashMap<QueuePath, u32>,
    // The queues of `lanes`, those that wait longest first.
    queues: VecDeque<QueuePath>,
}

impl UnservedLanes {
    fn state(&self) -> MutexGuard<'_, State> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns the addresses of the servers that can be rung.
    pub fn set_peers(&self, peers: BTreeSet<String>) {
        self.state().peers = peers;
    }

    /// Returns the addresses of the servers that can be rung.
    pub fn peers(&self) -> BTreeSet<String> {
        self.state().peers.clone()
    }

    /// Adds a lane of a queue to those that wait for a ring, if any server can be rung.
    pub(super) fn add(&self, queue: &QueuePath) {
        if self.state().add(queue) {
            self.added.notify_one();
        }
    }

    /// Waits until lanes wait for a ring, and returns them: the number of each of at most `limit` queues. Each is
    /// returned once.
    pub async fn next(&self, limit: usize) -> Vec<(QueuePath, u32)> {
        loop {
            let lanes = self.state().take(limit);
            if !lanes.is_empty() {
                return lanes;
            }
            self.added.notified().await;
        }
    }
}

impl State {
    fn add(&mut self, queue: &QueuePath) -> bool {
        if self.peers.is_empty() {
            return false;
        }
        let is_full = self.lanes.len() >= MAX_QUEUES;
        match self.lanes.entry(queue.clone()) {
            Entry::Occupied(mut lanes) => *lanes.get_mut() = lanes.get().saturating_add(1),
            Entry::Vacant(_) if is_full => return false,
            Entry::Vacant(place) => {
                place.insert(1);
                self.queues.push_back(queue.clone());
            }
        }
        true
    }

    fn take(&mut self, limit: usize) -> Vec<(QueuePath, u32)> {
        let queues = self.queues.drain(..limit.min(self.queues.len()));
        queues.filter_map(|queue| self.lanes.remove_entry(&queue)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use futures_util::FutureExt as _;

    use super::*;

    fn queue(number: usize) -> QueuePath {
        QueuePath::parse(&format!("sheets{number}")).unwrap()
    }

    #[test]
    fn q18_ready_lanes_wait_for_a_ring_if_a_server_can_be_rung() {
        let unserved = UnservedLanes::default();
        unserved.add(&queue(1));
        assert!(unserved.next(9).now_or_never().is_none());
        unserved.set_peers(BTreeSet::from(["http://one:1".to_owned()]));
        for number in [2, 3, 2, 1, 2] {
            unserved.add(&queue(number));
        }
        assert_eq!(unserved.next(2).now_or_never().unwrap(), [(queue(2), 3), (queue(3), 1)]);
        assert_eq!(unserved.next(2).now_or_never().unwrap(), [(queue(1), 1)]);
        assert!(unserved.next(2).now_or_never().is_none());
        (0..2 * MAX_QUEUES).for_each(|number| unserved.add(&queue(number)));
        assert_eq!(unserved.next(usize::MAX).now_or_never().unwrap().len(), MAX_QUEUES);
    }
}
