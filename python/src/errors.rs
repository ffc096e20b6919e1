//! Conversion of the engine's errors to exceptions of `leasehold.errors`.
//!
//! The exception classes are written in Python. The match from reasons to classes in this file is
//! exhaustive, so a new reason does not compile until it has a class.

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_bindings::{DetailedError, ErrorDetail, Reason, reason_by_code};
use pyo3::prelude::*;

use crate::columns::ColumnError;

/// Returns the name of the exception class in `leasehold.errors` for one of the engine's reasons.
const fn class(reason: Reason) -> &'static str {
    match reason {
        Reason::InvalidUpdate
        | Reason::LimitExceeded
        | Reason::ValueNotAllowed
        | Reason::IdempotencyKeyReused
        | Reason::SessionReused
        | Reason::AskReused => "InvalidError",
        Reason::LeaseNotFound | Reason::ClaimNotFound | Reason::SessionNotFound | Reason::SessionEnded => {
            "NotFoundError"
        }
        Reason::NotOwner | Reason::SessionNotOwned => "NotOwnerError",
        Reason::LeaseRolledBack => "RolledBackError",
        Reason::LeaseCommitted => "CommittedError",
        Reason::ClaimTaken => "TakenError",
        Reason::ClaimChanged | Reason::SessionAlive | Reason::FencePassed | Reason::LockCircle => "ChangedError",
        Reason::ClaimBusy | Reason::LockHeld | Reason::LockWithheld => "BusyError",
    }
}

/// Returns code, number, exception class and `is_temporary` of each of the engine's reasons.
#[pyfunction]
pub(crate) fn reasons() -> Vec<(&'static str, u16, &'static str, bool)> {
    Reason::ALL.map(|reason| (reason.code(), reason as u16, class(reason), reason.is_temporary())).into()
}

/// Returns the Python exception for an error of the engine. `leasehold.errors` selects the class by
/// the code.
pub(crate) fn exception(py: Python<'_>, error: &DetailedError) -> PyErr {
    let details: Vec<_> = error.details.iter().map(detail).collect();
    let raise = || {
        py.import("leasehold.errors")?.getattr("error_for_code")?.call1((
            error.code,
            &error.message,
            details,
            error.retry_after_micros,
        ))
    };
    raise().map_or_else(|error| error, PyErr::from_value)
}

/// Returns the Python exception for an unreadable column of a table.
pub(crate) fn column(py: Python<'_>, error: &ColumnError) -> PyErr {
    let message = format!("the column `{}` {}", error.column, error.problem);
    let raise = || py.import("leasehold.errors")?.getattr("column_error")?.call1((error.code, &error.column, message));
    raise().map_or_else(|error| error, PyErr::from_value)
}

/// Returns the Python exception for a session that another thread uses, or that an earlier panic
/// has poisoned.
pub(crate) fn session_in_use(py: Python<'_>) -> PyErr {
    with_code(
        py,
        "SESSION_IN_USE",
        "another thread uses this session, or a defect ended it: create one session per thread",
    )
}

/// Runs `work` and converts a panic, which is a defect, to an `InternalError`.
///
/// pyo3 would raise `PanicException` instead, which derives from `BaseException`: `except Exception` does not catch it
/// (pyo3, `src/panic.rs`).
///
/// # Errors
/// The errors of `work`, or a panic in it.
pub(crate) fn catch_panic<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // `AssertUnwindSafe` is correct here: a panic poisons the session's lock, so no later call sees
    // a half-changed state.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(with_code(py, "INTERNAL", "the engine panicked: report this defect with the text on standard error"))
    })
}

/// Returns the Python exception for an error code and a message.
pub(crate) fn with_code(py: Python<'_>, code: &'static str, message: impl ToString) -> PyErr {
    exception(py, &DetailedError::new(code, message))
}

/// Returns the fields of a Python `leasehold.errors.Detail` for one refused claim.
fn detail(detail: &ErrorDetail) -> (&'static str, u32, i32, &'static str, u16, &str) {
    let number = reason_by_code(detail.code).map_or(0, |reason| reason as u16);
    (detail.list, detail.position, detail.bucket_type, detail.code, number, &detail.message)
}
