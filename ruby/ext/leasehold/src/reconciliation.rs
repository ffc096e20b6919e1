//! `Leasehold::Native::Reconciliation`: a reconciliation session. Steps and events are JSON text.

use std::sync::Mutex;

use leasehold_bindings::DetailedError;
use leasehold_bindings::reconcile::Reconciliation;
use magnus::{Error, RModule, Ruby, function, method, prelude::*};

use crate::errors::{self, catch_panic};
use crate::json;

#[magnus::wrap(class = "Leasehold::Native::Reconciliation", free_immediately, size)]
struct Session(Mutex<Reconciliation>);

pub(crate) fn init(ruby: &Ruby, leasehold: RModule) -> Result<(), Error> {
    let native: RModule = leasehold.const_get("Native")?;
    let class = native.define_class("Reconciliation", ruby.class_object())?;
    class.define_singleton_method("new", function!(Session::new, 1))?;
    class.define_method("step", method!(Session::step, 0))?;
    class.define_method("feed", method!(Session::feed, 1))?;
    class.define_method("summary", method!(Session::summary, 0))?;
    Ok(())
}

impl Session {
    fn new(ruby: &Ruby, settings: String) -> Result<Self, Error> {
        catch_panic(ruby, || Ok(Self(Mutex::new(Reconciliation::new(json::read(ruby, &settings)?)))))
    }

    fn step(ruby: &Ruby, session: &Self) -> Result<String, Error> {
        session.with(ruby, |run| json::write(ruby, &run.step()))
    }

    fn feed(ruby: &Ruby, session: &Self, event: String) -> Result<(), Error> {
        session.with(ruby, |run| {
            let fed = run.feed(json::read(ruby, &event)?);
            fed.map_err(|error| errors::engine_error(ruby, &DetailedError::from(error)))
        })
    }

    fn summary(ruby: &Ruby, session: &Self) -> Result<String, Error> {
        session.with(ruby, |run| json::write(ruby, run.summary()))
    }

    fn with<T>(&self, ruby: &Ruby, body: impl FnOnce(&mut Reconciliation) -> Result<T, Error>) -> Result<T, Error> {
        catch_panic(ruby, || match self.0.try_lock() {
            Ok(mut run) => body(&mut run),
            Err(_) => Err(errors::session_in_use(ruby)),
        })
    }
}
