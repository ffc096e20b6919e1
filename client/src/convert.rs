//! Conversions between the client's values and the messages of the wire contract.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use leasehold_core::bucket::BucketType as CoreBucketType;
use leasehold_core::catalogue::{Catalogue, Form};
use leasehold_core::claim::SourceId;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::types::v1 as types;
use leasehold_proto::gitlab::cells::topology_service::{CellInfo, ClassifyAction, ClassifyResponse};
use prost_types::Timestamp;
use tonic::metadata::MetadataMap;
use uuid::Uuid;

use crate::claim::{
    Bucket, Cell, Claim, Classification, FoundRecord, Lease, OutstandingLease, Record, RecordStatus, Source, Subject,
};
use crate::error::{ClassifyError, Error};
use crate::stub::{fence, server_time_micros};

/// The rules of the bucket types that the contract names.
static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(Catalogue::default);

impl From<&Claim> for wire::Metadata {
    fn from(claim: &Claim) -> Self {
        Self {
            bucket: Some((&claim.bucket).into()),
            subject: claim.subject.map(|subject| wire::Subject { r#type: subject.subject_type, id: subject.id }),
            source: claim.source.as_ref().map(|source| wire::Source {
                r#type: source.source_type,
                rails_primary_key_id: source.id.as_bytes().to_vec(),
            }),
            user_data: claim.user_data.clone(),
            claim: None,
        }
    }
}

impl From<&Bucket> for wire::Bucket {
    fn from(bucket: &Bucket) -> Self {
        Self { r#type: bucket.bucket_type, value: bucket.value.clone() }
    }
}

impl From<wire::Bucket> for Bucket {
    fn from(bucket: wire::Bucket) -> Self {
        Self { bucket_type: bucket.r#type, value: bucket.value }
    }
}

/// Converts a bucket to a typed claim. Field number N of the claim is bucket type N. For an id, the
/// bucket's value becomes a number.
///
/// # Errors
/// The contract has no claim of the bucket's type, or the value of an id is not an integer.
pub fn claim_of_bucket(bucket: &Bucket) -> Result<types::Claim, ClassifyError> {
    let number = bucket.bucket_type;
    match BUILT_IN.rule(CoreBucketType(number)).ok_or(ClassifyError::NoClaim(number))?.form {
        Form::Decimal => {
            let id = bucket.value.parse().map_err(|_| ClassifyError::NotAnInteger(number))?;
            Ok(types::Claim::id(number, id))
        }
        _ => Ok(types::Claim::text(number, bucket.value.as_str())),
    }
}

/// Converts a typed claim to its bucket; `None` if the claim is empty.
#[must_use]
pub fn bucket_of_claim(claim: &types::Claim) -> Option<Bucket> {
    claim.field().map(|(bucket_type, value)| Bucket::new(bucket_type, value.to_bucket_value()))
}

/// Converts a lease's id to the wire message, in the 36-character form.
pub(crate) fn wire_uuid(uuid: Uuid) -> types::Uuid {
    types::Uuid { value: uuid.to_string() }
}

fn uuid(uuid: Option<types::Uuid>) -> Result<Uuid, Error> {
    let text = uuid.ok_or(Error::BadAnswer("a UUID is missing"))?.value;
    Uuid::try_parse(&text).map_err(|_| Error::BadAnswer("a UUID is malformed"))
}

/// Returns the id that a message has as 16 bytes.
pub(crate) fn id(bytes: &[u8]) -> Result<Uuid, Error> {
    Uuid::from_slice(bytes).map_err(|_| Error::BadAnswer("an id does not have 16 bytes"))
}

fn time(time: Option<Timestamp>) -> Result<SystemTime, Error> {
    let time = time.ok_or(Error::BadAnswer("a time is missing"))?;
    SystemTime::try_from(time).map_err(|_| Error::BadAnswer("a time is out of range"))
}

/// Returns the server's time when it made a list, from the metadata of the answer (R03).
pub(crate) fn server_time(metadata: &MetadataMap) -> Result<SystemTime, Error> {
    let micros = server_time_micros(metadata).ok_or(Error::BadAnswer("a list lacks the server's time"))?;
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros));
    time.ok_or(Error::BadAnswer("the server's time is out of range"))
}

pub(crate) fn lease(answer: wire::BeginUpdateResponse, metadata: &MetadataMap) -> Result<Lease, Error> {
    let fence = fence(metadata).ok_or(Error::BadAnswer("a begun lease lacks its fence"))?;
    Ok(Lease { cell_id: answer.cell_id, uuid: uuid(answer.lease_uuid)?, fence })
}

pub(crate) fn outstanding_lease(lease: wire::LeaseRecord) -> Result<OutstandingLease, Error> {
    Ok(OutstandingLease {
        uuid: uuid(lease.uuid)?,
        created_at: time(lease.created_at)?,
        updated_at: time(lease.updated_at)?,
    })
}

pub(crate) fn record(record: wire::Record) -> Result<Record, Error> {
    let metadata = record.metadata.ok_or(Error::BadAnswer("a record lacks its claim"))?;
    Ok(Record {
        uuid: uuid(record.uuid)?,
        claim: claim(metadata)?,
        cell_id: record.cell_id,
        status: status(record.status),
        lease_uuid: record.lease_uuid.map(|lease| uuid(Some(lease))).transpose()?,
        created_at: time(record.created_at)?,
        updated_at: time(record.updated_at)?,
    })
}

fn claim(metadata: wire::Metadata) -> Result<Claim, Error> {
    let bucket = match (metadata.bucket, &metadata.claim) {
        (Some(bucket), _) => Some(bucket.into()),
        (None, claim) => claim.as_ref().and_then(bucket_of_claim),
    };
    Ok(Claim {
        bucket: bucket.ok_or(Error::BadAnswer("a record lacks its bucket"))?,
        subject: metadata.subject.map(|subject| Subject { subject_type: subject.r#type, id: subject.id }),
        source: metadata.source.map(|source| Source {
            source_type: source.r#type,
            id: SourceId::from_bytes(&source.rails_primary_key_id),
        }),
        user_data: metadata.user_data,
    })
}

fn status(number: i32) -> RecordStatus {
    match wire::record::Status::try_from(number) {
        Ok(wire::record::Status::Active) => RecordStatus::Active,
        Ok(wire::record::Status::LeaseCreating) => RecordStatus::Creating,
        Ok(wire::record::Status::LeaseDestroying) => RecordStatus::Destroying,
        Ok(wire::record::Status::Unspecified) | Err(_) => RecordStatus::Other(number),
    }
}

pub(crate) fn found_record(answer: wire::GetRecordResponse) -> Result<FoundRecord, Error> {
    let found = answer.record.ok_or(Error::BadAnswer("the record is missing"))?;
    Ok(FoundRecord { record: record(found)?, cell: answer.cell_info.map(cell) })
}

pub(crate) fn cell(cell: CellInfo) -> Cell {
    Cell {
        id: cell.id,
        name: cell.name,
        address: cell.address,
        session_prefix: cell.session_prefix,
        ids: cell.sequence_range.map(|range| range.minval..=range.maxval),
    }
}

pub(crate) fn classification(answer: ClassifyResponse) -> Result<Classification, Error> {
    match (ClassifyAction::try_from(answer.action), answer.proxy) {
        (Ok(ClassifyAction::Proxy), Some(proxy)) => Ok(Classification {
            address: proxy.address,
            matched: answer.matched_claim.as_ref().and_then(bucket_of_claim),
        }),
        (Ok(ClassifyAction::Proxy), None) => Err(Error::BadAnswer("a classification lacks its address")),
        (Ok(ClassifyAction::ActionUnspecified) | Err(_), _) => {
            Err(Error::BadAnswer("a classification's action is unknown"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::BucketType;

    #[test]
    fn every_bucket_type_has_its_claim_and_back() {
        for number in (0..64).filter(|&number| BucketType::try_from(number).is_ok() && number != 0) {
            let bucket = Bucket::new(number, "7");
            assert_eq!(bucket_of_claim(&claim_of_bucket(&bucket).unwrap()), Some(bucket));
        }
    }

    #[test]
    fn a_bucket_without_a_typed_claim_is_refused() {
        for number in [0, 99, -1] {
            let refused = claim_of_bucket(&Bucket::new(number, "x"));
            assert_eq!(refused, Err(ClassifyError::NoClaim(number)));
        }
        let refused = claim_of_bucket(&Bucket::new(BucketType::ProjectIds, "seven"));
        assert_eq!(refused, Err(ClassifyError::NotAnInteger(6)));
    }

    #[test]
    fn b12_a_record_keeps_numbers_that_this_version_does_not_know() {
        let claim_of_99 = Claim::new(99, "x").with_subject(98, 7).with_source(97, 7_u64);
        let stored = wire::Record {
            uuid: Some(wire_uuid(Uuid::nil())),
            metadata: Some((&claim_of_99).into()),
            cell_id: 1,
            status: 96,
            lease_uuid: None,
            created_at: Some(Timestamp::default()),
            updated_at: Some(Timestamp::default()),
        };
        let record = record(stored).unwrap();
        assert_eq!((record.claim, record.status), (claim_of_99, RecordStatus::Other(96)));
    }

    #[test]
    fn an_answer_without_what_it_must_have_is_bad() {
        let begun = wire::BeginUpdateResponse { cell_id: 1, lease_uuid: Some(wire_uuid(Uuid::nil())) };
        assert!(matches!(lease(begun, &MetadataMap::new()), Err(Error::BadAnswer(_))));
        assert!(matches!(record(wire::Record::default()), Err(Error::BadAnswer(_))));
        assert!(matches!(classification(ClassifyResponse::default()), Err(Error::BadAnswer(_))));
        assert!(matches!(server_time(&MetadataMap::new()), Err(Error::BadAnswer(_))));
    }
}
