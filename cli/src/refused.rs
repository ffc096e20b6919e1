//! A refused call in the form that the command line shows: the message, the refused claims by the
//! names that the user typed, and the hint.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_client::{List, Reason, Refusal, RejectedClaim};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::BeginUpdateRequest;
use serde_json::{Value, json};
use tonic::Code;

use crate::contract::claimed;
use crate::words::show_bucket;

/// A refused call, and the values of the command line that its hint needs.
#[derive(Debug)]
pub struct RefusedCall {
    pub(crate) refusal: Refusal,
    /// The refused claims of a begin, with the names that the user typed; empty for other calls.
    pub(crate) claims: Vec<NamedClaim>,
    /// Key under which the begin may be repeated; `None` if the call was not a begin.
    pub(crate) idempotency_key: Option<String>,
    /// End of the hint "use the certificate …": the callers that may make the call.
    pub(crate) allowed: &'static str,
    /// Path of the client certificate that was sent; `None` if none was sent.
    pub(crate) certificate: Option<PathBuf>,
}

/// A refused claim, with the name that the user typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedClaim {
    /// The list of the update that has the claim: `create` or `destroy`.
    list: &'static str,
    /// Position of the claim in its list, from 0.
    position: u32,
    /// The claim as a user types it: `USERNAMES:alice`.
    name: String,
    reason: String,
}

impl From<Refusal> for RefusedCall {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            claims: Vec::new(),
            idempotency_key: None,
            allowed: "of that cell, or of an administrator",
            certificate: None,
        }
    }
}

impl RefusedCall {
    /// Returns the code of the reason, or the name of the gRPC code if the server gave no reason.
    pub(crate) fn label(&self) -> String {
        if self.refusal.reason.is_empty() { code_name(self.refusal.code) } else { self.refusal.reason.clone() }
    }

    /// Stores the refused claims with the names that they have in `request`, the update that was
    /// sent.
    pub(crate) fn name_claims(&mut self, request: &BeginUpdateRequest) {
        self.claims = self.refusal.claims().into_iter().map(|claim| named(claim, request)).collect();
    }

    /// Returns the members that a refused call adds to the JSON of an error.
    pub(crate) fn to_json(&self) -> [(String, Value); 5] {
        let Refusal { code, reason, message, retry_after, .. } = &self.refusal;
        [
            ("code", json!(code_name(*code))),
            ("reason", json!((!reason.is_empty()).then_some(reason))),
            ("message", json!(message)),
            ("retryAfterSeconds", json!(retry_after.map(|after| after.as_secs_f64()))),
            ("claims", self.claims.iter().map(NamedClaim::to_json).collect()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// Returns the hint for the next step; `None` if there is none for this reason.
    pub(crate) fn hint(&self) -> Option<String> {
        let again = || format!("try again{}", self.delay());
        Some(match self.refusal.reason.as_str() {
            "" => return self.hint_of_code(),
            "CLAIM_TAKEN" => format!("choose another value, or see where its owner is: {}", self.command("classify")),
            "CLAIM_BUSY" => format!("another update is under way: {}", again()),
            "CLAIM_CHANGED" => format!("an administrator sees its present source row: {}", self.command("get")),
            "CLAIM_NOT_FOUND" => "check the type and the spelling".to_owned(),
            "LEASE_NOT_FOUND" => "list the outstanding leases: `leasehold leases --cell N`".to_owned(),
            "LEASE_ROLLED_BACK" => "its changes were undone: begin the update again".to_owned(),
            "LEASE_COMMITTED" => "to undo it, begin an update that destroys what it created".to_owned(),
            "NOT_OWNER" => "only the cell that owns it can change it: check --cell".to_owned(),
            "LIMIT_EXCEEDED" => self.hint_of_limit().to_owned(),
            "IDEMPOTENCY_KEY_REUSED" if self.idempotency_key.is_none() => {
                "use another --id for another request".to_owned()
            }
            "IDEMPOTENCY_KEY_REUSED" => "use another --idempotency-key for another update".to_owned(),
            "FENCE_PASSED" => {
                "`leasehold locks NAMESPACE/KEY` shows the present fence, and that of each --slot of a shared lock; an \
                 orphaned lock needs `resolve-orphan`"
                    .to_owned()
            }
            "NO_IDENTITY" => self.hint_of_identity(),
            "RULE_DENIED" => format!("use the certificate {}", self.allowed),
            "STORE_UNAVAILABLE" => self.hint_of_store(),
            "OVERLOADED" => again(),
            _ => return self.refusal.retry_after.map(|_| again()),
        })
    }

    fn hint_of_identity(&self) -> String {
        match &self.certificate {
            None => "say who you are with --cert and --key".to_owned(),
            Some(path) => format!(
                "the certificate `{}` does not name one cell, router or admin of the server's trust domain: \
                 use one that does",
                path.display()
            ),
        }
    }

    /// Returns the hint after a failure of the store. The store may have kept the update, so the
    /// hint is to repeat the call, which is safe in either case.
    fn hint_of_store(&self) -> String {
        let again = match &self.idempotency_key {
            Some(key) => format!("repeat it with `--idempotency-key {key}`, it begins only once"),
            None => "repeating it is safe".to_owned(),
        };
        if self.refusal.figure("cause") == Some("locked") {
            return format!(
                "when that session has ended its transaction, {again}; the server's log says how to find it"
            );
        }
        format!("when the store is back, {again}; the server's log says what is wrong")
    }

    fn hint_of_limit(&self) -> &'static str {
        match self.refusal.figure("limit") {
            Some("bucket_value_bytes") => "shorten the value",
            Some("source_id_bytes") => "shorten the source id",
            Some("idempotency_key_bytes") => "shorten --idempotency-key",
            Some("claims_per_classify") => "name fewer claims",
            Some("key_bytes" | "namespace_bytes") => "shorten the namespace or queue, or the key",
            Some("user_data_bytes") => "attach less data",
            Some("record_bytes_per_source") => "give up claims of that row, or attach less data",
            Some("claims_per_update" | "request_bytes") => "split the update",
            Some("held_claims") => "raise the limit of the cell, or split the update",
            _ => "stay within the limit",
        }
    }

    fn hint_of_code(&self) -> Option<String> {
        match (self.refusal.code, &self.idempotency_key) {
            (Code::DeadlineExceeded | Code::Unavailable, Some(key)) => {
                Some(format!("it may have taken effect: repeat it with `--idempotency-key {key}`, it begins only once"))
            }
            (Code::DeadlineExceeded, None) => Some("repeating it is safe; --timeout-seconds waits longer".to_owned()),
            (Code::Unavailable, None) => Some("repeating it is safe, once the server is back".to_owned()),
            (Code::Unauthenticated, _) => Some(self.hint_of_identity()),
            (Code::Unimplemented, _) => {
                Some("check that --server is a Leasehold server, and as new as this client".to_owned())
            }
            _ => self.refusal.retry_after.map(|_| format!("try again{}", self.delay())),
        }
    }

    /// Returns the server's delay before a retry, as the end of a hint; empty if it suggests none.
    /// The delay is rounded up, as in the server's message: a retry before the end of the delay
    /// would be refused.
    fn delay(&self) -> String {
        let millis = |after: Duration| after.as_micros().div_ceil(1000);
        self.refusal.retry_after.map(|after| format!(" in {} ms", millis(after))).unwrap_or_default()
    }

    /// Returns the command that shows the first claim which was refused for the reason of the whole
    /// refusal.
    fn command(&self, verb: &str) -> String {
        let deciding = self.claims.iter().find(|claim| claim.reason == self.refusal.reason);
        format!("`leasehold {verb} {}`", deciding.map_or("TYPE:VALUE", |claim| &claim.name))
    }
}

impl fmt::Display for RefusedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.label();
        let message = &self.refusal.message;
        if message.is_empty() { write!(f, "{label}") } else { write!(f, "{message} ({label})") }
    }
}

impl NamedClaim {
    fn to_json(&self) -> Value {
        json!({ "list": self.list, "position": self.position, "claim": self.name, "reason": self.reason })
    }
}

impl fmt::Display for NamedClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.list, self.name, self.reason)?;
        match Reason::ALL.into_iter().find(|reason| reason.code() == self.reason) {
            Some(reason) => write!(f, ", {}", reason.summary()),
            None => Ok(()),
        }
    }
}

/// Returns a refused claim with its name in the update `request`, or with its position if the
/// update has no such claim.
fn named(claim: RejectedClaim, request: &BeginUpdateRequest) -> NamedClaim {
    let (list, records) = match claim.list {
        List::Creates => ("create", &request.create_records),
        List::Destroys => ("destroy", &request.destroy_records),
    };
    let record = usize::try_from(claim.position).ok().and_then(|at| records.get(at));
    let name = record.and_then(claimed).map(|bucket| show_bucket(&bucket));
    let name = name.unwrap_or_else(|| format!("number {}", claim.position));
    NamedClaim { list, position: claim.position, name, reason: claim.reason }
}

/// Returns the name of a gRPC code as the gRPC documentation spells it, such as
/// `FAILED_PRECONDITION`.
pub(crate) fn code_name(code: Code) -> String {
    let name = format!("{code:?}");
    let upper = |(at, c): (usize, char)| {
        let gap = (at > 0 && c.is_ascii_uppercase()).then_some('_');
        gap.into_iter().chain(std::iter::once(c.to_ascii_uppercase()))
    };
    name.chars().enumerate().flat_map(upper).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic::Status;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    fn refused(code: Code, details: ErrorDetails) -> RefusedCall {
        Refusal::of(&Status::with_error_details(code, "no", details)).into()
    }

    fn of_reason(code: Code, reason: &str) -> RefusedCall {
        refused(code, ErrorDetails::with_error_info(reason, "leasehold", HashMap::new()))
    }

    #[test]
    fn a_begin_that_may_have_taken_effect_is_repeated_under_its_key() {
        let mut call = RefusedCall::from(Refusal::of(&Status::deadline_exceeded("late")));
        call.idempotency_key = Some("k1".to_owned());
        assert!(call.hint().unwrap().contains("`--idempotency-key k1`"));
    }

    #[test]
    fn a_failed_store_may_have_kept_the_update() {
        let mut call = of_reason(Code::Unavailable, "STORE_UNAVAILABLE");
        let hint = call.hint().unwrap();
        assert!(hint.starts_with("when the store is back, repeating it is safe; "), "{hint}");
        call.idempotency_key = Some("k1".to_owned());
        let hint = call.hint().unwrap();
        assert!(hint.starts_with("when the store is back, repeat it with `--idempotency-key k1`"), "{hint}");
    }

    #[test]
    fn a_caller_that_sent_a_certificate_is_not_asked_for_one() {
        for mut call in [
            of_reason(Code::Unauthenticated, "NO_IDENTITY"),
            RefusedCall::from(Refusal::of(&Status::unauthenticated("no"))),
        ] {
            assert_eq!(call.hint().as_deref(), Some("say who you are with --cert and --key"));
            call.certificate = Some("me.pem".into());
            let hint = call.hint().unwrap();
            assert!(hint.starts_with("the certificate `me.pem` does not name one cell, router or admin of "), "{hint}");
        }
    }

    #[test]
    fn hints_name_the_servers_delay() {
        let mut details = ErrorDetails::with_error_info("CLAIM_BUSY", "leasehold", HashMap::new());
        details.set_retry_info(Some(Duration::from_millis(250)));
        let busy = refused(Code::FailedPrecondition, details);
        assert_eq!(busy.hint().as_deref(), Some("another update is under way: try again in 250 ms"));
    }

    #[test]
    fn a_delay_is_rounded_up_so_that_the_retry_is_not_too_early() {
        for (micros, delay) in [(250_001, " in 251 ms"), (1, " in 1 ms"), (0, " in 0 ms")] {
            let mut details = ErrorDetails::with_error_info("CLAIM_BUSY", "leasehold", HashMap::new());
            details.set_retry_info(Some(Duration::from_micros(micros)));
            let busy = refused(Code::FailedPrecondition, details);
            assert_eq!(busy.delay(), delay);
        }
    }

    #[test]
    fn a_limit_is_named_by_what_to_shorten() {
        for (limit, hint) in [
            ("bucket_value_bytes", "shorten the value"),
            ("source_id_bytes", "shorten the source id"),
            ("idempotency_key_bytes", "shorten --idempotency-key"),
            ("claims_per_update", "split the update"),
            ("request_bytes", "split the update"),
            ("record_bytes_per_source", "give up claims of that row, or attach less data"),
            ("waiters_per_lock", "stay within the limit"),
        ] {
            let metadata = [("limit".to_owned(), limit.to_owned())];
            let details = ErrorDetails::with_error_info("LIMIT_EXCEEDED", "leasehold", metadata);
            assert_eq!(refused(Code::InvalidArgument, details).hint().as_deref(), Some(hint), "{limit}");
        }
    }

    #[test]
    fn code_names_are_those_of_grpc() {
        assert_eq!(code_name(Code::FailedPrecondition), "FAILED_PRECONDITION");
        assert_eq!(code_name(Code::Ok), "OK");
    }
}
