//! The fingerprint of an update: enough to tell a retry from another update under the same
//! idempotency key (B09).

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The hashed fields of one claim, one 64-bit hash for each of bucket, subject, source and user
/// data.
pub type ClaimFingerprint = [u64; 4];

const FIELDS: [&str; 4] = ["bucket", "subject", "source", "user_data"];

/// An update reduced to one 64-bit hash (XXH3) per field of each claim. The hashes name the first
/// field that differs without keeping the body. Made by
/// [`UpdateRequest::fingerprint`](crate::batch::UpdateRequest::fingerprint).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    pub(crate) creates: Vec<ClaimFingerprint>,
    pub(crate) destroys: Vec<ClaimFingerprint>,
}

impl Fingerprint {
    /// The hashes of the creates and of the destroys, for a store to write.
    pub fn hashes(&self) -> (&[ClaimFingerprint], &[ClaimFingerprint]) {
        (&self.creates, &self.destroys)
    }

    /// The fingerprint of hashes that a store has read.
    pub fn from_hashes(creates: Vec<ClaimFingerprint>, destroys: Vec<ClaimFingerprint>) -> Self {
        Self { creates, destroys }
    }

    /// The path of the first field in which `other` differs, as the wire names it; `None` if the
    /// updates are the same.
    pub fn difference(&self, other: &Self) -> Option<String> {
        list_difference("create_records", &self.creates, &other.creates)
            .or_else(|| list_difference("destroy_records", &self.destroys, &other.destroys))
    }
}

fn list_difference(list: &str, one: &[ClaimFingerprint], other: &[ClaimFingerprint]) -> Option<String> {
    for (position, (a, b)) in one.iter().zip(other).enumerate() {
        let mut fields = FIELDS.iter().zip(a.iter().zip(b));
        if let Some((field, _)) = fields.find(|(_, (a, b))| a != b) {
            return Some(format!("{list}[{position}].{field}"));
        }
    }
    (one.len() != other.len()).then(|| format!("the number of {list}"))
}

/// The hash of a field's two parts. The first part is hashed behind its length: without the length,
/// `("a", "bc")` and `("ab", "c")` would have one hash.
pub(crate) fn hash([first, second]: [&[u8]; 2]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&(first.len() as u64).to_be_bytes());
    hasher.update(first);
    hasher.update(second);
    hasher.digest()
}
