//! `Leasehold::Error`: from the engine's refusals, and from panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_bindings::DetailedError;
use magnus::{Error, Exception, RClass, RModule, Ruby, prelude::*};

/// The exception that stands for a refusal: its class is chosen by the code, in Ruby.
pub(crate) fn refusal(ruby: &Ruby, error: &DetailedError) -> Error {
    let details = error.details.iter().map(|one| (one.list, one.position, one.bucket_type, one.code));
    let details = ruby.ary_from_iter(details);
    let make = || -> Result<Exception, Error> {
        let leasehold: RModule = ruby.class_object().const_get("Leasehold")?;
        let class: RClass = leasehold.const_get("Error")?;
        class.funcall("refusal", (error.code, error.message.as_str(), details))
    };
    make().map_or_else(|error| error, Error::from)
}

/// The exception for a defect of ours, or of whoever calls.
pub(crate) fn defect(ruby: &Ruby, code: &'static str, message: &str) -> Error {
    refusal(ruby, &DetailedError::new(code, message))
}

/// The exception for a session that another thread is in, or that a panic has ended.
pub(crate) fn in_use(ruby: &Ruby) -> Error {
    defect(ruby, "SESSION_IN_USE", "another thread is in this session, or a defect has ended it: make one a thread")
}

/// Runs what Ruby called, so that a panic ends in an exception: one that a `rescue` sees, unlike magnus' own.
pub(crate) fn guard<T>(ruby: &Ruby, body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panicked(ruby, panic.as_ref())))
}

/// The exception for a panic.
pub(crate) fn panicked(ruby: &Ruby, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    defect(ruby, "PANIC", &format!("the engine panicked, which is a defect: please report it: {text}"))
}
