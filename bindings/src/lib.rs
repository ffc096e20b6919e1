//! The engine's face for other languages: a [`Call`] goes in, an [`Answer`] or a [`DetailedError`] comes out, all of them
//! plain serde values. A language package converts values and maps codes to its own exceptions; it holds no rule.

use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::Catalogue;
use serde::{Deserialize, Serialize};

/// What a language package asks the engine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// The form of a value that decides whether two are the same (B12).
    CanonicalForm {
        /// The bucket type's number on the wire.
        bucket_type: i32,
        /// The value as a person gave it.
        value: String,
    },
}

/// What the engine answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// See [`Call::CanonicalForm`].
    CanonicalForm(String),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DetailedError {
    /// The reason, as on the wire; languages choose the exception by it.
    pub code: &'static str,
    /// What is wrong, for people.
    pub message: String,
}

/// Asks the engine.
///
/// # Errors
/// The engine refuses; the code says why.
pub fn call(call: Call, catalogue: &Catalogue) -> Result<Answer, DetailedError> {
    match call {
        Call::CanonicalForm { bucket_type, value } => {
            let bucket = catalogue.bucket(BucketType(bucket_type), value.into());
            let bucket = bucket.map_err(|refused| DetailedError {
                code: refused.reason.code(),
                message: refused.detail.to_string(),
            })?;
            Ok(Answer::CanonicalForm(bucket.key.canonical.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn ask(text: &str) -> String {
        let answer = call(serde_json::from_str(text).unwrap(), &Catalogue::default());
        match answer {
            Ok(answer) => serde_json::to_string(&answer),
            Err(error) => serde_json::to_string(&error.code),
        }
        .unwrap()
    }

    #[test]
    fn b12_canonical_forms_and_refusals_cross_the_border() {
        let canonical = |value: &str| ask(&format!(r#"{{"call":"canonical_form","bucket_type":4,"value":"{value}"}}"#));
        assert_eq!(canonical("Alice"), r#"{"canonical_form":"alice"}"#);
        assert_eq!(canonical("two words"), r#""VALUE_NOT_ALLOWED""#);
        assert_eq!(ask(r#"{"call":"canonical_form","bucket_type":99,"value":"x"}"#), r#""INVALID_UPDATE""#);
    }
}
