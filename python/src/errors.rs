//! `leasehold.errors`: from the engine's refusals. The classes are written in Python; which of them a reason has is said here,
//! so that a new reason asks for one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_bindings::{DetailedError, ErrorDetail, Reason, reason_by_code};
use pyo3::prelude::*;

use crate::columns::BadColumn;

/// The class in `leasehold.errors` that stands for a reason.
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

/// Every reason for which the engine refuses: its code, its number, the class that stands for it, and whether the same
/// request can succeed later.
#[pyfunction]
pub(crate) fn reasons() -> Vec<(&'static str, u16, &'static str, bool)> {
    Reason::ALL.map(|reason| (reason.code(), reason as u16, class(reason), reason.is_temporary())).into()
}

/// The exception that stands for a refusal: its class is chosen by the code, in Python.
pub(crate) fn refusal(py: Python<'_>, error: &DetailedError) -> PyErr {
    let details: Vec<_> = error.details.iter().map(detail).collect();
    let raise = || {
        py.import("leasehold.errors")?.getattr("refusal")?.call1((
            error.code,
            &error.message,
            details,
            error.retry_after_micros,
        ))
    };
    raise().map_or_else(|error| error, PyErr::from_value)
}

/// The exception that stands for a column that can't be read.
pub(crate) fn column(py: Python<'_>, bad: &BadColumn) -> PyErr {
    let message = format!("the column `{}` {}", bad.column, bad.what);
    let raise = || py.import("leasehold.errors")?.getattr("column_error")?.call1((bad.code, &bad.column, message));
    raise().map_or_else(|error| error, PyErr::from_value)
}

/// The exception for a session that another thread is in.
pub(crate) fn in_use(py: Python<'_>) -> PyErr {
    misuse(py, "SESSION_IN_USE", "another thread is in this session, or a defect has ended it: make one a thread")
}

/// Has a panic, which would be a defect, become an exception of ours: what pyo3 makes of one passes by `except Exception`.
///
/// # Errors
/// Those of `work`.
pub(crate) fn caught<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // A session that it leaves half done has its lock poisoned by then.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(misuse(py, "INTERNAL", "a defect has ended this: please report it, with what stands on standard error"))
    })
}

/// The exception for a mistake of whoever calls, or of ours.
pub(crate) fn misuse(py: Python<'_>, code: &'static str, message: impl ToString) -> PyErr {
    refusal(py, &DetailedError::new(code, message))
}

/// The members of `leasehold.errors.Detail`.
fn detail(detail: &ErrorDetail) -> (&'static str, u32, i32, &'static str, u16, &str) {
    let number = reason_by_code(detail.code).map_or(0, |reason| reason as u16);
    (detail.list, detail.position, detail.bucket_type, detail.code, number, &detail.message)
}
