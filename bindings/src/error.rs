//! Why there is no answer, in a form that every language can carry.

use leasehold_core::catalogue::ValueError;
use leasehold_core::reconcile::OutOfTurn;
use leasehold_core::rejection::{List, Offence, Place, Reason, Rejection};
use serde::Serialize;

/// The engine's no: languages choose the exception by its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DetailedError {
    /// The reason, as on the wire, or `OUT_OF_TURN`, `INVALID_ROWS`, `INVALID_CHECKPOINT` where a session is misused.
    pub code: &'static str,
    /// What is wrong, for people.
    pub message: String,
    /// Each claim that offends, where claims do.
    pub details: Vec<Detail>,
    /// In how many microseconds to try again, where that can help.
    pub retry_after_micros: Option<u64>,
}

/// One claim that offends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// `creates` or `destroys`.
    pub list: &'static str,
    /// Its position there, from 0.
    pub position: u32,
    /// Its bucket type.
    pub bucket_type: i32,
    /// The reason, as on the wire.
    pub code: &'static str,
    /// What is wrong with it, for people.
    pub message: String,
}

impl DetailedError {
    /// One that no claim is to blame for.
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

fn detail(place: Place, offence: &Offence) -> Detail {
    Detail {
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

/// The reason that has a code, none for a code of another version.
#[must_use]
pub fn reason(code: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.code() == code)
}
