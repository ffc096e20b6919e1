//! The errors of the client's calls and of [`Update::run`](crate::Update::run).

use std::fmt;

use uuid::Uuid;

use crate::endpoint::EndpointError;
use crate::handshake::Obstacle;
use crate::refusal::Refusal;
use crate::stub::KeyError;

/// The reason why a bucket can't be part of a classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassifyError {
    /// The wire contract has no typed claim for the bucket type with this number.
    #[error("the bucket type {0} cannot be classified: the wire contract has no claim of that type")]
    NoClaim(i32),
    /// The bucket's value is not an integer, but values of the bucket type with this number are
    /// ids.
    #[error("a value of the bucket type {0} cannot be classified: it must be a whole number")]
    NotAnInteger(i32),
}

/// The error of a failed call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server's address or a certificate file is unusable. No call was sent.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The idempotency key is unusable. No call was sent.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The thread that renews a session could not be started. The session ends by its silence.
    #[error("the thread that renews the session could not be started: {0}")]
    Thread(String),
    /// The session is lost: it has ended, or could not be renewed in time. All that it held may be another's.
    #[error("the session is lost, and what it held may be another's: open a new session")]
    SessionLost,
    /// A later take of the session for the same queue has taken this one's place.
    #[error("a later take of this session for the queue has taken the place of this one")]
    TakeReplaced,
    /// A bucket cannot be classified. No call was sent.
    #[error(transparent)]
    Classify(#[from] ClassifyError),
    /// The server refused the call, and no attempt of the call changed anything.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No definite answer came. The call may have taken effect.
    #[error("{0}")]
    Unanswered(Box<Unanswered>),
    /// The server has another store than the client was built for, or its answer has no store id.
    #[error(transparent)]
    OtherStore(#[from] OtherStore),
    /// The server's answer breaks the wire contract.
    #[error("the server's answer breaks the wire contract: {0}; use a server and a client of the same version")]
    BadAnswer(&'static str),
}

/// The server has another store than the one that
/// [`ClientBuilder::store_id`](crate::ClientBuilder::store_id) names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherStore {
    /// The id of the store that the client accepts.
    pub expected: Uuid,
    /// The id of the server's store; `None` if the server's answer has no store id.
    pub found: Option<Uuid>,
}

impl fmt::Display for OtherStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.expected;
        match self.found {
            Some(found) => write!(
                f,
                "the server has the store {found}, and this client is for the store {expected}: check the server's address and `store_id`"
            ),
            None => write!(
                f,
                "the server does not tell its store, and this client is for the store {expected}: use a server of this version or newer"
            ),
        }
    }
}

impl std::error::Error for OtherStore {}

/// A call without a definite answer, and the data to repeat it safely.
#[derive(Clone, Debug)]
pub struct Unanswered {
    /// The failure of the last attempt.
    pub refusal: Refusal,
    /// The fault of the TLS handshake that keeps the client from the server, if one was found.
    pub obstacle: Option<Obstacle>,
    /// Idempotency key of the begin that failed; `None` for other calls. A begin that is repeated
    /// under this key gets the same lease, unless it was rolled back (B09).
    pub idempotency_key: Option<String>,
    /// The lease whose commit or rollback failed; `None` for other calls. Both calls may be
    /// repeated (B22).
    pub lease_uuid: Option<Uuid>,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.obstacle {
            Some(obstacle) => obstacle.fmt(f),
            None => self.refusal.fmt(f),
        }
    }
}

impl Error {
    /// Returns the refusal of the last attempt; `None` if the call was not sent, or if its answer
    /// was malformed.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Unanswered(unanswered) => Some(&unanswered.refusal),
            Self::Endpoint(_)
            | Self::Key(_)
            | Self::Thread(_)
            | Self::SessionLost
            | Self::TakeReplaced
            | Self::Classify(_)
            | Self::OtherStore(_)
            | Self::BadAnswer(_) => None,
        }
    }

    /// Returns true if the call may have taken effect although it failed.
    #[must_use]
    pub fn outcome_is_unknown(&self) -> bool {
        match self {
            Self::Unanswered(_) | Self::BadAnswer(_) => true,
            // If the answer has a store id, the server refused the call for it and changed nothing.
            // Without one, an older server may have executed the call.
            Self::OtherStore(other) => other.found.is_none(),
            Self::Endpoint(_)
            | Self::Key(_)
            | Self::Thread(_)
            | Self::SessionLost
            | Self::TakeReplaced
            | Self::Classify(_)
            | Self::Refused(_) => false,
        }
    }
}

/// The error of a failed [`Update::run`](crate::Update::run). `E` is the error type of the caller's
/// work.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError<E> {
    /// The lease could not be begun, so the work did not run.
    #[error("cannot begin the update: {0}")]
    Begin(Error),
    /// The caller's work failed. If the local COMMIT had succeeded before the failure, the lease
    /// may be committed all the same.
    #[error("{error}")]
    Work {
        /// The error that the work returned.
        error: E,
        /// The failure to commit or roll back the lease after the work; `None` if that succeeded,
        /// or if the lease was left to reconciliation.
        unsettled: Option<Error>,
    },
    /// The work succeeded, but its lease could not be committed. The claims stay under the lease
    /// until the commit is repeated, or until reconciliation settles the lease. The lease was not
    /// rolled back.
    #[error("cannot commit the lease: {0}")]
    Commit(Error),
}
