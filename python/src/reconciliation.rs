//! `_native.Reconciliation`: one reconciliation run of a cell. Steps and answers are passed as
//! JSON.

use leasehold_bindings::{DetailedError, reconcile};
use pyo3::prelude::*;

use crate::session::{Session, from_json, to_json};

#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct Reconciliation(Session<reconcile::Reconciliation>);

#[pymethods]
impl Reconciliation {
    #[new]
    fn new(py: Python<'_>, settings: &str) -> PyResult<Self> {
        Ok(Self(Session::new(reconcile::Reconciliation::new(from_json(py, settings)?))))
    }

    fn step(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |run| to_json(py, &run.step()))
    }

    fn feed(&self, py: Python<'_>, event: &str) -> PyResult<()> {
        let event = from_json(py, event)?;
        self.0.work(py, |run| run.feed(event).map_err(DetailedError::from))
    }

    fn summary(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |run| to_json(py, run.summary()))
    }
}
