//! The name of a thing that must be unique: a bucket type and a value.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A bucket type's number on the wire (`4` is `USERNAMES`). A number that the catalogue lacks is kept as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BucketType(pub i32);

/// What uniqueness is decided by: the type and the canonical form of the value (B12).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketKey {
    /// The type, first in the order of keys.
    pub bucket_type: BucketType,
    /// The value's canonical form, as [`Catalogue::bucket`](crate::catalogue::Catalogue::bucket) computes it.
    pub canonical: Arc<str>,
}

/// A checked bucket: its key, and the spelling as given, which is kept and returned (B12).
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
