//! Exclusive access to a state machine of the engine.

use std::sync::Mutex;

use leasehold_bindings::DetailedError;
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors;

/// A state machine that one thread at a time can use.
///
/// The lock is only tried, never awaited. A blocking wait would hold the global interpreter lock, which the thread inside
/// the session needs in order to finish: both would wait forever.
pub(crate) struct Session<T>(Mutex<T>);

impl<T: Send> Session<T> {
    pub(crate) fn new(machine: T) -> Self {
        Self(Mutex::new(machine))
    }

    /// Runs `body` with the machine, under the global interpreter lock. Use it for short work.
    ///
    /// # Errors
    /// Another thread uses the machine, or `body` fails.
    pub(crate) fn with<R>(&self, py: Python<'_>, body: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        errors::catch_panic(py, || match self.0.try_lock() {
            Ok(mut machine) => body(&mut machine),
            Err(_) => Err(errors::session_in_use(py)),
        })
    }

    /// Runs `body` with the machine, without the global interpreter lock: other Python threads keep running.
    ///
    /// # Errors
    /// Another thread uses the machine, or the engine refuses.
    pub(crate) fn work<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut T) -> Result<R, DetailedError> + Send,
    ) -> PyResult<R> {
        self.with(py, |machine| py.detach(|| body(machine)).map_err(|error| errors::exception(py, &error)))
    }
}

/// Returns the value of a JSON text. Rare, small values enter the extension as JSON; rows and records do not.
///
/// # Errors
/// The text is not a `T`.
pub(crate) fn from_json<T: DeserializeOwned>(py: Python<'_>, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| errors::with_code(py, "INVALID_ARGUMENT", error))
}

/// Returns the JSON text of a value.
///
/// # Errors
/// The value has no JSON form. Every type that this crate passes has one.
pub(crate) fn to_json(py: Python<'_>, value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| errors::with_code(py, "INTERNAL", error))
}
