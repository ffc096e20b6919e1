//! The reads of the store that failed. The server tries them again, and is not ready until all of
//! them succeed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::bucket::BucketKey;
use leasehold_core::cell::CellId;
use leasehold_core::lock::{Lock, LockPath};
use leasehold_core::query::{LeaseScan, RecordScan};
use leasehold_core::queue::{Lane, QueuePath, Request, RequestId};
use leasehold_core::rows::OrderedRead;
use tokio::sync::Notify;

use crate::store::{StoreError, StoreReader};

/// The most failed reads that are kept. If one block of the disk fails, reads of many rows fail, and
/// a few of them show when it is back.
const MAX_READS: usize = 8;

/// A read of the store, kept for another attempt. Other reads would not do in its place: their rows
/// may be in memory, or in another part of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The read of the claims on these buckets.
    Claims(Vec<BucketKey>),
    /// The read of a part of a list of records.
    Records(RecordScan),
    /// The read of a page of leases.
    Leases(LeaseScan),
    /// The read of a cell's tables.
    Tables(CellId),
    /// The read of a lock.
    Lock(LockPath),
    /// The read of a part of a list of locks.
    Locks(OrderedRead<Lock>),
    /// The read of a queue.
    Queue(QueuePath),
    /// The read of a part of a list of lanes.
    Lanes(OrderedRead<Lane>),
    /// The read of a request.
    Request(RequestId),
    /// The read of a part of a list of requests.
    Requests(OrderedRead<Request>),
    /// The read of the bodies of requests.
    Bodies(Vec<RequestId>),
}

impl Read {
    /// Reads the same rows again.
    ///
    /// # Errors
    /// A row could not be read.
    pub(crate) async fn repeat(&self, store: &dyn StoreReader) -> Result<(), StoreError> {
        match self {
            Self::Claims(keys) => store.claims(keys).await.map(drop),
            Self::Records(scan) => store.records(scan.clone()).await.map(drop),
            Self::Leases(scan) => store.leases(*scan).await.map(drop),
            Self::Tables(cell) => store.tables(*cell).await.map(drop),
            Self::Lock(path) => store.lock(path).await.map(drop),
            Self::Locks(read) => store.locks(read.clone()).await.map(drop),
            Self::Queue(path) => store.queue(path).await.map(drop),
            Self::Lanes(read) => store.lanes(read.clone()).await.map(drop),
            Self::Request(id) => store.request(*id).await.map(drop),
            Self::Requests(read) => store.requests(read.clone()).await.map(drop),
            Self::Bodies(ids) => store.bodies(ids).await.map(drop),
        }
    }
}

/// The failed reads of a server, the first one first.
#[derive(Debug, Default)]
pub(crate) struct FailedReads {
    reads: Mutex<Vec<Read>>,
    added: Notify,
}

impl FailedReads {
    fn lock(&self) -> MutexGuard<'_, Vec<Read>> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a read that failed, unless [`MAX_READS`] are kept.
    pub(super) fn add(&self, read: Read) {
        let mut reads = self.lock();
        if reads.len() < MAX_READS && !reads.contains(&read) {
            reads.push(read);
        }
        drop(reads);
        self.added.notify_one();
    }

    /// True if no read is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns the first read; `None` if no read is kept.
    pub(crate) fn first(&self) -> Option<Read> {
        self.lock().first().cloned()
    }

    /// Removes a read that succeeded.
    pub(crate) fn remove(&self, read: &Read) {
        self.lock().retain(|kept| kept != read);
    }

    /// Waits until a read may have been added. Only one task at a time may wait.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_different_reads_is_kept() {
        let failed = FailedReads::default();
        assert!(failed.is_empty());
        for cell in (1..).take(2 * MAX_READS) {
            failed.add(Read::Tables(CellId(cell)));
            failed.add(Read::Tables(CellId(1)));
        }
        let mut repeated = 0;
        while let Some(read) = failed.first() {
            failed.remove(&read);
            repeated += 1;
        }
        assert_eq!(repeated, MAX_READS);
        assert!(failed.is_empty());
    }
}
