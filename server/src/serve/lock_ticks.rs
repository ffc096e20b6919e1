//! The background work of sessions and locks: loads them at the start, proposes the ends of silent
//! sessions at each tick, and forgets what ended long ago.

use std::ops::Bound;
use std::sync::Arc;

use leasehold_core::command::Command;
use leasehold_core::locking::LockCommand;
use leasehold_core::locking::forget::{ForgetLock, ForgetSession};
use leasehold_core::locking::scan::{LockList, LockScan};
use leasehold_core::rows::{OrderedRead, SessionOrder};
use leasehold_core::session::SessionId;
use leasehold_core::time::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use crate::grpc::Services;
use crate::identity::Caller;
use crate::locks::{LockHost, Proposal, TICK};
use crate::store::{StoreError, StoreReader};

/// The number of sessions that are read at once while the server starts.
const LOAD_PAGE: usize = 10_000;
/// The most ended sessions and the most free locks that are forgotten in one batch.
const FORGET_BATCH: usize = 500;

/// Shows a host the sessions and withheld locks that are in the store when the server starts. Each
/// session has its whole duration from now on (K07).
///
/// # Errors
/// A row could not be read.
pub(super) async fn load(store: &dyn StoreReader, host: &LockHost) -> Result<(), StoreError> {
    let mut from = Bound::Included(SessionOrder::Live(SessionId(Uuid::nil())));
    loop {
        let to = Bound::Included(SessionOrder::Live(SessionId(Uuid::max())));
        let sessions = store.sessions(OrderedRead { from, to, limit: LOAD_PAGE }).await?;
        let Some((last, _)) = sessions.last() else { break };
        from = Bound::Excluded(SessionOrder::Live(*last));
        host.load(sessions, []);
    }
    let (all, mut after) = (LockScan::all(), None);
    loop {
        let locks = store.locks(all.read(LockList::Withheld, after.as_ref())).await?;
        let Some((last, _)) = locks.last() else { break };
        after = Some(last.clone());
        host.load([], locks);
    }
    Ok(())
}

/// Counts ticks and submits what they propose. Never returns.
pub(super) async fn run(services: Arc<Services>) {
    let host = services.locks.clone();
    let mut ticks = interval(TICK);
    // A tick that comes late counts once (K06).
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let mut round = JoinSet::new();
        for proposal in host.tick() {
            round.spawn(decide(services.clone(), host.clone(), proposal));
        }
        if !round.is_empty() {
            round.join_all().await;
            host.round_decided();
        }
    }
}

async fn decide(services: Arc<Services>, host: Arc<LockHost>, proposal: Proposal) {
    if let (Some(shared), Command::Lock(LockCommand::Leave(leave))) = (&services.shared_locks, &proposal.command) {
        match shared.abandon(leave.ask).await {
            Ok(true) => {}
            Ok(false) => return host.end_leave(leave.ask),
            Err(_) => return host.proposal_failed(&proposal),
        }
    }
    // The server itself submits this command, so no permit is checked.
    match services.committer().submit(Caller::Server, proposal.command.clone()).await {
        Ok(Ok(_)) => host.proposal_decided(&proposal, None),
        Ok(Err(rejection)) => host.proposal_decided(&proposal, Some(rejection.reason())),
        Err(refusal) => {
            tracing::warn!(%refusal, "a silent session can't be ended, or a lock can't be passed on: it is tried again");
            host.proposal_failed(&proposal);
        }
    }
}

/// Forgets a batch of sessions that ended, and of locks that became free, before `before`. Returns
/// true if there may be more.
pub(super) async fn forget_batch(services: &Arc<Services>, before: Timestamp) -> bool {
    if !services.locks.may_forget() {
        return false;
    }
    let store = services.store();
    let read = async {
        let (first, last) = (Timestamp::MIN, before.minus_micros(1));
        let ended = OrderedRead {
            from: Bound::Included(SessionOrder::Ended(first, SessionId(Uuid::nil()))),
            to: Bound::Included(SessionOrder::Ended(last, SessionId(Uuid::max()))),
            limit: FORGET_BATCH,
        };
        let sessions = store.sessions(ended).await?;
        Ok::<_, StoreError>((sessions, store.locks(LockScan::free_before(before, FORGET_BATCH)).await?))
    };
    let (sessions, locks) = match read.await {
        Ok(found) => found,
        Err(error) if error.is_away() => return false,
        Err(error) => {
            tracing::error!(%error, "ended sessions and free locks can't be read");
            return false;
        }
    };
    let is_full = sessions.len() == FORGET_BATCH || locks.len() == FORGET_BATCH;
    let sessions = sessions.into_iter().map(|(session, _)| ForgetSession { session, ended_before: before });
    let locks = locks.into_iter().map(|(lock, _)| ForgetLock { lock, free_before: before });
    let mut commands: Vec<_> = sessions.map(LockCommand::ForgetSession).collect();
    commands.extend(locks.map(LockCommand::ForgetLock));
    let mut forgets = JoinSet::new();
    for command in commands {
        let services = services.clone();
        forgets.spawn(async move { services.committer().submit(Caller::Server, Command::Lock(command)).await });
    }
    forgets.join_all().await.iter().all(Result::is_ok) && is_full
}
