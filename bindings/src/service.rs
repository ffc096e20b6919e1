//! A claims service in memory: the engine with its reference store. It contains no rule of the
//! protocol and reads no clock.

use std::collections::BTreeSet;

use leasehold_core::batch::UpdateRequest;
use leasehold_core::bucket::{Bucket, BucketType};
use leasehold_core::catalogue::Catalogue;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, Source, SourceId, SourceType, Subject};
use leasehold_core::invariant;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::memory::MemoryStore;
use leasehold_core::organization::OrganizationId;
use leasehold_core::query::{LeasePosition, LeaseQuery, RecordQuery};
use leasehold_core::rejection::{self, Reason, Rejection};
use leasehold_core::rules::{Rules, parse_lease_id};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::update::{self, Forget};
use uuid::Uuid;

pub use leasehold_core::update::Begun;

use crate::error::{DetailedError, decision, or_internal};

/// A claims service in memory, for a fixed set of cells.
#[derive(Clone, Debug, Default)]
pub struct Service {
    rules: Rules,
    store: MemoryStore,
}

/// The status of a claim's record, with the values of the wire contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStatus {
    /// No lease lists the claim.
    Active,
    /// The claim becomes active when its lease is committed.
    LeaseCreating,
    /// The claim is removed when its lease is committed.
    LeaseDestroying,
}

impl RecordStatus {
    /// Returns the name of the status on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::LeaseCreating => "LEASE_CREATING",
            Self::LeaseDestroying => "LEASE_DESTROYING",
        }
    }
}

/// A claim in the form that reads return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    /// The id of the claim. It stays the same while the cell owns the bucket.
    pub uuid: Uuid,
    /// The type of the claimed bucket.
    pub bucket_type: BucketType,
    /// The claimed value, as the cell spelled it.
    pub value: String,
    /// The subject of the claim.
    pub subject: Subject,
    /// The row that the claim comes from.
    pub source: Source,
    /// The cell that owns the claim.
    pub cell: i64,
    /// The status of the claim.
    pub status: RecordStatus,
    /// The outstanding lease that lists the claim; `None` if no lease does.
    pub lease: Option<LeaseId>,
    /// The time of the begin that created the claim.
    pub created_at: Timestamp,
    /// The time of the claim's last change.
    pub updated_at: Timestamp,
}

/// A lease that is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutstandingLease {
    /// The id of the lease.
    pub lease: LeaseId,
    /// The organization that the begin named, `None` if it named none.
    pub organization: Option<OrganizationId>,
    /// The time when the lease was begun.
    pub created_at: Timestamp,
    /// The time of the lease's last change.
    pub updated_at: Timestamp,
}

/// A page of a cell's leases, in the order of their begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasePage {
    /// The leases of this page.
    pub leases: Vec<OutstandingLease>,
    /// The cursor of the next page; `None` on the last page.
    pub cursor: Option<String>,
}

/// The selection of records to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSelection {
    /// The cell that owns the records.
    pub cell: i64,
    /// The number of the table of the records' sources.
    pub source_type: i32,
    /// The numbers of the bucket types to list; an empty list selects all.
    pub bucket_types: Vec<i32>,
    /// The list starts after this source id; empty means from the first record.
    pub after: Vec<u8>,
    /// The list ends with this source id; empty means up to the last record.
    pub upto: Vec<u8>,
}

/// A page of a cell's records whose sources are in one table, in the order of their source ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// The records of this page.
    pub records: Vec<ClaimRecord>,
    /// True if there are more records after this page.
    pub truncated: bool,
}

impl Service {
    /// Returns a service for these cells, without claims.
    pub fn new(cells: impl IntoIterator<Item = i64>, catalogue: Catalogue) -> Self {
        let cells = cells.into_iter().map(CellId).collect();
        Self { rules: Rules { catalogue, cells }, store: MemoryStore::default() }
    }

    /// Begins an update under the lease id `lease`, which must not have been used before (B01 to
    /// B15). `organization_id` is 0 for no organization. A repeated idempotency key returns the lease of
    /// the first begin.
    ///
    /// # Errors
    /// The engine refuses the update.
    pub fn begin(
        &mut self,
        cell: i64,
        update: UpdateRequest,
        organization_id: i64,
        idempotency_key: Option<&str>,
        lease: LeaseId,
        now: Timestamp,
    ) -> Result<Begun, DetailedError> {
        let organization = OrganizationId::parse(organization_id)?;
        let command = self.rules.begin(CellId(cell), update, idempotency_key, lease)?;
        decision(update::begin(&mut self.store, &command.for_organization(organization), now))
    }

    /// Commits or rolls back a lease (B20 to B24). Returns true if this call settled the lease,
    /// false if the lease already had this outcome.
    ///
    /// # Errors
    /// The engine refuses the commit or rollback.
    pub fn settle(&mut self, cell: i64, lease: &str, outcome: Outcome, now: Timestamp) -> Result<bool, DetailedError> {
        let command = self.rules.settle(CellId(cell), lease, outcome)?;
        decision(update::settle(&mut self.store, &command, now))
    }

    /// Returns the claim on a bucket (B30).
    ///
    /// # Errors
    /// `CLAIM_NOT_FOUND`, or the value is not allowed.
    pub fn record(&self, bucket_type: i32, value: &str) -> Result<ClaimRecord, DetailedError> {
        let bucket = self.rules.catalogue.bucket_of_existing(BucketType(bucket_type), value.into());
        let bucket = bucket.map_err(|error| Rejection::whole(error.reason, error.detail))?;
        let claim = or_internal(Store::claim(&self.store, &bucket.key))?;
        let Bucket { key, .. } = bucket;
        claim.map(|claim| claim_record(key.bucket_type, &claim)).ok_or_else(|| refusal(Reason::ClaimNotFound).into())
    }

    /// Returns a page of a cell's outstanding leases that began at `created_after` or later (B31).
    ///
    /// # Errors
    /// The engine refuses the query, or the cursor is invalid.
    pub fn leases(
        &self,
        cell: i64,
        limit: Option<i32>,
        created_after: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<LeasePage, DetailedError> {
        self.rules.check_cell(CellId(cell))?;
        let cursor = cursor.map(position).transpose()?;
        let query = LeaseQuery::parse(CellId(cell), limit, created_after, cursor)?;
        let page = query.page(or_internal(self.store.leases(&query.scan()))?);
        let leases = page.leases.iter().map(|row| OutstandingLease {
            lease: row.position.lease,
            organization: row.organization,
            created_at: row.position.created_at,
            updated_at: row.updated_at,
        });
        let cursor = page.next.map(|next| format!("{}.{}", next.created_at.as_micros(), next.lease));
        Ok(LeasePage { leases: leases.collect(), cursor })
    }

    /// Returns a page of a cell's records whose sources are in one table (B32).
    ///
    /// # Errors
    /// The engine refuses the query.
    pub fn records(&self, query: &RecordSelection) -> Result<RecordPage, DetailedError> {
        self.rules.check_cell(CellId(query.cell))?;
        let query = RecordQuery::parse(
            CellId(query.cell),
            SourceType(query.source_type),
            query.bucket_types.iter().copied().map(BucketType).collect::<BTreeSet<_>>(),
            SourceId::from_bytes(&query.after),
            SourceId::from_bytes(&query.upto),
        )?;
        let mut list = query.list();
        let page = loop {
            let part = or_internal(self.store.records(list.scan()))?;
            if let Some(page) = list.add(part)? {
                break page;
            }
        };
        let records = page.records.iter().map(|row| claim_record(row.key.bucket_type, &row.claim)).collect();
        Ok(RecordPage { records, truncated: page.truncated })
    }

    /// Deletes every lease that was settled before `settled_before`, and returns the number of
    /// deleted leases.
    ///
    /// # Errors
    /// The state contradicts itself, which is a defect.
    pub fn forget(&mut self, settled_before: Timestamp) -> Result<usize, DetailedError> {
        let settled = or_internal(self.store.settled(settled_before, usize::MAX))?;
        for lease in &settled {
            or_internal(update::forget(&mut self.store, &Forget { lease: *lease, settled_before }))?;
        }
        Ok(settled.len())
    }

    /// Checks that the whole state fulfils the engine's invariants.
    ///
    /// # Errors
    /// An invariant is broken, which is a defect.
    pub fn check(&self) -> Result<(), DetailedError> {
        let state = or_internal(self.store.state())?;
        invariant::check(&state).map_err(|broken| DetailedError::new("INTERNAL", broken))
    }
}

fn position(cursor: &str) -> Result<LeasePosition, DetailedError> {
    let position = cursor.split_once('.').and_then(|(micros, lease)| {
        let created_at = Timestamp::from_micros(micros.parse().ok()?);
        Some(LeasePosition { created_at, lease: parse_lease_id(lease)? })
    });
    position.ok_or_else(|| {
        DetailedError::new(Reason::InvalidUpdate.code(), "the cursor is invalid: use a cursor that a list returned")
    })
}

fn refusal(reason: Reason) -> Rejection {
    Rejection::whole(reason, rejection::Detail::None)
}

fn claim_record(bucket_type: BucketType, claim: &Claim) -> ClaimRecord {
    let record = claim.record();
    ClaimRecord {
        uuid: record.uuid,
        bucket_type,
        value: record.spelling.to_string(),
        subject: record.subject,
        source: record.source.clone(),
        cell: claim.owner.0,
        status: match claim.state {
            ClaimState::Active(_) => RecordStatus::Active,
            ClaimState::Creating(..) | ClaimState::Replacing(..) => RecordStatus::LeaseCreating,
            ClaimState::Destroying(..) => RecordStatus::LeaseDestroying,
        },
        lease: claim.hold().map(|hold| hold.lease),
        created_at: record.created_at,
        updated_at: record.updated_at,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::batch::ClaimRequest;

    use super::*;

    const LEASE: LeaseId = LeaseId(Uuid::from_u128(7));
    const NOW: Timestamp = Timestamp::from_micros(1_000_000);

    fn create(value: &str) -> UpdateRequest {
        let claim = ClaimRequest {
            bucket_type: BucketType(4),
            value: value.into(),
            subject: Some(Subject { subject_type: 4, id: 7 }),
            source: Some(Source { source_type: SourceType(1), id: SourceId::from(7) }),
            user_data: None,
        };
        UpdateRequest { creates: vec![claim], destroys: vec![] }
    }

    #[test]
    fn b02_b03_b20_an_update_is_begun_committed_and_listed() {
        let mut service = Service::new([1, 2], Catalogue::default());
        let begun = service.begin(1, create("Alice"), 0, Some("key"), LEASE, NOW).unwrap();
        assert_eq!((begun.lease, begun.fence.0, begun.replayed), (LEASE, 1, false));
        assert!(service.begin(1, create("Alice"), 0, Some("key"), LeaseId(Uuid::nil()), NOW).unwrap().replayed);
        let busy = service.begin(2, create("alice"), 0, None, LeaseId(Uuid::nil()), NOW).unwrap_err();
        assert_eq!((busy.code, busy.retry_after_micros), ("CLAIM_BUSY", Some(100_000)));
        assert_eq!(service.record(4, "ALICE").unwrap().status.name(), "LEASE_CREATING");
        let page = service.leases(1, Some(1), None, None).unwrap();
        assert_eq!((page.leases.first().map(|lease| lease.lease), page.cursor), (Some(LEASE), None));
        let settled = |service: &mut Service| service.settle(1, &LEASE.to_string(), Outcome::Committed, NOW);
        assert_eq!((settled(&mut service), settled(&mut service)), (Ok(true), Ok(false)));
        let taken = service.begin(2, create("alice"), 0, None, LeaseId(Uuid::nil()), NOW).unwrap_err();
        assert_eq!((taken.code, taken.retry_after_micros), ("CLAIM_TAKEN", None));
        let records =
            service.records(&RecordSelection { cell: 1, source_type: 1, ..RecordSelection::default() }).unwrap();
        assert_eq!(records.records.first(), Some(&service.record(4, "alice").unwrap()));
        assert_eq!(service.forget(Timestamp::MAX), Ok(1));
        assert_eq!(settled(&mut service).unwrap_err().code, "LEASE_NOT_FOUND");
        service.check().unwrap();
    }

    #[test]
    fn b09_b31_an_organization_is_compared_by_a_repeated_key_and_listed() {
        let mut service = Service::new([1], Catalogue::default());
        let begin = |service: &mut Service, organization| {
            service.begin(1, create("alice"), organization, Some("key"), LEASE, NOW).map(|begun| begun.replayed)
        };
        assert_eq!(begin(&mut service, 42), Ok(false));
        assert_eq!(begin(&mut service, 42), Ok(true));
        for other in [0, 43] {
            let error = begin(&mut service, other).unwrap_err();
            assert_eq!(error.code, "IDEMPOTENCY_KEY_REUSED");
            assert!(error.message.contains("organization_id"), "{}", error.message);
        }
        assert_eq!(begin(&mut service, -1).unwrap_err().code, "INVALID_UPDATE");
        let page = service.leases(1, None, None, None).unwrap();
        let organizations: Vec<_> = page.leases.iter().map(|lease| lease.organization.map(i64::from)).collect();
        assert_eq!(organizations, [Some(42)]);
    }

    #[test]
    fn b31_the_last_page_alone_has_no_cursor() {
        let mut service = Service::new([1], Catalogue::default());
        for name in 0..3_u8 {
            let lease = LeaseId(Uuid::from_u128(u128::from(name)));
            service.begin(1, create(&format!("name{name}")), 0, None, lease, NOW).unwrap();
        }
        let first = service.leases(1, Some(2), None, None).unwrap();
        let second = service.leases(1, Some(2), None, first.cursor.as_deref()).unwrap();
        assert_eq!((first.leases.len(), second.leases.len(), second.cursor), (2, 1, None));
        assert_eq!(service.leases(1, None, None, Some("elsewhere")).unwrap_err().code, "INVALID_UPDATE");
        assert_eq!(service.leases(9, None, None, None).unwrap_err().code, "INVALID_UPDATE");
        assert_eq!(service.record(4, "nobody").unwrap_err().code, "CLAIM_NOT_FOUND");
    }
}
