//! The interface of a host to the player, in terms that core and wire share.

use std::sync::Arc;

use anyhow::{Result, bail};
use leasehold_core::batch::UpdateRequest;
use leasehold_core::bucket::BucketType;
use leasehold_core::claim::{Source, Subject, UserData};
use leasehold_core::lease::Outcome;
use leasehold_core::rejection::Place;
use uuid::Uuid;

/// A host's answer: the inner result is the service's decision, the outer one tells whether there was any.
pub type Answer<T> = Result<Result<T, Refusal>>;

/// A bucket as a step names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketName {
    /// Its type.
    pub bucket_type: BucketType,
    /// Its value as spelled.
    pub value: Arc<str>,
}

/// A rejection as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason's code.
    pub reason: String,
    /// True if it has a time to wait before a retry.
    pub retry: bool,
    /// The claims that offend: where, the bucket type, and the reason's code.
    pub offences: Vec<(Place, BucketType, String)>,
    /// The message for people.
    pub message: String,
}

/// A begun update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunLease {
    /// Its lease.
    pub lease: Uuid,
    /// The lease's fence.
    pub fence: u64,
}

/// A record as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The bucket's type.
    pub bucket_type: BucketType,
    /// The value as spelled.
    pub spelling: Arc<str>,
    /// The cell that owns it.
    pub cell: i64,
    /// The wire's name of its status.
    pub status: &'static str,
    /// The subject that holds it.
    pub subject: Subject,
    /// The row it comes from.
    pub source: Source,
    /// The data that its cell attached.
    pub user_data: Option<UserData>,
    /// The lease that holds it.
    pub lease: Option<Uuid>,
}

/// From when on leases are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// From the begin of a lease that is outstanding.
    Lease(Uuid),
    /// From a time that has not come yet.
    Future,
}

/// A list of records to ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordsQuery {
    /// The cell.
    pub cell: i64,
    /// The table's number.
    pub source_type: i32,
    /// The bucket types' numbers; all where it is empty.
    pub bucket_types: Vec<i32>,
    /// Beyond this source id.
    pub source_id_gt: Vec<u8>,
    /// Up to this source id.
    pub source_id_lte: Vec<u8>,
}

/// A service to play vectors on, with the cells 1, 2 and 3 and nothing in it.
pub trait Host {
    /// A place in a list of leases.
    type Cursor: Clone;

    /// The name of this kind of host in headings: `hosts: NAME`.
    const NAME: &'static str;

    /// Begins an update.
    ///
    /// # Errors
    /// The host failed, as in every other method here.
    fn begin(&mut self, cell: i64, update: UpdateRequest, key: Option<&str>) -> Answer<BegunLease>;

    /// Commits or rolls back.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn settle(&mut self, cell: i64, lease: &str, outcome: Outcome) -> Answer<()>;

    /// Reads one record.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn record(&mut self, bucket: &BucketName) -> Answer<Held>;

    /// The cell to route to, and the bucket that decided.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn classify(&mut self, buckets: &[BucketName]) -> Answer<(i64, BucketName)>;

    /// A page of leases, and where the next one begins.
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

    /// A page of records, and whether more remain.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn records(&mut self, query: &RecordsQuery) -> Answer<(Vec<Held>, bool)>;

    /// Ends without warning and starts again on the same data.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn restart(&mut self) -> Result<()>;

    /// Lets time go by.
    ///
    /// # Errors
    /// The host's clock is not the player's to move.
    fn pass(&mut self, _seconds: u64) -> Result<()> {
        bail!("time cannot be moved on this host: mark the scenario with `hosts: core`")
    }

    /// Forgets every settled lease, and says how many there were.
    ///
    /// # Errors
    /// The host forgets in its own time only.
    fn forget(&mut self) -> Result<usize> {
        bail!("this host forgets in its own time: mark the scenario with `hosts: core`")
    }
}
