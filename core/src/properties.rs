//! The settings of property tests, here and in the test crates.

use proptest::test_runner::{Config, RngSeed};

/// The settings of a property test: new random cases in every run. WebAssembly has neither
/// randomness nor files to keep a failure in, so it always runs the same cases.
pub(crate) fn config() -> Config {
    if cfg!(target_family = "wasm") {
        Config { rng_seed: RngSeed::Fixed(0), failure_persistence: None, ..Config::default() }
    } else {
        Config::default()
    }
}
