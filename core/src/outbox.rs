//! The outbox: SQL for the user's own PostgreSQL database, so that a request exists exactly if the
//! transaction commits that submits it (Q14).
//!
//! A row is written in the user's transaction, and a relay hands it to the server later. The head of the
//! SQL has the order in which rows are relayed, and its proof (Q21).

/// The SQL that installs the outbox: the table `leasehold_outbox`, the functions
/// `leasehold_submit`, `leasehold_complete`, `leasehold_done`, `leasehold_fail` and `leasehold_give_back`
/// for the user's transactions, and the functions of a relay. It may be run again.
///
/// ```
/// assert!(leasehold_core::outbox::SQL.contains("FUNCTION leasehold_submit("));
/// ```
pub const SQL: &str = include_str!("outbox.sql");

/// The SQL that installs `leasehold_capture(table, queue, columns, key)`, which makes triggers that write
/// the changes of a table into the outbox (Q06). It needs [`SQL`], and may be run again.
pub const CAPTURE_SQL: &str = include_str!("capture.sql");

/// The SQL that installs `leasehold_capture_claims(table, columns, strict)`, which captures changes of
/// claimed columns, or refuses those without a claim (Q06). It needs [`SQL`] and [`CAPTURE_SQL`], and may
/// be run again.
pub const CLAIMS_CAPTURE_SQL: &str = include_str!("claims_capture.sql");

/// The SQLSTATE of a COMMIT that has changed claimed columns without a claim.
pub const NOT_CLAIMED: &str = "LH010";

/// The SQLSTATE of a relay that reads a batch which is not under way.
pub const NOT_UNDER_WAY: &str = "LH003";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{MAX_KEY_BYTES, MAX_NAMESPACE_BYTES};
    use crate::queue::{MAX_ATTEMPTS, MAX_BATCH_REQUESTS, MAX_BODY_BYTES, MAX_DELAY_MICROS, MAX_PRIORITY};

    #[test]
    fn q14_what_the_server_would_refuse_can_not_be_committed() {
        let days = MAX_DELAY_MICROS / 86_400_000_000;
        for check in [
            format!("octet_length(added.queue) <= {MAX_NAMESPACE_BYTES}\n"),
            format!("octet_length(added.key) <= {MAX_KEY_BYTES} "),
            format!("added.priority BETWEEN 0 AND {MAX_PRIORITY})"),
            format!("added.due_at <= added.written_at + interval '{days} days')"),
            format!("added.max_attempts BETWEEN 1 AND {MAX_ATTEMPTS})"),
            format!("octet_length(added.body) <= {MAX_BODY_BYTES})"),
            format!("cardinality(added.requests) > {MAX_BATCH_REQUESTS} "),
            format!("added.retry BETWEEN interval '0' AND interval '{days} days')"),
        ] {
            assert!(SQL.contains(&check), "{check}");
        }
    }
}
