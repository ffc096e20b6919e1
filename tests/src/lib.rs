//! Helpers of the tests that cross packages. Modules that need processes, files or a network are left
//! out for WebAssembly.

#[cfg(not(target_family = "wasm"))]
pub mod book;
#[cfg(not(target_family = "wasm"))]
pub mod certificates;
#[cfg(not(target_family = "wasm"))]
pub mod client;
#[cfg(not(target_family = "wasm"))]
pub mod postgres;
#[cfg(not(target_family = "wasm"))]
pub mod server;
#[cfg(not(target_family = "wasm"))]
pub mod suspend;
#[cfg(not(target_family = "wasm"))]
pub mod transfer;
pub mod vectors;
#[cfg(not(target_family = "wasm"))]
pub mod wire;
