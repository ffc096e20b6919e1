//! The comparison of stored rows with the exact bytes and JSON of their version, for tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Asserts that a value is written as these bytes and this JSON, and is read back from both.
#[track_caller]
pub(super) fn golden<E, S>(engine: &E, bytes: &str, json: &str)
where
    E: PartialEq + Debug + From<S>,
    S: Serialize + DeserializeOwned + for<'a> From<&'a E>,
{
    let encoded = postcard::to_stdvec(&S::from(engine)).unwrap();
    let hexadecimal: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((hexadecimal.as_str(), serde_json::to_string(&S::from(engine)).unwrap().as_str()), (bytes, json));
    assert_eq!(E::from(postcard::from_bytes(&encoded).unwrap()), *engine);
    assert_eq!(E::from(serde_json::from_str(json).unwrap()), *engine);
}
