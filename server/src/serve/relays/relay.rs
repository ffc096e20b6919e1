//! A relay: reads what transactions have written into the outbox of a user's database, hands it to the
//! engine, and acknowledges it. No transaction of the database is open while the engine works.
//!
//! | step | if the server dies after it |
//! |---|---|
//! | a batch begins | the next relay goes on with it |
//! | its next rows are read | they are read again |
//! | the engine has decided them | they are read again; the ids of requests make them once (Q09) |
//! | they are acknowledged | the next rows are read |

use std::hash::{Hash, Hasher};
use std::time::Duration;

use rustc_hash::FxHasher;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use uuid::{Builder, Uuid};

use super::hand_over::{HandOver, HandedOver, NotNow, is_late};
use crate::committer::CommitterRefusal;
use crate::grpc::Services;
use crate::metrics::{RelayMetrics, RelayState};
use crate::store::{OutboxBatch, OutboxConnection, OutboxDatabase, OutboxError, OutboxPlace, OutboxRow};

/// The time after which the relay that works says so again.
const BEAT_INTERVAL: Duration = Duration::from_secs(3);
/// The time for which another relay must have said nothing before this one takes its place.
const SILENCE: Duration = Duration::from_secs(15);
/// The pauses between two looks for rows: the first after rows, then each twice the last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause between two looks for rows.
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// The pause between two looks of a relay that waits for another one.
const WAIT_PAUSE: Duration = Duration::from_secs(1);
/// The pauses after failures: the first, then each twice the last.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest pause after a failure.
const LAST_RETRY: Duration = Duration::from_secs(15);
/// The time between two rotations of the outbox, and between two looks for done-marks.
const CHORES_INTERVAL: Duration = Duration::from_secs(5);
/// The most done-marks that one look reads.
const MARKS: i32 = 100;
/// The longest time in which a stopping relay gives up its place.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why a relay can't go on now.
#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error("{0}")]
    Outbox(#[from] OutboxError),
    #[error("{0}")]
    NotNow(#[from] NotNow),
}

/// A relay of one outbox.
pub(super) struct Relay {
    name: String,
    database: OutboxDatabase,
    server: HandOver,
    stopping: watch::Receiver<bool>,
    // The id by which the relays of an outbox tell each other apart.
    id: Uuid,
    state: Option<RelayState>,
    // The time at which all rows were relayed, or the oldest row that is not was written.
    relayed_until: Instant,
    // The number of beats of another relay, and when it was seen first.
    silence: Option<(i64, Instant)>,
    // The time at which this relay last said that it works; `None` while another one does.
    beat_at: Option<Instant>,
    chores_at: Option<Instant>,
    // The done-mark that was looked at last.
    last_mark: Uuid,
    epoch: Option<i32>,
}

/// Returns the id of a relay. No other server uses an embedded store, so its relay goes on at once after a restart. Servers
/// of a shared store have other ids at each start.
fn relay_id(services: &Services, name: &str) -> Uuid {
    if services.shared_locks.is_some() {
        return Builder::from_random_bytes(rand::random()).into_uuid();
    }
    let mut hasher = FxHasher::default();
    name.hash(&mut hasher);
    Uuid::from_u128(services.store_id.as_u128() ^ u128::from(hasher.finish()))
}

impl Relay {
    pub(super) fn new(
        name: String,
        database: OutboxDatabase,
        server: HandOver,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let id = relay_id(&server.services, &name);
        Self {
            name,
            database,
            server,
            stopping,
            id,
            state: None,
            relayed_until: Instant::now(),
            silence: None,
            beat_at: None,
            chores_at: None,
            last_mark: Uuid::nil(),
            epoch: None,
        }
    }

    /// Relays until the relay is stopped. Begins anew after a failure, with growing pauses.
    pub(super) async fn run(mut self) {
        self.metrics().add(&self.name);
        let mut retry = FIRST_RETRY;
        while !self.is_stopping() {
            let began = Instant::now();
            let Err(error) = self.connect_and_relay().await else { continue };
            self.failed(&error);
            if began.elapsed() > LAST_RETRY {
                retry = FIRST_RETRY;
            }
            // Relays of several servers must not return all at once.
            self.pause(retry.mul_f64(rand::random_range(0.5..=1.0))).await;
            retry = LAST_RETRY.min(retry * 2);
        }
    }

    fn metrics(&self) -> &RelayMetrics {
        &self.server.services.metrics.relays
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits, but not longer than until the relay is stopped.
    async fn pause(&mut self, pause: Duration) {
        tokio::select! { () = sleep(pause) => {}, _ = self.stopping.wait_for(|stop| *stop) => {} }
    }

    /// Relays on one connection until the relay is stopped.
    async fn connect_and_relay(&mut self) -> Result<(), RelayError> {
        let mut connection = self.database.connect().await?;
        (self.beat_at, self.silence) = (None, None);
        let relayed = self.relay(&mut connection).await;
        // The outbox can be called, even if this server can't decide its rows: another one may.
        let can_release = matches!(relayed, Ok(()) | Err(RelayError::NotNow(_)));
        if can_release && self.beat_at.is_some() {
            // Another relay takes the place later, if this call fails.
            let _ = timeout(RELEASE_TIMEOUT, connection.release(self.id)).await;
        }
        relayed
    }

    async fn relay(&mut self, connection: &mut OutboxConnection) -> Result<(), RelayError> {
        let mut pause = FIRST_PAUSE;
        while !self.is_stopping() {
            if !self.hold(connection).await? {
                self.pause(WAIT_PAUSE).await;
                continue;
            }
            let has_relayed = self.relay_batch(connection).await?;
            self.set_state(RelayState::Relaying);
            self.do_chores(connection).await?;
            pause = if has_relayed { FIRST_PAUSE } else { LAST_PAUSE.min(pause * 2) };
            if !has_relayed {
                self.pause(pause).await;
            }
        }
        Ok(())
    }

    /// Returns true if this relay is the one that works, and says so to the others.
    async fn hold(&mut self, connection: &mut OutboxConnection) -> Result<bool, RelayError> {
        if self.beat_at.is_some_and(|at| at.elapsed() < BEAT_INTERVAL) {
            return Ok(true);
        }
        let silent = self.silence.filter(|(_, since)| since.elapsed() >= SILENCE).map(|(beats, _)| beats);
        let sent = Instant::now();
        let turn = connection.hold(self.id, silent).await?;
        self.beat_at = turn.holds.then_some(sent);
        self.silence = match self.silence {
            Some((beats, since)) if beats == turn.beats => Some((beats, since)),
            _ => Some((turn.beats, Instant::now())),
        };
        match (turn.holds, self.state) {
            (false, _) => self.set_state(RelayState::Waiting),
            // It works again only when rows are relayed. Else the log would tell of each failure anew.
            (true, Some(RelayState::Failing)) => {}
            (true, _) => self.set_state(RelayState::Relaying),
        }
        Ok(turn.holds)
    }

    /// Relays the batch that is under way, or the next one. Returns false if there is none.
    async fn relay_batch(&mut self, connection: &mut OutboxConnection) -> Result<bool, RelayError> {
        let begun_at = Instant::now();
        let begun = connection.begin().await?;
        self.report_epoch(begun);
        let Some(batch) = begun.batch else {
            if begun.epoch.is_none() {
                self.relayed_until = begun_at;
                self.metrics().set_oldest(&self.name, None);
            }
            return Ok(begun.epoch.is_some());
        };
        while self.relay_rows(connection, batch).await? {
            // A relay that was overtaken by another leaves the rest to it.
            if self.is_stopping() || !self.hold(connection).await? {
                break;
            }
        }
        Ok(true)
    }

    /// Relays the next rows of a batch. Returns true if it has more.
    async fn relay_rows(&mut self, connection: &mut OutboxConnection, batch: i64) -> Result<bool, RelayError> {
        let Some(rows) = connection.read(batch).await? else { return Ok(false) };
        let Some(oldest) = rows.iter().map(|row| row.age).max() else {
            return Ok(!connection.acknowledge(batch, OutboxPlace::default(), &[]).await?);
        };
        self.relayed_until = Instant::now().checked_sub(oldest).unwrap_or_else(Instant::now);
        self.metrics().set_oldest(&self.name, Some(self.relayed_until.into_std()));
        let HandedOver { decided, refusals, failure } = self.server.hand_over(&rows).await;
        let mut is_done = false;
        if let Some(last) = decided.checked_sub(1).and_then(|last| rows.get(last)) {
            is_done = connection.acknowledge(batch, last.place, &refusals).await?;
            self.set_state(RelayState::Relaying);
            let reasons: Vec<_> = refusals.iter().map(|refusal| refusal.reason).collect();
            self.report(rows.get(..decided).unwrap_or_default(), &reasons);
            if !refusals.is_empty() {
                self.count_set_aside(connection).await?;
            }
        }
        match failure {
            None => Ok(!is_done),
            // A server under load is no failure: the rows wait in the outbox.
            Some(NotNow::Server(CommitterRefusal::Overloaded { retry_after, .. })) => {
                self.pause(retry_after).await;
                Ok(!is_done)
            }
            Some(not_now) => Err(not_now.into()),
        }
    }

    /// Counts rows that are acknowledged, and reports those that were refused.
    fn report(&self, rows: &[OutboxRow], refused: &[&'static str]) {
        self.metrics().count(&self.name, rows.len() - refused.len(), refused.len());
        let (late, others): (Vec<&str>, Vec<&str>) = refused.iter().partition(|reason| is_late(reason));
        if !late.is_empty() {
            let count = late.len();
            tracing::info!(relay = self.name, count, "batches had come back before they were settled");
        }
        if let Some(reason) = others.first().copied() {
            let count = others.len();
            tracing::warn!(
                relay = self.name,
                count,
                reason,
                "rows of the outbox are refused for good: its table `leasehold_outbox_refused` has the requests"
            );
        }
    }

    async fn count_set_aside(&self, connection: &mut OutboxConnection) -> Result<(), RelayError> {
        self.metrics().set_refused(&self.name, connection.refusals().await?);
        Ok(())
    }

    /// Rotates the outbox, counts what is set aside, and forgets done-marks that no worker needs.
    async fn do_chores(&mut self, connection: &mut OutboxConnection) -> Result<(), RelayError> {
        if self.chores_at.is_some_and(|at| at.elapsed() < CHORES_INTERVAL) {
            return Ok(());
        }
        connection.rotate().await?;
        self.count_set_aside(connection).await?;
        let marks = connection.marks(self.last_mark, MARKS).await?;
        self.last_mark = marks.last().copied().unwrap_or_default();
        if !marks.is_empty() {
            let needed = self.server.unsettled(&marks).await.map_err(NotNow::from)?;
            let forgotten: Vec<_> = marks.into_iter().filter(|mark| !needed.contains(mark)).collect();
            connection.forget_marks(&forgotten).await?;
        }
        self.chores_at = Some(Instant::now());
        Ok(())
    }

    /// Reports an epoch that this relay or another one has begun.
    fn report_epoch(&mut self, OutboxBatch { batch, epoch }: OutboxBatch) {
        if epoch.is_none() || epoch == self.epoch {
            return;
        }
        if batch.is_none() || self.epoch.is_some() {
            tracing::warn!(
                relay = self.name,
                epoch,
                "the outbox came to another cluster: a new epoch relays all of its rows again"
            );
        }
        self.epoch = epoch;
    }

    fn set_state(&mut self, state: RelayState) {
        if self.state == Some(state) {
            return;
        }
        self.metrics().set_state(&self.name, state);
        match state {
            RelayState::Relaying => tracing::info!(relay = self.name, "the outbox is relayed here"),
            RelayState::Waiting => {
                self.metrics().set_oldest(&self.name, None);
                tracing::info!(relay = self.name, "another relay of the outbox works, this one waits");
            }
            RelayState::Failing => {}
        }
        self.state = Some(state);
    }

    /// Reports a failure once, until the relay works again.
    fn failed(&mut self, error: &RelayError) {
        self.metrics().set_oldest(&self.name, Some(self.relayed_until.into_std()));
        match self.state {
            Some(RelayState::Failing) => tracing::debug!(relay = self.name, %error, "the outbox can't be relayed"),
            _ => tracing::warn!(relay = self.name, %error, "the outbox can't be relayed: it is tried again"),
        }
        self.set_state(RelayState::Failing);
    }
}
