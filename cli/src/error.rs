//! Failures of the command line. Each has a message and a hint for people, and an exit code and a
//! JSON form for scripts.

use std::path::Path;
use std::{fmt, io};

use leasehold_client::{Error, Refusal};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::BeginUpdateRequest;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::contract::ContractError;
use crate::exit;
use crate::refused::{RefusedCall, code_name};

/// A lock or a batch, which a command runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenureKind {
    /// One lock or several.
    Lock,
    /// A batch of a queue.
    Batch,
}

impl fmt::Display for TenureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lock => "lock",
            Self::Batch => "batch",
        })
    }
}

impl TenureKind {
    /// Returns the word for the end of the tenure.
    pub(crate) fn end(self) -> &'static str {
        match self {
            Self::Lock => "released",
            Self::Batch => "settled",
        }
    }
}

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The command line, or a file that it names, is wrong.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached, or the TLS handshake failed.
    #[error("cannot reach {server}: {cause}")]
    Unreachable {
        /// The server's address.
        server: String,
        /// The text of the innermost error.
        cause: String,
        /// Advice for the next step.
        hint: String,
    },
    /// The server does not accept the client's certificate.
    #[error("{message}")]
    NotAccepted {
        /// The text with the certificate and its fault.
        message: String,
        /// Advice for the next step.
        hint: &'static str,
    },
    /// The server refused the call, or did not answer in time.
    #[error("{0}")]
    Refused(Box<RefusedCall>),
    /// The server's answer breaks the wire contract.
    #[error("the server's answer breaks the wire contract: {0}")]
    BadAnswer(&'static str),
    /// Other sessions hold the lock, or waited for it before.
    #[error("the lock is not free: others hold it, came before, or have to clean up first")]
    LockHeld {
        /// True if the command waited for the lock.
        has_waited: bool,
    },
    /// The session was lost before the command was started.
    #[error("the session was lost before the command was started")]
    NeverHeld,
    /// The lock or batch passed on before the command had ended.
    #[error("the {0} was lost before the command had ended")]
    TenureLost(TenureKind),
    /// The command was ended by its verb, so that its lock or batch could pass on.
    #[error("the command was ended, because its {0} was about to pass on")]
    CommandStopped(TenureKind),
    /// A command that was to run under a lock or a batch can't be started.
    #[error("`{program}` can't be started: {cause}")]
    NotStarted {
        /// The name of the program, as it was given.
        program: String,
        /// The failure of the start.
        cause: io::Error,
    },
    /// A command that ran under a lock or a batch ended with this exit code. It has written its own messages.
    #[error("the command ended with the exit code {0}")]
    Ended(u8),
    /// The request that the command names is not there, or not in the state that the command is for.
    #[error("{0}")]
    Unfit(String),
    /// A part of the work is left undone.
    #[error("{0}")]
    Incomplete(String),
    /// A message cannot be read from JSON or written as JSON.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// The measurement of `bench` cannot be set up.
    #[error("cannot measure: {0}")]
    Measure(#[from] hdrhistogram::CreationError),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal.into()))
    }
}

impl From<Status> for CliError {
    fn from(status: Status) -> Self {
        Refusal::of(&status).into()
    }
}

impl CliError {
    /// Returns the exit code of the process; [`EXIT_CODES`](exit::EXIT_CODES) lists them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit::USAGE,
            Self::LockHeld { .. } | Self::NeverHeld => exit::TRY_AGAIN,
            Self::TenureLost(_) | Self::CommandStopped(_) => exit::TENURE_LOST,
            Self::NotStarted { cause, .. } if cause.kind() == io::ErrorKind::NotFound => exit::NOT_FOUND,
            Self::NotStarted { .. } => exit::NOT_STARTED,
            Self::Ended(code) => *code,
            Self::Unreachable { .. } => exit::UNAVAILABLE,
            Self::NotAccepted { .. } => exit::NOT_ALLOWED,
            Self::Unfit(_) => exit::REFUSED,
            Self::Refused(call) => exit::of_refusal(&call.refusal),
            Self::BadAnswer(_) | Self::Incomplete(_) | Self::Contract(_) | Self::Measure(_) | Self::Output(_) => {
                exit::FAILURE
            }
        }
    }

    /// Writes the error to standard error: as text, or as one JSON object.
    pub fn report(&self, json: bool) {
        if matches!(self, Self::Ended(_)) {
            return;
        }
        if json { eprintln!("{}", self.to_json()) } else { eprint!("{}", self.to_text()) }
    }

    /// Returns true if the same call may succeed later without any other change.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self.exit_code(), exit::TRY_AGAIN | exit::UNAVAILABLE)
    }

    /// Returns true if the connection could not be opened or broke. Another TLS handshake may then
    /// explain the failure.
    pub(crate) fn is_of_connection(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused(call) => call.refusal.is_broken,
            _ => false,
        }
    }

    /// Returns this error with a hint for a call that only administrators may make.
    pub(crate) fn for_admins(mut self) -> Self {
        if let Self::Refused(call) = &mut self {
            call.allowed = "of an administrator: nobody else may make this call";
        }
        self
    }

    /// Adds to this error the path of the certificate that was sent. The hint names the path.
    pub(crate) fn with_certificate(mut self, certificate: Option<&Path>) -> Self {
        if let Self::Refused(call) = &mut self {
            call.certificate = certificate.map(Path::to_owned);
        }
        self
    }

    /// Adds to this error of a begin the names of the refused claims, and the key under which the
    /// begin may be repeated.
    pub(crate) fn of_begin(mut self, request: &BeginUpdateRequest, key: &str) -> Self {
        if let Self::Refused(call) = &mut self {
            call.name_claims(request);
            call.idempotency_key = Some(key.to_owned());
        }
        self
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unreachable { hint, .. } => Some(hint.clone()),
            Self::NotAccepted { hint, .. } => Some((*hint).to_owned()),
            Self::Refused(call) => call.hint(),
            Self::LockHeld { has_waited } => Some(format!(
                "`leasehold locks` shows who holds it; --wait-seconds waits {}",
                if *has_waited { "longer" } else { "for it" }
            )),
            Self::NeverHeld => Some(
                "the server did not answer for too long, or this process was paused: the command has not run"
                    .to_owned(),
            ),
            Self::TenureLost(_) => {
                Some("another process may hold it by now: check what the command has done".to_owned())
            }
            Self::CommandStopped(_) => {
                Some("check what the command has done, and repeat it if that is safe".to_owned())
            }
            Self::NotStarted { .. } => Some("check its path and its permissions; nothing has run".to_owned()),
            _ => None,
        }
    }

    fn to_text(&self) -> String {
        let claims = match self {
            Self::Refused(call) => call.claims.iter().map(|claim| format!("\n  {claim}")).collect(),
            _ => String::new(),
        };
        text(&format!("{self}{claims}"), self.hint().as_deref())
    }

    fn to_json(&self) -> Value {
        let mut object = object(&self.to_string(), self.hint().as_deref(), self.exit_code());
        if let (Self::Refused(call), Some(error)) = (self, object.get_mut("error").and_then(Value::as_object_mut)) {
            error.extend(call.to_json());
        }
        object
    }
}

/// Returns the failure of a call of the client library.
pub(crate) fn call_failed(error: Error) -> CliError {
    match error {
        Error::Refused(refusal) => CliError::from(*refusal),
        Error::Unanswered(unanswered) => unanswered.refusal.into(),
        Error::BadAnswer(what) => CliError::BadAnswer(what),
        other => CliError::Usage(other.to_string()),
    }
}

/// Writes a failure that is not a [`CliError`] to standard error, in the form of
/// [`CliError::report`].
pub fn report(message: &str, hint: Option<&str>, code: Option<Code>, exit_code: u8, json: bool) {
    if json {
        let mut object = object(message, hint, exit_code);
        if let (Some(code), Some(member)) = (code, object.pointer_mut("/error/code")) {
            *member = code_name(code).into();
        }
        eprintln!("{object}");
    } else {
        eprint!("{}", text(message, hint));
    }
}

fn text(message: &str, hint: Option<&str>) -> String {
    let hint = hint.map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
    format!("error: {message}\n{hint}")
}

/// Returns the JSON of an error. Every error has these members. The last four are null or empty if
/// no server refused a call.
fn object(message: &str, hint: Option<&str>, exit_code: u8) -> Value {
    json!({ "error": {
        "message": message,
        "hint": hint,
        "exitCode": exit_code,
        "code": null,
        "reason": null,
        "retryAfterSeconds": null,
        "claims": [],
    } })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Bucket, Metadata};
    use leasehold_proto::leasehold::v1::RejectedClaims;
    use leasehold_proto::leasehold::v1::rejected_claims::{Claims, Group};
    use prost::{Message, Name};
    use tonic_types::{ErrorDetails, StatusExt, pb};

    use super::*;

    fn unreachable() -> CliError {
        CliError::Unreachable { server: String::new(), cause: String::new(), hint: String::new() }
    }

    fn record(value: &str) -> Metadata {
        Metadata { bucket: Some(Bucket { r#type: 4, value: value.to_owned() }), ..Metadata::default() }
    }

    fn two_rejected() -> CliError {
        let group = |reason: &str, create: &[u32], destroy: &[u32]| Group {
            reason: reason.to_owned(),
            claims: vec![Claims {
                bucket_type: 4,
                create_positions: create.to_vec(),
                destroy_positions: destroy.to_vec(),
            }],
        };
        let rejected =
            RejectedClaims { groups: vec![group("CLAIM_BUSY", &[], &[0]), group("CLAIM_TAKEN", &[1, 9], &[])] };
        let detail = prost_types::Any { type_url: RejectedClaims::type_url(), value: rejected.encode_to_vec() };
        let rich = pb::Status { details: vec![detail], ..pb::Status::default() };
        let status = Status::with_details(Code::AlreadyExists, "taken", rich.encode_to_vec().into());
        let request = BeginUpdateRequest {
            create_records: vec![record("alice"), record("bob")],
            destroy_records: vec![record("carol")],
            cell_id: 1,
            organization_id: 0,
        };
        CliError::from(status).of_begin(&request, "k1")
    }

    #[test]
    fn b10_rejected_claims_are_named_as_typed() {
        let text = two_rejected().to_text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "error: taken (ALREADY_EXISTS)",
                "  create USERNAMES:bob: CLAIM_TAKEN, the bucket is taken",
                "  create number 9: CLAIM_TAKEN, the bucket is taken",
                "  destroy USERNAMES:carol: CLAIM_BUSY, the claim is under another lease",
            ]
        );
    }

    #[test]
    fn the_json_of_an_error_has_the_rejected_claims() {
        let error = two_rejected().to_json();
        assert_eq!(error["error"]["code"], "ALREADY_EXISTS");
        assert_eq!(error["error"]["exitCode"], 3);
        let first = json!({"list": "create", "position": 1, "claim": "USERNAMES:bob", "reason": "CLAIM_TAKEN"});
        assert_eq!(error["error"]["claims"][0], first);
    }

    #[test]
    fn every_json_error_has_the_same_members() {
        let members = |error: Value| error["error"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let refused = members(two_rejected().to_json());
        for error in [unreachable(), CliError::Usage("no".to_owned()), CliError::BadAnswer("no")] {
            assert_eq!(error.to_json()["error"]["claims"], json!([]));
            assert_eq!(members(error.to_json()), refused);
        }
        assert_eq!(members(object("no", None, 1)), refused);
    }

    #[test]
    fn the_hint_and_the_delay_are_in_both_forms() {
        let mut details = ErrorDetails::with_error_info("CLAIM_BUSY", "leasehold", HashMap::new());
        details.set_retry_info(Some(Duration::from_millis(250)));
        let busy = CliError::from(Status::with_error_details(Code::FailedPrecondition, "busy", details));
        assert!(busy.to_text().ends_with("hint: another update is under way: try again in 250 ms\n"));
        assert_eq!(busy.to_json()["error"]["retryAfterSeconds"], 0.25);
    }

    #[test]
    fn failures_without_a_refusal_have_their_exit_codes() {
        assert_eq!(CliError::Usage(String::new()).exit_code(), 2);
        assert_eq!(unreachable().exit_code(), 5);
        assert_eq!(CliError::NotAccepted { message: String::new(), hint: "" }.exit_code(), 6);
    }
}
