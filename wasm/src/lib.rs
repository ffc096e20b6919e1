//! The claims engine and the simulation as WebAssembly, for JavaScript.
//!
//! The features `engine` and `simulation` each build a wasm file of their own. This crate converts
//! values between JavaScript and Rust and holds no rule of the protocol. Every failure reaches
//! JavaScript as a `LeaseholdError`.

#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg(feature = "simulation")]
pub mod simulation;

use wasm_bindgen::prelude::wasm_bindgen;

/// Installs the panic hook as soon as JavaScript has loaded the module.
#[wasm_bindgen(start)]
fn start() {
    // On wasm32-unknown-unknown a panic aborts with a trap, and the trap carries no message. Rust
    // code cannot catch the panic, so the hook throws the message to JavaScript before the trap.
    std::panic::set_hook(Box::new(|panic| error::throw_panic(&panic.to_string())));
}
