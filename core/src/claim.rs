//! A claim: the tie between a bucket and the one cell that owns it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use uuid::Uuid;

use crate::cell::CellId;
use crate::lease::{LeaseId, Outcome};
use crate::time::Timestamp;

/// The holder of a bucket, a user for example: a kind (the wire's `Subject.Type`) and an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The kind's number on the wire: 1 or more.
    pub subject_type: i32,
    /// The id: 1 or more.
    pub id: i64,
}

/// The kind of table that a claim comes from: the wire's `Source.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceType(pub i32);

/// A row's primary key as bytes. Within one table, the order of the bytes is the order of the keys.
/// No row has the empty key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(SmallVec<[u8; 16]>);

impl SourceId {
    /// A source id of its bytes: 8 big-endian bytes for an integer, 16 for a UUID, the text's own
    /// for a string.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// The source id of an integer key. `None` for a negative key: its bytes would not be in the
    /// order of keys.
    pub fn from_integer(key: i64) -> Option<Self> {
        u64::try_from(key).ok().map(Self::from)
    }

    /// The source id of a text key: 16 bytes for a UUID of 36 characters, the text's own bytes for
    /// any other.
    pub fn from_text(key: &str) -> Self {
        let hyphenated = key.len() == uuid::fmt::Hyphenated::LENGTH;
        match Uuid::try_parse(key) {
            Ok(uuid) if hyphenated => Self::from_bytes(uuid.as_bytes()),
            _ => Self::from_bytes(key.as_bytes()),
        }
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the key is empty. The empty key is no bound in a query and invalid in a
    /// claim.
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

/// Bytes as hexadecimal text in formats that people read, and as bytes in others.
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

/// The table row that a claim comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The table.
    pub source_type: SourceType,
    /// The row's primary key.
    pub id: SourceId,
}

/// Data that a cell attaches to a claim and gets back unchanged: the wire's `google.protobuf.Any`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserData {
    /// The URL that names the type of the data.
    pub type_url: String,
    /// The data, as the cell encoded them. The engine stores these bytes and never decodes them.
    #[serde(with = "bytes_or_hex")]
    pub value: Vec<u8>,
}

/// The description of a claim: everything beside its owner and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The claim's uuid. It stays the same for as long as the cell keeps the bucket.
    pub uuid: Uuid,
    /// The value as the cell spelled it.
    pub spelling: Arc<str>,
    /// The holder of the bucket.
    pub subject: Subject,
    /// The row that the claim comes from.
    pub source: Source,
    /// The data that the cell attached.
    pub user_data: Option<Arc<UserData>>,
    /// The time of the claim's begin.
    pub created_at: Timestamp,
    /// The time of the record's last change: its begin, then its commit.
    pub updated_at: Timestamp,
}

/// A lease's hold on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The lease that holds the claim.
    pub lease: LeaseId,
    /// The time of the lease's begin.
    pub since: Timestamp,
}

/// A claim's state. An absent claim has no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimState {
    /// The claim is at rest: no lease holds it.
    Active(Record),
    /// The claim is readable from begin on, and a rollback removes it (B08).
    Creating(Hold, Record),
    /// The claim stays readable until a commit removes it (B08).
    Destroying(Hold, Record),
    /// The claim's record changes while the cell keeps the bucket without a gap (B06). Boxed, since
    /// two records would double the size of every claim.
    Replacing(Hold, Box<Replacement>),
}

/// The two records of a replace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The record that a rollback restores, byte for byte.
    pub old: Record,
    /// The record that a commit brings to rest. It is readable from begin on.
    pub new: Record,
}

/// The one claim of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The cell that owns the bucket.
    pub owner: CellId,
    /// The claim's state.
    pub state: ClaimState,
}

impl Claim {
    /// The record that reads show. For a replace it is the new one (B08).
    pub fn record(&self) -> &Record {
        match &self.state {
            ClaimState::Active(record) | ClaimState::Creating(_, record) | ClaimState::Destroying(_, record) => record,
            ClaimState::Replacing(_, both) => &both.new,
        }
    }

    /// All records of the claim. A replace has the new one and the old one.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let replaced = match &self.state {
            ClaimState::Replacing(_, both) => Some(&both.old),
            ClaimState::Active(_) | ClaimState::Creating(_, _) | ClaimState::Destroying(_, _) => None,
        };
        std::iter::once(self.record()).chain(replaced)
    }

    /// The lease's hold on the claim, `None` if the claim is at rest.
    pub fn hold(&self) -> Option<Hold> {
        match self.state {
            ClaimState::Active(_) => None,
            ClaimState::Creating(hold, _) | ClaimState::Destroying(hold, _) | ClaimState::Replacing(hold, _) => {
                Some(hold)
            }
        }
    }

    /// The claim after its lease is settled, `None` if the settle removes it (B20, B21).
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
