//! A bucket: a type and a value that must be unique across all cells.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A bucket type's number on the wire: `4` is `USERNAMES`. The number may be one that the catalogue
/// lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BucketType(pub i32);

/// The key by which uniqueness is decided: the type and the canonical form of the value (B12).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketKey {
    /// The type. Keys are ordered by type first.
    pub bucket_type: BucketType,
    /// The value's canonical form, as [`Catalogue::bucket`](crate::catalogue::Catalogue::bucket)
    /// computes it.
    pub canonical: Arc<str>,
}

impl BucketKey {
    /// The key before all others: where an ordered read begins.
    pub(crate) fn first() -> Self {
        Self { bucket_type: BucketType(i32::MIN), canonical: "".into() }
    }
}

/// A checked bucket: its key and the caller's spelling, which is kept and returned (B12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The key.
    pub key: BucketKey,
    /// The value as the caller spelled it.
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
