//! Conversion of single values between Rust and JavaScript objects, by serde-wasm-bindgen.
//!
//! There are too many rows and records to make an object for each, so `columns.rs` reads them from
//! typed arrays.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_wasm_bindgen::Serializer;
use wasm_bindgen::JsValue;

use crate::error::Exception;

/// Writes every integer of 64 bits as a `bigint`, even a small one, so that a property always has
/// one type.
pub(super) const BIGINT_SERIALIZER: Serializer = Serializer::new().serialize_large_number_types_as_bigints(true);

/// Writes integers of 64 bits as `number`. An integer above 2^53 - 1 is an error; the counts of a
/// run stay below.
const NUMBER_SERIALIZER: Serializer = Serializer::new();

/// Converts a JavaScript value to Rust.
///
/// # Errors
/// The value does not have the form of its TypeScript type.
pub(super) fn from_js<T: DeserializeOwned>(value: JsValue) -> Result<T, Exception> {
    serde_wasm_bindgen::from_value(value).map_err(Exception::invalid_argument)
}

/// Converts a value of Rust to JavaScript, with 64-bit integers as `bigint`.
///
/// # Errors
/// JavaScript has no form for the value. Every type of this crate has one.
pub(super) fn to_js(value: &impl Serialize) -> Result<JsValue, Exception> {
    value.serialize(&BIGINT_SERIALIZER).map_err(Exception::invalid_argument)
}

/// Converts an object of counts to JavaScript, with 64-bit integers as `number`.
///
/// # Errors
/// A count exceeds 2^53 - 1.
pub(super) fn counts_to_js(value: &impl Serialize) -> Result<JsValue, Exception> {
    value.serialize(&NUMBER_SERIALIZER).map_err(Exception::invalid_argument)
}
