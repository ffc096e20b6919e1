//! Builds `Leasehold::Error` from the engine's errors and from panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_bindings::DetailedError;
use magnus::{Error, Exception, RClass, RModule, Ruby, prelude::*};

/// Builds the exception for an error of the engine. `Leasehold::Error.from_engine` selects the
/// class by the code.
pub(crate) fn engine_error(ruby: &Ruby, error: &DetailedError) -> Error {
    let details = error.details.iter().map(|claim| (claim.list, claim.position, claim.bucket_type, claim.code));
    let details = ruby.ary_from_iter(details);
    let make = || -> Result<Exception, Error> {
        let leasehold: RModule = ruby.class_object().const_get("Leasehold")?;
        let class: RClass = leasehold.const_get("Error")?;
        class.funcall("from_engine", (error.code, error.message.as_str(), details, error.retry_after_micros))
    };
    make().map_or_else(|error| error, Error::from)
}

/// Builds the exception for a defect of the gem, or of the code that calls it.
pub(crate) fn internal(ruby: &Ruby, code: &'static str, message: &str) -> Error {
    engine_error(ruby, &DetailedError::new(code, message))
}

/// Builds the exception for a session that another thread is using, or whose mutex a panic has
/// poisoned.
pub(crate) fn session_in_use(ruby: &Ruby) -> Error {
    internal(
        ruby,
        "SESSION_IN_USE",
        "the session is in use by another thread, or was ended by a defect: create one session per thread",
    )
}

/// Runs a method that Ruby called, and converts a panic to an exception. Otherwise magnus would
/// raise a `fatal`, which no `rescue` catches.
pub(crate) fn catch_panic<T>(ruby: &Ruby, body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panicked(ruby, panic.as_ref())))
}

/// Builds the exception for a panic.
pub(crate) fn panicked(ruby: &Ruby, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    internal(ruby, "PANIC", &format!("the engine panicked: report this defect: {text}"))
}
