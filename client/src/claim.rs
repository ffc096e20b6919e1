//! The values that calls take and return: claims, leases, records and cells.

use std::ops::RangeInclusive;
use std::time::SystemTime;

pub use leasehold_core::claim::SourceId;
pub use leasehold_proto::gitlab::cells::topology_service::claims::v1::bucket::Type as BucketType;
pub use leasehold_proto::gitlab::cells::topology_service::claims::v1::source::Type as SourceType;
pub use leasehold_proto::gitlab::cells::topology_service::claims::v1::subject::Type as SubjectType;
use prost_types::Any;
use uuid::Uuid;

/// A value that is unique within its type across all cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Number of the bucket type on the wire; a [`BucketType`] converts to it.
    pub bucket_type: i32,
    /// The value, in any spelling.
    pub value: String,
}

impl Bucket {
    /// Returns the bucket of a type and a value. A type that [`BucketType`] lacks is given by its number.
    pub fn new(bucket_type: impl Into<i32>, value: impl Into<String>) -> Self {
        Self { bucket_type: bucket_type.into(), value: value.into() }
    }
}

/// The holder of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Number of the subject type on the wire; a [`SubjectType`] converts to it.
    pub subject_type: i32,
    /// Id of the holder, 1 or more.
    pub id: i64,
}

/// The database row that a claim comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Number of the table on the wire; a [`SourceType`] converts to it.
    pub source_type: i32,
    /// Primary key of the row.
    pub id: SourceId,
}

/// One claim of an update. A destroy may leave out the subject and the source.
///
/// ```
/// use leasehold_client::{BucketType, Claim, SourceType, SubjectType};
///
/// let claim = Claim::new(BucketType::Usernames, "alice")
///     .with_subject(SubjectType::User, 7)
///     .with_source(SourceType::RailsTableUsers, 7_u64);
/// assert_eq!(claim.bucket.value, "alice");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The claimed bucket.
    pub bucket: Bucket,
    /// The holder; a create needs one.
    pub subject: Option<Subject>,
    /// The row that the claim comes from; a create needs one. A destroy with a source is refused as changed if the claim
    /// has moved to another row (B05).
    pub source: Option<Source>,
    /// Data that the server stores with the claim and returns unread.
    pub user_data: Option<Any>,
}

impl Claim {
    /// Returns a claim of a bucket, without subject and source.
    pub fn new(bucket_type: impl Into<i32>, value: impl Into<String>) -> Self {
        Self { bucket: Bucket::new(bucket_type, value), subject: None, source: None, user_data: None }
    }

    /// Sets the holder.
    #[must_use]
    pub fn with_subject(self, subject_type: impl Into<i32>, id: i64) -> Self {
        Self { subject: Some(Subject { subject_type: subject_type.into(), id }), ..self }
    }

    /// Sets the row. A `u64` converts to the id of an integer key; [`SourceId::from_text`] takes a text or a UUID.
    #[must_use]
    pub fn with_source(self, source_type: impl Into<i32>, id: impl Into<SourceId>) -> Self {
        Self { source: Some(Source { source_type: source_type.into(), id: id.into() }), ..self }
    }

    /// Sets the data that the server stores with the claim.
    #[must_use]
    pub fn with_user_data(self, user_data: Any) -> Self {
        Self { user_data: Some(user_data), ..self }
    }
}

/// A begun update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The cell that began the update.
    pub cell_id: i64,
    /// Names the lease to commit or to roll back.
    pub uuid: Uuid,
    /// Fencing token: larger than that of every earlier lease (B13).
    pub fence: u64,
}

/// A lease that is neither committed nor rolled back, as a list shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutstandingLease {
    /// Names the lease.
    pub uuid: Uuid,
    /// Time of the begin, by the server's clock.
    pub created_at: SystemTime,
    /// Time of the last change, by the server's clock.
    pub updated_at: SystemTime,
}

/// State of a stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordStatus {
    /// Held, and part of no lease.
    Active,
    /// Becomes active when its lease is committed.
    Creating,
    /// Vanishes when its lease is committed.
    Destroying,
    /// A number that this version does not know.
    Other(i32),
}

/// A claim as the server stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Names the record.
    pub uuid: Uuid,
    /// The claim.
    pub claim: Claim,
    /// The cell that owns the claim.
    pub cell_id: i64,
    /// The state.
    pub status: RecordStatus,
    /// The outstanding lease that the record is part of.
    pub lease_uuid: Option<Uuid>,
    /// Time of the begin that created the record.
    pub created_at: SystemTime,
    /// Time of the last change.
    pub updated_at: SystemTime,
}

/// A record and the cell that owns it.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundRecord {
    /// The record.
    pub record: Record,
    /// The cell; `None` if the server's configuration lacks it.
    pub cell: Option<Cell>,
}

/// A cell of the server's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Number of the cell, from 1.
    pub id: i64,
    /// Name of the cell.
    pub name: String,
    /// Address of the cell.
    pub address: String,
    /// Prefix of the cell's session identifiers.
    pub session_prefix: String,
    /// Database ids that the cell may assign.
    pub ids: Option<RangeInclusive<i64>>,
}

/// The cell that a request belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Classification {
    /// Address of the cell.
    pub address: String,
    /// The claim that decided; `None` if the question named no claims.
    pub matched: Option<Bucket>,
}
