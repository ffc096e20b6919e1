//! Conversions between wire messages and the engine's types. Enums keep the numbers that they have
//! on the wire.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::batch::{Batch, ClaimRequest, UpdateRequest, check_size};
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::catalogue::{Catalogue, Form};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, Source, SourceId, SourceType, Subject, UserData};
use leasehold_core::lease::LeaseId;
use leasehold_core::organization::OrganizationId;
use leasehold_core::query::{LeasePosition, LeaseRow};
use leasehold_core::rejection::{Detail, Offence, Place, Reason, Rejection};
use leasehold_core::rules::Rules;
use leasehold_core::time::Timestamp;
use leasehold_core::update::Begin;
use leasehold_proto::ClaimValue;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::types::v1 as types;
use leasehold_proto::leasehold::v1::{LeaseCursor, OutstandingLease};
use prost::Name;
use prost_types::Any;

/// The error text for a request with a malformed field.
pub(super) type Malformed = &'static str;

/// Returns the bucket type and the value of a claim in a request; `None` if no field of the claim
/// is set. The bucket type is the number of the field that is set. An id becomes decimal text.
///
/// # Errors
/// The field has a text but the bucket type has ids, or the other way round.
fn claim_bucket(claim: &types::Claim, catalogue: &Catalogue) -> Result<Option<(BucketType, String)>, Malformed> {
    let Some((number, value)) = claim.field() else { return Ok(None) };
    let bucket_type = BucketType(number);
    // The engine refuses a type that the catalogue lacks.
    match (catalogue.rule(bucket_type).map(|rule| rule.form), value) {
        (Some(Form::Decimal), ClaimValue::Text(_)) => Err("`claim` has a text, but its type has ids"),
        (Some(form), ClaimValue::Id(_)) if form != Form::Decimal => Err("`claim` has an id, but its type has texts"),
        _ => Ok(Some((bucket_type, value.to_bucket_value()))),
    }
}

/// Converts a bucket into a typed claim for a response; `None` if the bucket type is not in the
/// catalogue, or its number can't be a field number of `Claim`.
fn bucket_claim(bucket_type: BucketType, value: &str, catalogue: &Catalogue) -> Option<types::Claim> {
    let claim = match catalogue.rule(bucket_type)?.form.base_form() {
        Form::Decimal => types::Claim::id(bucket_type.0, value.parse().ok()?),
        _ => types::Claim::text(bucket_type.0, value),
    };
    claim.field().is_some().then_some(claim)
}

/// Returns the bucket type and the value that a request names. A request may have `bucket`,
/// `claim`, or both if they name the same bucket.
pub(super) fn bucket(
    bucket: Option<wire::Bucket>,
    claim: Option<&types::Claim>,
    catalogue: &Catalogue,
) -> Result<(BucketType, String), Malformed> {
    let claimed = claim.map_or(Ok(None), |claim| claim_bucket(claim, catalogue))?;
    let named = bucket.map(|bucket| (BucketType(bucket.r#type), bucket.value));
    match (named, claimed) {
        (Some(named), Some(claimed)) if named != claimed => Err("`bucket` and `claim` disagree"),
        (Some(one), _) | (None, Some(one)) => Ok(one),
        (None, None) => Err("`claim` and `bucket` are missing"),
    }
}

fn claim_request(metadata: wire::Metadata, catalogue: &Catalogue) -> Result<ClaimRequest, (BucketType, Malformed)> {
    let bucket_type = BucketType(metadata.bucket.as_ref().map_or(0, |bucket| bucket.r#type));
    let named = bucket(metadata.bucket, metadata.claim.as_ref(), catalogue);
    let (bucket_type, value) = named.map_err(|what| (bucket_type, what))?;
    Ok(ClaimRequest {
        bucket_type,
        value: value.into(),
        subject: metadata.subject.map(|subject| Subject { subject_type: subject.r#type, id: subject.id }),
        source: metadata.source.map(|source| Source {
            source_type: SourceType(source.r#type),
            id: SourceId::from_bytes(&source.rails_primary_key_id),
        }),
        user_data: metadata.user_data.map(|data| UserData { type_url: data.type_url, value: data.value }),
    })
}

/// Parses the request to begin an update. `lease` is a new id.
///
/// # Errors
/// The request is malformed, or the engine's rules refuse it.
pub(super) fn begin(
    request: wire::BeginUpdateRequest,
    rules: &Rules,
    cell: CellId,
    idempotency_key: Option<&str>,
    lease: LeaseId,
) -> Result<Begin, Rejection> {
    let organization = OrganizationId::parse(request.organization_id)?;
    let update = update(request.create_records, request.destroy_records, &rules.catalogue)?;
    Ok(rules.begin(cell, update, idempotency_key, lease)?.for_organization(organization))
}

/// Converts the creates and destroys of a request into the engine's update request.
///
/// # Errors
/// The update has too many claims, or some claims are malformed: they name no bucket, or two
/// different ones. The rejection lists every malformed claim (B10).
fn update(
    creates: Vec<wire::Metadata>,
    destroys: Vec<wire::Metadata>,
    catalogue: &Catalogue,
) -> Result<UpdateRequest, Rejection> {
    check_size(creates.len() + destroys.len())?;
    let mut offences = Vec::new();
    let mut list = |claims: Vec<wire::Metadata>, place: fn(u32) -> Place| {
        let mut request = |(position, claim): (u32, wire::Metadata)| {
            claim_request(claim, catalogue).unwrap_or_else(|(bucket_type, what)| {
                let detail = Detail::Form(what);
                offences.push(Offence::at(place(position), bucket_type, Reason::InvalidUpdate, detail));
                placeholder()
            })
        };
        (0..).zip(claims).map(&mut request).collect()
    };
    let request = UpdateRequest { creates: list(creates, Place::create), destroys: list(destroys, Place::destroy) };
    if offences.is_empty() { Ok(request) } else { Err(with_others(offences, request, catalogue)) }
}

/// Returns a rejection with the given `offences` of malformed claims, and with those that the
/// engine finds in the other claims of the request.
fn with_others(mut offences: Vec<Offence>, request: UpdateRequest, catalogue: &Catalogue) -> Rejection {
    let known: BTreeSet<_> = offences.iter().filter_map(|offence| offence.place).collect();
    let found = Batch::parse(request, catalogue).err();
    let found = found.iter().flat_map(Rejection::offences);
    offences.extend(found.filter(|offence| offence.place.is_none_or(|place| !known.contains(&place))).cloned());
    Rejection::of(offences).unwrap_or_else(|| Rejection::whole(Reason::InvalidUpdate, Detail::None))
}

/// Returns an empty claim that replaces a malformed one, so that the claims after it keep their
/// positions.
fn placeholder() -> ClaimRequest {
    ClaimRequest { bucket_type: BucketType(0), value: "".into(), subject: None, source: None, user_data: None }
}

pub(super) fn uuid(id: impl std::fmt::Display) -> Option<types::Uuid> {
    Some(types::Uuid { value: id.to_string() })
}

pub(super) fn timestamp(at: Timestamp) -> Option<prost_types::Timestamp> {
    let micros = at.as_micros();
    Some(prost_types::Timestamp {
        seconds: i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(micros % 1_000_000 * 1_000).unwrap_or(0),
    })
}

/// Converts the `created_after` of a request into an inclusive lower bound. Nanoseconds are rounded
/// up to microseconds. If they were rounded down, the list could contain a lease from before
/// `created_after`.
pub(super) fn lower_bound(at: &prost_types::Timestamp) -> Result<Timestamp, Malformed> {
    if !(0..1_000_000_000).contains(&at.nanos) {
        return Err("`created_after.nanos` is not from 0 to 999999999");
    }
    let Ok(seconds) = u64::try_from(at.seconds) else { return Ok(Timestamp::MIN) };
    let nanos = u64::try_from(at.nanos).unwrap_or(0);
    Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(nanos.div_ceil(1_000))))
}

pub(super) fn lease_record(row: &LeaseRow) -> wire::LeaseRecord {
    wire::LeaseRecord {
        uuid: uuid(row.position.lease),
        created_at: timestamp(row.position.created_at),
        updated_at: timestamp(row.updated_at),
    }
}

pub(super) fn outstanding_lease(row: &LeaseRow) -> OutstandingLease {
    OutstandingLease {
        uuid: uuid(row.position.lease),
        created_at: timestamp(row.position.created_at),
        updated_at: timestamp(row.updated_at),
        organization_id: row.organization.map_or(0, i64::from),
    }
}

/// Returns the opaque cursor for a position in the list of a cell's leases. It is valid for this
/// cell only.
pub(super) fn cursor(cell_id: i64, position: LeasePosition) -> Any {
    let cursor = LeaseCursor {
        cell_id,
        // The conversion can't overflow before the year 294,246, when microseconds since 1970 reach
        // `i64::MAX`.
        created_at_micros: i64::try_from(position.created_at.as_micros()).unwrap_or(i64::MAX),
        lease_uuid: position.lease.0.into_bytes().to_vec(),
    };
    Any { type_url: LeaseCursor::type_url(), value: prost::Message::encode_to_vec(&cursor) }
}

/// Returns the list position that the cursor of a request contains.
///
/// # Errors
/// The cursor was not made by [`cursor`], or was made for another cell.
pub(super) fn read_cursor(cell_id: i64, any: &Any) -> Result<LeasePosition, Malformed> {
    let foreign = "`next` is not a cursor of this cell's leases";
    let cursor: LeaseCursor = any.to_msg().map_err(|_| foreign)?;
    let lease = uuid::Uuid::from_slice(&cursor.lease_uuid).map_err(|_| foreign)?;
    let created_at = u64::try_from(cursor.created_at_micros).map_err(|_| foreign)?;
    if cursor.cell_id != cell_id {
        return Err(foreign);
    }
    Ok(LeasePosition { created_at: Timestamp::from_micros(created_at), lease: LeaseId(lease) })
}

/// Converts a claim into the record that reads return. A claim under a replace is shown with its
/// new record and the status of a create (B08).
///
/// The record names its bucket twice, as `bucket` and as `claim`. Older clients read only `bucket`,
/// newer ones only `claim`.
pub(super) fn record(key: &BucketKey, claim: Claim, catalogue: &Catalogue) -> wire::Record {
    let hold = claim.hold();
    let (status, record) = match claim.state {
        ClaimState::Active(record) => (wire::record::Status::Active, record),
        ClaimState::Creating(_, record) => (wire::record::Status::LeaseCreating, record),
        ClaimState::Destroying(_, record) => (wire::record::Status::LeaseDestroying, record),
        ClaimState::Replacing(_, both) => (wire::record::Status::LeaseCreating, both.new),
    };
    let metadata = wire::Metadata {
        bucket: Some(wire::Bucket { r#type: key.bucket_type.0, value: record.spelling.to_string() }),
        subject: Some(wire::Subject { r#type: record.subject.subject_type, id: record.subject.id }),
        source: Some(wire::Source {
            r#type: record.source.source_type.0,
            rails_primary_key_id: record.source.id.as_bytes().to_vec(),
        }),
        user_data: record
            .user_data
            .map(Arc::unwrap_or_clone)
            .map(|data| Any { type_url: data.type_url, value: data.value }),
        claim: bucket_claim(key.bucket_type, &record.spelling, catalogue),
    };
    wire::Record {
        uuid: uuid(record.uuid),
        metadata: Some(metadata),
        cell_id: claim.owner.0,
        status: status.into(),
        lease_uuid: hold.and_then(|hold| uuid(hold.lease)),
        created_at: timestamp(record.created_at),
        updated_at: timestamp(record.updated_at),
    }
}
