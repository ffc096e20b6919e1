//! Conversion of values between Rust and JavaScript through JSON text.
//!
//! Traces are JSON files, so the wasm file contains `serde_json` in any case. A second serializer
//! would add code for every type, and `tests/package.test.ts` bounds the size of the file.

use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::error::Exception;

#[wasm_bindgen]
extern "C" {
    // `JSON.stringify` throws a `TypeError` for a bigint or a circular object, and returns
    // `undefined` for `undefined` (ECMA-262, 25.5.2).
    #[wasm_bindgen(js_namespace = JSON, catch)]
    fn stringify(value: &JsValue) -> Result<Option<String>, JsValue>;

    #[wasm_bindgen(js_namespace = JSON)]
    fn parse(text: &str) -> JsValue;
}

/// Converts a JavaScript value to Rust, through JSON text.
///
/// # Errors
/// The value does not have the form of its TypeScript type.
pub(super) fn from_js<T: DeserializeOwned>(value: &JsValue) -> Result<T, Exception> {
    let text = stringify(value).map_err(|_| {
        Exception::invalid_argument("the value has no JSON form: pass one without bigints and circular references")
    })?;
    serde_json::from_str(&text.unwrap_or_default()).map_err(Exception::invalid_argument)
}

/// Converts a value of Rust to JavaScript, through JSON text.
///
/// # Errors
/// The value has no JSON form. Every type of this crate has one.
pub(super) fn to_js<T: JsCast>(value: &impl Serialize) -> Result<T, Exception> {
    Ok(parse(&to_text(value)?).unchecked_into())
}

/// Converts a value to JSON text.
///
/// # Errors
/// The value has no JSON form. Every type of this crate has one.
pub(super) fn to_text(value: &impl Serialize) -> Result<String, Exception> {
    serde_json::to_string(value).map_err(Exception::invalid_argument)
}
