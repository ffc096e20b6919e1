//! Values that are few cross the border as JavaScript's own objects.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_wasm_bindgen::Serializer;
use wasm_bindgen::JsValue;

use crate::error::Thrown;

/// Integers of 64 bits as `bigint`, whatever their size.
pub(super) const SERIALIZER: Serializer = Serializer::new().serialize_large_number_types_as_bigints(true);

/// Of counts, which no run gets out of what a `number` holds.
const COUNTS: Serializer = Serializer::new();

/// From JavaScript.
///
/// # Errors
/// The value does not have the form that its type says.
pub(super) fn read<T: DeserializeOwned>(value: JsValue) -> Result<T, Thrown> {
    serde_wasm_bindgen::from_value(value).map_err(Thrown::invalid)
}

/// To JavaScript.
///
/// # Errors
/// The value has no form there, which none of ours lacks.
pub(super) fn write(value: &impl Serialize) -> Result<JsValue, Thrown> {
    value.serialize(&SERIALIZER).map_err(Thrown::invalid)
}

/// To JavaScript, with counts as `number`.
///
/// # Errors
/// See [`write`].
pub(super) fn write_counts(value: &impl Serialize) -> Result<JsValue, Thrown> {
    value.serialize(&COUNTS).map_err(Thrown::invalid)
}
