//! The values that the client's calls take and return: claims, leases, records and cells.

use std::ops::RangeInclusive;
use std::time::SystemTime;

pub use leasehold_core::claim::SourceId;
pub use leasehold_proto::gitlab::cells::topology_service::claims::v1::bucket::Type as BucketType;
pub use leasehold_proto::gitlab::cells::topology_service::claims::v1::source::Type as SourceType;
pub use leasehold_proto::gitlab::cells::topology_service::claims::v1::subject::Type as SubjectType;
use prost_types::Any;
use uuid::Uuid;

/// A bucket type and a value. A value is unique within its type across all cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Number of the bucket type on the wire. A [`BucketType`] converts to this number.
    pub bucket_type: i32,
    /// The value of the bucket, in any spelling.
    pub value: String,
}

impl Bucket {
    /// Returns the bucket of a type and a value. If [`BucketType`] lacks the type, pass its number.
    pub fn new(bucket_type: impl Into<i32>, value: impl Into<String>) -> Self {
        Self { bucket_type: bucket_type.into(), value: value.into() }
    }
}

/// The user, project, namespace or organization that uses a claimed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Number of the subject type on the wire. A [`SubjectType`] converts to this number.
    pub subject_type: i32,
    /// Id of the subject in the cell's database, 1 or more.
    pub id: i64,
}

/// The database row that a claim comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Number of the row's table on the wire. A [`SourceType`] converts to this number.
    pub source_type: i32,
    /// Primary key of the source row.
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
    /// The subject of the claim. A create needs one.
    pub subject: Option<Subject>,
    /// The row that the claim comes from. A create needs one. A destroy with a source is refused as
    /// changed if the stored claim has another source row (B05).
    pub source: Option<Source>,
    /// Data that the server stores with the claim and returns unchanged.
    pub user_data: Option<Any>,
}

impl Claim {
    /// Returns a claim of a bucket, without subject and source.
    pub fn new(bucket_type: impl Into<i32>, value: impl Into<String>) -> Self {
        Self { bucket: Bucket::new(bucket_type, value), subject: None, source: None, user_data: None }
    }

    /// Sets the subject of the claim.
    #[must_use]
    pub fn with_subject(self, subject_type: impl Into<i32>, id: i64) -> Self {
        Self { subject: Some(Subject { subject_type: subject_type.into(), id }), ..self }
    }

    /// Sets the row that the claim comes from. A `u64` converts to the id of an integer key;
    /// [`SourceId::from_text`] takes a text or a UUID.
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

/// The lease of a begun update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The cell that began the update.
    pub cell_id: i64,
    /// Id of the lease, which a commit or rollback names.
    pub uuid: Uuid,
    /// Fencing token of the lease: a number larger than that of every earlier lease (B13).
    pub fence: u64,
}

/// A lease that is neither committed nor rolled back, as a list shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutstandingLease {
    /// Id of the lease.
    pub uuid: Uuid,
    /// Time when the lease was begun, by the server's clock.
    pub created_at: SystemTime,
    /// Time of the lease's last change, by the server's clock.
    pub updated_at: SystemTime,
}

/// Status of a stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordStatus {
    /// No lease lists the claim.
    Active,
    /// The claim becomes active when its lease is committed.
    Creating,
    /// The claim is removed when its lease is committed.
    Destroying,
    /// The status has a number that this version of the client does not know.
    Other(i32),
}

/// A claim as the server stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Id of the record.
    pub uuid: Uuid,
    /// The claim that the record stores.
    pub claim: Claim,
    /// The cell that owns the claim.
    pub cell_id: i64,
    /// The status of the record.
    pub status: RecordStatus,
    /// The outstanding lease that lists the claim; `None` if no lease does.
    pub lease_uuid: Option<Uuid>,
    /// Time of the begin that created the record.
    pub created_at: SystemTime,
    /// Time of the record's last change.
    pub updated_at: SystemTime,
}

/// A record and the cell that owns it.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundRecord {
    /// The record that was found.
    pub record: Record,
    /// The cell that owns the record; `None` if the server's configuration lacks it.
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
    /// Prefix of the cell's session ids.
    pub session_prefix: String,
    /// Database ids that the cell may assign; `None` if the configuration sets no range.
    pub ids: Option<RangeInclusive<i64>>,
}

/// The cell to which a router must send a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Classification {
    /// Address of the cell to which the request belongs.
    pub address: String,
    /// The first of the requested buckets that a cell owns; `None` if the cell was found by its id
    /// or session prefix, or is the first cell.
    pub matched: Option<Bucket>,
}
