//! The pure functions of the Python package `leasehold.calls`.

use std::sync::LazyLock;

use leasehold_bindings::{
    Call, CallOutput, Catalogue, ClaimInput, Source, SourceId, SourceKey, SourceType, Subject, call,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::default);

/// Returns the canonical form of a value: two values are the same name if their canonical forms are equal.
#[pyfunction]
pub(crate) fn canonical_form(py: Python<'_>, bucket_type: i32, value: String) -> PyResult<String> {
    match run(py, Call::CanonicalForm { bucket_type, value })? {
        CallOutput::CanonicalForm(form) => Ok(form),
        _ => Err(wrong_answer(py)),
    }
}

/// Raises if an update fails the checks that the server runs before it reads any stored claim.
#[pyfunction]
pub(crate) fn check_batch(py: Python<'_>, creates: Vec<ClaimArgument>, destroys: Vec<ClaimArgument>) -> PyResult<()> {
    let claims = |claims: Vec<ClaimArgument>| claims.into_iter().map(ClaimInput::from).collect();
    let request = Call::CheckBatch { creates: claims(creates), destroys: claims(destroys) };
    py.detach(|| call(request, &CATALOGUE)).map(drop).map_err(|error| errors::exception(py, &error))
}

/// Returns a primary key in the encoded form that claims have as the id of their source.
#[pyfunction]
pub(crate) fn encode_source_id<'py>(py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let key = match key.cast::<PyString>() {
        Ok(text) => SourceKey::Text(text.extract()?),
        Err(_) => SourceKey::Integer(key.extract()?),
    };
    match run(py, Call::EncodeSourceId { key })? {
        CallOutput::SourceId(id) => Ok(PyBytes::new(py, id.as_bytes())),
        _ => Err(wrong_answer(py)),
    }
}

/// A claim argument: a `leasehold.Claim`, or any Python object with the same attributes.
#[derive(FromPyObject)]
pub(crate) struct ClaimArgument {
    pub(crate) bucket_type: i32,
    pub(crate) bucket_value: String,
    pub(crate) subject: Option<SubjectArgument>,
    pub(crate) source: Option<SourceArgument>,
}

/// A subject argument: a `leasehold.Subject`, or any Python object with the same attributes.
#[derive(FromPyObject)]
pub(crate) struct SubjectArgument {
    pub(crate) subject_type: i32,
    pub(crate) id: i64,
}

/// A source argument: a `leasehold.Source`, or any Python object with the same attributes.
#[derive(FromPyObject)]
pub(crate) struct SourceArgument {
    source_type: i32,
    pub(crate) id: Vec<u8>,
}

impl From<ClaimArgument> for ClaimInput {
    fn from(claim: ClaimArgument) -> Self {
        let source = |source: SourceArgument| Source {
            source_type: SourceType(source.source_type),
            id: SourceId::from_bytes(&source.id),
        };
        Self {
            bucket_type: claim.bucket_type,
            bucket_value: claim.bucket_value,
            subject: claim.subject.map(|subject| Subject { subject_type: subject.subject_type, id: subject.id }),
            source: claim.source.map(source),
        }
    }
}

fn run(py: Python<'_>, request: Call) -> PyResult<CallOutput> {
    call(request, &CATALOGUE).map_err(|error| errors::exception(py, &error))
}

/// Returns the exception for an answer of the engine that belongs to another call. The engine never gives one.
fn wrong_answer(py: Python<'_>) -> PyErr {
    errors::with_code(py, "INTERNAL", "the engine returned the answer to another call: report this defect")
}
