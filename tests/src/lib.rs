//! Helpers for tests that involve several members of the workspace. A build for WebAssembly omits
//! the modules that need processes, files or a network.

#[cfg(not(target_family = "wasm"))]
pub mod book;
#[cfg(not(target_family = "wasm"))]
pub mod certificates;
#[cfg(not(target_family = "wasm"))]
pub mod client;
#[cfg(not(target_family = "wasm"))]
pub mod disk;
#[cfg(not(target_family = "wasm"))]
pub mod etcd;
#[cfg(not(target_family = "wasm"))]
pub mod false_clock;
#[cfg(not(target_family = "wasm"))]
pub mod fight;
#[cfg(not(target_family = "wasm"))]
mod guarded;
#[cfg(not(target_family = "wasm"))]
pub mod http2;
#[cfg(not(target_family = "wasm"))]
pub mod lists;
#[cfg(not(target_family = "wasm"))]
pub mod postgres;
#[cfg(not(target_family = "wasm"))]
pub mod rung;
#[cfg(not(target_family = "wasm"))]
pub mod server;
#[cfg(not(target_family = "wasm"))]
pub mod suspend;
#[cfg(not(target_family = "wasm"))]
pub mod transfer;
pub mod vectors;
#[cfg(not(target_family = "wasm"))]
pub mod wire;
