//! Exit codes of the `leasehold` command.

use leasehold_client::Refusal;
use tonic::Code;

/// The exit codes and their meanings, for the end of `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  any other failure
  2  the command line or the configuration is wrong
  3  refused for good: taken, not found, not the owner, changed, rolled back, not valid
  4  try again: busy, overloaded, no answer in time
  5  the server cannot be reached, or its store is down
  6  not allowed: no identity, an identity without the right, or one that the server or its database does not accept
  8  `serve` stopped by itself, because its store failed: start it again
  9  `lock`, `reap` or `queue take` lost its lock or batch, or ended its command because that was about to pass on;
     else it exits as its command did
 10  `serve` can't start, because rows of its store are damaged: see its error for the remedy";

/// Exit code of a failure that no other code describes.
pub const FAILURE: u8 = 1;
/// Exit code of a wrong command line or configuration.
pub const USAGE: u8 = 2;
/// Exit code of a refusal that a retry does not change.
pub const REFUSED: u8 = 3;
/// Exit code of a refusal that a retry may change.
pub const TRY_AGAIN: u8 = 4;
/// Exit code of a server that cannot be reached, or whose store is down.
pub const UNAVAILABLE: u8 = 5;
/// Exit code of a caller that has no identity, or the wrong one.
pub const NOT_ALLOWED: u8 = 6;

/// Exit code of a server that stopped because its store failed. The code 7 is that of a verification
/// by `leasehold-py` that stopped early.
pub const STORE_FAILED: u8 = 8;

/// Exit code of a command that did not end by itself before its lock or batch could pass on.
pub const TENURE_LOST: u8 = 9;

/// Exit code for a command that can't be started, as shells give it.
pub const NOT_STARTED: u8 = 126;

/// Exit code for a command that is not found, as shells give it.
pub const NOT_FOUND: u8 = 127;

/// Exit code of a command that can't open its store, because the data is damaged. A restart does not
/// help, so a supervisor must not try it.
pub const DATA_DAMAGED: u8 = 10;

/// Returns the exit code for a gRPC code, of a failure whose reason is missing or unknown.
#[must_use]
pub fn of_code(code: Code) -> u8 {
    match code {
        Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => TRY_AGAIN,
        Code::Unavailable => UNAVAILABLE,
        Code::Unauthenticated | Code::PermissionDenied => NOT_ALLOWED,
        Code::InvalidArgument | Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition | Code::OutOfRange => {
            REFUSED
        }
        Code::Ok | Code::Cancelled | Code::Unknown | Code::Unimplemented | Code::Internal | Code::DataLoss => FAILURE,
    }
}

/// Returns the exit code for a refusal: by its reason, or by its gRPC code if the reason is missing
/// or unknown.
#[must_use]
pub fn of_refusal(refusal: &Refusal) -> u8 {
    match refusal.reason.as_str() {
        "OVERLOADED" => TRY_AGAIN,
        "STORE_UNAVAILABLE" => UNAVAILABLE,
        "NO_IDENTITY" | "RULE_DENIED" => NOT_ALLOWED,
        _ => match refusal.engine_reason() {
            Some(reason) if reason.is_temporary() => TRY_AGAIN,
            Some(_) => REFUSED,
            None => of_code(refusal.code),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use leasehold_client::Reason;
    use tonic::Status;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    fn refused(code: Code, reason: &str) -> u8 {
        let details = ErrorDetails::with_error_info(reason, "leasehold", HashMap::new());
        of_refusal(&Refusal::of(&Status::with_error_details(code, "no", details)))
    }

    #[test]
    fn every_reason_has_its_exit_code() {
        for reason in Reason::ALL {
            let expected = if reason.is_temporary() { TRY_AGAIN } else { REFUSED };
            assert_eq!(refused(Code::Unknown, reason.code()), expected, "{reason:?}");
        }
        assert_eq!(refused(Code::PermissionDenied, "NOT_OWNER"), 3);
        assert_eq!(refused(Code::PermissionDenied, "RULE_DENIED"), 6);
        assert_eq!(refused(Code::Unauthenticated, "NO_IDENTITY"), 6);
        assert_eq!(refused(Code::ResourceExhausted, "OVERLOADED"), 4);
        assert_eq!(refused(Code::Unavailable, "STORE_UNAVAILABLE"), 5);
    }

    #[test]
    fn without_a_known_reason_the_grpc_code_decides() {
        for (code, exit_code) in [
            (Code::DeadlineExceeded, 4),
            (Code::ResourceExhausted, 4),
            (Code::Unavailable, 5),
            (Code::PermissionDenied, 6),
            (Code::NotFound, 3),
            (Code::AlreadyExists, 3),
            (Code::Internal, 1),
            (Code::Unimplemented, 1),
        ] {
            assert_eq!(of_refusal(&Refusal::of(&Status::new(code, "no"))), exit_code, "{code:?}");
            assert_eq!(refused(code, "BRAND_NEW"), exit_code, "{code:?}");
        }
    }
}
