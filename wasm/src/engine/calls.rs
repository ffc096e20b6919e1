//! What the engine answers at once.

use std::sync::LazyLock;

use leasehold_bindings::{Answer, Call, Catalogue, Claim, SourceKey, call};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use super::claims::ClaimObject;
use super::value;
use crate::error::Thrown;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::default);

#[wasm_bindgen]
extern "C" {
    /// Claims, as `types.d.ts` has them.
    #[wasm_bindgen(typescript_type = "Claim[]")]
    pub type Claims;

    /// A row's primary key.
    #[wasm_bindgen(typescript_type = "bigint | string")]
    pub type Key;
}

/// The form of a value that decides whether two are the same.
///
/// Throws where the bucket type does not allow the value, or is not known.
#[wasm_bindgen(js_name = canonicalForm)]
pub fn canonical_form(bucket_type: i32, value: String) -> Result<String, Thrown> {
    match call(Call::CanonicalForm { bucket_type, value }, &CATALOGUE)? {
        Answer::CanonicalForm(form) => Ok(form),
        _ => Err(mistaken()),
    }
}

/// Whether an update is one that can be begun: throws, with each claim that offends, where the server would refuse it
/// before looking at any other claim.
#[wasm_bindgen(js_name = checkBatch)]
pub fn check_batch(creates: Claims, destroys: Claims) -> Result<(), Thrown> {
    let question = Call::CheckBatch { creates: claims(creates)?, destroys: claims(destroys)? };
    call(question, &CATALOGUE)?;
    Ok(())
}

/// A row's primary key as the bytes that a claim's source has: in the order of the keys, and a uuid as its 16 bytes.
///
/// Throws where the key is negative, empty or too long.
#[wasm_bindgen(js_name = encodeSourceId)]
pub fn encode_source_id(key: Key) -> Result<Vec<u8>, Thrown> {
    let key: JsValue = key.into();
    let key = match key.as_string() {
        Some(text) => SourceKey::Text(text),
        None => SourceKey::Integer(integer(key)?),
    };
    match call(Call::EncodeSourceId { key }, &CATALOGUE)? {
        Answer::SourceId(id) => Ok(id.as_bytes().to_vec()),
        _ => Err(mistaken()),
    }
}

fn integer(value: JsValue) -> Result<i64, Thrown> {
    i64::try_from(value).map_err(|_| Thrown::invalid("a key is a string, or a bigint of at most 63 bits"))
}

fn claims(claims: Claims) -> Result<Vec<Claim>, Thrown> {
    let claims: Vec<ClaimObject> = value::read(claims.unchecked_into())?;
    Ok(claims.into_iter().map(Claim::from).collect())
}

fn mistaken() -> Thrown {
    Thrown::new("PANIC", "the engine answered another question")
}
