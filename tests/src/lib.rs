//! Shared pieces of the tests that cross packages. What needs processes, files or a network is not there as WebAssembly.

#[cfg(not(target_family = "wasm"))]
pub mod certificates;
#[cfg(not(target_family = "wasm"))]
pub mod client;
#[cfg(not(target_family = "wasm"))]
pub mod postgres;
#[cfg(not(target_family = "wasm"))]
pub mod server;
#[cfg(not(target_family = "wasm"))]
pub mod transfer;
pub mod vectors;
#[cfg(not(target_family = "wasm"))]
pub mod wire;
