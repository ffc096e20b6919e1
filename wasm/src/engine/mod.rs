//! The claims engine for JavaScript: functions without state, two session classes that a host
//! drives step by step, and the deadlines of a session for locks.
//!
//! Each class has a file of its own. Integers of 64 bits are `bigint` and bytes are
//! `Uint8Array`. The shapes of objects are declared in `types.d.ts`.

pub mod calls;
mod claims;
pub mod columns;
pub mod deadlines;
pub mod reconciliation;
mod value;
pub mod verification;

use leasehold_bindings::DetailedError;
use leasehold_bindings::reconcile::OutOfTurn;
use serde::Serialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::error::Exception;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");

impl From<DetailedError> for Exception {
    fn from(error: DetailedError) -> Self {
        // If the details cannot be serialized, the exception is thrown without them: code and
        // message still help the caller.
        let details = error.details.serialize(&value::BIGINT_SERIALIZER).unwrap_or(JsValue::UNDEFINED);
        Self::with_details(error.code, &error.message, details)
    }
}

impl From<OutOfTurn> for Exception {
    fn from(error: OutOfTurn) -> Self {
        DetailedError::from(error).into()
    }
}
