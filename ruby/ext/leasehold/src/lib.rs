//! The engine as a Ruby extension: one file a Ruby class. It converts values; rules are the engine's, and exceptions are
//! classes written in Ruby. Nothing here panics on purpose, and what panics all the same becomes an exception.

mod columns;
mod errors;
mod gvl;
mod json;
mod native;
mod reconciliation;
mod verification;

use magnus::{Error, Ruby};

/// What `require "leasehold/leasehold_ruby"` runs.
#[magnus::init]
fn init(ruby: &Ruby) -> Result<(), Error> {
    let leasehold = ruby.define_module("Leasehold")?;
    native::init(ruby, leasehold)?;
    reconciliation::init(ruby, leasehold)?;
    verification::init(ruby, leasehold)
}
