//! `LeaseholdError`, thrown for whatever goes wrong. Its class is written in JavaScript, since Rust can't extend `Error`.

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(raw_module = "../js/error.js")]
extern "C" {
    type LeaseholdError;

    #[wasm_bindgen(constructor)]
    fn new(code: &str, message: &str, details: JsValue) -> LeaseholdError;
}

/// What a call throws.
#[derive(Debug)]
pub struct Thrown(JsValue);

impl Thrown {
    /// What was handed in does not have the form that its type says.
    pub(crate) fn invalid(message: impl std::fmt::Display) -> Self {
        Self::new("INVALID_ARGUMENT", &message.to_string())
    }

    pub(crate) fn new(code: &'static str, message: &str) -> Self {
        Self::detailed(code, message, JsValue::UNDEFINED)
    }

    pub(crate) fn detailed(code: &'static str, message: &str, details: JsValue) -> Self {
        Self(LeaseholdError::new(code, message, details).into())
    }
}

impl From<Thrown> for JsValue {
    fn from(thrown: Thrown) -> Self {
        thrown.0
    }
}

/// Throws for a panic, out of the whole stack of calls.
pub(crate) fn throw_panic(text: &str) {
    let message = format!("the engine panicked, which is a defect: please report it: {text}");
    wasm_bindgen::throw_val(Thrown::new("PANIC", &message).into())
}
