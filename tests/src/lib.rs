//! Shared pieces of the tests that cross packages.

pub mod certificates;
pub mod client;
pub mod model;
pub mod nested_cargo;
pub mod postgres;
pub mod server;
pub mod transfer;
pub mod vectors;
pub mod wire;
