//! How properties are tested, here and in the files of tests.

use proptest::test_runner::{Config, RngSeed};

/// Other cases in every run; but always the same ones as WebAssembly, which has neither randomness nor files to keep a
/// failure in.
pub(crate) fn config() -> Config {
    if cfg!(target_family = "wasm") {
        Config { rng_seed: RngSeed::Fixed(0), failure_persistence: None, ..Config::default() }
    } else {
        Config::default()
    }
}
