//! The relays of a server: a task for each outbox of the configuration. A reload ends and begins tasks.

mod hand_over;
mod relay;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::hand_over::HandOver;
use self::relay::Relay;
use crate::active_config::CurrentConfig;
use crate::config::{Config, ConfigError, RelayConfig};
use crate::grpc::Services;
use crate::store::OutboxDatabase;

/// The longest time that a stopping relay takes for the rows that it has read.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The relays of a server.
pub(super) struct Relays {
    services: Arc<Services>,
    current: Arc<CurrentConfig>,
    running: Mutex<Vec<Running>>,
}

/// A relay that works, and the settings that it was started with.
struct Running {
    config: RelayConfig,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Has the relay stop after the rows that it has read.
    async fn stop(mut self) {
        self.stop.send_replace(true);
        if timeout(STOP_TIMEOUT, &mut self.task).await.is_err() {
            // What is not acknowledged is relayed again.
            self.task.abort();
        }
    }
}

/// Checks the settings of the databases of relays, and the files that they name. Does not connect.
///
/// # Errors
/// The first setting that can't be used.
pub(super) fn check(relays: &[RelayConfig]) -> Result<(), ConfigError> {
    relays.iter().try_for_each(|relay| database(relay).map(drop))
}

fn database(relay: &RelayConfig) -> Result<OutboxDatabase, ConfigError> {
    OutboxDatabase::parse(&relay.database()).map_err(|problem| ConfigError::RelayDatabase {
        relay: relay.name.clone(),
        // The settings of the store's database have the same names.
        problem: problem.to_string().replace("`postgres.", "`"),
    })
}

impl Relays {
    pub(super) fn new(services: Arc<Services>, current: Arc<CurrentConfig>) -> Self {
        Self { services, current, running: Mutex::default() }
    }

    /// Stops the relays that the configuration has not, or has with other settings, and starts its new ones.
    pub(super) async fn follow(&self, config: &Config) {
        let is_kept = |running: &Running| config.relays.contains(&running.config);
        let ended: Vec<_> = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let (kept, ended) = std::mem::take(&mut *running).into_iter().partition(is_kept);
            *running = kept;
            ended
        };
        for relay in ended {
            let name = relay.config.name.clone();
            relay.stop().await;
            self.services.metrics.relays.remove(&name);
        }
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for relay in &config.relays {
            if !running.iter().any(|running| running.config == *relay) {
                running.extend(self.start(relay));
            }
        }
    }

    /// Stops all relays.
    pub(super) async fn stop(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        futures_util::future::join_all(running.into_iter().map(Running::stop)).await;
    }

    /// Starts a relay. Its settings were checked, but its files may have changed since.
    fn start(&self, config: &RelayConfig) -> Option<Running> {
        let database = database(config).inspect_err(|error| tracing::error!("{error}")).ok()?;
        let caller = config.caller()?;
        let principal = caller.principal()?;
        let server = HandOver { services: self.services.clone(), current: self.current.clone(), caller, principal };
        let (stop, stopping) = watch::channel(false);
        let relay = Relay::new(config.name.clone(), database, server, stopping);
        Some(Running { config: config.clone(), stop, task: tokio::spawn(relay.run()) })
    }
}
