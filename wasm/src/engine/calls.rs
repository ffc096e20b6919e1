//! The functions of the engine that keep no state, for JavaScript.

use std::sync::LazyLock;

use leasehold_bindings::{Call, CallOutput, Catalogue, ClaimInput, SourceKey, call};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use super::claims::ClaimObject;
use super::value;
use crate::error::Exception;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::default);

#[wasm_bindgen]
extern "C" {
    /// An array of `Claim` objects, which `types.d.ts` declares.
    #[wasm_bindgen(typescript_type = "Claim[]")]
    pub type ClaimArray;

    /// The primary key of a row: an integer or a text. `js/signatures.js` turns the object into its text.
    #[wasm_bindgen(typescript_type = "bigint | string | TextKey")]
    pub type RowKey;
}

/// Returns the canonical form of a bucket's value. Two values of one bucket type are the same name
/// if their canonical forms are equal.
///
/// Throws if the bucket type is unknown or does not allow the value.
#[wasm_bindgen(js_name = canonicalForm)]
pub fn canonical_form(bucket_type: i32, value: String) -> Result<String, Exception> {
    match call(Call::CanonicalForm { bucket_type, value }, &CATALOGUE)? {
        CallOutput::CanonicalForm(form) => Ok(form),
        _ => Err(unexpected_answer()),
    }
}

/// Checks an update without reading stored claims: the values, subjects and sources of its claims,
/// limits and duplicates.
///
/// Throws if the server would reject the update before it reads any stored claim. The error's
/// `details` name every rejected claim.
#[wasm_bindgen(js_name = checkBatch)]
pub fn check_batch(creates: ClaimArray, destroys: ClaimArray) -> Result<(), Exception> {
    let check = Call::CheckBatch { creates: claims(creates)?, destroys: claims(destroys)? };
    call(check, &CATALOGUE)?;
    Ok(())
}

/// Returns the source id of a claim for a row's primary key. Encoded ids sort as the keys do. A
/// UUID becomes 16 bytes.
///
/// Throws if the key is negative, empty or too long. Throws for a string of digits, which may be an
/// integer that a driver returned as text: pass `BigInt(key)`, or `{ text: key }` for a column of text.
#[wasm_bindgen(js_name = encodeSourceId)]
pub fn encode_source_id(key: RowKey) -> Result<Vec<u8>, Exception> {
    let key: JsValue = key.into();
    let key = match key.as_string() {
        Some(text) => SourceKey::Text(text),
        None => SourceKey::Integer(integer(key)?),
    };
    match call(Call::EncodeSourceId { key }, &CATALOGUE)? {
        CallOutput::SourceId(id) => Ok(id.as_bytes().to_vec()),
        _ => Err(unexpected_answer()),
    }
}

fn integer(value: JsValue) -> Result<i64, Exception> {
    i64::try_from(value).map_err(|_| {
        Exception::invalid_argument("the key is neither a string nor a bigint below 2^63: pass one of these")
    })
}

fn claims(claims: ClaimArray) -> Result<Vec<ClaimInput>, Exception> {
    let claims: Vec<ClaimObject> = value::from_js(claims.unchecked_into())?;
    Ok(claims.into_iter().map(ClaimInput::from).collect())
}

/// Returns the exception for a `CallOutput` of another variant than the `Call` has.
fn unexpected_answer() -> Exception {
    Exception::new("PANIC", "the engine returned the answer of another call, which is a defect: please report it")
}
