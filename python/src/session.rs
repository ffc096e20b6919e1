//! Exclusive access to one of the engine's state machines, such as a verification run.

use std::sync::Mutex;

use leasehold_bindings::DetailedError;
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors;

/// A state machine of the engine that one thread may use at a time.
///
/// The lock is only tried, never waited for. A thread that waited would hold the global interpreter
/// lock, which the thread inside the session needs to finish: a deadlock.
pub(crate) struct Session<T>(Mutex<T>);

impl<T: Send> Session<T> {
    pub(crate) fn new(machine: T) -> Self {
        Self(Mutex::new(machine))
    }

    /// Runs `body` on the state machine while it holds the global interpreter lock. Use it for
    /// short work.
    ///
    /// # Errors
    /// Another thread uses the machine, or `body` fails.
    pub(crate) fn with<R>(&self, py: Python<'_>, body: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        errors::catch_panic(py, || match self.0.try_lock() {
            Ok(mut machine) => body(&mut machine),
            Err(_) => Err(errors::session_in_use(py)),
        })
    }

    /// Runs `body` on the state machine without the global interpreter lock, so that other Python
    /// threads can run.
    ///
    /// # Errors
    /// Another thread uses the machine, or `body` returns an error of the engine.
    pub(crate) fn work<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut T) -> Result<R, DetailedError> + Send,
    ) -> PyResult<R> {
        self.with(py, |machine| py.detach(|| body(machine)).map_err(|error| errors::exception(py, &error)))
    }
}

/// Returns the Rust value of a JSON text. Only small, rare values enter the extension as JSON, not
/// rows or records.
///
/// # Errors
/// The text is not the JSON form of a `T`.
pub(crate) fn from_json<T: DeserializeOwned>(py: Python<'_>, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| errors::with_code(py, "INVALID_ARGUMENT", error))
}

/// Returns a Rust value as JSON text.
///
/// # Errors
/// The value has no JSON form. This does not happen with the types of this crate.
pub(crate) fn to_json(py: Python<'_>, value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| errors::with_code(py, "INTERNAL", error))
}
