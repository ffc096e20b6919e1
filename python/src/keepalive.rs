//! `_native.Keepalive`: the Rust client's thread that renews a session, which Python's global
//! interpreter lock cannot stop.
//!
//! A forked process has a copy of these values and none of their threads. Such a copy answers as a
//! lost session. It never takes a mutex, which the parent may have held at the fork.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_client::{Endpoint, Keepalive as Running, KeptSession, News, SessionTerms, Standing, Tls};
use pyo3::prelude::*;
use uuid::Uuid;

use crate::errors;

/// A value that only the process that created it may use.
struct OwnProcess<T> {
    process: u32,
    value: Mutex<Option<T>>,
}

impl<T> OwnProcess<T> {
    fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Mutex::new(Some(value)) }
    }

    /// Runs `body` on the value. Returns `None` in a forked process.
    fn with<R>(&self, body: impl FnOnce(&mut Option<T>) -> R) -> Option<R> {
        let is_own = self.process == std::process::id();
        is_own.then(|| body(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<T> Drop for OwnProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The value's own drop would wake threads that this process does not have.
            std::mem::forget(self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// The state of a keepalive before and after its start.
enum State {
    Opening(KeptSession),
    Running(Running),
}

#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct Keepalive(OwnProcess<State>);

#[pymethods]
impl Keepalive {
    #[new]
    fn new(
        py: Python<'_>,
        url: &str,
        tls: Option<(String, Option<(String, String)>)>,
        store_id: Option<&str>,
        session_id: [u8; 16],
        duration_micros: u64,
        grace_micros: u64,
    ) -> PyResult<Self> {
        let tls = tls.map(|(ca, identity)| match identity {
            Some((certificate, key)) => Tls::new(ca).with_identity(certificate, key),
            None => Tls::new(ca),
        });
        let endpoint = Endpoint::new(url, tls.as_ref()).map_err(|error| misconfigured(py, error))?;
        let store_id = store_id.map(Uuid::parse_str).transpose().map_err(|error| misconfigured(py, error))?;
        let (duration, grace) = (Duration::from_micros(duration_micros), Duration::from_micros(grace_micros));
        let terms = SessionTerms { duration, grace };
        let kept = KeptSession::opening_now(Arc::new(endpoint), store_id, Uuid::from_bytes(session_id), terms);
        Ok(Self(OwnProcess::new(State::Opening(kept))))
    }

    /// Starts the thread. The session is open by now.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let started = self.0.with(|state| match state {
            Some(State::Opening(kept)) => {
                Running::start(kept.clone()).map(|running| *state = Some(State::Running(running)))
            }
            Some(State::Running(_)) | None => Ok(()),
        });
        started.unwrap_or(Ok(())).map_err(|error| errors::with_code(py, "INTERNAL", error))
    }

    /// Returns the microseconds until the session, or the lock of a fence, is lost; 0 if it is lost,
    /// stopped or the parent's.
    fn remaining_micros(&self, fence: Option<u64>) -> u64 {
        let remaining = self.running(|running| match fence {
            Some(fence) => running.remaining(fence),
            None => running.session_remaining(),
        });
        u64::try_from(remaining.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns true if an operator has taken the lock of a fence.
    fn is_forced(&self, fence: u64) -> bool {
        self.running(|running| running.is_forced(fence)).unwrap_or_default()
    }

    /// Returns the name of the session's standing.
    fn standing(&self) -> &'static str {
        // A process that was stopped reads the clock before its thread publishes the loss.
        let standing = self.running(|running| (*running.standing().borrow(), running.session_remaining()));
        match standing {
            Some((standing, remaining)) if !remaining.is_zero() => standing.name(),
            _ => Standing::Lost.name(),
        }
    }

    /// Returns an iterator that waits for the news of the session.
    fn news(&self, py: Python<'_>) -> PyResult<SessionNews> {
        let news = self.running(Running::news).transpose();
        let news = news.map_err(|error| errors::with_code(py, "INTERNAL", error))?;
        Ok(SessionNews(OwnProcess { process: std::process::id(), value: Mutex::new(news) }))
    }

    /// Ends the thread and waits for its end. The session then counts as lost.
    fn stop(&self, py: Python<'_>) {
        if let Some(Some(State::Running(running))) = self.0.with(Option::take) {
            py.detach(|| running.stop());
        }
    }
}

impl Keepalive {
    fn running<R>(&self, body: impl FnOnce(&Running) -> R) -> Option<R> {
        self.0.with(|state| match state {
            Some(State::Running(running)) => Some(body(running)),
            Some(State::Opening(_)) | None => None,
        })?
    }
}

#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct SessionNews(OwnProcess<leasehold_client::SessionNews>);

#[pymethods]
impl SessionNews {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Returns the new standing, or `forced` with the fences of the locks that an operator took.
    fn __next__(&self, py: Python<'_>) -> Option<(&'static str, Vec<u64>)> {
        match py.detach(|| self.0.with(|news| news.as_mut().and_then(Iterator::next)).flatten())? {
            News::Standing(standing) => Some((standing.name(), Vec::new())),
            News::Forced(fences) => Some(("forced", fences)),
        }
    }
}

fn misconfigured(py: Python<'_>, error: impl ToString) -> PyErr {
    errors::with_code(py, "MISCONFIGURED", error)
}
