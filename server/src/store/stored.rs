//! The stored form of rows: the values of the embedded store, the payload columns of the shared
//! store, and the lines of an export.
//!
//! These types are separate from the engine's types, so that a change of the engine does not change
//! bytes on disk. The tests below have the exact bytes of each version. A new field or variant
//! needs a new version, and every later program must read all versions.
//!
//! | version | rows |
//! |---|---|
//! | 1 | all rows but those of version 2 |
//! | 2 | leases for an organization: two more variants of [`LeaseState`] |
//! | 3 | sessions, locks, asks and turns |
//! | 4 | reaped locks: one more variant of [`LockState`] |
//! | 5 | shared locks: one more variant of [`LockState`], two of [`AskState`], and rows of slots |
//! | 6 | queues, lanes, requests and bodies |
//!
//! A row of version 1 has the same bytes in a store of version 2. The write of a store's first row
//! of version 2 also sets the store's version to 2. A program that knows only version 1 can open
//! the store before this write, and refuses it afterwards. Without the version number, such a
//! program would take the row for damaged, and a salvage would leave the row out. The same holds
//! for the later versions.
//!
//! The types borrow their text. So a write copies no text, and a read copies each text only once,
//! into the engine's type.

#[cfg(test)]
mod golden;
mod locks;
mod queues;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::catalogue;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{self, SourceId, SourceType};
use leasehold_core::fingerprint;
use leasehold_core::lease::{self, Fence, LeaseId};
use leasehold_core::organization::{NotAnOrganization, OrganizationId};
use leasehold_core::time::Timestamp;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

pub use self::locks::{
    Ask, AskState, DividedState, Ended, Grant, GrantEnd, Lock, LockRest, LockState, Obituary, Path, Principal,
    ReapedState, Session, SessionState, Share, Terms, Turn, TurnKey, Value, version_of_ask, version_of_lock,
};
pub use self::queues::{
    EndedHold, HoldEnd, Lane, LaneHold, LanePath, LaneState, Note, Priority, Progress, Queue, Request, RequestBody,
    RequestKind, RequestState,
};

/// The version of a new store. It lasts until the first row of a later version.
pub const FIRST_VERSION: u64 = 1;
/// The version of a store that has, or has had, a lease for an organization.
pub const ORGANIZATION_VERSION: u64 = 2;
/// The version of a store that has, or has had, a session. Locks, asks and turns follow sessions.
pub const LOCK_VERSION: u64 = 3;
/// The version of a store that has, or has had, a lock of a reaped namespace.
pub const REAPED_VERSION: u64 = 4;
/// The version of a store that has, or has had, a lock that asks share.
pub const SHARED_VERSION: u64 = 5;
/// The version of a store that has, or has had, a queue, a lane or a request.
pub const QUEUE_VERSION: u64 = 6;
/// The newest version that this program reads and writes.
pub const NEWEST_VERSION: u64 = QUEUE_VERSION;

/// True if this program reads rows of a version.
pub fn is_known(version: u64) -> bool {
    (FIRST_VERSION..=NEWEST_VERSION).contains(&version)
}

/// Returns the version of a lease's row.
pub fn version_of(lease: &lease::Lease) -> u64 {
    if lease.organization.is_some() { ORGANIZATION_VERSION } else { FIRST_VERSION }
}

/// A byte string: hexadecimal text in JSON, plain bytes in binary formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes<'a>(pub Cow<'a, [u8]>);

/// The stored form of a claim's bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key<'a> {
    /// The number of the bucket type.
    pub bucket_type: i32,
    /// The value of the bucket in canonical form.
    #[serde(borrow)]
    pub canonical: Cow<'a, str>,
}

/// The stored form of a claim's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The number that stands for the subject's kind.
    pub subject_type: i32,
    /// The id of the subject.
    pub id: i64,
}

/// The stored form of a claim's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source<'a> {
    /// The number that stands for the table of the source row.
    pub source_type: i32,
    /// The primary key of the source row.
    #[serde(borrow)]
    pub id: Bytes<'a>,
}

/// The stored form of data that a cell attached to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserData<'a> {
    /// The type URL of the attached value.
    #[serde(borrow)]
    pub type_url: Cow<'a, str>,
    /// The attached value.
    #[serde(borrow)]
    pub value: Bytes<'a>,
}

/// The stored form of a claim's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record<'a> {
    /// The id of the record.
    pub uuid: Uuid,
    /// The claimed value as the cell spelled it.
    #[serde(borrow)]
    pub spelling: Cow<'a, str>,
    /// The subject of the claim.
    pub subject: Subject,
    /// The source of the claim.
    #[serde(borrow)]
    pub source: Source<'a>,
    /// The data that the cell attached to the claim.
    #[serde(borrow)]
    pub user_data: Option<UserData<'a>>,
    /// The time of the record's creation, in microseconds since 1970.
    pub created_at: u64,
    /// The time of the record's last change, in microseconds since 1970.
    pub updated_at: u64,
}

/// The stored form of the hold of a lease on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The id of the lease that the claim is under.
    pub lease: Uuid,
    /// The time when the lease took the claim, in microseconds since 1970.
    pub since: u64,
}

/// The stored form of a claim's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimState<'a> {
    /// The claim is at rest.
    Active(#[serde(borrow)] Record<'a>),
    /// The claim is under a lease that creates it.
    Creating(Hold, #[serde(borrow)] Record<'a>),
    /// The claim is under a lease that destroys it.
    Destroying(Hold, #[serde(borrow)] Record<'a>),
    /// The claim is under a lease that replaces its record.
    Replacing(Hold, #[serde(borrow)] Box<Replacement<'a>>),
}

/// The stored form of the two records of a claim under a replace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement<'a> {
    /// The record that a rollback restores.
    #[serde(borrow)]
    pub old: Record<'a>,
    /// The record that a commit leaves.
    #[serde(borrow)]
    pub new: Record<'a>,
}

/// The stored form of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim<'a> {
    /// The cell that owns the bucket.
    pub owner: i64,
    /// The state of the claim.
    #[serde(borrow)]
    pub state: ClaimState<'a>,
}

/// The stored form of a claim at rest: a value of the keyspace `claims`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestingClaim<'a> {
    /// The cell that owns the bucket.
    pub owner: i64,
    /// The record of the claim.
    #[serde(borrow)]
    pub record: Record<'a>,
}

/// The stored form of an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdempotencyKey<'a> {
    /// The cell that uses the key.
    pub cell: i64,
    /// The text of the key.
    #[serde(borrow)]
    pub key: Cow<'a, str>,
}

/// The stored form of a lease's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The lease was committed.
    Committed,
    /// The lease was rolled back.
    RolledBack,
}

/// The stored form of a lease's state, and of its organization if it has one. A field for the
/// organization would change the bytes of every lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum LeaseState<'a> {
    /// The lease is outstanding. The keys are the keys of its claims.
    Outstanding(#[serde(borrow)] Vec<Key<'a>>),
    /// The lease is settled.
    Settled(Outcome),
    /// The lease is outstanding, and was begun for an organization (version 2).
    OutstandingForOrganization {
        /// The organization of the lease.
        organization_id: Organization,
        /// The keys of the lease's claims.
        #[serde(borrow)]
        claims: Vec<Key<'a>>,
    },
    /// The lease is settled, and was begun for an organization (version 2).
    SettledForOrganization {
        /// The organization of the lease.
        organization_id: Organization,
        /// The outcome of the lease.
        outcome: Outcome,
    },
}

/// The stored form of an organization's id, which is 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Organization(OrganizationId);

impl TryFrom<i64> for Organization {
    type Error = NotAnOrganization;

    fn try_from(id: i64) -> Result<Self, NotAnOrganization> {
        OrganizationId::try_from(id).map(Self)
    }
}

impl From<Organization> for i64 {
    fn from(organization: Organization) -> Self {
        organization.0.into()
    }
}

/// The stored form of a lease: a value of the keyspace `settled`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease<'a> {
    /// The cell that began the lease.
    pub cell: i64,
    /// The fence of the lease.
    pub fence: u64,
    /// The time when the lease was begun, in microseconds since 1970.
    pub created_at: u64,
    /// The time when the lease was last changed, in microseconds since 1970.
    pub updated_at: u64,
    /// The idempotency key of the lease's begin.
    #[serde(borrow)]
    pub idempotency_key: Option<IdempotencyKey<'a>>,
    /// The state of the lease.
    #[serde(borrow)]
    pub state: LeaseState<'a>,
}

/// The stored form of an outstanding lease with its claims: a value of the keyspace `outstanding`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutstandingLease<'a> {
    /// The outstanding lease.
    #[serde(borrow)]
    pub lease: Lease<'a>,
    /// The claims under the lease, each with its key.
    #[serde(borrow)]
    pub claims: Vec<(Key<'a>, Claim<'a>)>,
}

/// The stored form of an update's fingerprint: the column `idempotency_keys.fingerprint`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint<'a> {
    /// Four hashes for each create of the update.
    pub creates: Cow<'a, [[u64; 4]]>,
    /// Four hashes for each destroy of the update.
    pub destroys: Cow<'a, [[u64; 4]]>,
}

/// The stored form of a replay, the answer of a begin that used an idempotency key: a value of the
/// keyspace `replays`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay<'a> {
    /// The id of the lease that the begin got.
    pub lease: Uuid,
    /// The fence of the lease that the begin got.
    pub fence: u64,
    /// The fingerprint of the begin's update.
    #[serde(borrow)]
    pub fingerprint: Fingerprint<'a>,
}

/// The stored name of the form that a bucket type allows for its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A value is a decimal id.
    Decimal,
    /// A value is one word.
    Word,
    /// A value is an email address.
    Email,
    /// A value is one line.
    Line,
    /// A value may have several lines.
    Block,
    /// A value is a domain.
    Domain,
    /// A value is an email address whose domain has the form `Domain`.
    Address,
    /// A value is a path.
    Path,
    /// A value is the fingerprint of a key.
    Fingerprint,
    /// A value is an SSH key with a comment.
    PublicKey,
    /// A value is a text in which the kind of line end does not count.
    Armor,
}

/// The stored form of the rule of a configured bucket type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketRule<'a> {
    /// The number of the bucket type.
    pub number: i32,
    /// The name of the bucket type in the configuration.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// The form that values of the bucket type must have.
    pub form: Form,
    /// True if two values that differ only in case are the same name.
    pub fold_case: bool,
}

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return to.serialize_bytes(&self.0);
        }
        let mut text = String::with_capacity(self.0.len() * 2);
        let written = self.0.iter().try_for_each(|byte| fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}")));
        written.map_err(serde::ser::Error::custom)?;
        to.serialize_str(&text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return from.deserialize_bytes(BorrowedBytes).map(|bytes| Self(Cow::Borrowed(bytes)));
        }
        let text = String::deserialize(from)?;
        let bytes = from_hexadecimal(&text).ok_or_else(|| D::Error::custom("not hexadecimal"))?;
        Ok(Self(Cow::Owned(bytes)))
    }
}

struct BorrowedBytes;

impl<'de> Visitor<'de> for BorrowedBytes {
    type Value = &'de [u8];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<&'de [u8], E> {
        Ok(bytes)
    }
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

fn micros(time: u64) -> Timestamp {
    Timestamp::from_micros(time)
}

impl<'a> From<&'a BucketKey> for Key<'a> {
    fn from(key: &'a BucketKey) -> Self {
        Self { bucket_type: key.bucket_type.0, canonical: Cow::Borrowed(&key.canonical) }
    }
}

impl From<Key<'_>> for BucketKey {
    fn from(key: Key<'_>) -> Self {
        Self { bucket_type: BucketType(key.bucket_type), canonical: key.canonical.into() }
    }
}

impl<'a> From<&'a claim::UserData> for UserData<'a> {
    fn from(data: &'a claim::UserData) -> Self {
        Self { type_url: Cow::Borrowed(&data.type_url), value: Bytes(Cow::Borrowed(&data.value)) }
    }
}

impl From<UserData<'_>> for claim::UserData {
    fn from(data: UserData<'_>) -> Self {
        Self { type_url: data.type_url.into_owned(), value: data.value.0.into_owned() }
    }
}

impl<'a> From<&'a claim::Record> for Record<'a> {
    fn from(record: &'a claim::Record) -> Self {
        let claim::Subject { subject_type, id } = record.subject;
        let source_id = Bytes(Cow::Borrowed(record.source.id.as_bytes()));
        Self {
            uuid: record.uuid,
            spelling: Cow::Borrowed(&record.spelling),
            subject: Subject { subject_type, id },
            source: Source { source_type: record.source.source_type.0, id: source_id },
            user_data: record.user_data.as_deref().map(Into::into),
            created_at: record.created_at.as_micros(),
            updated_at: record.updated_at.as_micros(),
        }
    }
}

impl From<Record<'_>> for claim::Record {
    fn from(record: Record<'_>) -> Self {
        let Subject { subject_type, id } = record.subject;
        let source_id = SourceId::from_bytes(&record.source.id.0);
        Self {
            uuid: record.uuid,
            spelling: record.spelling.into(),
            subject: claim::Subject { subject_type, id },
            source: claim::Source { source_type: SourceType(record.source.source_type), id: source_id },
            user_data: record.user_data.map(|data| Arc::new(data.into())),
            created_at: micros(record.created_at),
            updated_at: micros(record.updated_at),
        }
    }
}

impl From<claim::Hold> for Hold {
    fn from(hold: claim::Hold) -> Self {
        Self { lease: hold.lease.0, since: hold.since.as_micros() }
    }
}

impl From<Hold> for claim::Hold {
    fn from(hold: Hold) -> Self {
        Self { lease: LeaseId(hold.lease), since: micros(hold.since) }
    }
}

impl<'a> From<&'a claim::Claim> for Claim<'a> {
    fn from(claim: &'a claim::Claim) -> Self {
        use claim::ClaimState as Engine;
        let state = match &claim.state {
            Engine::Active(record) => ClaimState::Active(record.into()),
            Engine::Creating(hold, record) => ClaimState::Creating((*hold).into(), record.into()),
            Engine::Destroying(hold, record) => ClaimState::Destroying((*hold).into(), record.into()),
            Engine::Replacing(hold, both) => {
                let both = Replacement { old: (&both.old).into(), new: (&both.new).into() };
                ClaimState::Replacing((*hold).into(), Box::new(both))
            }
        };
        Self { owner: claim.owner.0, state }
    }
}

impl From<Claim<'_>> for claim::Claim {
    fn from(claim: Claim<'_>) -> Self {
        use claim::ClaimState as Engine;
        let state = match claim.state {
            ClaimState::Active(record) => Engine::Active(record.into()),
            ClaimState::Creating(hold, record) => Engine::Creating(hold.into(), record.into()),
            ClaimState::Destroying(hold, record) => Engine::Destroying(hold.into(), record.into()),
            ClaimState::Replacing(hold, both) => {
                let both = claim::Replacement { old: both.old.into(), new: both.new.into() };
                Engine::Replacing(hold.into(), Box::new(both))
            }
        };
        Self { owner: CellId(claim.owner), state }
    }
}

impl From<RestingClaim<'_>> for claim::Claim {
    fn from(claim: RestingClaim<'_>) -> Self {
        Self { owner: CellId(claim.owner), state: claim::ClaimState::Active(claim.record.into()) }
    }
}

impl<'a> From<&'a lease::IdempotencyKey> for IdempotencyKey<'a> {
    fn from(key: &'a lease::IdempotencyKey) -> Self {
        Self { cell: key.cell.0, key: Cow::Borrowed(&key.key) }
    }
}

impl From<IdempotencyKey<'_>> for lease::IdempotencyKey {
    fn from(key: IdempotencyKey<'_>) -> Self {
        Self { cell: CellId(key.cell), key: key.key.into() }
    }
}

impl From<lease::Outcome> for Outcome {
    fn from(outcome: lease::Outcome) -> Self {
        match outcome {
            lease::Outcome::Committed => Self::Committed,
            lease::Outcome::RolledBack => Self::RolledBack,
        }
    }
}

impl From<Outcome> for lease::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Committed => Self::Committed,
            Outcome::RolledBack => Self::RolledBack,
        }
    }
}

impl<'a> From<&'a lease::Lease> for Lease<'a> {
    fn from(lease: &'a lease::Lease) -> Self {
        let keys = |keys: &'a [BucketKey]| keys.iter().map(Into::into).collect();
        let state = match (&lease.state, lease.organization.map(Organization)) {
            (lease::LeaseState::Outstanding(claims), None) => LeaseState::Outstanding(keys(claims)),
            (lease::LeaseState::Settled(outcome), None) => LeaseState::Settled((*outcome).into()),
            (lease::LeaseState::Outstanding(claims), Some(organization_id)) => {
                LeaseState::OutstandingForOrganization { organization_id, claims: keys(claims) }
            }
            (lease::LeaseState::Settled(outcome), Some(organization_id)) => {
                LeaseState::SettledForOrganization { organization_id, outcome: (*outcome).into() }
            }
        };
        Self {
            cell: lease.cell.0,
            fence: lease.fence.0,
            created_at: lease.created_at.as_micros(),
            updated_at: lease.updated_at.as_micros(),
            idempotency_key: lease.idempotency_key.as_ref().map(Into::into),
            state,
        }
    }
}

impl From<Lease<'_>> for lease::Lease {
    fn from(lease: Lease<'_>) -> Self {
        use lease::LeaseState as Engine;
        let keys = |keys: Vec<Key<'_>>| keys.into_iter().map(Into::into).collect();
        let (state, organization) = match lease.state {
            LeaseState::Outstanding(claims) => (Engine::Outstanding(keys(claims)), None),
            LeaseState::Settled(outcome) => (Engine::Settled(outcome.into()), None),
            LeaseState::OutstandingForOrganization { organization_id, claims } => {
                (Engine::Outstanding(keys(claims)), Some(organization_id.0))
            }
            LeaseState::SettledForOrganization { organization_id, outcome } => {
                (Engine::Settled(outcome.into()), Some(organization_id.0))
            }
        };
        Self {
            cell: CellId(lease.cell),
            fence: Fence(lease.fence),
            created_at: micros(lease.created_at),
            updated_at: micros(lease.updated_at),
            idempotency_key: lease.idempotency_key.map(Into::into),
            organization,
            state,
        }
    }
}

impl<'a> From<&'a fingerprint::Fingerprint> for Fingerprint<'a> {
    fn from(fingerprint: &'a fingerprint::Fingerprint) -> Self {
        let (creates, destroys) = fingerprint.hashes();
        Self { creates: Cow::Borrowed(creates), destroys: Cow::Borrowed(destroys) }
    }
}

impl From<Fingerprint<'_>> for fingerprint::Fingerprint {
    fn from(fingerprint: Fingerprint<'_>) -> Self {
        Self::from_hashes(fingerprint.creates.into_owned(), fingerprint.destroys.into_owned())
    }
}

impl<'a> From<&'a lease::Replay> for Replay<'a> {
    fn from(replay: &'a lease::Replay) -> Self {
        Self { lease: replay.lease.0, fence: replay.fence.0, fingerprint: (&replay.fingerprint).into() }
    }
}

impl From<Replay<'_>> for lease::Replay {
    fn from(replay: Replay<'_>) -> Self {
        Self { lease: LeaseId(replay.lease), fence: Fence(replay.fence), fingerprint: replay.fingerprint.into() }
    }
}

impl<'a> From<&'a catalogue::BucketRule> for BucketRule<'a> {
    fn from(rule: &'a catalogue::BucketRule) -> Self {
        use catalogue::Form as Engine;
        let form = match rule.form {
            Engine::Decimal => Form::Decimal,
            Engine::Word => Form::Word,
            Engine::Email => Form::Email,
            Engine::Line => Form::Line,
            Engine::Block => Form::Block,
            Engine::Domain => Form::Domain,
            Engine::Address => Form::Address,
            Engine::Path => Form::Path,
            Engine::Fingerprint => Form::Fingerprint,
            Engine::PublicKey => Form::PublicKey,
            Engine::Armor => Form::Armor,
        };
        Self { number: rule.number.0, name: Cow::Borrowed(&rule.name), form, fold_case: rule.fold_case }
    }
}

impl From<BucketRule<'_>> for catalogue::BucketRule {
    fn from(rule: BucketRule<'_>) -> Self {
        use catalogue::Form as Engine;
        let form = match rule.form {
            Form::Decimal => Engine::Decimal,
            Form::Word => Engine::Word,
            Form::Email => Engine::Email,
            Form::Line => Engine::Line,
            Form::Block => Engine::Block,
            Form::Domain => Engine::Domain,
            Form::Address => Engine::Address,
            Form::Path => Engine::Path,
            Form::Fingerprint => Engine::Fingerprint,
            Form::PublicKey => Engine::PublicKey,
            Form::Armor => Engine::Armor,
        };
        let name = Cow::Owned(rule.name.into_owned());
        // The rule about confusable characters concerns creates only, so it is not stored.
        Self { number: BucketType(rule.number), name, form, fold_case: rule.fold_case, refuse_confusables: false }
    }
}

/// Returns the rules as JSON: the value of `bucket_types` in the keyspace `meta`, and the rows of
/// the table `bucket_types`.
///
/// # Errors
/// The JSON library failed. These types give it no reason to.
pub(super) fn bucket_rules_to_json(rules: &[catalogue::BucketRule]) -> serde_json::Result<String> {
    serde_json::to_string(&rules.iter().map(BucketRule::from).collect::<Vec<_>>())
}

/// Reads rules in the JSON form that [`bucket_rules_to_json`] writes.
///
/// # Errors
/// The text is not a list of rules in this form.
pub(super) fn bucket_rules_from_json(json: &[u8]) -> serde_json::Result<Vec<catalogue::BucketRule>> {
    let rules: Vec<BucketRule<'_>> = serde_json::from_slice(json)?;
    Ok(rules.into_iter().map(Into::into).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const LEASE: Uuid = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001);

    fn record(spelling: &'static str) -> Record<'static> {
        Record {
            uuid: Uuid::from_u128(0x0192_0000_0000_8000_8000_0000_0000_0002),
            spelling: spelling.into(),
            subject: Subject { subject_type: 4, id: 7 },
            source: Source { source_type: 1, id: Bytes(Cow::Borrowed(&[0, 7])) },
            user_data: Some(UserData { type_url: "t".into(), value: Bytes(Cow::Borrowed(&[0, 0xff])) }),
            created_at: 1_700_000_000_000_000,
            updated_at: 1_700_000_000_000_001,
        }
    }

    fn hold() -> Hold {
        Hold { lease: LEASE, since: 1_700_000_000_000_000 }
    }

    fn key() -> Key<'static> {
        Key { bucket_type: 4, canonical: "alice".into() }
    }

    fn lease(state: LeaseState<'static>) -> Lease<'static> {
        let idempotency_key = Some(IdempotencyKey { cell: 1, key: "k".into() });
        Lease { cell: 1, fence: 300, created_at: 1_700_000_000_000_000, updated_at: 1, idempotency_key, state }
    }

    /// Returns an outstanding and a settled lease for an organization.
    fn leases_for_an_organization() -> [Lease<'static>; 2] {
        let organization_id = Organization::try_from(300).unwrap();
        [
            lease(LeaseState::OutstandingForOrganization { organization_id, claims: vec![key()] }),
            lease(LeaseState::SettledForOrganization { organization_id, outcome: Outcome::RolledBack }),
        ]
    }

    fn claims() -> Vec<Claim<'static>> {
        let bare = Record { user_data: None, ..record("alice") };
        let both = Box::new(Replacement { old: bare.clone(), new: record("Alice") });
        let states = [
            ClaimState::Active(bare.clone()),
            ClaimState::Creating(hold(), bare.clone()),
            ClaimState::Destroying(hold(), bare),
            ClaimState::Replacing(hold(), both),
        ];
        states.into_iter().map(|state| Claim { owner: 2, state }).collect()
    }

    fn replay() -> Replay<'static> {
        let fingerprint = Fingerprint { creates: vec![[1, 2, 3, u64::MAX]].into(), destroys: vec![].into() };
        Replay { lease: LEASE, fence: 300, fingerprint }
    }

    /// Returns a value in the stored binary form, as hexadecimal text.
    fn binary(value: &impl Serialize) -> String {
        postcard::to_stdvec(value).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Asserts that a value is written as these bytes, and is read back from them.
    #[track_caller]
    fn golden<'a, T>(value: &T, bytes: &str, buffer: &'a mut Vec<u8>)
    where
        T: Serialize + Deserialize<'a> + PartialEq + fmt::Debug,
    {
        assert_eq!(binary(value), bytes);
        *buffer = from_hexadecimal(bytes).unwrap();
        assert_eq!(postcard::from_bytes::<T>(buffer).unwrap(), *value);
    }

    #[track_caller]
    fn golden_json<'a, T>(value: &T, json: &'a str)
    where
        T: Serialize + Deserialize<'a> + PartialEq + fmt::Debug,
    {
        assert_eq!(serde_json::to_string(value).unwrap(), json);
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), *value);
    }

    #[test]
    fn the_bytes_of_version_1_stay() {
        let resting = RestingClaim { owner: 2, record: record("Alice") };
        golden(
            &resting,
            concat!(
                "04100192000000008000800000000000000205416c696365080e020200070101740200ff8080f9c0c1c482038180",
                "f9c0c1c48203",
            ),
            &mut Vec::new(),
        );
        let outstanding = lease(LeaseState::Outstanding(vec![key()]));
        let claims = claims().into_iter().map(|claim| (key(), claim)).collect();
        golden(
            &OutstandingLease { lease: outstanding, claims },
            concat!(
                "02ac028080f9c0c1c48203010102016b00010805616c696365040805616c69636504001001920000000080008000",
                "00000000000205616c696365080e02020007008080f9c0c1c482038180f9c0c1c482030805616c69636504011001",
                "9200000000700080000000000000018080f9c0c1c48203100192000000008000800000000000000205616c696365",
                "080e02020007008080f9c0c1c482038180f9c0c1c482030805616c69636504021001920000000070008000000000",
                "0000018080f9c0c1c48203100192000000008000800000000000000205616c696365080e02020007008080f9c0c1",
                "c482038180f9c0c1c482030805616c696365040310019200000000700080000000000000018080f9c0c1c4820310",
                "0192000000008000800000000000000205616c696365080e02020007008080f9c0c1c482038180f9c0c1c4820310",
                "0192000000008000800000000000000205416c696365080e020200070101740200ff8080f9c0c1c482038180f9c0",
                "c1c48203",
            ),
            &mut Vec::new(),
        );
        golden(
            &lease(LeaseState::Settled(Outcome::Committed)),
            "02ac028080f9c0c1c48203010102016b0100",
            &mut Vec::new(),
        );
        golden(
            &lease(LeaseState::Settled(Outcome::RolledBack)),
            "02ac028080f9c0c1c48203010102016b0101",
            &mut Vec::new(),
        );
        golden(&IdempotencyKey { cell: 1, key: "k".into() }, "02016b", &mut Vec::new());
        golden(&replay(), "1001920000000070008000000000000001ac0201010203ffffffffffffffffff0100", &mut Vec::new());
    }

    #[test]
    fn the_bytes_of_version_2_stay() {
        let [outstanding, settled] = leases_for_an_organization();
        golden(
            &OutstandingLease { lease: outstanding, claims: vec![] },
            "02ac028080f9c0c1c48203010102016b02d804010805616c69636500",
            &mut Vec::new(),
        );
        golden(&settled, "02ac028080f9c0c1c48203010102016b03d80401", &mut Vec::new());
    }

    #[test]
    fn the_json_of_version_2_stays() {
        let [outstanding, settled] = leases_for_an_organization();
        golden_json(
            &outstanding,
            concat!(
                r#"{"cell":1,"fence":300,"created_at":1700000000000000,"updated_at":1,"idempotency_key":{"c"#,
                r#"ell":1,"key":"k"},"state":{"OutstandingForOrganization":{"organization_id":300,"claims":"#,
                r#"[{"bucket_type":4,"canonical":"alice"}]}}}"#,
            ),
        );
        golden_json(
            &settled,
            concat!(
                r#"{"cell":1,"fence":300,"created_at":1700000000000000,"updated_at":1,"idempotency_key":{"c"#,
                r#"ell":1,"key":"k"},"state":{"SettledForOrganization":{"organization_id":300,"outcome":"Ro"#,
                r#"lledBack"}}}"#,
            ),
        );
    }

    #[test]
    fn a_lease_for_an_organization_below_1_is_not_read() {
        let [_, settled] = leases_for_an_organization();
        let json = serde_json::to_string(&settled).unwrap();
        for id in ["0", "-1"] {
            let json = json.replace(r#""organization_id":300"#, &format!(r#""organization_id":{id}"#));
            let error = serde_json::from_str::<Lease<'_>>(&json).unwrap_err().to_string();
            assert!(error.starts_with(&format!("organization {id} is not 1 or more")), "{error}");
        }
    }

    #[test]
    fn the_json_of_version_1_stays() {
        golden_json(
            &record("Ali\"ce"),
            concat!(
                r#"{"uuid":"01920000-0000-8000-8000-000000000002","spelling":"Ali\"ce","subject":{"subject_"#,
                r#"type":4,"id":7},"source":{"source_type":1,"id":"0007"},"user_data":{"type_url":"t","valu"#,
                r#"e":"00ff"},"created_at":1700000000000000,"updated_at":1700000000000001}"#,
            ),
        );
        golden_json(
            &claims().remove(3),
            concat!(
                r#"{"owner":2,"state":{"Replacing":[{"lease":"01920000-0000-7000-8000-000000000001","since""#,
                r#":1700000000000000},{"old":{"uuid":"01920000-0000-8000-8000-000000000002","spelling":"ali"#,
                r#"ce","subject":{"subject_type":4,"id":7},"source":{"source_type":1,"id":"0007"},"user_dat"#,
                r#"a":null,"created_at":1700000000000000,"updated_at":1700000000000001},"new":{"uuid":"0192"#,
                r#"0000-0000-8000-8000-000000000002","spelling":"Alice","subject":{"subject_type":4,"id":7}"#,
                r#","source":{"source_type":1,"id":"0007"},"user_data":{"type_url":"t","value":"00ff"},"cre"#,
                r#"ated_at":1700000000000000,"updated_at":1700000000000001}}]}}"#,
            ),
        );
        golden_json(
            &lease(LeaseState::Outstanding(vec![key()])),
            concat!(
                r#"{"cell":1,"fence":300,"created_at":1700000000000000,"updated_at":1,"idempotency_key":{"c"#,
                r#"ell":1,"key":"k"},"state":{"Outstanding":[{"bucket_type":4,"canonical":"alice"}]}}"#,
            ),
        );
        golden_json(
            &replay(),
            concat!(
                r#"{"lease":"01920000-0000-7000-8000-000000000001","fence":300,"fingerprint":{"creates":[[1"#,
                r#",2,3,18446744073709551615]],"destroys":[]}}"#,
            ),
        );
        let rule = BucketRule { number: 100, name: "TEAMS".into(), form: Form::Word, fold_case: true };
        let rules = bucket_rules_to_json(&[rule.clone().into()]).unwrap();
        assert_eq!(rules, r#"[{"number":100,"name":"TEAMS","form":"word","fold_case":true}]"#);
        assert_eq!(bucket_rules_from_json(rules.as_bytes()).unwrap(), [rule.into()]);
    }

    #[test]
    fn the_engines_values_come_back_as_they_were() {
        for claim in claims() {
            let engine: claim::Claim = claim.clone().into();
            assert_eq!(Claim::from(&engine), claim);
        }
        let states = [LeaseState::Outstanding(vec![key()]), LeaseState::Settled(Outcome::RolledBack)];
        for stored in states.map(lease).into_iter().chain(leases_for_an_organization()) {
            let engine: lease::Lease = stored.clone().into();
            assert_eq!(Lease::from(&engine), stored);
        }
        let engine: lease::Replay = replay().into();
        assert_eq!(Replay::from(&engine), replay());
    }
}
