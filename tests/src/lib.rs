//! Shared pieces of the tests that cross packages.

pub mod model;
pub mod server;
pub mod vectors;
