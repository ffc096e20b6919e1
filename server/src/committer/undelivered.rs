//! Begun leases whose response has not left the server, so that no caller knows them yet (B25).

use std::sync::Arc;

use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::Outcome;
use leasehold_core::update::Settle;
use tokio::sync::oneshot;

use super::Decision;
use super::queue::Job;
use super::writer::WriterShared;
use crate::identity::Caller;
use crate::metrics::Abandoned;

/// A lease that was begun without an idempotency key, and whose response has not left the server.
///
/// If the value is dropped, the server rolls the lease back. The caller does not know the lease's
/// id, and a repeated begin would get another lease. The rollback is an ordinary command, which
/// goes before all begins that wait. If the server stops first, reconciliation settles the lease.
pub struct Undelivered {
    shared: Arc<WriterShared>,
    // `None` once the response has begun to leave the server.
    rollback: Option<Settle>,
}

impl Undelivered {
    /// Returns the lease of a decided command; `None` if the command began no lease, or if its
    /// caller can get the lease again by its idempotency key.
    pub(super) fn of(command: &Command, decision: &Decision, shared: &Arc<WriterShared>) -> Option<Self> {
        let (Command::Begin(begin), Ok(Ok(Reply::Begun(begun)))) = (command, decision) else { return None };
        let rollback = Settle { cell: begin.cell, lease: begun.lease, outcome: Outcome::RolledBack };
        let is_unknown = begin.idempotency.is_none();
        is_unknown.then(|| Self { shared: shared.clone(), rollback: Some(rollback) })
    }

    /// Keeps the lease. Call this when the response begins to leave the server.
    pub fn hand_on(mut self) {
        self.rollback = None;
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        let Some(rollback) = self.rollback.take() else { return };
        let (answer, _) = oneshot::channel();
        let command = Command::Settle(rollback);
        let job = Job {
            caller: Caller::Server,
            command,
            tried: false,
            away_since: None,
            is_drop: false,
            timed: None,
            answer,
        };
        // The push fails only if the server is stopping.
        if self.shared.queue.push(job).is_ok() {
            self.shared.metrics.abandoned(Abandoned::TakenBack);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::pin::pin;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use leasehold_core::batch::{ClaimRequest, UpdateRequest};
    use leasehold_core::bucket::BucketType;
    use leasehold_core::cell::CellId;
    use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
    use leasehold_core::command::Fences;
    use leasehold_core::lease::LeaseId;
    use leasehold_core::rejection::Reason;
    use leasehold_core::rows::{Keys, NetChanges, Workspace};
    use leasehold_core::rules::Rules;
    use leasehold_core::update::Begin;
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::super::{Capacity, Committer, CommitterSettings};
    use super::*;
    use crate::audit::AuditSink;
    use crate::store::{Creation, EmbeddedStore, GroupError, GroupStore};

    /// A store that notifies the test when a group begins, and then waits until the test lets the
    /// group go on.
    struct Gated {
        store: EmbeddedStore,
        begun: Sender<()>,
        go_on: Receiver<()>,
    }

    impl GroupStore for Gated {
        fn begin(&mut self) -> Result<Workspace, GroupError> {
            // Both channel operations fail only after the test has ended.
            let _ = self.begun.send(());
            let _ = self.go_on.recv();
            GroupStore::begin(&mut self.store)
        }

        fn load(&mut self, keys: Keys, into: &mut Workspace) -> Result<(), GroupError> {
            GroupStore::load(&mut self.store, keys, into)
        }

        fn commit(&mut self, changes: &NetChanges) -> Result<Fences, GroupError> {
            self.store.commit(changes)
        }
    }

    struct World {
        committer: Committer,
        begun: Receiver<()>,
        go_on: Sender<()>,
        _directory: TempDir,
    }

    impl World {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            let ((begun_sender, begun), (go_on, go_on_receiver)) = (channel(), channel());
            let store = EmbeddedStore::open(directory.path(), Creation::Allowed).unwrap();
            let store = Gated { store, begun: begun_sender, go_on: go_on_receiver };
            let capacity = Capacity { cells: [].into(), queued_begins: 8, held_claims: 8 };
            let (begin_gate, audit) = (Box::new(|| None), Arc::new(AuditSink::off()));
            let settings = CommitterSettings {
                capacity,
                held_claims: [].into(),
                patience: Duration::ZERO,
                clock: Arc::default(),
                begin_gate,
                locks: Arc::default(),
                audit,
            };
            let committer = Committer::start(vec![Box::new(store)], settings, Arc::default()).unwrap();
            Self { committer, begun, go_on, _directory: directory }
        }

        /// Queues a begin and waits until a writer has taken its group. Then drops the caller, and
        /// lets the group go on.
        async fn abandon_decided(&self, begin: Begin) {
            {
                let mut call = pin!(self.committer.begin(Caller::Trusted, begin));
                assert!(futures_util::poll!(call.as_mut()).is_pending());
                self.begun.recv().unwrap();
            }
            self.go_on.send(()).unwrap();
        }

        async fn begin(&self, begin: Begin) -> Decision {
            let (decision, undelivered) = self.committer.begin(Caller::Trusted, begin).await;
            undelivered.into_iter().for_each(Undelivered::hand_on);
            decision
        }

        async fn settle(&self, lease: u128, outcome: Outcome) -> Decision {
            let settle = Settle { cell: CellId(1), lease: LeaseId(Uuid::from_u128(lease)), outcome };
            self.committer.submit(Caller::Trusted, Command::Settle(settle)).await
        }

        /// Lets any number of groups go on.
        fn open(&self) {
            (0..100).for_each(|_| self.go_on.send(()).unwrap());
        }
    }

    fn begin(lease: u128, name: &str, key: Option<&str>) -> Begin {
        let claim = ClaimRequest {
            bucket_type: BucketType(4),
            value: name.into(),
            subject: Some(Subject { subject_type: 4, id: 7 }),
            source: Some(Source { source_type: SourceType(1), id: SourceId::from(7) }),
            user_data: None,
        };
        let rules = Rules { cells: [CellId(1)].into(), ..Rules::default() };
        let update = UpdateRequest { creates: vec![claim], destroys: vec![] };
        rules.begin(CellId(1), update, key, LeaseId(Uuid::from_u128(lease))).unwrap()
    }

    fn reason(decision: Decision) -> Option<Reason> {
        decision.unwrap().err().map(|rejection| rejection.reason())
    }

    #[tokio::test]
    async fn b25_a_begin_whose_caller_is_gone_is_taken_back_before_the_next_begin() {
        let world = World::new();
        world.abandon_decided(begin(1, "alice", None)).await;
        world.open();
        assert_eq!(reason(world.begin(begin(2, "alice", None)).await), None);
        assert_eq!(reason(world.settle(1, Outcome::Committed).await), Some(Reason::LeaseRolledBack));
        assert_eq!(reason(world.settle(1, Outcome::RolledBack).await), None);
        assert_eq!(reason(world.settle(2, Outcome::Committed).await), None);
    }

    #[tokio::test]
    async fn b09_b25_a_begin_with_a_key_is_not_taken_back() {
        let world = World::new();
        world.abandon_decided(begin(1, "alice", Some("key"))).await;
        world.open();
        assert_eq!(reason(world.begin(begin(2, "alice", None)).await), Some(Reason::ClaimBusy));
        let Ok(Ok(Reply::Begun(begun))) = world.begin(begin(3, "alice", Some("key"))).await else { unreachable!() };
        assert_eq!((begun.lease.0.as_u128(), begun.replayed), (1, true));
    }

    #[tokio::test]
    async fn b25_a_lease_whose_response_was_handed_on_stays() {
        let world = World::new();
        world.open();
        assert_eq!(reason(world.begin(begin(1, "alice", None)).await), None);
        assert_eq!(reason(world.begin(begin(2, "alice", None)).await), Some(Reason::ClaimBusy));
        drop(world.committer.begin(Caller::Trusted, begin(3, "bob", None)).await);
        assert_eq!(reason(world.begin(begin(4, "bob", None)).await), None, "its response was dropped");
    }

    #[tokio::test]
    async fn b25_a_begin_that_was_never_tried_is_dropped_and_a_settle_is_decided() {
        let world = World::new();
        let mut first = pin!(world.begin(begin(1, "first", None)));
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        world.begun.recv().unwrap();
        {
            // Both begins wait for the next group, and their callers disconnect.
            let mut dropped = pin!(world.begin(begin(2, "alice", Some("key"))));
            let mut decided = pin!(world.settle(1, Outcome::Committed));
            assert!(futures_util::poll!(dropped.as_mut()).is_pending());
            assert!(futures_util::poll!(decided.as_mut()).is_pending());
        }
        world.open();
        assert_eq!(reason(first.await), None);
        assert_eq!(reason(world.begin(begin(3, "alice", None)).await), None);
        assert_eq!(reason(world.settle(1, Outcome::RolledBack).await), Some(Reason::LeaseCommitted));
        assert_eq!(reason(world.settle(2, Outcome::Committed).await), Some(Reason::LeaseNotFound));
    }
}
