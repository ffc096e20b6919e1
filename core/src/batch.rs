//! A validated update. An update can only be begun as a [`Batch`], and only [`Batch::parse`] makes
//! a batch.
//!
//! ```
//! use leasehold_core::batch::{Batch, ClaimRequest, Entry, UpdateRequest};
//! use leasehold_core::bucket::BucketType;
//! use leasehold_core::catalogue::Catalogue;
//! use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
//!
//! let claim = |value: &str| ClaimRequest {
//!     bucket_type: BucketType(4),
//!     value: value.into(),
//!     subject: Some(Subject { subject_type: 4, id: 7 }),
//!     source: Some(Source { source_type: SourceType(1), id: SourceId::from(7) }),
//!     user_data: None,
//! };
//! // Both spellings stand for one bucket, so the cell keeps the bucket and replaces the record
//! // (B06).
//! let update = UpdateRequest { creates: vec![claim("Alice")], destroys: vec![claim("alice")] };
//! let batch = Batch::parse(update, &Catalogue::default()).unwrap();
//! assert!(matches!(batch.entries(), [Entry::Replace(_, _)]));
//! ```

use std::sync::Arc;

use crate::bucket::{Bucket, BucketKey, BucketType};
use crate::catalogue::{Catalogue, ValueError};
use crate::claim::{Record, Source, Subject, UserData};
use crate::fingerprint::{ClaimFingerprint, Fingerprint, hash};
use crate::order::sorted_by;
use crate::rejection::{Detail, List, Offence, Place, Reason, Rejection};

/// The most claims in one update, creates and destroys together (B11).
pub const MAX_CLAIMS: usize = 2000;
/// The longest source id of a claim, in bytes (B11).
pub const MAX_SOURCE_ID_BYTES: usize = 128;
/// The largest request, in bytes (B11). Hosts enforce this limit before they decode a request.
pub const MAX_REQUEST_BYTES: usize = 10 * 1024 * 1024;
/// The longest idempotency key, in bytes.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 128;

/// One claim of an update as the caller sent it, unchecked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    /// The type of the claim's bucket.
    pub bucket_type: BucketType,
    /// The value of the claim's bucket, as the caller spelled it.
    pub value: Arc<str>,
    /// The user, project or other object that uses the bucket. A destroy may leave the subject out.
    pub subject: Option<Subject>,
    /// The table row that the claim comes from. A destroy without a source gives up the claim,
    /// whichever row it comes from (B05).
    pub source: Option<Source>,
    /// The data that the cell attaches to the claim.
    pub user_data: Option<UserData>,
}

/// An update as the caller sent it, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UpdateRequest {
    /// The claims that the update creates.
    pub creates: Vec<ClaimRequest>,
    /// The claims that the update destroys.
    pub destroys: Vec<ClaimRequest>,
}

impl UpdateRequest {
    /// Returns the fingerprint of the update as the caller sent it (B09).
    pub fn fingerprint(&self) -> Fingerprint {
        let of_claims = |claims: &[ClaimRequest]| claims.iter().map(claim_fingerprint).collect();
        Fingerprint { creates: of_claims(&self.creates), destroys: of_claims(&self.destroys) }
    }
}

/// A checked create: one claim that an update makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// The position of the claim in the update's list of creates, counted from 0.
    pub position: u32,
    /// The bucket that the cell takes.
    pub bucket: Bucket,
    /// The user, project or other object that uses the bucket.
    pub subject: Subject,
    /// The table row that the claim comes from.
    pub source: Source,
    /// The data that the cell attaches to the claim.
    pub user_data: Option<Arc<UserData>>,
}

/// A checked destroy: one claim that an update gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destroy {
    /// The position of the claim in the update's list of destroys, counted from 0.
    pub position: u32,
    /// The key of the bucket that the cell gives up.
    pub key: BucketKey,
    /// The table row that the claim must still come from, `None` if the row does not matter (B05).
    pub source: Option<Source>,
}

/// The change that an update makes to one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The cell takes a bucket that has no claim (B02).
    Create(Create),
    /// The cell gives up a bucket that it owns (B04).
    Destroy(Destroy),
    /// The cell keeps a bucket that it owns, with a new record (B06).
    Replace(Create, Destroy),
}

impl Entry {
    /// Returns the key of the bucket that the entry changes.
    pub fn key(&self) -> &BucketKey {
        match self {
            Self::Create(create) | Self::Replace(create, _) => &create.bucket.key,
            Self::Destroy(destroy) => &destroy.key,
        }
    }
}

/// A validated update: one entry per bucket, at least one, in the order of keys. Stores lock rows
/// in this order, so two batches never wait for each other's rows in a circle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    entries: Vec<Entry>,
}

impl Batch {
    /// Parses an update: checks the number of claims, the form of each claim, and that no list has
    /// a bucket twice.
    ///
    /// # Errors
    /// The rejection lists every offence: empty or unspecified fields (B14), exceeded limits (B11),
    /// values that are not allowed (B12), and duplicates with both places (B07). If an update has
    /// no claim or too many, the rejection has one offence without a place.
    pub fn parse(request: UpdateRequest, catalogue: &Catalogue) -> Result<Self, Rejection> {
        check_size(request.creates.len() + request.destroys.len())?;
        let mut offences = Vec::new();
        let mut entries = Vec::with_capacity(request.creates.len() + request.destroys.len());
        for (position, claim) in (0..).zip(request.creates) {
            let place = Place::create(position);
            let bucket_type = claim.bucket_type;
            match parse_create(position, claim, catalogue) {
                Ok(create) => entries.push(Entry::Create(create)),
                Err((reason, detail)) => offences.push(Offence::at(place, bucket_type, reason, detail)),
            }
        }
        for (position, claim) in (0..).zip(request.destroys) {
            let place = Place::destroy(position);
            let bucket_type = claim.bucket_type;
            match parse_destroy(position, claim, catalogue) {
                Ok(destroy) => entries.push(Entry::Destroy(destroy)),
                Err((reason, detail)) => offences.push(Offence::at(place, bucket_type, reason, detail)),
            }
        }
        let entries = merge(entries, &mut offences);
        match Rejection::of(offences) {
            Some(rejection) => Err(rejection),
            None => Ok(Self { entries }),
        }
    }

    /// Returns the update that gives up the claims with these keys, whichever rows they come from. The
    /// keys are those of existing claims, so no catalogue checks them.
    ///
    /// # Errors
    /// There is no key (B14), there are too many (B11), or one is there twice (B07).
    pub fn destroying(keys: impl IntoIterator<Item = BucketKey>) -> Result<Self, Rejection> {
        let destroy = |(position, key)| Entry::Destroy(Destroy { position, key, source: None });
        let entries: Vec<_> = (0..).zip(keys).map(destroy).collect();
        check_size(entries.len())?;
        let mut offences = Vec::new();
        let entries = merge(entries, &mut offences);
        match Rejection::of(offences) {
            Some(rejection) => Err(rejection),
            None => Ok(Self { entries }),
        }
    }

    /// Returns the entries of the batch, in the order of their buckets' keys.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the keys of the batch's buckets, in order.
    pub fn keys(&self) -> impl Iterator<Item = &BucketKey> {
        self.entries.iter().map(Entry::key)
    }
}

/// Checks the number of claims in an update.
///
/// # Errors
/// The update has no claim (B14), or more than [`MAX_CLAIMS`] (B11).
pub fn check_size(claims: usize) -> Result<(), Rejection> {
    if claims == 0 {
        let detail = Detail::Form("the update is empty: give at least one create or destroy");
        return Err(Rejection::whole(Reason::InvalidUpdate, detail));
    }
    if claims > MAX_CLAIMS {
        let detail = limit("claims_per_update", MAX_CLAIMS, claims);
        return Err(Rejection::whole(Reason::LimitExceeded, detail));
    }
    Ok(())
}

/// Returns the bucket key of the claim that has this record.
///
/// # Errors
/// No create could have made the record: the record's value, subject or source has never been
/// allowed.
pub fn record_key(bucket_type: BucketType, record: &Record, catalogue: &Catalogue) -> Result<BucketKey, ValueError> {
    let refused = |(reason, detail)| ValueError { reason, detail };
    check_subject(record.subject).and_then(|()| check_source(&record.source)).map_err(refused)?;
    Ok(catalogue.bucket_of_existing(bucket_type, record.spelling.clone())?.key)
}

fn limit(name: &'static str, max: usize, actual: usize) -> Detail {
    Detail::Limit { name, max: max as u64, actual: actual as u64 }
}

type Refused = (Reason, Detail);

fn invalid(what: &'static str) -> Refused {
    (Reason::InvalidUpdate, Detail::Form(what))
}

fn refused(error: ValueError) -> Refused {
    (error.reason, error.detail)
}

fn parse_create(position: u32, claim: ClaimRequest, catalogue: &Catalogue) -> Result<Create, Refused> {
    let bucket = catalogue.bucket(claim.bucket_type, claim.value).map_err(refused)?;
    catalogue.check_confusable(&bucket).map_err(refused)?;
    let subject = claim.subject.ok_or_else(|| invalid("`subject` is missing"))?;
    check_subject(subject)?;
    let source = claim.source.ok_or_else(|| invalid("`source` is missing"))?;
    check_source(&source)?;
    claim.user_data.as_ref().map_or(Ok(()), |data| check_user_data(data, catalogue))?;
    Ok(Create { position, bucket, subject, source, user_data: claim.user_data.map(Arc::new) })
}

fn parse_destroy(position: u32, claim: ClaimRequest, catalogue: &Catalogue) -> Result<Destroy, Refused> {
    let key = catalogue.bucket_of_existing(claim.bucket_type, claim.value).map_err(refused)?.key;
    claim.subject.map_or(Ok(()), check_subject)?;
    claim.source.as_ref().map_or(Ok(()), check_source)?;
    Ok(Destroy { position, key, source: claim.source })
}

fn check_subject(subject: Subject) -> Result<(), Refused> {
    if subject.subject_type == 0 {
        return Err(invalid("`subject.type` is unspecified"));
    }
    if subject.subject_type < 0 {
        return Err(invalid("`subject.type` is negative"));
    }
    if subject.id < 1 {
        return Err(invalid("`subject.id` is not 1 or more"));
    }
    Ok(())
}

fn check_source(source: &Source) -> Result<(), Refused> {
    if source.source_type.0 == 0 {
        return Err(invalid("`source.type` is unspecified"));
    }
    if source.source_type.0 < 0 {
        return Err(invalid("`source.type` is negative"));
    }
    if source.id.is_empty() {
        return Err(invalid("`source.rails_primary_key_id` is empty"));
    }
    let bytes = source.id.as_bytes().len();
    if bytes > MAX_SOURCE_ID_BYTES {
        return Err((Reason::LimitExceeded, limit("source_id_bytes", MAX_SOURCE_ID_BYTES, bytes)));
    }
    Ok(())
}

fn check_user_data(data: &UserData, catalogue: &Catalogue) -> Result<(), Refused> {
    let (max, bytes) = (catalogue.max_user_data_bytes(), data.type_url.len() + data.value.len());
    if bytes > max {
        return Err((Reason::LimitExceeded, limit("user_data_bytes", max, bytes)));
    }
    Ok(())
}

/// Returns the entries in the order of keys. A create and a destroy of one bucket become a replace
/// (B06). A bucket that is twice in one list adds an offence (B07).
fn merge(entries: Vec<Entry>, offences: &mut Vec<Offence>) -> Vec<Entry> {
    let mut merged: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in in_order(entries) {
        let same = merged.pop_if(|last| last.key() == entry.key());
        match (same, entry) {
            (None, entry) => merged.push(entry),
            (Some(Entry::Create(create)), Entry::Destroy(destroy)) => merged.push(Entry::Replace(create, destroy)),
            (Some(earlier), again) => {
                offences.push(duplicate(&earlier, &again));
                merged.push(earlier);
            }
        }
    }
    merged
}

/// Returns the entries in the order of keys. Entries of one bucket keep their order: creates before
/// destroys, each by position.
///
/// Most updates have few entries, and an insertion sort orders these in place. [`sorted_by`] would
/// allocate.
fn in_order(mut entries: Vec<Entry>) -> Vec<Entry> {
    if entries.len() > 16 {
        return sorted_by(entries, |a, b| a.key().cmp(b.key()));
    }
    for at in 1..entries.len() {
        let Some((before, [entry, ..])) = entries.split_at_checked(at) else { break };
        let place = before.partition_point(|before| before.key() <= entry.key());
        if place < at {
            let entry = entries.remove(at);
            entries.insert(place, entry);
        }
    }
    entries
}

fn duplicate(earlier: &Entry, again: &Entry) -> Offence {
    let place = |entry: &Entry, list| match (entry, list) {
        (Entry::Create(create) | Entry::Replace(create, _), List::Creates) => Place::create(create.position),
        (Entry::Destroy(destroy) | Entry::Replace(_, destroy), _) => Place::destroy(destroy.position),
        (Entry::Create(create), List::Destroys) => Place::create(create.position),
    };
    let list = match again {
        Entry::Destroy(_) => List::Destroys,
        Entry::Create(_) | Entry::Replace(_, _) => List::Creates,
    };
    let detail = Detail::AlsoAt(place(earlier, list));
    Offence::at(place(again, list), again.key().bucket_type, Reason::InvalidUpdate, detail)
}

fn claim_fingerprint(claim: &ClaimRequest) -> ClaimFingerprint {
    let bucket = hash([&claim.bucket_type.0.to_be_bytes(), claim.value.as_bytes()]);
    let subject =
        claim.subject.map_or(0, |subject| hash([&subject.subject_type.to_be_bytes(), &subject.id.to_be_bytes()]));
    let source =
        claim.source.as_ref().map_or(0, |source| hash([&source.source_type.0.to_be_bytes(), source.id.as_bytes()]));
    let user_data = claim.user_data.as_ref().map_or(0, |data| hash([data.type_url.as_bytes(), &data.value]));
    [bucket, subject, source, user_data]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::claim::{SourceId, SourceType};

    fn claim(value: &str) -> ClaimRequest {
        ClaimRequest {
            bucket_type: BucketType(4),
            value: value.into(),
            subject: Some(Subject { subject_type: 4, id: 7 }),
            source: Some(Source { source_type: SourceType(1), id: SourceId::from(7) }),
            user_data: None,
        }
    }

    fn parse(creates: Vec<ClaimRequest>, destroys: Vec<ClaimRequest>) -> Result<Batch, Rejection> {
        Batch::parse(UpdateRequest { creates, destroys }, &Catalogue::default())
    }

    #[test]
    fn b06_create_and_destroy_of_one_bucket_is_a_replace() {
        let batch = parse(vec![claim("Bob"), claim("alice")], vec![claim("bob")]).unwrap();
        assert!(matches!(batch.entries(), [Entry::Create(_), Entry::Replace(_, _)]));
    }

    #[test]
    fn b26_claims_of_any_type_can_be_destroyed_by_their_keys() {
        let key = |number: i32| BucketKey { bucket_type: BucketType(number), canonical: "a".into() };
        let batch = Batch::destroying([key(999), key(4)]).unwrap();
        assert_eq!(batch.keys().collect::<Vec<_>>(), [&key(4), &key(999)]);
        let reason = |keys: Vec<BucketKey>| Batch::destroying(keys).unwrap_err().reason();
        assert_eq!(reason(vec![key(4), key(4)]), Reason::InvalidUpdate);
        assert_eq!(reason(Vec::new()), Reason::InvalidUpdate);
        assert_eq!(reason((0..2_001).map(key).collect()), Reason::LimitExceeded);
    }

    #[test]
    fn b07_duplicates_name_both_places() {
        let rejection =
            parse(vec![claim("a"), claim("b"), claim("A")], vec![claim("a"), claim("c"), claim("C"), claim("a")])
                .unwrap_err();
        let places: Vec<_> = rejection.offences().iter().map(|o| (o.place.unwrap(), o.detail.clone())).collect();
        assert_eq!(
            places,
            [
                (Place::create(2), Detail::AlsoAt(Place::create(0))),
                (Place::destroy(2), Detail::AlsoAt(Place::destroy(1))),
                (Place::destroy(3), Detail::AlsoAt(Place::destroy(0))),
            ]
        );
        assert_eq!(rejection.reason(), Reason::InvalidUpdate);
    }

    #[test]
    fn b10_b15_every_offence_is_listed_and_the_first_reason_is_the_rejections() {
        let zero = ClaimRequest { subject: Some(Subject { subject_type: 4, id: -7 }), ..claim("ok") };
        let rejection = parse(vec![claim("a b"), claim("fine"), zero], vec![claim(&"x".repeat(2000))]).unwrap_err();
        let reasons: Vec<_> = rejection.offences().iter().map(|o| (o.place.unwrap(), o.reason)).collect();
        assert_eq!(
            reasons,
            [
                (Place::create(0), Reason::ValueNotAllowed),
                (Place::create(2), Reason::InvalidUpdate),
                (Place::destroy(0), Reason::LimitExceeded),
            ]
        );
        assert_eq!(rejection.reason(), Reason::InvalidUpdate);
    }

    #[test]
    fn b11_the_number_of_claims_and_the_source_id_are_limited() {
        let many = |n: usize| (0..n).map(|i| claim(&format!("n{i}"))).collect::<Vec<_>>();
        assert_eq!(parse(many(2000), vec![]).unwrap().entries().len(), 2000);
        let rejection = parse(many(2000), vec![claim("one-more")]).unwrap_err();
        assert_eq!(rejection.offences().first().unwrap().detail, limit("claims_per_update", 2000, 2001));
        let source = |bytes: usize| Source { source_type: SourceType(1), id: SourceId::from_bytes(&vec![7; bytes]) };
        let with = |bytes| ClaimRequest { source: Some(source(bytes)), ..claim("a") };
        parse(vec![with(128)], vec![]).unwrap();
        assert_eq!(parse(vec![with(129)], vec![]).unwrap_err().reason(), Reason::LimitExceeded);
    }

    #[test]
    fn b14_empty_and_unspecified_are_invalid() {
        let untyped =
            ClaimRequest { source: Some(Source { source_type: SourceType(0), id: SourceId::from(1) }), ..claim("a") };
        let subjectless = ClaimRequest { subject: None, ..claim("a") };
        for (creates, destroys) in [
            (vec![], vec![]),
            (vec![untyped.clone()], vec![]),
            (vec![], vec![untyped]),
            (vec![subjectless.clone()], vec![]),
        ] {
            assert_eq!(parse(creates, destroys).unwrap_err().reason(), Reason::InvalidUpdate);
        }
        parse(vec![], vec![ClaimRequest { source: None, ..subjectless }]).unwrap();
    }

    #[test]
    fn b09_a_fingerprint_names_the_first_difference() {
        let request = |creates: Vec<ClaimRequest>, destroys| UpdateRequest { creates, destroys }.fingerprint();
        let first = request(vec![claim("a"), claim("b")], vec![claim("c")]);
        let other_subject = ClaimRequest { subject: None, ..claim("b") };
        for (other, difference) in [
            (request(vec![claim("a"), claim("b")], vec![claim("c")]), None),
            (request(vec![claim("a"), claim("B")], vec![claim("c")]), Some("create_records[1].bucket")),
            (request(vec![claim("a"), other_subject], vec![claim("c")]), Some("create_records[1].subject")),
            (request(vec![claim("a")], vec![claim("c")]), Some("the number of create_records")),
            (request(vec![claim("a"), claim("b")], vec![]), Some("the number of destroy_records")),
        ] {
            assert_eq!(first.difference(&other).as_deref(), difference);
        }
    }
}
