//! Conversion of the engine's errors to exceptions of `leasehold.errors`.
//!
//! The classes are written in Python. The mapping from reasons to classes is here, as an exhaustive match: a new reason
//! does not compile until it has a class.

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_bindings::{DetailedError, ErrorDetail, Reason, reason_by_code};
use pyo3::prelude::*;

use crate::columns::ColumnError;

/// Returns the name of the class in `leasehold.errors` for a reason.
const fn class(reason: Reason) -> &'static str {
    match reason {
        Reason::InvalidUpdate | Reason::LimitExceeded | Reason::ValueNotAllowed | Reason::IdempotencyKeyReused => {
            "InvalidError"
        }
        Reason::LeaseNotFound | Reason::ClaimNotFound => "NotFoundError",
        Reason::NotOwner => "NotOwnerError",
        Reason::LeaseRolledBack => "RolledBackError",
        Reason::LeaseCommitted => "CommittedError",
        Reason::ClaimTaken => "TakenError",
        Reason::ClaimChanged => "ChangedError",
        Reason::ClaimBusy => "BusyError",
    }
}

/// Returns the code, number, exception class and `is_temporary` of every reason of the engine.
#[pyfunction]
pub(crate) fn reasons() -> Vec<(&'static str, u16, &'static str, bool)> {
    Reason::ALL.map(|reason| (reason.code(), reason as u16, class(reason), reason.is_temporary())).into()
}

/// Returns the exception for an error of the engine. Python selects the class by the code.
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

/// Returns the exception for an unreadable column.
pub(crate) fn column(py: Python<'_>, error: &ColumnError) -> PyErr {
    let message = format!("the column `{}` {}", error.column, error.problem);
    let raise = || py.import("leasehold.errors")?.getattr("column_error")?.call1((error.code, &error.column, message));
    raise().map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for a session whose lock is taken, or poisoned by an earlier panic.
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
    // `AssertUnwindSafe` holds: a panic poisons the lock of the session, so nobody sees its broken state.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(with_code(py, "INTERNAL", "the engine panicked: report this defect with the text on standard error"))
    })
}

/// Returns the exception for a code and a message.
pub(crate) fn with_code(py: Python<'_>, code: &'static str, message: impl ToString) -> PyErr {
    exception(py, &DetailedError::new(code, message))
}

/// Returns the fields of a `leasehold.errors.Detail`.
fn detail(detail: &ErrorDetail) -> (&'static str, u32, i32, &'static str, u16, &str) {
    let number = reason_by_code(detail.code).map_or(0, |reason| reason as u16);
    (detail.list, detail.position, detail.bucket_type, detail.code, number, &detail.message)
}
