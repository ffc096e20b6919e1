//! What the engine answers at once.

use std::sync::LazyLock;

use leasehold_bindings::{
    Call, CallOutput, Catalogue, ClaimInput, Source, SourceId, SourceKey, SourceType, Subject, call,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::default);

/// The form of a value that decides whether two are the same.
#[pyfunction]
pub(crate) fn canonical_form(py: Python<'_>, bucket_type: i32, value: String) -> PyResult<String> {
    match ask(py, Call::CanonicalForm { bucket_type, value })? {
        CallOutput::CanonicalForm(form) => Ok(form),
        _ => Err(mistaken(py)),
    }
}

/// Raises where the server would refuse an update before it looks at any other claim.
#[pyfunction]
pub(crate) fn check_batch(py: Python<'_>, creates: Vec<ClaimArgument>, destroys: Vec<ClaimArgument>) -> PyResult<()> {
    let claims = |claims: Vec<ClaimArgument>| claims.into_iter().map(ClaimInput::from).collect();
    let question = Call::CheckBatch { creates: claims(creates), destroys: claims(destroys) };
    py.detach(|| call(question, &CATALOGUE)).map(drop).map_err(|error| errors::refusal(py, &error))
}

/// A row's primary key as the bytes that a claim's source has.
#[pyfunction]
pub(crate) fn encode_source_id<'py>(py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let key = match key.cast::<PyString>() {
        Ok(text) => SourceKey::Text(text.extract()?),
        Err(_) => SourceKey::Integer(key.extract()?),
    };
    match ask(py, Call::EncodeSourceId { key })? {
        CallOutput::SourceId(id) => Ok(PyBytes::new(py, id.as_bytes())),
        _ => Err(mistaken(py)),
    }
}

/// `leasehold.Claim`, or whatever has its attributes.
#[derive(FromPyObject)]
pub(crate) struct ClaimArgument {
    pub(crate) bucket_type: i32,
    pub(crate) bucket_value: String,
    pub(crate) subject: Option<SubjectArgument>,
    pub(crate) source: Option<SourceArgument>,
}

/// `leasehold.Subject`.
#[derive(FromPyObject)]
pub(crate) struct SubjectArgument {
    pub(crate) subject_type: i32,
    pub(crate) id: i64,
}

/// `leasehold.Source`.
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

fn ask(py: Python<'_>, question: Call) -> PyResult<CallOutput> {
    call(question, &CATALOGUE).map_err(|error| errors::refusal(py, &error))
}

fn mistaken(py: Python<'_>) -> PyErr {
    errors::misuse(py, "INTERNAL", "the engine answered another question, which is a defect: please report it")
}
