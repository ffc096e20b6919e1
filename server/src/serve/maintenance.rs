//! The background work of a server: it forgets leases that were settled long ago, and keeps the
//! health status up to date.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::command::Command;
use leasehold_core::time::Timestamp;
use leasehold_core::update::Forget;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_server::ClaimServiceServer;
use leasehold_proto::gitlab::cells::topology_service::classify_service_server::ClassifyServiceServer;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::partition_shifts::PartitionShifts;
use super::probes::{Check, store_checks};
use super::steady_clock::SteadyClock;
use super::{lock_ticks, queue_ticks};
use crate::grpc::{ClaimsHandler, ClassifyHandler, Services};
use crate::identity::Caller;
use crate::store::{Probed, SharedMaintenance, StoreError, StoreMaintenance, StoreReader};

/// The pause between two maintenance runs.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);
/// The pause between two probes of the database. Load balancers follow the health status, which
/// must soon show that the database is away, or back.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// The longest time that the counts may take to be read after an outage.
const COUNTS_TIMEOUT: Duration = Duration::from_secs(2);
/// The least time between two causes of one outage that are told.
const CAUSE_INTERVAL: Duration = Duration::from_secs(10);
/// The pause before the first repetition of a failed read. It doubles with each failure.
const FIRST_READ_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two repetitions of a failed read.
const MAX_READ_PAUSE: Duration = Duration::from_secs(30);
/// The most settled leases that an embedded store forgets in one batch.
const FORGET_BATCH: usize = 500;

/// The background work of a server, and the parts that it uses.
pub(super) struct Maintenance {
    services: Arc<Services>,
    store: StoreMaintenance,
    health: HealthReporter,
    retention_seconds: u64,
    clock: Mutex<SteadyClock>,
    // True if the health status that was last published is `SERVING`.
    was_serving: AtomicBool,
    // The cause of an outage that was told last, and when.
    told_cause: Mutex<Option<(String, Instant)>>,
}

impl Maintenance {
    pub(super) fn new(
        services: Arc<Services>,
        store: StoreMaintenance,
        health: HealthReporter,
        retention_seconds: u64,
    ) -> Self {
        // For the default retention of a day, this is an hour.
        let trusted_after = Duration::from_secs(retention_seconds / 24);
        let clock = Mutex::new(SteadyClock::new(trusted_after, Instant::now()));
        let (was_serving, told_cause) = (AtomicBool::new(true), Mutex::default());
        Self { services, store, health, retention_seconds, clock, was_serving, told_cause }
    }

    /// Runs the background work until the server stops.
    pub(super) async fn run(self, mut stopping: watch::Receiver<bool>) {
        self.health.set_serving::<ClaimServiceServer<ClaimsHandler>>().await;
        self.health.set_serving::<ClassifyServiceServer<ClassifyHandler>>().await;
        let work = async {
            match &self.store {
                StoreMaintenance::Exclusive(store) => {
                    tokio::join!(self.follow_health(), self.maintain_exclusive(&**store), self.retry_reads(&**store));
                }
                StoreMaintenance::Shared(store) => {
                    tokio::join!(self.follow_health(), self.probe_database(&**store), self.maintain_database(&**store));
                }
            }
        };
        tokio::select! { () = work => {}, _ = stopping.wait_for(|stop| *stop) => {} }
    }

    /// Returns the time before which a lease must have been settled, so that it may be forgotten
    /// now (B22); `None` if the clock has jumped recently, or the server has just started.
    fn forget_before(&self) -> Option<Timestamp> {
        let (mut clock, times) =
            (self.clock.lock().unwrap_or_else(PoisonError::into_inner), self.services.committer().clock());
        let trusted = clock.trusted(times.followed(), Instant::now())?;
        // The clock of the leases may still follow an earlier jump. The earlier time forgets less.
        let now = trusted.min(times.now());
        Some(now.minus_micros(self.retention_seconds.saturating_mul(1_000_000)))
    }

    /// Publishes the health status at once whenever it may have changed. Only this task publishes
    /// the status, so an older status never follows a newer one.
    async fn follow_health(&self) {
        loop {
            self.publish_health().await;
            self.services.committer().health_changed().await;
        }
    }

    /// Publishes the health status if it changed. The status of `ClassifyService` stays `SERVING`,
    /// because reads still work while the store can't be written.
    async fn publish_health(&self) {
        let is_serving = store_checks(&self.services).into_iter().all(Check::passes);
        if self.was_serving.swap(is_serving, Ordering::Relaxed) == is_serving {
            return;
        }
        let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in ["", ClaimServiceServer::<ClaimsHandler>::NAME] {
            self.health.set_service_status(name, status).await;
        }
    }

    async fn maintain_exclusive(&self, store: &dyn StoreReader) {
        loop {
            while !self.services.has_failed() && self.forget_batch(store).await {}
            while !self.services.has_failed() && self.forget_locks().await {}
            while !self.services.has_failed() && self.forget_requests().await {}
            // A failed read of settled leases changes the health status too.
            self.services.committer().recheck_health();
            sleep(MAINTENANCE_INTERVAL).await;
        }
    }

    /// Repeats reads that failed, such as those of a disk that was away, until each of them
    /// succeeds. Then the server is ready again.
    async fn retry_reads(&self, store: &dyn StoreReader) {
        loop {
            self.services.failed_reads.added().await;
            self.repeat_failed_reads(store).await;
        }
    }

    async fn repeat_failed_reads(&self, store: &dyn StoreReader) {
        let (failed, mut pause) = (&self.services.failed_reads, FIRST_READ_PAUSE);
        if failed.is_empty() {
            return;
        }
        while let Some(read) = failed.first() {
            sleep(pause).await;
            match read.repeat(store).await {
                // A damaged row is refused alone, and other rows are served.
                Err(error) if store.is_lost_by(&error) => {
                    tracing::debug!(%error, "a read of the store still fails");
                    pause = MAX_READ_PAUSE.min(pause * 2);
                }
                _ => failed.remove(&read),
            }
        }
        tracing::info!("the reads that failed succeed again");
        self.services.committer().recheck_health();
    }

    /// Forgets a batch of ended sessions and free locks. Returns true if there may be more.
    async fn forget_locks(&self) -> bool {
        match self.forget_before() {
            Some(before) => lock_ticks::forget_batch(&self.services, before).await,
            None => false,
        }
    }

    /// Forgets a batch of settled requests and idle lanes. Returns true if there may be more.
    async fn forget_requests(&self) -> bool {
        match self.forget_before() {
            Some(before) => queue_ticks::forget_batch(&self.services, before).await,
            None => false,
        }
    }

    /// Forgets a batch of settled leases of an embedded store. Returns true if there may be more.
    async fn forget_batch(&self, store: &dyn StoreReader) -> bool {
        let Some(settled_before) = self.forget_before() else { return false };
        let leases = match store.settled(settled_before, FORGET_BATCH).await {
            Ok(leases) => leases,
            // An embedded store is away only while the runtime is shutting down.
            Err(error) if error.is_away() => return false,
            Err(error) => {
                tracing::error!(%error, "settled leases can't be read");
                return false;
            }
        };
        let found = leases.len();
        let mut forgets = JoinSet::new();
        for lease in leases {
            let services = self.services.clone();
            let forget = Command::Forget(Forget { lease, settled_before });
            // The server itself submits this command, so no permit is checked.
            forgets.spawn(async move { services.committer().submit(Caller::Trusted, forget).await });
        }
        let decisions = forgets.join_all().await;
        found == FORGET_BATCH && decisions.iter().all(Result::is_ok)
    }

    /// Probes the database again and again, over a connection of its own, so that neither load nor
    /// a full connection pool looks like an outage.
    async fn probe_database(&self, store: &dyn SharedMaintenance) {
        let mut probe = store.probe();
        let patience = probe.patience();
        loop {
            let result = {
                let mut result = pin!(probe.probe());
                match timeout(patience, &mut result).await {
                    Ok(result) => result,
                    Err(_) => {
                        let silent = format!("no answer within {} s", patience.as_secs());
                        self.record_probe(store, Err(StoreError::Unreachable(silent))).await;
                        // The probe keeps waiting for this query, and only its answer ends the
                        // outage. A new query would prove little: a database that hangs may still
                        // answer on a new connection.
                        result.await
                    }
                }
            };
            self.record_probe(store, result).await;
            sleep(PROBE_INTERVAL).await;
        }
    }

    /// Records the result of a probe of the database: the number of other servers that write to it,
    /// or the reason why the probe failed.
    async fn record_probe(&self, store: &dyn SharedMaintenance, result: Result<Probed, StoreError>) {
        let (is_reachable, committer) = (result.is_ok(), self.services.committer());
        let was_reachable = self.services.metrics.set_database_reachable(is_reachable);
        if let Ok(Probed { other_servers, lacks_changes, lacks_standby }) = result {
            committer.set_other_servers(other_servers);
            self.services.metrics.set_database_lacks_changes(lacks_changes);
            self.services.metrics.set_database_lacks_standby(lacks_standby);
        }
        match result {
            // The writers log the return of the store when one of them has written.
            Ok(_) if !was_reachable => tracing::info!("the database answers again"),
            Ok(_) => {}
            // Probes are frequent, so only the first failure of an outage is logged as an error.
            Err(error) if was_reachable => {
                self.is_new_cause(&error);
                tracing::error!(%error, "the database is away");
            }
            Err(error) if self.is_new_cause(&error) => tracing::warn!(%error, "the database is still away"),
            Err(error) => tracing::debug!(%error, "the database is still away"),
        }
        committer.recheck_health();
        // The counts are read again after an outage, because other servers may have begun and
        // settled leases during the outage.
        if is_reachable
            && !was_reachable
            && let Ok(Ok(held_claims)) = timeout(COUNTS_TIMEOUT, store.refresh_occupancy()).await
        {
            committer.set_held_claims(held_claims);
        }
    }

    /// Notes the cause of an outage. Returns true if it is another one than that which was told last, and that was told a
    /// while ago: a database that restarts has several causes within a second.
    fn is_new_cause(&self, error: &StoreError) -> bool {
        let (text, now) = (error.to_string(), Instant::now());
        let mut told = self.told_cause.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = told.as_ref().is_none_or(|(last, at)| *last != text && now.duration_since(*at) > CAUSE_INTERVAL);
        if is_new {
            *told = Some((text, now));
        }
        is_new
    }

    /// Runs the maintenance of a shared database again and again. The first of several failures in
    /// a row is logged as an error or a warning.
    async fn maintain_database(&self, store: &dyn SharedMaintenance) {
        let (metrics, mut was_hindered) = (&self.services.metrics, false);
        let mut partitions = PartitionShifts::new(Duration::from_secs(self.retention_seconds));
        loop {
            partitions.shift_if_due(store).await;
            let result = self.maintain_once(store).await;
            // An outage is reported by the probe. A lock of another session, or a conflict with
            // another server, is over soon. Only other errors, such as a full disk, mean that the
            // database can't be written.
            let (is_hindered, is_accepted) = match &result {
                Ok(()) => (false, true),
                Err(StoreError::Locked(_) | StoreError::Conflict(_)) => (true, true),
                Err(error) if error.is_away() => (true, true),
                Err(_) => (true, false),
            };
            let was_accepted = metrics.set_maintenance_succeeding(is_accepted);
            if let Err(error) = result {
                match is_accepted {
                    false if was_accepted => tracing::error!(%error, "the database refuses maintenance"),
                    true if !was_hindered && !metrics.is_database_lost() => {
                        tracing::warn!(%error, "settled leases can't be forgotten now");
                    }
                    _ => tracing::debug!(%error, "maintenance still fails"),
                }
            }
            was_hindered = is_hindered;
            sleep(MAINTENANCE_INTERVAL).await;
        }
    }

    /// Counts the claims under leases, vacuums, forgets settled leases, and removes abandoned
    /// groups. Each step runs even if an earlier one failed. If the first step finds an outage, the
    /// others are skipped. Returns the most important failure.
    async fn maintain_once(&self, store: &dyn SharedMaintenance) -> Result<(), StoreError> {
        let counted = store.refresh_occupancy().await.map(|held| self.services.committer().set_held_claims(held));
        if counted.as_ref().is_err_and(StoreError::is_away) {
            return counted;
        }
        let vacuumed = store.vacuum().await;
        let until = Instant::now() + MAINTENANCE_INTERVAL;
        // A large backlog of settled leases is spread over several runs, so that it does not delay
        // the other steps.
        let forgotten = loop {
            let Some(settled_before) = self.forget_before() else { break Ok(()) };
            match store.forget(settled_before).await {
                Ok(true) if Instant::now() < until => {}
                done => break done.map(drop),
            }
        };
        while Instant::now() < until && self.forget_locks().await {}
        while Instant::now() < until && self.forget_requests().await {}
        let abandoned = store.forget_abandoned().await;
        forgotten.and(abandoned).and(vacuumed).and(counted)
    }
}
