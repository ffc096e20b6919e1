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

/// The calls that wait for a reload.
#[derive(Debug, Default)]
pub struct Reloads {
    requested: Notify,
    waiting: Mutex<Vec<oneshot::Sender<ReloadOutcome>>>,
}

impl Reloads {
    /// Asks for a reload that begins from now on, and waits for its outcome. Returns `None` if too
    /// many calls wait already, or if the server stops.
    pub async fn request(&self) -> Option<ReloadOutcome> {
        let (sender, outcome) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            waiting.retain(|sender| !sender.is_closed());
            if waiting.len() >= MAX_WAITING {
                return None;
            }
            waiting.push(sender);
        }
        self.requested.notify_one();
        outcome.await.ok()
    }

    /// Waits until a call asks for a reload.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Takes the calls that wait, before the reload that they get.
    pub(crate) fn take(&self) -> Vec<oneshot::Sender<ReloadOutcome>> {
        std::mem::take(&mut *self.waiting())
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<oneshot::Sender<ReloadOutcome>>> {
        // INVARIANT: no change of the list can panic halfway.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
