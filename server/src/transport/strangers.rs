//! The connections whose clients have shown no identity: they have no certificate with a role, or
//! their TLS handshake is under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::{AbortHandle, JoinSet};

/// The connections without an identity. Those whose handshake is complete come first, each kind in
/// the order of their begins.
#[derive(Default)]
pub(super) struct Strangers(Mutex<State>);

#[derive(Default)]
struct State {
    connections: BTreeMap<(Phase, u64), Option<AbortHandle>>,
    next: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    Handshake,
}

/// One connection without an identity. Dropping the value ends this state: the client has shown an
/// identity, or the connection has ended.
pub(super) struct Stranger {
    strangers: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    /// Starts the task of a connection, whose handshake follows.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        connection: impl FnOnce(Stranger) -> F,
    ) {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.connections.insert((Phase::Handshake, number), None);
        drop(state);
        let task = tasks.spawn(connection(Stranger { strangers: self.clone(), number }));
        // The task may have changed or removed its entry already.
        let mut state = self.lock();
        for phase in [Phase::Open, Phase::Handshake] {
            state.connections.entry((phase, number)).and_modify(|entry| *entry = Some(task.clone()));
        }
    }

    /// Ends the first of the connections, but none in its handshake if fewer than `handshakes` are.
    /// Returns false if it ends none.
    pub(super) fn end_one(&self, handshakes: usize) -> bool {
        let mut state = self.lock();
        let is_open = |(phase, _): &(Phase, u64)| *phase == Phase::Open;
        let may_end = state.connections.len() >= handshakes || state.connections.keys().next().is_some_and(is_open);
        let first = if may_end { state.connections.pop_first() } else { None };
        drop(state);
        first.and_then(|(_, task)| task).is_some_and(|task| {
            task.abort();
            true
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // INVARIANT: each change is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stranger {
    /// The handshake is complete, and the client has shown no identity.
    pub(super) fn opened(&self) {
        let mut state = self.strangers.lock();
        if let Some(task) = state.connections.remove(&(Phase::Handshake, self.number)) {
            state.connections.insert((Phase::Open, self.number), task);
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut state = self.strangers.lock();
        for phase in [Phase::Open, Phase::Handshake] {
            state.connections.remove(&(phase, self.number));
        }
    }
}
