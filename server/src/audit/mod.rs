//! The audit trail: one event for every lease that a caller began or settled. Claims' values never
//! appear in it.
//!
//! The trail has a writer of its own, apart from the operational log ([`logging`](crate::logging)).
//! An operator may send it to a file that is kept longer than logs are. A log filter can't thin
//! that file out by accident.

mod event;
mod sink;

pub use event::AuditEvent;
pub use sink::{AuditError, AuditSink};

/// The name under which the trail's lines stand among those of the operational log, and which
/// `log.filter` knows.
const TARGET: &str = "audit";
