//! The engine for JavaScript: one file a class. It converts values; rules are the engine's. Integers of 64 bits are
//! `bigint`, bytes are `Uint8Array`, what is thrown is a `LeaseholdError`; `types.d.ts` has the shapes of objects.

pub mod calls;
mod claims;
pub mod columns;
pub mod error;
pub mod reconciliation;
mod value;
pub mod verification;

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");

/// Runs when the module is loaded: a panic throws, since nothing could catch it on this side.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| error::throw_panic(&panic.to_string())));
}
