//! The interface between a host and the player, in types that fit the engine and the wire.

use std::sync::Arc;

use anyhow::{Result, bail};
use leasehold_core::batch::UpdateRequest;
use leasehold_core::bucket::BucketType;
use leasehold_core::claim::{Source, Subject, UserData};
use leasehold_core::lease::Outcome;
use leasehold_core::rejection::Place;
use uuid::Uuid;

/// A host's answer. The inner result is the service's decision; the outer one is an error if the host
/// failed and there is no decision.
pub type Answer<T> = Result<Result<T, Refusal>>;

/// A bucket as a step names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketName {
    /// The bucket's type.
    pub bucket_type: BucketType,
    /// The bucket's value as spelled.
    pub value: Arc<str>,
}

/// A rejection as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason's code.
    pub reason: String,
    /// True if the rejection has a time to wait before a retry.
    pub retry: bool,
    /// The offending claims: the place, the bucket type and the reason's code of each.
    pub offences: Vec<(Place, BucketType, String)>,
    /// The message for people.
    pub message: String,
}

/// A begun update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunLease {
    /// The id of the lease.
    pub lease: Uuid,
    /// The fence that the server gave the lease at its begin.
    pub fence: u64,
}

/// A record as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedRecord {
    /// The bucket's type.
    pub bucket_type: BucketType,
    /// The value as spelled.
    pub spelling: Arc<str>,
    /// The cell that owns the claim.
    pub cell: i64,
    /// The name of the status on the wire.
    pub status: &'static str,
    /// The subject of the claim.
    pub subject: Subject,
    /// The row that the claim comes from.
    pub source: Source,
    /// The data that the cell attached.
    pub user_data: Option<UserData>,
    /// The lease that the claim is under, if any.
    pub lease: Option<Uuid>,
}

/// The earliest begin of the leases to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The begin of this outstanding lease.
    Lease(Uuid),
    /// A time in the future.
    Future,
}

/// A request for a list of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordsQuery {
    /// The cell.
    pub cell: i64,
    /// The table's number.
    pub source_type: i32,
    /// The numbers of the bucket types; empty for all types.
    pub bucket_types: Vec<i32>,
    /// The source id before the first record.
    pub source_id_gt: Vec<u8>,
    /// The source id of the last record at most; empty for no limit.
    pub source_id_lte: Vec<u8>,
}

/// An empty service with the cells 1, 2 and 3, on which vectors are played.
pub trait Host {
    /// A position in a list of leases.
    type Cursor: Clone;

    /// The name of this kind of host in headings: `hosts: NAME`.
    const NAME: &'static str;

    /// Begins an update.
    ///
    /// # Errors
    /// The host failed, as in every other method here.
    fn begin(&mut self, cell: i64, update: UpdateRequest, key: Option<&str>) -> Answer<BegunLease>;

    /// Commits a lease or rolls it back.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn settle(&mut self, cell: i64, lease: &str, outcome: Outcome) -> Answer<()>;

    /// Reads one record.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn record(&mut self, bucket: &BucketName) -> Answer<ObservedRecord>;

    /// Returns the cell to route to, and the bucket that decided.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn classify(&mut self, buckets: &[BucketName]) -> Answer<(i64, BucketName)>;

    /// Returns a page of leases, and the position of the next page.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn leases(
        &mut self,
        cell: i64,
        limit: Option<i32>,
        since: Option<Since>,
        after: Option<&Self::Cursor>,
    ) -> Answer<(Vec<Uuid>, Option<Self::Cursor>)>;

    /// Returns a page of records, and true if more records remain.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn records(&mut self, query: &RecordsQuery) -> Answer<(Vec<ObservedRecord>, bool)>;

    /// Kills the service and starts it again on the same data.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn restart(&mut self) -> Result<()>;

    /// Advances the host's clock.
    ///
    /// # Errors
    /// The host has a real clock.
    fn pass(&mut self, _seconds: u64) -> Result<()> {
        bail!("the clock of this host cannot be moved: mark the scenario with `hosts: core`")
    }

    /// Forgets every settled lease, and returns their number.
    ///
    /// # Errors
    /// The host forgets leases only by its own schedule.
    fn forget(&mut self) -> Result<usize> {
        bail!("this host forgets leases by its own schedule: mark the scenario with `hosts: core`")
    }
}
