//! The background work by which servers of one store share sessions: each vouches for its sessions,
//! adopts those of servers that are gone, and asks for the grants that other servers have written. The
//! servers also ring each other, see [`super::lock_rings`].
//! The rules are in [`leasehold_core::vouch`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::locking::scan::{LockList, LockScan};
use leasehold_core::session::{Session, SessionId};
use leasehold_core::vouch::{INTERVAL_MICROS, Peers};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::lock_rings::Ringer;
use super::queue_rings::QueueRinger;
use super::ring_client::MAX_PEERS;
use crate::active_config::CurrentConfig;
use crate::awake::Awake;
use crate::grpc::Services;
use crate::locks::LockHost;
use crate::store::{SharedLocks, StoreError, Vouched};

/// The time between two vouches of a server.
const VOUCH_INTERVAL: Duration = Duration::from_micros(INTERVAL_MICROS);
/// The number of vouches between two looks for sessions whose home is no server, and for own
/// sessions that are not watched.
const LOOK_EVERY: u64 = 60;
/// The most sessions that one statement reads.
const PAGE: usize = 10_000;
/// The most sessions that one statement adopts.
const BATCH: usize = 1_000;
/// The pauses between two reads of waiting asks: the first after news, then each twice the last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause between two reads of waiting asks.
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// The least time between two reads, so that rings at short intervals become one read.
const RING_PAUSE: Duration = Duration::from_millis(5);
/// The pause between two reads while no ask waits, and calls only watch sessions.
const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// The longest time that a stopping server takes to say so.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The tasks of a server that shares sessions.
pub(super) struct LockSharing {
    shared: Arc<dyn SharedLocks>,
    tasks: [JoinHandle<()>; 4],
}

/// Starts the tasks.
pub(super) fn start(
    services: &Arc<Services>,
    shared: Arc<dyn SharedLocks>,
    current: &Arc<CurrentConfig>,
) -> LockSharing {
    // The address never changes: a reload keeps it.
    let voucher = Voucher::new(services, &shared, current.load().config.locks.peer_address.clone());
    let ringer = Ringer::new(services.clone(), shared.clone(), current.clone());
    let queue_ringer = QueueRinger::new(services.clone(), current.clone());
    let polling = poll(services.locks.clone(), shared.clone());
    let tasks = [
        tokio::spawn(voucher.run()),
        tokio::spawn(polling),
        tokio::spawn(ringer.run()),
        tokio::spawn(queue_ringer.run()),
    ];
    LockSharing { shared, tasks }
}

impl LockSharing {
    /// Ends the tasks, and lets other servers adopt this server's sessions at once (K22).
    pub(super) async fn stop(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        match timeout(STOP_TIMEOUT, self.shared.stop()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "other servers see only later that this one has stopped"),
            Err(_) => tracing::debug!("other servers see only later that this one has stopped"),
        }
    }
}

/// The vouches of one server, and what it has seen of the others.
struct Voucher {
    services: Arc<Services>,
    shared: Arc<dyn SharedLocks>,
    // The address at which other servers ring this one.
    address: Option<String>,
    vouches: u64,
    timeline: String,
    peers: Peers<i64>,
}

impl Voucher {
    fn new(services: &Arc<Services>, shared: &Arc<dyn SharedLocks>, address: Option<String>) -> Self {
        let (services, shared) = (services.clone(), shared.clone());
        Self { services, shared, address, vouches: 0, timeline: String::new(), peers: Peers::default() }
    }

    fn host(&self) -> &LockHost {
        &self.services.locks
    }

    async fn run(mut self) {
        let mut seconds = interval(VOUCH_INTERVAL);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            seconds.tick().await;
            if let Err(error) = self.vouch().await {
                // The probe of the database reports an outage.
                tracing::debug!(%error, "the sessions of this server can't be vouched for");
                self.host().doubt();
            }
        }
    }

    async fn vouch(&mut self) -> Result<(), StoreError> {
        let sent = Awake::now();
        let vouched = self.shared.vouch(self.address.as_deref()).await?;
        self.host().learn(&vouched.news);
        self.learn_peers(&vouched);
        self.vouches += 1;
        let is_new = vouched.beats == 1 || self.timeline != vouched.timeline;
        self.timeline.clone_from(&vouched.timeline);
        if is_new || self.vouches.is_multiple_of(LOOK_EVERY) {
            self.host().doubt();
        }
        if self.host().is_unsure() {
            self.read_homes().await?;
        }
        if let Some(sent) = sent {
            self.host().vouched(sent, vouched.is_first);
        }
        self.read_withheld().await?;
        self.read_orphans().await?;
        self.adopt(&vouched).await
    }

    /// Learns which servers can be rung.
    fn learn_peers(&self, vouched: &Vouched) {
        let live = vouched.others.iter().filter(|other| !other.is_stopped);
        // The row of a killed process of this server's address stays for a while.
        let others =
            live.filter_map(|other| other.address.clone()).filter(|address| Some(address) != self.address.as_ref());
        let sorted: BTreeSet<_> = others.collect();
        let peers: BTreeSet<_> = sorted.into_iter().take(MAX_PEERS).collect();
        self.host().set_can_ring(!peers.is_empty());
        self.host().queues.unserved.set_peers(peers);
    }

    /// Wakes the calls that wait for an orphaned lock, if another server has orphaned one. Without such
    /// calls nothing is read (K23).
    async fn read_orphans(&self) -> Result<(), StoreError> {
        let reapers = &self.host().reapers;
        if !reapers.is_empty() {
            let orphans = self.services.store().locks(LockScan::all().read(LockList::Orphaned, None)).await?;
            orphans.iter().for_each(|(path, _)| reapers.wake_for(path));
        }
        Ok(())
    }

    /// Reads which sessions are this server's.
    async fn read_homes(&self) -> Result<(), StoreError> {
        let before = self.host().homes();
        let mut own: Vec<(SessionId, Session)> = Vec::new();
        loop {
            let page = self.shared.own_sessions(own.last().map(|(id, _)| *id), PAGE).await?;
            let is_last = page.len() < PAGE;
            own.extend(page);
            if is_last {
                break;
            }
        }
        for batch in own.chunks(PAGE) {
            self.read_forced(batch).await?;
        }
        self.host().keep_homes(&before, own);
        Ok(())
    }

    async fn read_forced(&self, sessions: &[(SessionId, Session)]) -> Result<(), StoreError> {
        let ids: Vec<_> = sessions.iter().map(|(id, _)| *id).collect();
        self.host().learn_forced(self.shared.forced(&ids).await?);
        Ok(())
    }

    /// Reads the withheld locks. Each server observes all of them: an operator withholds few, and the
    /// first proposal is accepted.
    async fn read_withheld(&self) -> Result<(), StoreError> {
        let (all, mut found) = (LockScan::all(), Vec::new());
        loop {
            let after = found.last().map(|(path, _)| path);
            let locks = self.services.store().locks(all.read(LockList::Withheld, after)).await?;
            if locks.is_empty() {
                break;
            }
            found.extend(locks);
        }
        self.host().learn_withheld(found);
        Ok(())
    }

    /// Adopts the sessions of servers that are gone.
    async fn adopt(&mut self, vouched: &Vouched) -> Result<(), StoreError> {
        let gone = self.peers.gone(vouched.others.iter().map(|other| (other.id, other.beats, other.is_stopped)));
        for other in vouched.others.iter().filter(|other| gone.contains(&other.id)) {
            self.adopt_from(other.id).await?;
            self.shared.forget_server(other).await?;
        }
        if self.vouches % LOOK_EVERY == 1 {
            for home in self.shared.homeless().await? {
                self.adopt_from(home).await?;
            }
        }
        Ok(())
    }

    async fn adopt_from(&self, home: i64) -> Result<(), StoreError> {
        loop {
            let adopted = self.shared.adopt(home, BATCH).await?;
            let count = adopted.len();
            if count > 0 {
                tracing::info!(count, "the sessions of a server that is gone are watched here");
                self.services.metrics.sessions_adopted(count);
                self.host().adopt(adopted.clone());
                self.read_forced(&adopted).await?;
            }
            if count < BATCH {
                return Ok(());
            }
        }
    }
}

/// Asks the store for the grants of asks that wait here, and for news of sessions that calls here
/// watch while they renew at another server. Never returns.
async fn poll(host: Arc<LockHost>, shared: Arc<dyn SharedLocks>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let (asks, sessions) = host.waiting();
        if asks.is_empty() && sessions.is_empty() {
            // An idle server asks nothing (K23).
            host.waiting_began().await;
            pause = FIRST_PAUSE;
            continue;
        }
        let read_at = Instant::now();
        let has_news = match shared.waiting(&asks, &sessions).await {
            Ok(rows) => host.learn_waiting(&asks, &sessions, &rows),
            Err(error) => {
                tracing::debug!(%error, "the asks that wait can't be read");
                false
            }
        };
        pause = match has_news {
            true => FIRST_PAUSE,
            false if asks.is_empty() => WATCH_PAUSE,
            false => LAST_PAUSE.min(pause * 2),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = host.waiting_began() => pause = FIRST_PAUSE,
            // A ring that brings no news must cost one read only, so the pause goes on as before.
            () = host.rung() => sleep_until(read_at + RING_PAUSE).await,
        }
    }
}
