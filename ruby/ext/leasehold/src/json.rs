//! Converts settings, events and reports, which are few per run, to and from JSON text.

use magnus::{Error, Ruby};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors;

/// Parses JSON text from Ruby.
///
/// # Errors
/// Fails if the text has another form, which is a defect of the gem's Ruby code.
pub(crate) fn read<T: DeserializeOwned>(ruby: &Ruby, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| errors::internal(ruby, "INVALID_EVENT", &error.to_string()))
}

/// Writes JSON text for Ruby.
///
/// # Errors
/// Fails if the value has no JSON form. All types of this extension have one.
pub(crate) fn write(ruby: &Ruby, value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| errors::internal(ruby, "INVALID_EVENT", &error.to_string()))
}
