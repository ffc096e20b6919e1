//! Calls that wait for a reload of the configuration.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::config::ConfigChange;

/// The most calls that may wait for a reload.
const MAX_WAITING: usize = 16;

/// The refusal of a configuration, with the problem that was found. The former one stays in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the configuration is not reloaded, the former one stays in force: {0}")]
pub struct RefusedConfig(pub String);

/// The outcome of a reload.
pub type ReloadOutcome = Result<ConfigChange, RefusedConfig>;

/// The reason for which a call gets no reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReload {
    /// Too many calls wait already.
    Busy,
    /// The server stops.
    Stopping,
}

/// The calls that wait for a reload.
#[derive(Debug, Default)]
pub struct Reloads {
    requested: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<oneshot::Sender<ReloadOutcome>>,
    is_closed: bool,
}

impl Reloads {
    /// Asks for a reload that begins from now on, and waits for its outcome.
    ///
    /// # Errors
    /// Too many calls wait already, or the server stops.
    pub async fn request(&self) -> Result<ReloadOutcome, NoReload> {
        let (sender, outcome) = oneshot::channel();
        {
            let mut state = self.lock();
            state.waiting.retain(|sender| !sender.is_closed());
            if state.is_closed {
                return Err(NoReload::Stopping);
            }
            if state.waiting.len() >= MAX_WAITING {
                return Err(NoReload::Busy);
            }
            state.waiting.push(sender);
        }
        self.requested.notify_one();
        outcome.await.map_err(|_| NoReload::Stopping)
    }

    /// Ends all waits, because the server stops. No call waits from now on.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.waiting.clear();
    }

    /// Waits until a call asks for a reload.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Takes the calls that wait, before the reload that they get.
    pub(crate) fn take(&self) -> Vec<oneshot::Sender<ReloadOutcome>> {
        std::mem::take(&mut self.lock().waiting)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // INVARIANT: no change of the state can panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_stop_ends_every_wait() {
        let reloads = Reloads::default();
        let [mut taken, mut waiting] = [(); 2].map(|()| Box::pin(reloads.request()));
        assert!((&mut taken).now_or_never().is_none());
        let under_way = reloads.take();
        assert!((&mut waiting).now_or_never().is_none());
        reloads.close();
        assert_eq!(waiting.await, Err(NoReload::Stopping));
        drop(under_way);
        assert_eq!(taken.await, Err(NoReload::Stopping));
        assert_eq!(reloads.request().await, Err(NoReload::Stopping));
    }
}
