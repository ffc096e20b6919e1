//! The audit trail: one event when a caller begins a lease, and one when a caller settles it.
//! Claims' values never appear in it.
//!
//! [`AuditSink`] writes the trail, separately from the operational log
//! ([`logging`](crate::logging)). An operator may send the trail to a file that is kept longer than
//! logs are. A log filter never removes events from that file.

mod event;
mod sink;

pub use event::AuditEvent;
pub use sink::{AuditError, AuditSink};

/// The log target of audit events. Lines on standard error carry it, and `log.filter` can switch it
/// off.
const TARGET: &str = "audit";
