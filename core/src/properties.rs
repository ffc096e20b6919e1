//! The settings of property tests, in this crate and in the test crates that include this file.

use proptest::test_runner::{Config, RngSeed};

/// Returns the settings of a property test: new random cases in every run. A test that is built for
/// WebAssembly always runs the same cases, since WebAssembly has neither randomness nor files to
/// keep a failure in.
pub(crate) fn config() -> Config {
    if cfg!(target_family = "wasm") {
        Config { rng_seed: RngSeed::Fixed(0), failure_persistence: None, ..Config::default() }
    } else {
        Config::default()
    }
}
