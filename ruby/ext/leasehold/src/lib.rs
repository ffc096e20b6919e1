//! The engine as a Ruby extension, one file per Ruby class. The extension only converts values: the
//! engine has all rules, and the exception classes are written in Ruby. A panic becomes an
//! exception.

mod columns;
mod deadlines;
mod errors;
mod gvl;
mod json;
mod locks;
mod native;
mod reconciliation;
mod service;
mod verification;

use magnus::{Error, Ruby};

/// Defines the classes. Ruby calls it for `require "leasehold/leasehold_ruby"`.
#[magnus::init]
fn init(ruby: &Ruby) -> Result<(), Error> {
    let leasehold = ruby.define_module("Leasehold")?;
    native::init(ruby, leasehold)?;
    deadlines::init(ruby, leasehold)?;
    locks::init(ruby, leasehold)?;
    reconciliation::init(ruby, leasehold)?;
    service::init(ruby, leasehold)?;
    verification::init(ruby, leasehold)
}
