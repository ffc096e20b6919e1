//! What a server does by itself: forgets what was settled long ago, and says whether its store can be written to.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::update::{Command, Forget};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_server::ClaimServiceServer;
use leasehold_proto::gitlab::cells::topology_service::classify_service_server::ClassifyServiceServer;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::committer::now;
use crate::grpc::{Claims, Classify, Service};
use crate::identity::Caller;
use crate::store::{EmbeddedStore, PostgresStore, Probe, Reader, StoreError};

/// How often settled leases are looked through.
const TICK: Duration = Duration::from_secs(5);
/// Between two looks whether a database is there: whoever goes by the health is to hear soon that it is gone, or back.
const LOOK: Duration = Duration::from_millis(500);
/// How long a database may be silent. What it is asked touches no row, so that load alone does not take it so long.
const SILENCE: Duration = Duration::from_secs(2);
/// Leases forgotten at a time.
const FORGET_BATCH: usize = 500;

/// A server's own work.
pub(crate) struct Maintenance {
    service: Arc<Service>,
    health: HealthReporter,
    retention_seconds: u64,
    // What the health last said.
    was_serving: AtomicBool,
}

impl Maintenance {
    pub(crate) fn new(service: Arc<Service>, health: HealthReporter, retention_seconds: u64) -> Self {
        Self { service, health, retention_seconds, was_serving: AtomicBool::new(true) }
    }

    /// Works until the server stops.
    pub(crate) async fn run(self, mut stopping: watch::Receiver<bool>) {
        self.health.set_serving::<ClaimServiceServer<Claims>>().await;
        self.health.set_serving::<ClassifyServiceServer<Classify>>().await;
        let work = async {
            match self.service.store() {
                Reader::Embedded(store) => self.tend(store).await,
                Reader::Postgres(store) => {
                    tokio::join!(self.watch(store), self.tend_database(store));
                }
            }
        };
        tokio::select! { () = work => {}, _ = stopping.wait_for(|stop| *stop) => {} }
    }

    fn settled_before(&self) -> Timestamp {
        now().minus_micros(self.retention_seconds.saturating_mul(1_000_000))
    }

    /// Has the health say what is so, where that has changed.
    async fn tell(&self) {
        let is_away = self.service.metrics.is_database_lost() || self.service.committer().is_away();
        let serves = !self.service.has_failed() && !is_away;
        if self.was_serving.swap(serves, Ordering::Relaxed) == serves {
            return;
        }
        let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in ["", ClaimServiceServer::<Claims>::NAME] {
            self.health.set_service_status(name, status).await;
        }
    }

    /// Of the embedded store: forgets (B22, B24), and tells when it has failed.
    async fn tend(&self, store: &EmbeddedStore) {
        loop {
            while !self.service.has_failed() && self.forget_some(store).await {}
            self.tell().await;
            sleep(TICK).await;
        }
    }

    /// Forgets a batch of leases; true where there may be more.
    async fn forget_some(&self, store: &EmbeddedStore) -> bool {
        let (store, settled_before) = (store.clone(), self.settled_before());
        let found = tokio::task::spawn_blocking(move || store.settled(settled_before, FORGET_BATCH)).await;
        let leases = match found {
            Ok(Ok(leases)) => leases,
            Ok(Err(error)) => {
                tracing::error!(%error, "settled leases can't be read");
                return false;
            }
            Err(_) => return false,
        };
        let found = leases.len();
        let mut forgets = tokio::task::JoinSet::new();
        for lease in leases {
            let service = self.service.clone();
            let forget = Command::Forget(Forget { lease, settled_before });
            // The server itself asks.
            forgets.spawn(async move { service.committer().submit(Caller::Trusted, forget).await });
        }
        let decisions = forgets.join_all().await;
        found == FORGET_BATCH && decisions.iter().all(Result::is_ok)
    }

    /// Looks again and again whether the database is there, whatever else is asked of it meanwhile.
    async fn watch(&self, store: &PostgresStore) {
        let mut probe: Probe = store.probe();
        loop {
            let seen = {
                let mut look = pin!(probe.look());
                match timeout(SILENCE, &mut look).await {
                    Ok(seen) => seen,
                    Err(_) => {
                        let silent = format!("no answer within {} s", SILENCE.as_secs());
                        self.saw(store, Err(StoreError::Away(silent))).await;
                        // It is the answer that says that it goes on: a new connection may be let in where all others hang.
                        look.await
                    }
                }
            };
            self.saw(store, seen).await;
            sleep(LOOK).await;
        }
    }

    async fn saw(&self, store: &PostgresStore, seen: Result<usize, StoreError>) {
        let (is_there, committer) = (seen.is_ok(), self.service.committer());
        let was_there = self.service.metrics.looked_for_database(is_there);
        if let Ok(others) = seen {
            committer.share(others);
        }
        match seen {
            // Where the writers have found it away, they say so themselves.
            Ok(_) if !was_there && !committer.is_away() => tracing::info!("the store is back"),
            Ok(_) => {}
            // Said once: it is looked for often while it is away.
            Err(error) if was_there => tracing::error!(%error, "the database is away"),
            Err(error) => tracing::debug!(%error, "the database is still away"),
        }
        self.tell().await;
        if is_there
            && !was_there
            && let Ok(Ok(occupancy)) = timeout(SILENCE, store.occupancy()).await
        {
            committer.recount(occupancy.held_claims);
        }
    }

    /// Tidies a database up, time and again.
    async fn tend_database(&self, store: &PostgresStore) {
        let (metrics, mut was_hindered) = (&self.service.metrics, false);
        loop {
            let tidied = self.tidy(store).await;
            let (is_hindered, does_it) = match &tidied {
                Ok(()) => (false, true),
                // Another session's lock, or a database that is looked for elsewhere: no refusal.
                Err(StoreError::Away(_) | StoreError::Blocked(_) | StoreError::Changed(_)) => (true, true),
                Err(_) => (true, false),
            };
            let did_it = metrics.asked_database(does_it);
            if let Err(error) = tidied {
                match does_it {
                    false if did_it => tracing::error!(%error, "the database can't be tended"),
                    true if !was_hindered && !metrics.is_database_lost() => {
                        tracing::warn!(%error, "settled leases can't be forgotten now");
                    }
                    _ => tracing::debug!(%error, "the database still can't be tended"),
                }
            }
            was_hindered = is_hindered;
            sleep(TICK).await;
        }
    }

    /// Counts anew what is held, frees what was left behind, and forgets: each of it, whatever comes of the others. The first
    /// failure.
    async fn tidy(&self, store: &PostgresStore) -> Result<(), StoreError> {
        let counted = store.occupancy().await.map(|found| self.service.committer().recount(found.held_claims));
        if matches!(counted, Err(StoreError::Away(_))) {
            return counted;
        }
        let vacuumed = store.vacuum().await;
        let until = Instant::now() + TICK;
        // What is left of many is for the next time, so that the rest is done meanwhile.
        let forgotten = loop {
            match store.forget(self.settled_before()).await {
                Ok(true) if Instant::now() < until => {}
                done => break done.map(drop),
            }
        };
        let abandoned = store.forget_abandoned().await;
        forgotten.and(abandoned).and(vacuumed).and(counted)
    }
}
