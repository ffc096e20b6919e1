//! Errors of the engine, in a form that every language can represent.

use leasehold_core::catalogue::ValueError;
use leasehold_core::reconcile::OutOfTurn;
use leasehold_core::rejection::{List, Offence, Place, Reason, Rejection};
use leasehold_core::update::Answer;
use serde::Serialize;

/// An error of the engine. Language packages choose the exception class by the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DetailedError {
    /// The code of the engine's reason, such as `CLAIM_TAKEN`. A wrong call of a session has the
    /// code `OUT_OF_TURN`, `INVALID_ARGUMENT`, `INVALID_ROWS` or `INVALID_CHECKPOINT`. The code
    /// `INTERNAL` means a defect of the engine.
    pub code: &'static str,
    /// The message of the error, for people.
    pub message: String,
    /// The refused claims; empty if the error does not concern single claims.
    pub details: Vec<ErrorDetail>,
    /// Microseconds after which a retry can succeed; `None` if a retry cannot help.
    pub retry_after_micros: Option<u64>,
}

/// A refused claim of an update, in a [`DetailedError`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorDetail {
    /// The list that has the claim: `creates` or `destroys`.
    pub list: &'static str,
    /// The position of the claim in its list, from 0.
    pub position: u32,
    /// The number of the claim's bucket type on the wire.
    pub bucket_type: i32,
    /// The code of the reason for this claim, such as `CLAIM_TAKEN`.
    pub code: &'static str,
    /// The message about this claim, for people.
    pub message: String,
}

impl DetailedError {
    /// Returns an error that does not concern single claims.
    pub fn new(code: &'static str, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), details: Vec::new(), retry_after_micros: None }
    }
}

impl From<ValueError> for DetailedError {
    fn from(error: ValueError) -> Self {
        Self::new(error.reason.code(), error.detail)
    }
}

impl From<OutOfTurn> for DetailedError {
    fn from(error: OutOfTurn) -> Self {
        Self::new("OUT_OF_TURN", error)
    }
}

impl From<Rejection> for DetailedError {
    fn from(rejection: Rejection) -> Self {
        let details = rejection.offences().iter().filter_map(|offence| Some(detail(offence.place?, offence))).collect();
        let retry_after_micros = rejection.retry_after_micros();
        Self { details, retry_after_micros, ..Self::new(rejection.reason().code(), &rejection) }
    }
}

fn detail(place: Place, offence: &Offence) -> ErrorDetail {
    ErrorDetail {
        list: match place.list {
            List::Creates => "creates",
            List::Destroys => "destroys",
        },
        position: place.position,
        bucket_type: offence.bucket_type.map_or(0, |bucket_type| bucket_type.0),
        code: offence.reason.code(),
        message: offence.to_string(),
    }
}

/// Converts the engine's decision: a rejection and a failure of the store both become a
/// [`DetailedError`].
pub(crate) fn decision<T, E: std::fmt::Display>(answer: Answer<T, E>) -> Result<T, DetailedError> {
    Ok(or_internal(answer)??)
}

/// Converts a failure of the reference store to `INTERNAL`. The store fails only if its state
/// contradicts itself.
pub(crate) fn or_internal<T, E: std::fmt::Display>(read: Result<T, E>) -> Result<T, DetailedError> {
    read.map_err(|error| DetailedError::new("INTERNAL", error))
}

/// Returns the reason with this code; `None` for a code that this version does not know.
#[must_use]
pub fn reason_by_code(code: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.code() == code)
}
