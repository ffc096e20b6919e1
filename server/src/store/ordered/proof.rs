//! Proofs for reads. An engine may answer a read with old rows, though it promises not to: etcd 3.4 does
//! so after a pause of its process (<https://github.com/etcd-io/etcd/issues/20418>). A write never lies,
//! because it is acknowledged by consensus.
//!
//! So each read waits for the acknowledgement of a write that began after the read was asked for. It
//! then reads at the revision of that write, or at a later one. All writes that were acknowledged before
//! the read have smaller revisions, so the read sees them (B30). Groups of commands are such writes; if
//! there are none, one proof serves all reads that wait. If it fails, it fails all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio::sync::{Mutex, watch};

use super::engine::Engine;
use crate::store::error::StoreError;

/// The last acknowledged write, by number.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    number: u64,
    revision: u64,
}

/// A write that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct BegunWrite {
    number: u64,
    // The newest revision that was acknowledged before the write began.
    floor: u64,
}

/// A proof that failed.
#[derive(Debug)]
struct FailedProof {
    number: u64,
    text: String,
}

/// The numbers of writes, in the order in which they begin, and the last acknowledged one.
#[derive(Debug)]
pub(super) struct Proofs {
    next: AtomicU64,
    acknowledged: watch::Sender<Acknowledged>,
    newest: AtomicU64,
    // True after the engine has acknowledged a write with a revision that is older than its floor.
    went_back: AtomicBool,
    // The last proof that failed.
    failed: ArcSwapOption<FailedProof>,
    // Held by the read that runs a proof. The other reads wait for it.
    proving: Mutex<()>,
}

impl Default for Proofs {
    fn default() -> Self {
        let (acknowledged, _) = watch::channel(Acknowledged::default());
        let (newest, went_back, failed, proving) = Default::default();
        Self { next: AtomicU64::new(1), acknowledged, newest, went_back, failed, proving }
    }
}

impl Proofs {
    /// Returns a write that begins now.
    pub(super) fn begin(&self) -> BegunWrite {
        let floor = self.newest.load(Ordering::SeqCst);
        BegunWrite { number: self.next.fetch_add(1, Ordering::SeqCst), floor }
    }

    /// Returns the newest revision that was acknowledged.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// Notes that a write was acknowledged. Its transaction was ordered when `revision` was the newest one.
    ///
    /// # Errors
    /// The revision is older than one that was acknowledged before the write began: a snapshot of the
    /// engine was restored. From then on, every write has this error.
    pub(super) fn acknowledge(&self, write: BegunWrite, revision: u64) -> Result<(), StoreError> {
        let BegunWrite { number, floor } = write;
        if revision < floor {
            return Err(self.go_back());
        }
        self.check()?;
        self.newest.fetch_max(revision, Ordering::SeqCst);
        self.acknowledged.send_if_modified(|last| {
            let is_later = number > last.number;
            if is_later {
                *last = Acknowledged { number, revision };
            }
            is_later
        });
        Ok(())
    }

    /// Notes that the engine lacks what it has acknowledged, and returns the error of all further writes.
    pub(super) fn go_back(&self) -> StoreError {
        self.went_back.store(true, Ordering::SeqCst);
        let text = "the cluster lacks what it has acknowledged, so a snapshot was restored: stop all servers, then \
                    `leasehold migrate --adopt`";
        StoreError::Failed(text.into())
    }

    /// Checks that the engine has never lacked what it has acknowledged.
    ///
    /// # Errors
    /// The error of [`go_back`](Self::go_back).
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.went_back.load(Ordering::SeqCst) { Err(self.go_back()) } else { Ok(()) }
    }

    /// Writes a proof, and returns its revision.
    ///
    /// # Errors
    /// The engine does not answer.
    pub(super) async fn prove(&self, engine: &dyn Engine, absent: Bytes) -> Result<u64, StoreError> {
        let write = self.begin();
        let revision = engine.prove(absent).await?;
        self.acknowledge(write, revision)?;
        Ok(revision)
    }

    /// Waits for the acknowledgement of a write that has not begun yet, and returns its revision. If no
    /// other call does so, writes a proof.
    ///
    /// # Errors
    /// The engine does not answer.
    pub(super) async fn wait(&self, engine: &dyn Engine, absent: Bytes) -> Result<u64, StoreError> {
        let first = self.next.load(Ordering::SeqCst);
        tokio::select! {
            biased;
            revision = self.acknowledgement(first) => Ok(revision),
            _proving = self.proving.lock() => {
                self.check_failed(first)?;
                let number = self.next.load(Ordering::SeqCst);
                let proved = self.prove(engine, absent).await;
                if let Err(StoreError::Unreachable(cause)) = &proved {
                    self.failed.store(Some(Arc::new(FailedProof { number, text: cause.clone() })));
                }
                proved
            }
        }
    }

    /// Checks that no proof has failed whose number is `first` or larger: it began after the read, which need not
    /// wait for another one. Otherwise, the reads of an outage would each wait for a proof in turn.
    fn check_failed(&self, first: u64) -> Result<(), StoreError> {
        match self.failed.load().as_deref().filter(|failed| failed.number >= first) {
            Some(failed) => Err(StoreError::Unreachable(failed.text.clone())),
            None => Ok(()),
        }
    }

    /// Waits for the acknowledgement of a write whose number is `first` or larger.
    async fn acknowledgement(&self, first: u64) -> u64 {
        let mut acknowledged = self.acknowledged.subscribe();
        match acknowledged.wait_for(|last| last.number >= first).await.map(|last| last.revision) {
            Ok(revision) => revision,
            // INVARIANT: the wait fails only if the sender is gone, and `self` has it.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn b30_a_read_waits_for_a_write_that_begins_after_it() {
        let proofs = Proofs::default();
        let before = proofs.begin();
        let first = proofs.next.load(Ordering::SeqCst);
        let mut read = std::pin::pin!(proofs.acknowledgement(first));
        proofs.acknowledge(before, 7).unwrap();
        assert_eq!(read.as_mut().now_or_never(), None);
        let after = proofs.begin();
        assert_eq!(read.as_mut().now_or_never(), None);
        proofs.acknowledge(after, 9).unwrap();
        assert_eq!(read.as_mut().now_or_never(), Some(9));
    }

    #[test]
    fn a_late_acknowledgement_does_not_replace_a_later_write() {
        let proofs = Proofs::default();
        let [early, late] = [proofs.begin(), proofs.begin()];
        proofs.acknowledge(late, 9).unwrap();
        proofs.acknowledge(early, 7).unwrap();
        assert_eq!(proofs.acknowledgement(early.number).now_or_never(), Some(9));
    }

    #[test]
    fn a_failed_proof_fails_the_reads_that_waited_for_it_alone() {
        let proofs = Proofs::default();
        let first = proofs.next.load(Ordering::SeqCst);
        assert!(proofs.check_failed(first).is_ok());
        let number = proofs.begin().number;
        proofs.failed.store(Some(Arc::new(FailedProof { number, text: "no answer".into() })));
        let later = proofs.next.load(Ordering::SeqCst);
        assert!(proofs.check_failed(first).is_err() && proofs.check_failed(later).is_ok());
    }

    /// Revisions of writes at the same time may come in any order. A write that begins after another one was
    /// acknowledged has no older revision, unless a snapshot was restored.
    #[test]
    fn b13_a_revision_that_goes_back_ends_all_writes() {
        let proofs = Proofs::default();
        let [one, two] = [proofs.begin(), proofs.begin()];
        proofs.acknowledge(one, 9).unwrap();
        proofs.acknowledge(two, 8).unwrap();
        let same = proofs.begin();
        proofs.acknowledge(same, 9).unwrap();
        let older = proofs.begin();
        assert!(proofs.acknowledge(older, 8).is_err());
        let newer = proofs.begin();
        assert!(proofs.acknowledge(newer, 10).is_err());
    }
}
