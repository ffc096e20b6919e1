//! The fingerprint of an update: hashes that tell a retry from another update under the same
//! idempotency key (B09).

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The hashes of one claim: one 64-bit hash for each of bucket, subject, source and user data.
pub type ClaimFingerprint = [u64; 4];

const FIELDS: [&str; 4] = ["bucket", "subject", "source", "user_data"];

/// The hashes of an update: one 64-bit hash (XXH3) for each field of each claim. A comparison of
/// two fingerprints finds the first field that differs, so the store need not keep the requests.
/// Made by [`UpdateRequest::fingerprint`](crate::batch::UpdateRequest::fingerprint).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    pub(crate) creates: Vec<ClaimFingerprint>,
    pub(crate) destroys: Vec<ClaimFingerprint>,
}

impl Fingerprint {
    /// Returns the hashes of the update's creates and those of its destroys, for a store to write.
    pub fn hashes(&self) -> (&[ClaimFingerprint], &[ClaimFingerprint]) {
        (&self.creates, &self.destroys)
    }

    /// Makes a fingerprint from the hashes of creates and destroys that a store has read.
    pub fn from_hashes(creates: Vec<ClaimFingerprint>, destroys: Vec<ClaimFingerprint>) -> Self {
        Self { creates, destroys }
    }

    /// Returns the path of the first field in which the update `other` differs from this one, as
    /// the wire names the field. Returns `None` if the updates are the same.
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

/// Returns the hash of a field that has two parts. The length of the first part is hashed before
/// the parts: without the length, `("a", "bc")` and `("ab", "c")` would have one hash.
pub(crate) fn hash([first, second]: [&[u8]; 2]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&(first.len() as u64).to_be_bytes());
    hasher.update(first);
    hasher.update(second);
    hasher.digest()
}
