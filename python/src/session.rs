//! A machine of the engine's that one thread at a time works with.

use std::sync::Mutex;

use leasehold_bindings::DetailedError;
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors;

/// A machine behind its lock.
pub(crate) struct Session<T>(Mutex<T>);

impl<T: Send> Session<T> {
    pub(crate) fn new(machine: T) -> Self {
        Self(Mutex::new(machine))
    }

    /// Looks at the machine, or changes it at once.
    ///
    /// # Errors
    /// Another thread is in it; and those of `body`.
    pub(crate) fn with<R>(&self, py: Python<'_>, body: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        errors::caught(py, || match self.0.try_lock() {
            Ok(mut machine) => body(&mut machine),
            Err(_) => Err(errors::in_use(py)),
        })
    }

    /// Lets the machine work while other threads of Python run.
    ///
    /// # Errors
    /// Another thread is in it, or the engine refuses.
    pub(crate) fn work<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut T) -> Result<R, DetailedError> + Send,
    ) -> PyResult<R> {
        self.with(py, |machine| py.detach(|| body(machine)).map_err(|error| errors::refusal(py, &error)))
    }
}

/// Values that are few cross the border as JSON text.
///
/// # Errors
/// The text is not what was expected.
pub(crate) fn read<T: DeserializeOwned>(py: Python<'_>, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| errors::misuse(py, "INVALID_ARGUMENT", error))
}

/// Likewise, to Python.
///
/// # Errors
/// The value has no form in JSON, which none of ours lacks.
pub(crate) fn write(py: Python<'_>, value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| errors::misuse(py, "INTERNAL", error))
}
