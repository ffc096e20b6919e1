//! The modules of `cargo xtask` that the benchmarks and the tests use too.

pub mod cluster;
pub mod needs;
pub mod package;
pub mod process;
pub mod python;
