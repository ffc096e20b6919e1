//! A bucket: a type and a value that must be unique across all cells.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The number of a bucket type on the wire, for example 4 for `USERNAMES`. The catalogue may lack
/// the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BucketType(pub i32);

/// The key of a bucket: the type and the canonical form of the value. Two buckets are the same if
/// their keys are equal (B12).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketKey {
    /// The bucket's type. Keys are ordered by type first.
    pub bucket_type: BucketType,
    /// The canonical form of the bucket's value, as
    /// [`Catalogue::bucket`](crate::catalogue::Catalogue::bucket) computes it.
    pub canonical: Arc<str>,
}

impl BucketKey {
    /// Returns the smallest key, from which an ordered read begins.
    pub fn first() -> Self {
        Self { bucket_type: BucketType(i32::MIN), canonical: "".into() }
    }
}

/// A checked bucket: its key and the caller's spelling of the value, which is kept and returned
/// (B12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The bucket's key.
    pub key: BucketKey,
    /// The bucket's value as the caller spelled it.
    pub spelling: Arc<str>,
}

impl fmt::Display for BucketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for BucketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.bucket_type, self.canonical.escape_debug())
    }
}
