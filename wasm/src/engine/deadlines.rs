//! The deadlines of a process that keeps a session for locks. Only `leasehold/locks` uses them.

use leasehold_bindings::Deadlines;
use wasm_bindgen::prelude::wasm_bindgen;

/// The deadlines of a process that keeps a session, in microseconds of silence (K11).
#[wasm_bindgen]
pub struct SessionDeadlines(Deadlines);

#[wasm_bindgen]
impl SessionDeadlines {
    /// Creates the deadlines for the terms of a session.
    #[wasm_bindgen(constructor)]
    pub fn new(duration_micros: u64, grace_micros: u64) -> Self {
        Self(Deadlines::new(duration_micros, grace_micros))
    }

    /// The silence after which the process renews the session.
    #[wasm_bindgen(getter, js_name = renewalMicros)]
    pub fn renewal_micros(&self) -> u64 {
        self.0.renewal_micros()
    }

    /// The silence from which on the session is in jeopardy.
    #[wasm_bindgen(getter, js_name = safeMicros)]
    pub fn safe_micros(&self) -> u64 {
        self.0.safe_micros()
    }

    /// The silence from which on the session is lost.
    #[wasm_bindgen(getter, js_name = heldMicros)]
    pub fn held_micros(&self) -> u64 {
        self.0.held_micros()
    }

    /// Returns the standing of a session after this silence: `safe`, `jeopardy` or `lost`.
    pub fn standing(&self, silent_micros: u64) -> String {
        self.0.standing(silent_micros).name().to_owned()
    }
}
