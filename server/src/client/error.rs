//! What went wrong, for people and for scripts: the server's words, each offending claim, what to do, the exit code.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::rejection::Reason;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::BeginUpdateRequest;
use leasehold_proto::leasehold::v1::RejectedClaims;
use leasehold_proto::leasehold::v1::rejected_claims::{Claims, Group};
use leasehold_proto::{DescriptorError, JsonError};
use prost::{Message, Name};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::connection::root_cause;
use super::contract::claimed;
use super::words::show_bucket;

/// What the exit codes mean, for the end of `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  anything else went wrong
  2  the command line or the configuration is wrong
  3  refused for good: taken, not found, not the owner, changed, rolled back, not valid
  4  try again: busy, overloaded, no answer in time
  5  the server cannot be reached, or its store is down
  6  not allowed: no identity, one that may not do this, or one that the server or its database does not accept";

/// The exit code of a wrong command line or configuration.
pub const USAGE: u8 = 2;

/// Why a command of the client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The command line, or a file named on it, is wrong.
    #[error("{0}")]
    Usage(String),
    /// No connection could be made.
    #[error("cannot reach {server}: {cause}")]
    Unreachable {
        /// The address tried.
        server: String,
        /// What went wrong at the bottom.
        cause: String,
        /// What to do.
        hint: String,
    },
    /// The server does not accept the client's certificate.
    #[error("{message}")]
    NotAccepted {
        /// Which certificate, and why.
        message: String,
        /// What to do.
        hint: &'static str,
    },
    /// The server answered, with a refusal, or did not in time.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The server's answer breaks the contract.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(&'static str),
    /// A message could not be read from JSON or written as JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The embedded contract is damaged.
    #[error("cannot read the embedded descriptors: rebuild leasehold")]
    Descriptors(#[from] DescriptorError),
    /// The measurement could not be set up.
    #[error("cannot measure: {0}")]
    Measure(#[from] hdrhistogram::CreationError),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// An answer that is not the one asked for.
#[derive(Debug)]
pub struct Refusal {
    pub(super) code: Code,
    /// The reason code, where the server gave one.
    pub(super) reason: Option<String>,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
    pub(super) claims: Vec<RejectedClaim>,
    /// Repeats a begin whose outcome is not known without beginning it twice.
    pub(super) idempotency_key: Option<String>,
    pub(super) rejected: RejectedClaims,
    /// The limit that was passed, where one was.
    pub(super) limit: Option<String>,
    /// Whether another session of the server's database keeps the rows locked.
    pub(super) is_locked: bool,
    /// Whose certificate allows the call.
    pub(super) allowed: &'static str,
    /// The certificate that was shown, where one was.
    pub(super) cert: Option<PathBuf>,
    /// The connection broke, rather than that the server answered.
    pub(super) broken: bool,
}

/// A claim that the server turned down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RejectedClaim {
    /// `create` or `destroy`.
    pub(super) list: &'static str,
    /// From 0.
    pub(super) position: u32,
    /// As typed: `USERNAMES:alice`.
    pub(super) claim: String,
    pub(super) reason: String,
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        let info = status.get_details_error_info();
        let lost = std::error::Error::source(&status).map(root_cause);
        Self::from(Refusal {
            limit: info.as_ref().and_then(|info| info.metadata.get("limit").cloned()),
            is_locked: info
                .as_ref()
                .is_some_and(|info| info.metadata.get("cause").is_some_and(|cause| cause == "locked")),
            reason: info.map(|info| info.reason).filter(|reason| !reason.is_empty()),
            broken: lost.is_some(),
            message: lost
                .as_ref()
                .map_or_else(|| status.message().to_owned(), |cause| format!("the connection broke: {cause}")),
            retry_after: status.get_details_retry_info().and_then(|info| info.retry_delay),
            rejected: rejected(&status),
            ..Refusal::new(if lost.is_some() { Code::Unavailable } else { status.code() })
        })
    }
}

fn rejected(status: &Status) -> RejectedClaims {
    let details = tonic_types::Status::decode(status.details()).unwrap_or_default().details;
    let name = RejectedClaims::full_name();
    let ours = details.iter().find(|detail| detail.type_url.rsplit('/').next() == Some(name.as_str()));
    ours.and_then(|detail| RejectedClaims::decode(detail.value.as_slice()).ok()).unwrap_or_default()
}

impl ClientError {
    /// The process's exit code; [`EXIT_CODES`] lists them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Unreachable { .. } => 5,
            Self::NotAccepted { .. } => 6,
            Self::Refused(refusal) => refusal.exit_code(),
            Self::Nonsense(_) | Self::Json(_) | Self::Descriptors(_) | Self::Measure(_) | Self::Output(_) => 1,
        }
    }

    /// Writes the error to stderr: for people, or as one JSON object.
    pub fn report(&self, json: bool) {
        if json { eprintln!("{}", self.to_json()) } else { eprint!("{}", self.to_text()) }
    }

    /// Whether no connection was made, or it broke.
    pub(super) fn is_of_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. }) || matches!(self, Self::Refused(refusal) if refusal.broken)
    }

    /// Says that the call is one for administrators.
    pub(super) fn for_admins(mut self) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.allowed = "of an administrator: a record is shown to nobody else";
        }
        self
    }

    /// Says which certificate was shown.
    pub(super) fn shown(mut self, cert: Option<&Path>) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.cert = cert.map(Path::to_owned);
        }
        self
    }

    /// Names the claims that were turned down, by what was asked.
    pub(super) fn about(mut self, request: &BeginUpdateRequest, key: Option<&str>) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.claims = claims(&refusal.rejected, request);
            refusal.idempotency_key = key.map(str::to_owned);
        }
        self
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unreachable { hint, .. } => Some(hint.clone()),
            Self::NotAccepted { hint, .. } => Some((*hint).to_owned()),
            Self::Refused(refusal) => refusal.hint(),
            _ => None,
        }
    }

    fn to_text(&self) -> String {
        let claims = match self {
            Self::Refused(refusal) => refusal.claims.iter().map(|claim| format!("\n  {claim}")).collect(),
            _ => String::new(),
        };
        text(&format!("{self}{claims}"), self.hint().as_deref())
    }

    fn to_json(&self) -> Value {
        let mut object = object(&self.to_string(), self.hint().as_deref(), self.exit_code());
        if let (Self::Refused(refusal), Some(error)) = (self, object.get_mut("error").and_then(Value::as_object_mut)) {
            error.extend(refusal.to_json());
        }
        object
    }
}

/// Writes a failure outside the client to stderr as [`ClientError::report`] does: for people, or as one JSON object.
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

/// Every error has the same members; those that only a server's refusal fills are null or empty in others.
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

impl Refusal {
    pub(super) fn new(code: Code) -> Self {
        Self {
            code,
            reason: None,
            message: String::new(),
            retry_after: None,
            claims: Vec::new(),
            idempotency_key: None,
            rejected: RejectedClaims::default(),
            limit: None,
            is_locked: false,
            allowed: "of that cell, or of an administrator",
            cert: None,
            broken: false,
        }
    }

    /// What errors are counted by: the reason, or the status code where there is none.
    pub(super) fn label(&self) -> String {
        self.reason.clone().unwrap_or_else(|| code_name(self.code))
    }

    fn exit_code(&self) -> u8 {
        let known = self.reason.as_deref().and_then(exit_code_of_reason);
        known.unwrap_or_else(|| exit_code_of(self.code))
    }

    fn hint(&self) -> Option<String> {
        let hint = self.reason.as_deref().map(|reason| self.hint_of_reason(reason));
        hint.unwrap_or_else(|| self.hint_of_code())
    }

    fn to_json(&self) -> [(String, Value); 5] {
        [
            ("code", json!(code_name(self.code))),
            ("reason", json!(self.reason)),
            ("message", json!(self.message)),
            ("retryAfterSeconds", json!(self.retry_after.map(|after| after.as_secs_f64()))),
            ("claims", self.claims.iter().map(RejectedClaim::to_json).collect()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    fn hint_of_reason(&self, reason: &str) -> Option<String> {
        let again = || format!("try again{}", self.delay());
        Some(match reason {
            "CLAIM_TAKEN" => format!("choose another value, or see who holds it: {}", self.get_command()),
            "CLAIM_BUSY" => format!("another update is under way: {}", again()),
            "CLAIM_CHANGED" => format!("see which source row it has now: {}", self.get_command()),
            "CLAIM_NOT_FOUND" => "check the type and the spelling".to_owned(),
            "LEASE_NOT_FOUND" => "see what is outstanding: `leasehold leases --cell N`".to_owned(),
            "LEASE_ROLLED_BACK" => "nothing of it was kept: begin the update again".to_owned(),
            "LEASE_COMMITTED" => "to undo it, begin an update that destroys what it created".to_owned(),
            "NOT_OWNER" => "only the cell that owns it can change it: check --cell".to_owned(),
            "LIMIT_EXCEEDED" => self.hint_of_limit().to_owned(),
            "IDEMPOTENCY_KEY_REUSED" => "use another --idempotency-key for another update".to_owned(),
            "NO_IDENTITY" => self.hint_of_identity(),
            "RULE_DENIED" => format!("use the certificate {}", self.allowed),
            "STORE_UNAVAILABLE" => self.hint_of_store(),
            "OVERLOADED" => again(),
            _ => return self.retry_after.map(|_| again()),
        })
    }

    fn hint_of_identity(&self) -> String {
        match &self.cert {
            None => "say who you are with --cert and --key".to_owned(),
            Some(path) => format!(
                "the certificate `{}` does not name one cell, router or admin of the server's trust domain: \
                 use one that does",
                path.display()
            ),
        }
    }

    /// Whether the update was kept may not be known before the store is back; repeating it is right either way.
    fn hint_of_store(&self) -> String {
        let again = match &self.idempotency_key {
            Some(key) => format!("repeat it with `--idempotency-key {key}`, it begins only once"),
            None => "repeating it is safe".to_owned(),
        };
        if self.is_locked {
            return format!(
                "when that session has ended its transaction, {again}; the server's log says how to find it"
            );
        }
        format!("when the store is back, {again}; the server's log says what is wrong")
    }

    fn hint_of_limit(&self) -> &'static str {
        match self.limit.as_deref() {
            Some("bucket_value_bytes") => "shorten the value",
            Some("source_id_bytes") => "shorten the source id",
            Some("idempotency_key_bytes") => "shorten --idempotency-key",
            Some("claims_per_classify") => "name fewer claims",
            _ => "split the update",
        }
    }

    fn hint_of_code(&self) -> Option<String> {
        match (self.code, &self.idempotency_key) {
            (Code::DeadlineExceeded | Code::Unavailable, Some(key)) => Some(format!(
                "whether it took effect is not known: repeat it with `--idempotency-key {key}`, it begins only once"
            )),
            (Code::DeadlineExceeded, None) => Some("repeating it is safe; --timeout-seconds waits longer".to_owned()),
            (Code::Unavailable, None) => Some("repeating it is safe, once the server is back".to_owned()),
            (Code::Unauthenticated, _) => Some(self.hint_of_identity()),
            (Code::Unimplemented, _) => Some("is --server a Leasehold server, and as new as this client?".to_owned()),
            _ => self.retry_after.map(|_| format!("try again{}", self.delay())),
        }
    }

    fn delay(&self) -> String {
        self.retry_after.map(|after| format!(" in {} ms", after.as_millis())).unwrap_or_default()
    }

    fn get_command(&self) -> String {
        let deciding = self.claims.iter().find(|claim| Some(&claim.reason) == self.reason.as_ref());
        format!("`leasehold get {}`", deciding.map_or("TYPE:VALUE", |claim| &claim.claim))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.label();
        if self.message.is_empty() { write!(f, "{label}") } else { write!(f, "{} ({label})", self.message) }
    }
}

impl RejectedClaim {
    fn to_json(&self) -> Value {
        json!({ "list": self.list, "position": self.position, "claim": self.claim, "reason": self.reason })
    }
}

impl fmt::Display for RejectedClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.list, self.claim, self.reason)?;
        match known(&self.reason) {
            Some(reason) => write!(f, ", {}", reason.summary()),
            None => Ok(()),
        }
    }
}

/// The exit code that a status code comes to where no reason says more.
pub(crate) fn exit_code_of(code: Code) -> u8 {
    match code {
        Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => 4,
        Code::Unavailable => 5,
        Code::Unauthenticated | Code::PermissionDenied => 6,
        Code::InvalidArgument | Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition | Code::OutOfRange => 3,
        Code::Ok | Code::Cancelled | Code::Unknown | Code::Unimplemented | Code::Internal | Code::DataLoss => 1,
    }
}

fn known(code: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.code() == code)
}

fn exit_code_of_reason(code: &str) -> Option<u8> {
    match code {
        "OVERLOADED" => Some(4),
        "STORE_UNAVAILABLE" => Some(5),
        "NO_IDENTITY" | "RULE_DENIED" => Some(6),
        _ => known(code).map(|reason| if reason.is_temporary() { 4 } else { 3 }),
    }
}

/// The name of a status code as the gRPC documents write it.
pub(super) fn code_name(code: Code) -> String {
    let name = format!("{code:?}");
    let upper = |(at, c): (usize, char)| {
        let gap = (at > 0 && c.is_ascii_uppercase()).then_some('_');
        gap.into_iter().chain(std::iter::once(c.to_ascii_uppercase()))
    };
    name.chars().enumerate().flat_map(upper).collect()
}

/// Every rejected claim with its name, in the order typed.
fn claims(rejected: &RejectedClaims, request: &BeginUpdateRequest) -> Vec<RejectedClaim> {
    let mut claims: Vec<_> = rejected.groups.iter().flat_map(|group| of_group(group, request)).collect();
    claims.sort_by_key(|claim| (claim.list, claim.position));
    claims
}

fn of_group<'a>(group: &'a Group, request: &'a BeginUpdateRequest) -> impl Iterator<Item = RejectedClaim> + 'a {
    group.claims.iter().flat_map(|claims| places(claims, request)).map(|(list, position, claim)| RejectedClaim {
        list,
        position,
        claim,
        reason: group.reason.clone(),
    })
}

fn places<'a>(
    claims: &'a Claims,
    request: &'a BeginUpdateRequest,
) -> impl Iterator<Item = (&'static str, u32, String)> + 'a {
    let lists = [
        ("create", &claims.create_positions, &request.create_records),
        ("destroy", &claims.destroy_positions, &request.destroy_records),
    ];
    lists.into_iter().flat_map(|(list, positions, records)| {
        positions.iter().map(move |&position| {
            let record = usize::try_from(position).ok().and_then(|at| records.get(at));
            let named = record.and_then(claimed).map(|bucket| show_bucket(&bucket));
            (list, position, named.unwrap_or_else(|| format!("number {position}")))
        })
    })
}

#[cfg(test)]
mod tests {
    use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Bucket, Metadata};
    use tonic_types::{ErrorDetails, pb};

    use super::*;

    fn refused(code: Code, reason: &str) -> ClientError {
        let mut details = ErrorDetails::new();
        details.set_error_info(reason, "leasehold", std::collections::HashMap::new());
        ClientError::from(Status::with_error_details(code, "no", details))
    }

    fn unreachable() -> ClientError {
        ClientError::Unreachable { server: String::new(), cause: String::new(), hint: String::new() }
    }

    fn record(value: &str) -> Metadata {
        Metadata { bucket: Some(Bucket { r#type: 4, value: value.to_owned() }), ..Metadata::default() }
    }

    #[test]
    fn every_reason_has_its_exit_code() {
        for reason in Reason::ALL {
            let expected = if reason == Reason::ClaimBusy { 4 } else { 3 };
            assert_eq!(refused(Code::Unknown, reason.code()).exit_code(), expected, "{reason:?}");
        }
        assert_eq!(refused(Code::PermissionDenied, "NOT_OWNER").exit_code(), 3);
        assert_eq!(refused(Code::PermissionDenied, "RULE_DENIED").exit_code(), 6);
        assert_eq!(refused(Code::Unauthenticated, "NO_IDENTITY").exit_code(), 6);
        assert_eq!(refused(Code::ResourceExhausted, "OVERLOADED").exit_code(), 4);
        assert_eq!(refused(Code::Unavailable, "STORE_UNAVAILABLE").exit_code(), 5);
    }

    #[test]
    fn without_a_known_reason_the_status_code_decides() {
        let cases = [
            (Code::DeadlineExceeded, 4),
            (Code::ResourceExhausted, 4),
            (Code::Unavailable, 5),
            (Code::PermissionDenied, 6),
            (Code::NotFound, 3),
            (Code::AlreadyExists, 3),
            (Code::Internal, 1),
            (Code::Unimplemented, 1),
        ];
        for (code, exit_code) in cases {
            assert_eq!(ClientError::from(Status::new(code, "no")).exit_code(), exit_code, "{code:?}");
            assert_eq!(refused(code, "BRAND_NEW").exit_code(), exit_code, "{code:?}");
        }
        assert_eq!(ClientError::Usage(String::new()).exit_code(), 2);
        assert_eq!(unreachable().exit_code(), 5);
    }

    fn two_rejected() -> ClientError {
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
        let details = pb::Status {
            details: vec![prost_types::Any {
                type_url: format!("type.googleapis.com/{}", RejectedClaims::full_name()),
                value: rejected.encode_to_vec(),
            }],
            ..pb::Status::default()
        };
        let status = Status::with_details(Code::AlreadyExists, "taken", details.encode_to_vec().into());
        let request = BeginUpdateRequest {
            create_records: vec![record("alice"), record("bob")],
            destroy_records: vec![record("carol")],
            cell_id: 1,
        };
        ClientError::from(status).about(&request, None)
    }

    #[test]
    fn rejected_claims_are_named_as_typed() {
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
    fn the_json_error_says_the_same() {
        let error = two_rejected().to_json();
        assert_eq!(error["error"]["code"], "ALREADY_EXISTS");
        assert_eq!(error["error"]["exitCode"], 3);
        let first = json!({"list": "create", "position": 1, "claim": "USERNAMES:bob", "reason": "CLAIM_TAKEN"});
        assert_eq!(error["error"]["claims"][0], first);
    }

    #[test]
    fn a_begin_that_may_have_happened_is_repeated_with_its_key() {
        let late = ClientError::from(Status::deadline_exceeded("late"));
        let text = late.about(&BeginUpdateRequest::default(), Some("k1")).to_text();
        assert!(text.contains("`--idempotency-key k1`"), "{text}");
    }

    #[test]
    fn a_store_that_failed_leaves_open_what_it_kept() {
        let failed = || refused(Code::Unavailable, "STORE_UNAVAILABLE");
        let hint = failed().hint().unwrap();
        assert!(hint.starts_with("when the store is back, repeating it is safe; "), "{hint}");
        let begin = failed().about(&BeginUpdateRequest::default(), Some("k1")).hint().unwrap();
        assert!(begin.starts_with("when the store is back, repeat it with `--idempotency-key k1`"), "{begin}");
    }

    #[test]
    fn who_shows_a_certificate_is_not_told_to_show_one() {
        for error in [|| refused(Code::Unauthenticated, "NO_IDENTITY"), || Status::unauthenticated("no").into()] {
            assert_eq!(error().shown(None).hint().as_deref(), Some("say who you are with --cert and --key"));
            let hint = error().shown(Some(Path::new("me.pem"))).hint().unwrap();
            assert!(hint.starts_with("the certificate `me.pem` does not name one cell, router or admin of "), "{hint}");
        }
    }

    #[test]
    fn every_json_error_has_the_same_members() {
        let members = |error: Value| error["error"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let refused = members(two_rejected().to_json());
        for error in [unreachable(), ClientError::Usage("no".to_owned()), ClientError::Nonsense("no")] {
            assert_eq!(error.to_json()["error"]["claims"], json!([]));
            assert_eq!(members(error.to_json()), refused);
        }
        assert_eq!(members(object("no", None, 1)), refused);
    }

    #[test]
    fn hints_carry_the_servers_delay() {
        let mut details = ErrorDetails::new();
        details.set_error_info("CLAIM_BUSY", "leasehold", std::collections::HashMap::new());
        details.set_retry_info(Some(Duration::from_millis(250)));
        let busy = ClientError::from(Status::with_error_details(Code::FailedPrecondition, "busy", details));
        assert!(busy.to_text().ends_with("hint: another update is under way: try again in 250 ms\n"));
        assert_eq!(busy.to_json()["error"]["retryAfterSeconds"], 0.25);
    }

    #[test]
    fn limits_say_what_to_shorten() {
        for (limit, hint) in [
            ("bucket_value_bytes", "shorten the value"),
            ("source_id_bytes", "shorten the source id"),
            ("idempotency_key_bytes", "shorten --idempotency-key"),
            ("claims_per_update", "split the update"),
            ("request_bytes", "split the update"),
        ] {
            let mut details = ErrorDetails::new();
            details.set_error_info("LIMIT_EXCEEDED", "leasehold", [("limit".to_owned(), limit.to_owned())]);
            let error = ClientError::from(Status::with_error_details(Code::InvalidArgument, "no", details));
            assert!(error.to_text().ends_with(&format!("hint: {hint}\n")), "{limit}: {}", error.to_text());
        }
    }

    #[test]
    fn code_names_are_those_of_grpc() {
        assert_eq!(code_name(Code::FailedPrecondition), "FAILED_PRECONDITION");
        assert_eq!(code_name(Code::Ok), "OK");
    }
}
