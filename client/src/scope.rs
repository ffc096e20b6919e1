//! The scope of an update's lease: when the scope ends, in whatever way, the lease is committed,
//! rolled back, or left to reconciliation.
//!
//! | the local transaction | the work | the lease is |
//! |---|---|---|
//! | not reported by [`HeldLease::local_commit`] | succeeds | committed |
//! | not reported | fails, panics or is cancelled | rolled back |
//! | its COMMIT was interrupted, or failed | ends in any way | left to reconciliation |
//! | its COMMIT succeeded | ends in any way | committed |
//!
//! A local COMMIT that was interrupted may have been executed. Only the lease's row in the cell's
//! own database proves it, and reconciliation reads this row (R02).

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use leasehold_proto::gitlab::cells::topology_service::claims::v1::BeginUpdateRequest;
use uuid::Uuid;

use crate::claim::Lease;
use crate::client::Client;
use crate::error::Error;

/// The state of the COMMIT of the caller's own transaction, as far as the caller reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum LocalCommit {
    NotReported = 0,
    /// The COMMIT was sent, and is not known to have succeeded.
    Sent = 1,
    Succeeded = 2,
}

/// Decision about a lease when its scope ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettleAction {
    Commit,
    RollBack,
    /// Leave the lease outstanding, so that reconciliation settles it.
    Leave,
}

/// The lease of a running [`Update::run`](crate::Update::run).
#[derive(Clone, Debug)]
pub struct HeldLease {
    lease: Lease,
    local_commit: Arc<AtomicU8>,
}

impl HeldLease {
    fn new(lease: Lease) -> Self {
        Self { lease, local_commit: Arc::new(AtomicU8::new(LocalCommit::NotReported as u8)) }
    }

    /// Returns the lease of this update.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Returns the lease's id. The cell must store it in its own database, in the transaction that
    /// writes its rows.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.lease.uuid
    }

    /// Returns the lease's fencing token.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.lease.fence
    }

    /// Waits for `commit`, which must only COMMIT the caller's own transaction, and reports its
    /// progress. Returns the result of `commit`.
    ///
    /// From the first poll until `commit` succeeds, the outcome of the COMMIT is unknown. If the
    /// scope ends in this state, the lease is neither committed nor rolled back. After `commit`
    /// succeeded, the lease is committed even if the rest of the work fails.
    ///
    /// # Errors
    /// The error that `commit` returned.
    pub async fn local_commit<T, E>(&self, commit: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.report(LocalCommit::Sent);
        let result = commit.await;
        if result.is_ok() {
            self.report(LocalCommit::Succeeded);
        }
        result
    }

    fn report(&self, local_commit: LocalCommit) {
        self.local_commit.store(local_commit as u8, Ordering::SeqCst);
    }

    fn reported(&self) -> LocalCommit {
        match self.local_commit.load(Ordering::SeqCst) {
            0 => LocalCommit::NotReported,
            1 => LocalCommit::Sent,
            _ => LocalCommit::Succeeded,
        }
    }

    fn settle_action(&self, is_work_done: bool) -> SettleAction {
        match (self.reported(), is_work_done) {
            (LocalCommit::Succeeded, _) | (LocalCommit::NotReported, true) => SettleAction::Commit,
            (LocalCommit::NotReported, false) => SettleAction::RollBack,
            (LocalCommit::Sent, _) => SettleAction::Leave,
        }
    }
}

/// The progress of a scope. If the scope's future is dropped, the stage decides how the lease is
/// settled.
#[derive(Debug)]
enum Stage {
    /// The scope has no outstanding lease.
    Idle,
    /// The begin was sent and is not answered yet.
    Beginning,
    /// The caller's work runs under the lease.
    Held(HeldLease),
    /// The lease is being committed or rolled back, or is left to reconciliation.
    Settling(Lease, SettleAction),
}

/// The scope of one update: the begin of its lease, the caller's work, and the settling. If a scope
/// is dropped before its end, a background task settles the lease.
#[derive(Debug)]
pub(crate) struct Scope {
    client: Client,
    message: BeginUpdateRequest,
    key: String,
    stage: Stage,
}

impl Scope {
    pub(crate) fn new(client: Client, message: BeginUpdateRequest, key: String) -> Self {
        Self { client, message, key, stage: Stage::Idle }
    }

    /// Begins the lease, and returns it. If no answer comes, the lease of the begin is rolled back,
    /// provided that the server can be reached.
    pub(crate) async fn begin(&mut self) -> Result<HeldLease, Error> {
        self.stage = Stage::Beginning;
        let begun = self.client.begin(&self.message, &self.key).await;
        match begun {
            Ok(lease) => {
                let held = HeldLease::new(lease);
                self.stage = Stage::Held(held.clone());
                Ok(held)
            }
            Err(error) => {
                if error.outcome_is_unknown() {
                    roll_back_begin(&self.client, &self.message, &self.key).await;
                }
                self.stage = Stage::Idle;
                Err(error)
            }
        }
    }

    /// Commits the lease, rolls it back or leaves it to reconciliation, after the work.
    /// `is_work_done` is true if the work succeeded.
    pub(crate) async fn settle(&mut self, is_work_done: bool) -> Result<(), Error> {
        let Stage::Held(held) = mem::replace(&mut self.stage, Stage::Idle) else { return Ok(()) };
        let (lease, settle_action) = (held.lease, held.settle_action(is_work_done));
        self.stage = Stage::Settling(lease, settle_action);
        let settled = settle(&self.client, lease, settle_action).await;
        self.stage = Stage::Idle;
        settled
    }
}

/// Settles the lease of a dropped scope in a background task. Otherwise its claims would be busy
/// until reconciliation.
impl Drop for Scope {
    fn drop(&mut self) {
        let (lease, settle_action) = match mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => return,
            Stage::Beginning => {
                let (client, message, key) = (self.client.clone(), mem::take(&mut self.message), self.key.clone());
                let task = async move { roll_back_begin(&client, &message, &key).await };
                return in_background(task, format_args!("a lease begun under the key `{}`", self.key));
            }
            Stage::Held(held) => (held.lease, held.settle_action(false)),
            Stage::Settling(lease, settle_action) => (lease, settle_action),
        };
        let client = self.client.clone();
        let task = async move {
            if let Err(error) = settle(&client, lease, settle_action).await {
                warn_unsettled(format_args!("the lease {}", lease.uuid), &error);
            }
        };
        in_background(task, format_args!("the lease {}", lease.uuid));
    }
}

fn in_background(task: impl Future<Output = ()> + Send + 'static, subject: std::fmt::Arguments<'_>) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(task)),
        Err(error) => warn_unsettled(subject, &error),
    }
}

fn warn_unsettled(subject: std::fmt::Arguments<'_>, error: &dyn std::error::Error) {
    tracing::warn!("{subject} may be outstanding until reconciliation settles it: {error}");
}

async fn settle(client: &Client, lease: Lease, settle_action: SettleAction) -> Result<(), Error> {
    match settle_action {
        SettleAction::Commit => client.commit(lease.cell_id, lease.uuid).await,
        SettleAction::RollBack => client.rollback(lease.cell_id, lease.uuid).await,
        SettleAction::Leave => Ok(()),
    }
}

/// Rolls back the lease of a begin that got no answer. To learn the lease's id, the function
/// repeats the begin under the same key. The answer is the lease of the first begin, or a new
/// lease, and either is rolled back.
async fn roll_back_begin(client: &Client, message: &BeginUpdateRequest, key: &str) {
    let once = client.clone().with_retry(client.retry.once());
    let rolled_back = match once.begin(message, key).await {
        Ok(lease) => settle(client, lease, SettleAction::RollBack).await,
        Err(error) => Err(error),
    };
    match rolled_back {
        Err(error) if error.outcome_is_unknown() => {
            warn_unsettled(format_args!("a lease begun under the key `{key}`"), &error);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> HeldLease {
        HeldLease::new(Lease { cell_id: 1, uuid: Uuid::nil(), fence: 1 })
    }

    #[test]
    fn without_a_report_the_work_decides() {
        assert_eq!(
            (held().settle_action(true), held().settle_action(false)),
            (SettleAction::Commit, SettleAction::RollBack)
        );
    }

    #[tokio::test]
    async fn r02_a_failed_local_commit_leaves_the_lease_to_reconciliation() {
        let held = held();
        let failed: Result<(), &str> = held.local_commit(async { Err("connection lost") }).await;
        assert!(failed.is_err());
        assert_eq!((held.settle_action(true), held.settle_action(false)), (SettleAction::Leave, SettleAction::Leave));
    }

    #[tokio::test]
    async fn r02_an_interrupted_local_commit_leaves_the_lease_to_reconciliation() {
        let held = held();
        let mut commit = Box::pin(held.local_commit(std::future::pending::<Result<(), ()>>()));
        assert!(futures_poll_once(commit.as_mut()).await);
        drop(commit);
        assert_eq!(held.settle_action(false), SettleAction::Leave);
    }

    /// Polls a future once. Returns true if it is still pending.
    async fn futures_poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
        std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn after_the_local_commit_the_lease_is_committed_even_if_the_work_fails() {
        let held = held();
        let committed: Result<i32, ()> = held.local_commit(async { Ok(7) }).await;
        assert_eq!(committed, Ok(7));
        assert_eq!(held.settle_action(false), SettleAction::Commit);
    }
}
