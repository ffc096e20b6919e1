//! Values that are few cross the border as JSON text.

use magnus::{Error, Ruby};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors;

/// From Ruby.
///
/// # Errors
/// The text is not what was expected: a mistake of the gem's Ruby code.
pub(crate) fn read<T: DeserializeOwned>(ruby: &Ruby, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| errors::defect(ruby, "INVALID_EVENT", &error.to_string()))
}

/// To Ruby.
///
/// # Errors
/// The value has no form in JSON, which none of ours lacks.
pub(crate) fn write(ruby: &Ruby, value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| errors::defect(ruby, "INVALID_EVENT", &error.to_string()))
}
