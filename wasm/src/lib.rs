//! The engine and the simulation for JavaScript: a wasm file each. This package converts values; rules are the engine's,
//! and what is thrown is a `LeaseholdError`.

#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg(feature = "simulation")]
pub mod simulation;

use wasm_bindgen::prelude::wasm_bindgen;

/// Runs when the module is loaded: a panic throws, since nothing could catch it on this side.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| error::throw_panic(&panic.to_string())));
}
