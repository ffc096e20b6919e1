//! Calls that the engine answers at once, without I/O.

use leasehold_core::batch::{Batch, ClaimRequest, MAX_SOURCE_ID_BYTES, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::Catalogue;
use leasehold_core::claim::{Source, SourceId, Subject};
use leasehold_core::rejection::Reason;
use serde::{Deserialize, Serialize};

use crate::error::DetailedError;

/// A call of the engine by a language package.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// Computes the canonical form of a value. Two values are the same name if their canonical
    /// forms are equal (B12).
    CanonicalForm {
        /// The bucket type's number on the wire.
        bucket_type: i32,
        /// The value as a person spelled it.
        value: String,
    },
    /// Checks an update by every rule that needs no stored data (B07, B11, B12, B14).
    CheckBatch {
        /// The claims to create.
        creates: Vec<ClaimInput>,
        /// The claims to destroy.
        destroys: Vec<ClaimInput>,
    },
    /// Encodes the primary key of a row as the source id of a claim.
    EncodeSourceId {
        /// The primary key.
        key: SourceKey,
    },
}

/// One claim of an update that [`Call::CheckBatch`] checks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimInput {
    /// The bucket type's number on the wire.
    pub bucket_type: i32,
    /// The value as a person spelled it.
    pub bucket_value: String,
    /// The subject of the claim; a create needs one.
    pub subject: Option<Subject>,
    /// The row that the claim comes from; a create needs one.
    pub source: Option<Source>,
}

/// The primary key of a row, as a value of the language.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKey {
    /// The key is an integer of at least 0.
    Integer(i64),
    /// The key is a text. A UUID in the 36-character form is encoded as its 16 bytes.
    Text(String),
}

/// The engine's answer to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutput {
    /// The answer to [`Call::CanonicalForm`]: the canonical form.
    CanonicalForm(String),
    /// The answer to [`Call::CheckBatch`]: the update is valid. Only stored claims can still be a
    /// reason to refuse it.
    BatchIsValid,
    /// The answer to [`Call::EncodeSourceId`]: the encoded source id.
    SourceId(SourceId),
}

/// Calls the engine with the bucket types of `catalogue`, and returns its answer.
///
/// # Errors
/// The engine refuses the input. The error's code is the code of the reason.
pub fn call(call: Call, catalogue: &Catalogue) -> Result<CallOutput, DetailedError> {
    match call {
        Call::CanonicalForm { bucket_type, value } => {
            let bucket = catalogue.bucket(BucketType(bucket_type), value.into())?;
            Ok(CallOutput::CanonicalForm(bucket.key.canonical.to_string()))
        }
        Call::CheckBatch { creates, destroys } => {
            let requests = |claims: Vec<ClaimInput>| claims.into_iter().map(ClaimRequest::from).collect();
            Batch::parse(UpdateRequest { creates: requests(creates), destroys: requests(destroys) }, catalogue)?;
            Ok(CallOutput::BatchIsValid)
        }
        Call::EncodeSourceId { key } => encode(key).map(CallOutput::SourceId),
    }
}

impl From<ClaimInput> for ClaimRequest {
    fn from(claim: ClaimInput) -> Self {
        Self {
            bucket_type: BucketType(claim.bucket_type),
            value: claim.bucket_value.into(),
            subject: claim.subject,
            source: claim.source,
            user_data: None,
        }
    }
}

fn encode(key: SourceKey) -> Result<SourceId, DetailedError> {
    let id = match key {
        SourceKey::Integer(key) => SourceId::from_integer(key).ok_or("an integer key must be at least 0"),
        SourceKey::Text(key) => Ok(SourceId::from_text(&key)),
    };
    let id = id.map_err(|what| DetailedError::new(Reason::InvalidUpdate.code(), what))?;
    match id.as_bytes().len() {
        0 => Err(DetailedError::new(Reason::InvalidUpdate.code(), "the key is empty: use a non-empty key")),
        bytes if bytes > MAX_SOURCE_ID_BYTES => {
            let message = format!("`source_id_bytes` is {bytes}, at most {MAX_SOURCE_ID_BYTES} is allowed");
            Err(DetailedError::new(Reason::LimitExceeded.code(), message))
        }
        _ => Ok(id),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn call_json(text: &str) -> String {
        let output = call(serde_json::from_str(text).unwrap(), &Catalogue::default());
        match output {
            Ok(output) => serde_json::to_string(&output),
            Err(error) => serde_json::to_string(&error.code),
        }
        .unwrap()
    }

    #[test]
    fn b12_canonical_forms_and_refusals_are_returned_by_calls() {
        let canonical =
            |value: &str| call_json(&format!(r#"{{"call":"canonical_form","bucket_type":4,"value":"{value}"}}"#));
        assert_eq!(canonical("Alice"), r#"{"canonical_form":"alice"}"#);
        assert_eq!(canonical("two words"), r#""VALUE_NOT_ALLOWED""#);
        assert_eq!(call_json(r#"{"call":"canonical_form","bucket_type":99,"value":"x"}"#), r#""INVALID_UPDATE""#);
    }

    #[test]
    fn b10_an_invalid_batch_lists_every_refused_claim() {
        let claim = |value: &str| ClaimInput {
            bucket_type: 4,
            bucket_value: value.into(),
            subject: Some(Subject { subject_type: 4, id: 7 }),
            source: Some(Source { source_type: leasehold_core::claim::SourceType(1), id: SourceId::from(7) }),
        };
        let check = |creates, destroys| call(Call::CheckBatch { creates, destroys }, &Catalogue::default());
        assert_eq!(check(vec![claim("a")], vec![claim("A")]), Ok(CallOutput::BatchIsValid));
        let error = check(vec![claim("a"), claim("a b"), claim("A")], vec![claim(" ")]).unwrap_err();
        assert_eq!(error.code, "INVALID_UPDATE");
        let details: Vec<_> = error.details.iter().map(|d| (d.list, d.position, d.bucket_type, d.code)).collect();
        let expected = [
            ("creates", 1, 4, "VALUE_NOT_ALLOWED"),
            ("creates", 2, 4, "INVALID_UPDATE"),
            ("destroys", 0, 4, "VALUE_NOT_ALLOWED"),
        ];
        assert_eq!(details, expected);
        assert!(!format!("{error:?}").contains("a b"), "an error shows no value");
        assert_eq!(check(vec![], vec![]).unwrap_err().details, []);
    }

    #[test]
    fn source_ids_are_bytes_in_the_order_of_their_keys() {
        let encode = |key: &str| call_json(&format!(r#"{{"call":"encode_source_id","key":{key}}}"#));
        assert_eq!(encode(r#"{"integer":258}"#), r#"{"source_id":"0000000000000102"}"#);
        assert_eq!(encode(r#"{"integer":-1}"#), r#""INVALID_UPDATE""#);
        assert_eq!(encode(r#"{"text":"ab"}"#), r#"{"source_id":"6162"}"#);
        let uuid = r#"{"text":"01a1fefb-0383-7360-95c3-3b4e0d5dfab0"}"#;
        assert_eq!(encode(uuid), r#"{"source_id":"01a1fefb0383736095c33b4e0d5dfab0"}"#);
        let bare = encode(r#"{"text":"01a1fefb0383736095c33b4e0d5dfab0"}"#);
        assert_eq!(bare.len(), r#"{"source_id":""}"#.len() + 64, "no other form of a uuid is one");
        assert_eq!(encode(r#"{"text":""}"#), r#""INVALID_UPDATE""#);
        assert_eq!(encode(&format!(r#"{{"text":"{}"}}"#, "x".repeat(129))), r#""LIMIT_EXCEEDED""#);
    }
}
