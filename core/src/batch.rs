//! A validated update. Parse, don't validate: only a [`Batch`] can be begun, and only [`Batch::parse`] makes one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::bucket::{Bucket, BucketKey, BucketType};
use crate::catalogue::{Catalogue, ValueError};
use crate::claim::{Record, Source, Subject, UserData};
use crate::order::sorted_by;
use crate::rejection::{Detail, List, Offence, Place, Reason, Rejection};

/// The most claims in one update, creates and destroys together (B11).
pub const MAX_CLAIMS: usize = 2000;
/// The longest source id, in bytes (B11).
pub const MAX_SOURCE_ID_BYTES: usize = 128;
/// The largest request, in bytes (B11); hosts enforce it before they decode.
pub const MAX_REQUEST_BYTES: usize = 10 * 1024 * 1024;
/// The longest idempotency key, in bytes.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 128;

/// One claim of an update as a caller sent it, unchecked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    /// The bucket's type.
    pub bucket_type: BucketType,
    /// The bucket's value as spelled.
    pub value: Arc<str>,
    /// Who is to hold it; a destroy may leave it out.
    pub subject: Option<Subject>,
    /// The row it comes from; a destroy that leaves it out is unconditional (B05).
    pub source: Option<Source>,
    /// What the cell attaches.
    pub user_data: Option<UserData>,
}

/// An update as a caller sent it, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UpdateRequest {
    /// The claims to create.
    pub creates: Vec<ClaimRequest>,
    /// The claims to destroy.
    pub destroys: Vec<ClaimRequest>,
}

/// A checked create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Its position among the creates.
    pub position: u32,
    /// The bucket to own.
    pub bucket: Bucket,
    /// Who is to hold it.
    pub subject: Subject,
    /// The row it comes from.
    pub source: Source,
    /// What the cell attaches.
    pub user_data: Option<Arc<UserData>>,
}

/// A checked destroy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destroy {
    /// Its position among the destroys.
    pub position: u32,
    /// The bucket to give up.
    pub key: BucketKey,
    /// Only if the claim still comes from this row (B05).
    pub source: Option<Source>,
}

/// What an update does with one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Own an absent bucket (B02).
    Create(Create),
    /// Give up an owned one (B04).
    Destroy(Destroy),
    /// Keep an owned one under a new record (B06).
    Replace(Create, Destroy),
}

impl Entry {
    /// The bucket's key.
    pub fn key(&self) -> &BucketKey {
        match self {
            Self::Create(create) | Self::Replace(create, _) => &create.bucket.key,
            Self::Destroy(destroy) => &destroy.key,
        }
    }
}

/// A validated update: at least one entry, one for each bucket, in the order of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    entries: Vec<Entry>,
}

impl Batch {
    /// Checks an update: its size, each claim's form, and that no bucket stands twice in one list.
    ///
    /// # Errors
    /// Every offence: empty and unspecified (B14), limits (B11), values (B12), duplicates with both places (B07).
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

    /// The entries, in the order of their keys.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The buckets' keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &BucketKey> {
        self.entries.iter().map(Entry::key)
    }
}

/// Checks how many claims an update has, before any of them is looked at.
///
/// # Errors
/// None (B14), or more than are allowed (B11).
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

/// The key of the claim that has this record, of which bucket, subject and source are what a create may have.
///
/// # Errors
/// One of them is not.
pub fn record_key(bucket_type: BucketType, record: &Record, catalogue: &Catalogue) -> Result<BucketKey, ValueError> {
    let refused = |(reason, detail)| ValueError { reason, detail };
    check_subject(record.subject).and_then(|()| check_source(&record.source)).map_err(refused)?;
    Ok(catalogue.bucket(bucket_type, record.spelling.clone())?.key)
}

fn limit(name: &'static str, max: usize, actual: usize) -> Detail {
    Detail::Limit { name, max: max as u64, actual: actual as u64 }
}

type Refused = (Reason, Detail);

fn invalid(what: &'static str) -> Refused {
    (Reason::InvalidUpdate, Detail::Form(what))
}

fn parse_bucket(claim: &ClaimRequest, catalogue: &Catalogue) -> Result<Bucket, Refused> {
    catalogue.bucket(claim.bucket_type, claim.value.clone()).map_err(|error| (error.reason, error.detail))
}

fn parse_create(position: u32, claim: ClaimRequest, catalogue: &Catalogue) -> Result<Create, Refused> {
    let bucket = parse_bucket(&claim, catalogue)?;
    let subject = claim.subject.ok_or_else(|| invalid("`subject` is missing"))?;
    check_subject(subject)?;
    let source = claim.source.ok_or_else(|| invalid("`source` is missing"))?;
    check_source(&source)?;
    Ok(Create { position, bucket, subject, source, user_data: claim.user_data.map(Arc::new) })
}

fn parse_destroy(position: u32, claim: ClaimRequest, catalogue: &Catalogue) -> Result<Destroy, Refused> {
    let key = parse_bucket(&claim, catalogue)?.key;
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

/// Brings the entries into the order of keys, makes a replace of a create and a destroy of one bucket (B06), and
/// reports a bucket that stands twice in one list (B07).
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

/// By key; of one bucket the creates come first, then the destroys, each in the order of positions. The few entries that
/// most updates have are moved to their places one by one, which takes no more memory.
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

/// What an update looks like, field by field in 64-bit hashes (XXH3): enough to tell a retry from another update, and
/// to name the first difference, without keeping the body (B09).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    creates: Vec<[u64; 4]>,
    destroys: Vec<[u64; 4]>,
}

const FIELDS: [&str; 4] = ["bucket", "subject", "source", "user_data"];

impl Fingerprint {
    /// The fingerprint of an update as it was sent.
    pub fn of(request: &UpdateRequest) -> Self {
        let print = |claims: &[ClaimRequest]| claims.iter().map(claim_fingerprint).collect();
        Self { creates: print(&request.creates), destroys: print(&request.destroys) }
    }

    /// The hashes of the creates and of the destroys, for a store to write.
    pub fn hashes(&self) -> (&[[u64; 4]], &[[u64; 4]]) {
        (&self.creates, &self.destroys)
    }

    /// The fingerprint of hashes that a store has read.
    pub fn from_hashes(creates: Vec<[u64; 4]>, destroys: Vec<[u64; 4]>) -> Self {
        Self { creates, destroys }
    }

    /// The first field in which `other` differs, named as on the wire; none where they are the same.
    pub fn difference(&self, other: &Self) -> Option<String> {
        list_difference("create_records", &self.creates, &other.creates)
            .or_else(|| list_difference("destroy_records", &self.destroys, &other.destroys))
    }
}

fn list_difference(list: &str, one: &[[u64; 4]], other: &[[u64; 4]]) -> Option<String> {
    for (position, (a, b)) in one.iter().zip(other).enumerate() {
        let mut fields = FIELDS.iter().zip(a.iter().zip(b));
        if let Some((field, _)) = fields.find(|(_, (a, b))| a != b) {
            return Some(format!("{list}[{position}].{field}"));
        }
    }
    (one.len() != other.len()).then(|| format!("the number of {list}"))
}

fn claim_fingerprint(claim: &ClaimRequest) -> [u64; 4] {
    let bucket = hash([&claim.bucket_type.0.to_be_bytes(), claim.value.as_bytes()]);
    let subject =
        claim.subject.map_or(0, |subject| hash([&subject.subject_type.to_be_bytes(), &subject.id.to_be_bytes()]));
    let source =
        claim.source.as_ref().map_or(0, |source| hash([&source.source_type.0.to_be_bytes(), source.id.as_bytes()]));
    let user_data = claim.user_data.as_ref().map_or(0, |data| hash([data.type_url.as_bytes(), &data.value]));
    [bucket, subject, source, user_data]
}

/// Hashes two parts, the first with its length, so that no two pairs read alike.
fn hash([first, second]: [&[u8]; 2]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&(first.len() as u64).to_be_bytes());
    hasher.update(first);
    hasher.update(second);
    hasher.digest()
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
    fn b10_every_offence_is_listed_and_b15_the_first_reason_speaks() {
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
        let request = |creates: Vec<ClaimRequest>, destroys| Fingerprint::of(&UpdateRequest { creates, destroys });
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
