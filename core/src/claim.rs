//! A claim: the row that says which cell owns a bucket.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use uuid::Uuid;

use crate::cell::CellId;
use crate::lease::{LeaseId, Outcome};
use crate::time::Timestamp;

/// The user, project or other object that uses a bucket: a kind (the wire's `Subject.Type`) and an
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The number of the subject's kind on the wire: 1 or more.
    pub subject_type: i32,
    /// The id of the subject within its kind: 1 or more.
    pub id: i64,
}

/// The number of a table that claims come from: the wire's `Source.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceType(pub i32);

/// The primary key of a source row as bytes. Within one table, the order of the bytes is the order
/// of the keys. No row has the empty key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(SmallVec<[u8; 16]>);

impl SourceId {
    /// Makes a source id from the bytes of a key: 8 big-endian bytes for an integer, 16 bytes for a
    /// UUID, the UTF-8 bytes for a text.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// Returns the source id of an integer key, `None` for a negative key: the bytes of negative
    /// keys would not be in the order of the keys.
    pub fn from_integer(key: i64) -> Option<Self> {
        u64::try_from(key).ok().map(Self::from)
    }

    /// Returns the source id of a text key: 16 bytes for a UUID of 36 characters, the UTF-8 bytes
    /// for any other text.
    pub fn from_text(key: &str) -> Self {
        let hyphenated = key.len() == uuid::fmt::Hyphenated::LENGTH;
        match Uuid::try_parse(key) {
            Ok(uuid) if hyphenated => Self::from_bytes(uuid.as_bytes()),
            _ => Self::from_bytes(key.as_bytes()),
        }
    }

    /// Returns the bytes of the source id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the source id is empty. In a query, an empty source id sets no bound; in a
    /// claim it is invalid.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<u64> for SourceId {
    fn from(id: u64) -> Self {
        Self::from_bytes(&id.to_be_bytes())
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

fn write_hex(f: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn read_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// Serialization of bytes: as hexadecimal text in human-readable formats, as bytes in binary
/// formats.
mod bytes_or_hex {
    use super::{Deserialize, Deserializer, Serializer, read_hex, write_hex};
    use serde::de::Error;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return to.serialize_bytes(bytes);
        }
        let mut text = String::with_capacity(bytes.len() * 2);
        write_hex(&mut text, bytes).map_err(serde::ser::Error::custom)?;
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        if !from.is_human_readable() {
            return Vec::<u8>::deserialize(from);
        }
        let text = String::deserialize(from)?;
        read_hex(&text).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

impl Serialize for SourceId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        bytes_or_hex::serialize(&self.0, to)
    }
}

impl<'de> Deserialize<'de> for SourceId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        bytes_or_hex::deserialize(from).map(|bytes| Self::from_bytes(&bytes))
    }
}

/// The table row that a claim comes from: table and primary key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The table of the source row.
    pub source_type: SourceType,
    /// The primary key of the source row.
    pub id: SourceId,
}

/// Data that a cell attaches to a claim and gets back unchanged: the wire's `google.protobuf.Any`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserData {
    /// The URL that names the type of the attached data.
    pub type_url: String,
    /// The attached data, as the cell encoded them. The engine stores these bytes and never decodes
    /// them.
    #[serde(with = "bytes_or_hex")]
    pub value: Vec<u8>,
}

/// The description of a claim: all its data except the owner and the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The record's uuid. It stays the same for as long as the cell keeps the bucket.
    pub uuid: Uuid,
    /// The bucket's value as the cell spelled it.
    pub spelling: Arc<str>,
    /// The user, project or other object that uses the bucket.
    pub subject: Subject,
    /// The table row that the claim comes from.
    pub source: Source,
    /// The data that the cell attached, `None` if it attached none.
    pub user_data: Option<Arc<UserData>>,
    /// The time of the begin that created the claim.
    pub created_at: Timestamp,
    /// The time of the record's last change: of the begin, then of the commit, of the update that
    /// made the record.
    pub updated_at: Timestamp,
}

/// The fact that a lease holds a claim: the lease and the time of its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The lease that holds the claim.
    pub lease: LeaseId,
    /// The time at which the lease was begun.
    pub since: Timestamp,
}

/// The state of a claim. An absent claim has no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimState {
    /// No lease holds the claim: it is at rest.
    Active(Record),
    /// A lease creates the claim. The claim is readable from the begin on, and a rollback removes
    /// it (B08).
    Creating(Hold, Record),
    /// A lease destroys the claim. The claim stays readable until the commit removes it (B08).
    Destroying(Hold, Record),
    /// A lease changes the claim's record while the cell keeps the bucket without a gap (B06). The
    /// replacement is boxed, since two records would double the size of every claim.
    Replacing(Hold, Box<Replacement>),
}

/// The two records of a claim whose record a lease changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The record before the replace. A rollback restores it, byte for byte.
    pub old: Record,
    /// The record that a commit keeps. It is readable from the begin on.
    pub new: Record,
}

/// The one claim of a bucket: its owner and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The cell that owns the claim's bucket.
    pub owner: CellId,
    /// The claim's state, with its record.
    pub state: ClaimState,
}

impl Claim {
    /// Returns the record that reads show: the new record while a lease replaces the record (B08).
    pub fn record(&self) -> &Record {
        match &self.state {
            ClaimState::Active(record) | ClaimState::Creating(_, record) | ClaimState::Destroying(_, record) => record,
            ClaimState::Replacing(_, both) => &both.new,
        }
    }

    /// Returns all records of the claim: one record, or the new and the old one while a lease
    /// replaces the record.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let replaced = match &self.state {
            ClaimState::Replacing(_, both) => Some(&both.old),
            ClaimState::Active(_) | ClaimState::Creating(_, _) | ClaimState::Destroying(_, _) => None,
        };
        std::iter::once(self.record()).chain(replaced)
    }

    /// Returns the lease that holds the claim and the time of its begin, `None` if the claim is at
    /// rest.
    pub fn hold(&self) -> Option<Hold> {
        match self.state {
            ClaimState::Active(_) => None,
            ClaimState::Creating(hold, _) | ClaimState::Destroying(hold, _) | ClaimState::Replacing(hold, _) => {
                Some(hold)
            }
        }
    }

    /// Returns the claim as it is after its lease is settled, `None` if the settle removes the
    /// claim (B20, B21).
    pub(crate) fn settled(&self, outcome: Outcome, now: Timestamp) -> Option<Self> {
        use ClaimState::{Active, Creating, Destroying, Replacing};
        use Outcome::{Committed, RolledBack};
        let rested = |record: &Record| Record { updated_at: now, ..record.clone() };
        let record = match (&self.state, outcome) {
            (Creating(_, record), Committed) => Some(rested(record)),
            (Destroying(_, _), Committed) | (Creating(_, _), RolledBack) => None,
            (Replacing(_, both), Committed) => Some(rested(&both.new)),
            (Replacing(_, both), RolledBack) => Some(both.old.clone()),
            (Destroying(_, record), RolledBack) | (Active(record), _) => Some(record.clone()),
        };
        record.map(|record| Self { owner: self.owner, state: Active(record) })
    }
}
