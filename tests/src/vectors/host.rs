//! The interface between the player of golden vectors and a host, such as a running server or the
//! engine alone.

use std::sync::Arc;

use anyhow::{Result, bail};
use leasehold_core::batch::UpdateRequest;
use leasehold_core::bucket::BucketType;
use leasehold_core::claim::{Source, Subject, UserData};
use leasehold_core::lease::Outcome;
use leasehold_core::rejection::Place;
use uuid::Uuid;

/// The answer of a host to a call. The inner result is the service's decision: a value or a
/// refusal. The outer result is an error if the host failed and made no decision.
pub type HostResult<T> = Result<Result<T, HostRefusal>>;

/// A bucket in the text of a step: its type and its value as spelled there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketName {
    /// The type of the named bucket.
    pub bucket_type: BucketType,
    /// The value of the named bucket, in the spelling of the step.
    pub value: Arc<str>,
}

/// A refusal of a call by the service, with the parts that callers can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRefusal {
    /// The reason code of the refusal, such as `CLAIM_TAKEN`.
    pub reason: String,
    /// True if the refusal suggests a time to wait before a retry.
    pub retry: bool,
    /// The refused claims: the place in the update, the bucket type, and the reason code of each.
    pub offences: Vec<(Place, BucketType, String)>,
    /// The text of the refusal for people.
    pub message: String,
}

/// The lease that an accepted begin returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunLease {
    /// The id of the begun lease.
    pub lease: Uuid,
    /// The fence that the service gave to the begun lease.
    pub fence: u64,
}

/// A record that a read returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedRecord {
    /// The type of the record's bucket.
    pub bucket_type: BucketType,
    /// The value of the record's bucket, as the cell spelled it.
    pub spelling: Arc<str>,
    /// The id of the cell that owns the claim.
    pub cell: i64,
    /// The record's status by its name in the wire contract, such as `ACTIVE`.
    pub status: &'static str,
    /// The subject of the claim, such as a user.
    pub subject: Subject,
    /// The table row that the claim comes from.
    pub source: Source,
    /// The data that the cell attached to the claim; `None` without data.
    pub user_data: Option<UserData>,
    /// The outstanding lease that holds the claim; `None` if the claim is active.
    pub lease: Option<Uuid>,
}

/// The lower bound of a list of leases: leases begun before it are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The bound is the begin of this outstanding lease.
    Lease(Uuid),
    /// The bound is a time in the future, so that no lease is listed.
    Future,
}

/// A request for a page of a cell's records of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordsQuery {
    /// The id of the cell whose records are listed.
    pub cell: i64,
    /// The wire number of the table whose records are listed.
    pub source_type: i32,
    /// The wire numbers of the bucket types to list; empty for all types.
    pub bucket_types: Vec<i32>,
    /// Records are listed if their source id is greater than this one; empty for no bound.
    pub source_id_gt: Vec<u8>,
    /// Records are listed if their source id is at most this one; empty for no bound.
    pub source_id_lte: Vec<u8>,
}

/// A claims service with the cells 1, 2 and 3 on which golden vectors are played. It is empty at
/// first.
pub trait Host {
    /// The position in a list of leases at which the next page begins.
    type Cursor: Clone;

    /// The name of this kind of host in headings of scenarios, as in `hosts: NAME`.
    const NAME: &'static str;

    /// Begins an update of `cell` for an organization, 0 for none. `key` is the idempotency key, if the step has one.
    ///
    /// # Errors
    /// The host failed and made no decision. A refusal is no error but the inner result.
    fn begin(
        &mut self,
        cell: i64,
        update: UpdateRequest,
        organization: i64,
        key: Option<&str>,
    ) -> HostResult<BegunLease>;

    /// Commits the lease or rolls it back, as `outcome` says. `lease` is the lease's id as text.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn settle(&mut self, cell: i64, lease: &str, outcome: Outcome) -> HostResult<()>;

    /// Returns the record of a bucket.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn record(&mut self, bucket: &BucketName) -> HostResult<ObservedRecord>;

    /// Returns the cell to which a router must send a request for these buckets, and the bucket
    /// that decided.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn classify(&mut self, buckets: &[BucketName]) -> HostResult<(i64, BucketName)>;

    /// Returns one page of a cell's outstanding leases, and the position of the next page; `None`
    /// after the last page.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn leases(
        &mut self,
        cell: i64,
        limit: Option<i32>,
        since: Option<Since>,
        after: Option<&Self::Cursor>,
    ) -> HostResult<(Vec<Uuid>, Option<Self::Cursor>)>;

    /// Returns the first page of a cell's outstanding leases, each with the organization that its begin
    /// named; 0 if it named none.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn outstanding(&mut self, cell: i64) -> HostResult<Vec<(Uuid, i64)>>;

    /// Returns one page of records, and true if more records follow.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn records(&mut self, query: &RecordsQuery) -> HostResult<(Vec<ObservedRecord>, bool)>;

    /// Kills the service, and starts it again on the same data.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn restart(&mut self) -> Result<()>;

    /// Advances the host's clock by a number of seconds.
    ///
    /// # Errors
    /// The host has a real clock.
    fn pass(&mut self, _seconds: u64) -> Result<()> {
        bail!("the clock of this host cannot be moved: mark the scenario with `hosts: core`")
    }

    /// Forgets every settled lease. Returns the number of forgotten leases.
    ///
    /// # Errors
    /// The host forgets leases only by its own schedule.
    fn forget(&mut self) -> Result<usize> {
        bail!("this host forgets leases by its own schedule: mark the scenario with `hosts: core`")
    }
}
