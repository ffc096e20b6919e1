//! The engine: what it answers at once, and the runs that a host takes the steps of; one file a class. Integers of 64
//! bits are `bigint`, bytes are `Uint8Array`; `types.d.ts` has the shapes of objects.

pub mod calls;
mod claims;
pub mod columns;
pub mod reconciliation;
mod value;
pub mod verification;

use leasehold_bindings::DetailedError;
use leasehold_bindings::reconcile::OutOfTurn;
use serde::Serialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::error::Thrown;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");

impl From<DetailedError> for Thrown {
    fn from(error: DetailedError) -> Self {
        let details = error.details.serialize(&value::SERIALIZER).unwrap_or(JsValue::UNDEFINED);
        Self::detailed(error.code, &error.message, details)
    }
}

impl From<OutOfTurn> for Thrown {
    fn from(error: OutOfTurn) -> Self {
        DetailedError::from(error).into()
    }
}
