//! The background work of queues: takes lanes back from sessions that have ended, and forgets what was settled
//! long ago.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::command::Command;
use leasehold_core::queue::{Lane, LanePath};
use leasehold_core::queueing::QueueCommand;
use leasehold_core::queueing::forget::{ForgetLane, ForgetRequest};
use leasehold_core::queueing::reads::{all_taken, idle_before, settled_before, taken_by};
use leasehold_core::queueing::reclaim::Reclaim;
use leasehold_core::queueing::retry::Retry;
use leasehold_core::rejection::Reason;
use leasehold_core::rows::{OrderedRead, RowKind, SessionOrder};
use leasehold_core::session::SessionId;
use leasehold_core::time::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::grpc::Services;
use crate::identity::Caller;
use crate::locks::TICK;
use crate::queues::Lost;
use crate::store::{StoreError, StoreReader};

/// The number of taken lanes that are read at once.
const TAKEN_PAGE: usize = 1_000;
/// The most lanes of one session that one round takes back, so that the end of a session with many lanes is
/// spread out.
const RECLAIMS_PER_ROUND: usize = 256;
/// The pause between two looks for sessions whose end another server has written, if others use the store.
const SEARCH_INTERVAL: Duration = Duration::from_secs(30);
/// The most settled requests and the most idle lanes that are forgotten in one batch.
const FORGET_BATCH: usize = 500;

/// Takes lanes back from sessions that have ended. Never returns.
pub(super) async fn run(services: Arc<Services>) {
    let (lost, is_shared) = (&services.locks.queues.lost, services.shared_locks.is_some());
    let mut ticks = interval(TICK);
    // A tick that comes late counts once, as for silent sessions (K06).
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut searches_at = Some(Instant::now());
    loop {
        tokio::select! {
            _ = ticks.tick() => lost.tick(),
            () = lost.added() => {}
        }
        if searches_at.is_some_and(|at| Instant::now() >= at) {
            // A failed search is repeated at the next tick.
            match search(&services).await {
                Ok(()) => searches_at = is_shared.then(|| Instant::now() + SEARCH_INTERVAL),
                Err(error) => tracing::debug!(%error, "taken lanes can't be read"),
            }
        }
        for session in lost.all(TICK) {
            if let Err(error) = reclaim(&services, session).await {
                tracing::debug!(%error, "the lanes of an ended session can't be read: they are read again");
            }
        }
    }
}

/// Finds the sessions that have ended and still hold lanes, of all lanes that are taken (Q11).
async fn search(services: &Services) -> Result<(), StoreError> {
    let (store, mut read, mut seen) = (services.store(), all_taken(TAKEN_PAGE), None);
    loop {
        let lanes = store.lanes(read.clone()).await?;
        let Some((path, lane)) = lanes.last() else { return Ok(()) };
        let after = Lane::position(path, lane);
        // The lanes are in the order of the sessions, so each session is read once.
        for session in lanes.iter().filter_map(|(_, lane)| Some(lane.hold()?.session)) {
            if seen.replace(session) != Some(session) && !is_live(store, session).await? {
                services.locks.queues.lost.add(session);
            }
        }
        match after.filter(|_| lanes.len() == TAKEN_PAGE) {
            Some(after) => read.from = Bound::Excluded(after),
            None => return Ok(()),
        }
    }
}

async fn is_live(store: &dyn StoreReader, session: SessionId) -> Result<bool, StoreError> {
    let only = || Bound::Included(SessionOrder::Live(session));
    Ok(!store.sessions(OrderedRead { from: only(), to: only(), limit: 1 }).await?.is_empty())
}

/// Takes back the lanes of an ended session whose time is over, at most [`RECLAIMS_PER_ROUND`] of them.
async fn reclaim(services: &Arc<Services>, lost: Lost) -> Result<(), StoreError> {
    let lanes = services.store().lanes(taken_by(lost.session, RECLAIMS_PER_ROUND)).await?;
    if lanes.is_empty() {
        services.locks.queues.lost.remove(lost.session);
        return Ok(());
    }
    let mut reclaims = JoinSet::new();
    for (path, lane) in lanes {
        if lane.hold().is_some_and(|hold| lost.may_end(hold)) {
            reclaims.spawn(reclaim_lane(services.clone(), lost, path, lane));
        }
    }
    reclaims.join_all().await;
    Ok(())
}

async fn reclaim_lane(services: Arc<Services>, lost: Lost, path: LanePath, lane: Lane) {
    let Some(hold) = lane.hold() else { return };
    let command = Reclaim { lane: path, fence: hold.fence, quiet_micros: lost.quiet_micros, retry: Retry::Backoff };
    let command = Command::Queue(QueueCommand::Reclaim(command));
    // The server itself submits this command, so no permit is checked.
    match services.committer().submit(Caller::Server, command).await {
        Ok(Ok(_)) => {}
        Ok(Err(rejection)) if rejection.reason() == Reason::LockWithheld => {
            services.locks.queues.lost.withhold(lost.session);
        }
        // The end of the session was lost in a failover of the database.
        Ok(Err(rejection)) if rejection.reason() == Reason::SessionAlive => {
            services.locks.queues.lost.remove(lost.session);
        }
        // The lane was settled or taken back meanwhile.
        Ok(Err(_)) => {}
        Err(refusal) => {
            tracing::warn!(%refusal, "a lane can't be taken back from an ended session: it is tried again");
        }
    }
}

/// Forgets a batch of requests that were settled, and of lanes that became idle, before `before`. Returns true if
/// there may be more.
pub(super) async fn forget_batch(services: &Arc<Services>, before: Timestamp) -> bool {
    if !services.locks.may_forget() {
        return false;
    }
    let store = services.store();
    let read = async {
        let requests = store.requests(settled_before(before, FORGET_BATCH)).await?;
        Ok::<_, StoreError>((requests, store.lanes(idle_before(before, FORGET_BATCH)).await?))
    };
    let (requests, lanes) = match read.await {
        Ok(found) => found,
        Err(error) if error.is_away() => return false,
        Err(error) => {
            tracing::error!(%error, "settled requests and idle lanes can't be read");
            return false;
        }
    };
    let is_full = requests.len() == FORGET_BATCH || lanes.len() == FORGET_BATCH;
    // The requests go first: a lane stays for as long as the create of its resource is remembered.
    let requests = requests.into_iter().map(|(request, _)| ForgetRequest { request, settled_before: before });
    let has_forgotten = forget(services, requests.map(QueueCommand::ForgetRequest)).await;
    let lanes = lanes.into_iter().map(|(lane, _)| ForgetLane { lane, idle_before: before });
    forget(services, lanes.map(QueueCommand::ForgetLane)).await && has_forgotten && is_full
}

/// Submits commands that forget. Returns true if all were decided.
async fn forget(services: &Arc<Services>, commands: impl Iterator<Item = QueueCommand>) -> bool {
    let mut forgets = JoinSet::new();
    for command in commands {
        let services = services.clone();
        forgets.spawn(async move { services.committer().submit(Caller::Server, Command::Queue(command)).await });
    }
    forgets.join_all().await.iter().all(Result::is_ok)
}
