//! The port of an ordered, replicated key-value engine with multi-key transactions, such as etcd. A
//! driver implements [`Engine`]; the layout and the algorithm above it know nothing else.
//!
//! Each transaction that writes gets a revision, larger than that of every transaction before it. A
//! row has the revision of the transaction that wrote it last.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use crate::store::error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// The future of a call to an engine.
pub(in crate::store) type EngineFuture<'a, T> = BoxFuture<'a, Result<T>>;

/// The most guards, and the most writes, of one transaction: an update has at most 2,000 claims, with
/// three writes each. It is also the most reads of one load.
pub(in crate::store) const MAX_OPERATIONS: usize = 8_192;
/// The most bytes of one transaction.
pub(in crate::store) const MAX_TRANSACTION_BYTES: usize = 12 * 1024 * 1024;

/// A row with the revision of the transaction that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Entry {
    /// The key of the row.
    pub(in crate::store) key: Bytes,
    /// The value of the row; empty if only keys were asked for.
    pub(in crate::store) value: Bytes,
    /// The revision of the transaction that wrote the row.
    pub(in crate::store) revision: u64,
}

/// The keys from `from` up to, but without, `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct KeyRange {
    /// The first key of the range.
    pub(in crate::store) from: Bytes,
    /// The first key after the range.
    pub(in crate::store) to: Bytes,
}

/// One read of a load.
#[derive(Clone, Debug)]
pub(in crate::store) enum KeyRead {
    /// The row with this key.
    Row(Bytes),
    /// The first rows of a range, in the order of keys.
    Range {
        /// The range, which has a key between its ends.
        range: KeyRange,
        /// The most rows.
        limit: usize,
        /// True if the values are not needed.
        keys_only: bool,
    },
}

/// The moment as of which a load reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Moment {
    /// The newest revision that the member of the engine knows which answers. It costs no agreement of
    /// members, and may be old: only what is guarded by a transaction later may follow from it.
    Known,
    /// The newest revision on which the members agree.
    Newest,
    /// This revision.
    Revision(u64),
}

/// The answer to a load: the rows of each read, as they were at one revision.
#[derive(Clone, Debug)]
pub(in crate::store) struct LoadedEntries {
    /// The revision at which the rows were read.
    pub(in crate::store) revision: u64,
    /// The rows of each read, in the order of reads.
    pub(in crate::store) entries: Vec<Vec<Entry>>,
}

/// A condition on the rows at the moment of a transaction.
#[derive(Clone, Debug)]
pub(in crate::store) enum RowGuard {
    /// The row is as the transaction with this revision has written it.
    Written {
        /// The key of the row.
        key: Bytes,
        /// The revision of the row.
        revision: u64,
    },
    /// There is no row with this key.
    Absent(Bytes),
    /// No row of the range is newer than this revision. A deleted row is not noticed, so an ordered read
    /// also guards each row that it has returned.
    Unchanged {
        /// The range of keys.
        range: KeyRange,
        /// The newest revision that a row may have.
        since: u64,
    },
}

/// A change that a transaction makes. No two changes of a transaction concern the same key.
#[derive(Clone, Debug)]
pub(in crate::store) enum RowWrite {
    /// Writes the row.
    Put {
        /// The key of the row.
        key: Bytes,
        /// The new value of the row.
        value: Bytes,
    },
    /// Deletes the row, if there is one.
    Delete(Bytes),
    /// Deletes all rows of a range.
    DeleteRange(KeyRange),
}

/// The answer to a guarded transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Guarded {
    /// True if all guards held, so that all changes were made; false if none was made.
    pub(in crate::store) is_written: bool,
    /// The revision of the transaction; the newest revision before it if nothing was written.
    pub(in crate::store) revision: u64,
}

/// The state of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct EngineStatus {
    /// The number that tells the engine's cluster from all others.
    pub(in crate::store) cluster: u64,
    /// The size of the engine's data on the member where it is largest, in bytes.
    pub(in crate::store) disk_bytes: u64,
    /// The largest size that the engine takes on each member, in bytes, as the engine tells it or as it is configured.
    pub(in crate::store) quota_bytes: u64,
    /// The number of alarms for which the engine refuses all writes: it is full, or its members disagree.
    pub(in crate::store) alarms: usize,
}

/// An ordered key-value engine. An error of the variant [`StoreError::Unreachable`] means that the
/// engine did not answer, so that a write was made or not. After any other error, it was not made.
pub(in crate::store) trait Engine: Send + Sync + 'static {
    /// Reads rows as they were at one moment. There are at most [`MAX_OPERATIONS`] reads.
    fn load(&self, at: Moment, reads: Vec<KeyRead>) -> EngineFuture<'_, LoadedEntries>;

    /// Makes all changes durable if all guards hold, or makes none. There is at least one change. Such a
    /// transaction is ordered among all others by the engine's consensus, even if it changes nothing.
    fn write(&self, guards: Vec<RowGuard>, writes: Vec<RowWrite>) -> EngineFuture<'_, Guarded>;

    /// Makes a durable transaction that changes nothing, and returns the newest revision at that moment.
    /// `absent` is a key that has no row. Every transaction that was acknowledged before this call has at
    /// most this revision.
    fn prove(&self, absent: Bytes) -> EngineFuture<'_, u64>;

    /// Counts the rows of a range.
    fn count(&self, range: KeyRange) -> EngineFuture<'_, u64>;

    /// Forgets what rows were before a revision. Loads at older revisions fail from then on.
    fn compact(&self, revision: u64) -> EngineFuture<'_, ()>;

    /// Reads the state of the engine.
    fn status(&self) -> EngineFuture<'_, EngineStatus>;

    /// Returns the runtime on which a thread of its own can wait for a call.
    fn handle(&self) -> &Handle;

    /// Returns the place of the store as text for people, without secrets.
    fn place(&self) -> &str;
}
