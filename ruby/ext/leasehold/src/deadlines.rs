//! `Leasehold::Native::Deadlines`: the deadlines of a process that keeps a session, in microseconds
//! of silence.

use leasehold_bindings::Deadlines;
use magnus::{Error, RModule, Ruby, Symbol, function, method, prelude::*};

#[magnus::wrap(class = "Leasehold::Native::Deadlines", free_immediately, size)]
struct SessionDeadlines(Deadlines);

pub(crate) fn init(ruby: &Ruby, leasehold: RModule) -> Result<(), Error> {
    let native: RModule = leasehold.const_get("Native")?;
    let class = native.define_class("Deadlines", ruby.class_object())?;
    class.define_singleton_method("new", function!(SessionDeadlines::new, 2))?;
    class.define_method("renewal_micros", method!(SessionDeadlines::renewal_micros, 0))?;
    class.define_method("held_micros", method!(SessionDeadlines::held_micros, 0))?;
    class.define_method("safe_micros", method!(SessionDeadlines::safe_micros, 0))?;
    class.define_method("standing", method!(SessionDeadlines::standing, 1))?;
    Ok(())
}

impl SessionDeadlines {
    fn new(duration_micros: u64, grace_micros: u64) -> Self {
        Self(Deadlines::new(duration_micros, grace_micros))
    }

    fn renewal_micros(&self) -> u64 {
        self.0.renewal_micros()
    }

    fn safe_micros(&self) -> u64 {
        self.0.safe_micros()
    }

    fn held_micros(&self) -> u64 {
        self.0.held_micros()
    }

    fn standing(ruby: &Ruby, deadlines: &Self, silent_micros: u64) -> Symbol {
        ruby.to_symbol(deadlines.0.standing(silent_micros).name())
    }
}
