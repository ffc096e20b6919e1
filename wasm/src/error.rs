//! The exception `LeaseholdError` of JavaScript, which every call throws on failure.
//!
//! The class is written in JavaScript (`js/error.js`): wasm-bindgen cannot export a Rust type that
//! extends `Error`.

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(raw_module = "../js/error.js")]
extern "C" {
    type LeaseholdError;

    #[wasm_bindgen(constructor)]
    fn new(code: &str, message: &str, details: JsValue) -> LeaseholdError;
}

/// A `LeaseholdError` that is about to be thrown. Exported functions return it as their `Err`.
#[derive(Debug)]
pub struct Exception(JsValue);

impl Exception {
    /// Returns the exception for an argument that does not have the form of its TypeScript type.
    pub(crate) fn invalid_argument(message: impl std::fmt::Display) -> Self {
        Self::new("INVALID_ARGUMENT", &message.to_string())
    }

    pub(crate) fn new(code: &'static str, message: &str) -> Self {
        Self::with_details(code, message, JsValue::UNDEFINED)
    }

    pub(crate) fn with_details(code: &'static str, message: &str, details: JsValue) -> Self {
        Self(LeaseholdError::new(code, message, details).into())
    }
}

impl From<Exception> for JsValue {
    fn from(exception: Exception) -> Self {
        exception.0
    }
}

/// Throws a panic's message as a JavaScript exception, which leaves all Rust frames. No destructor
/// of these frames runs.
pub(crate) fn throw_panic(panic: &str) {
    let message = format!("the engine panicked, which is a defect: please report it: {panic}");
    wasm_bindgen::throw_val(Exception::new("PANIC", &message).into())
}
