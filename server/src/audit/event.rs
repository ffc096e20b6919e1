//! One event of the audit trail, and the two forms in which it is written: a JSON object for
//! machines, and a line of text for people.

use std::fmt;

use leasehold_core::cell::CellId;
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::time::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::TARGET;
use crate::identity::Caller;

/// An event of the audit trail: a caller's command began or settled a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    at: Timestamp,
    caller: Caller,
    cell: CellId,
    lease: LeaseId,
    action: Action,
}

/// The effect of an audited command on its lease: it began the lease, or settled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Begun { fence: u64, claims: usize, replayed: bool },
    Settled(Outcome),
}

impl AuditEvent {
    /// Returns the audit event of an executed command; `None` if the command changed no lease.
    ///
    /// `may_have_written` is true if an earlier try of the command may have been written. This try
    /// may then find the lease settled already. The settle is recorded all the same: an event that
    /// is recorded twice is better than a missing one.
    pub fn of_command(
        at: Timestamp,
        caller: Caller,
        command: &Command,
        reply: &Reply,
        may_have_written: bool,
    ) -> Option<Self> {
        let (cell, lease, action) = match (command, reply) {
            (Command::Begin(begin), Reply::Begun(begun)) => {
                let (fence, claims, replayed) = (begun.fence.0, begin.batch.entries().len(), begun.replayed);
                (begin.cell, begun.lease, Action::Begun { fence, claims, replayed })
            }
            (Command::Settle(settle), Reply::Settled(changed)) if *changed || may_have_written => {
                (settle.cell, settle.lease, Action::Settled(settle.outcome))
            }
            _ => return None,
        };
        Some(Self { at, caller, cell, lease, action })
    }

    /// The time of the event as text, in UTC with microseconds; `None` for a time beyond the years
    /// that the library `jiff` can represent.
    fn time(&self) -> Option<String> {
        let at = i64::try_from(self.at.as_micros()).ok().and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
        at.map(|at| format!("{at:.6}"))
    }

    fn message(&self) -> &'static str {
        match self.action {
            Action::Begun { .. } => "lease begun",
            Action::Settled(_) => "lease settled",
        }
    }
}

/// The text of an outcome in the field `outcome` of an audit event.
fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack => "rolled_back",
    }
}

/// Writes the event in the form of a JSON line of the operational log. Events and log lines may be
/// in one stream, and the page reads both (`wasm/visualiser/src/model/audit.ts`).
impl Serialize for AuditEvent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut line = to.serialize_map(None)?;
        line.serialize_entry("timestamp", &self.time())?;
        line.serialize_entry("level", "INFO")?;
        line.serialize_entry("message", self.message())?;
        line.serialize_entry("caller", &self.caller.to_string())?;
        line.serialize_entry("cell", &self.cell.to_string())?;
        line.serialize_entry("lease", &self.lease.to_string())?;
        match self.action {
            Action::Begun { fence, claims, replayed } => {
                line.serialize_entry("fence", &fence)?;
                line.serialize_entry("claims", &claims)?;
                line.serialize_entry("replayed", &replayed)?;
            }
            Action::Settled(outcome) => line.serialize_entry("outcome", outcome_name(outcome))?,
        }
        line.serialize_entry("target", TARGET)?;
        line.end()
    }
}

/// Writes the event in the form of a text line of the operational log.
impl fmt::Display for AuditEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { caller, cell, lease, .. } = self;
        let (time, message) = (self.time().unwrap_or_default(), self.message());
        write!(f, "{time}  INFO {TARGET}: {message} caller={caller} cell={cell} lease={lease}")?;
        match self.action {
            Action::Begun { fence, claims, replayed } => {
                write!(f, " fence={fence} claims={claims} replayed={replayed}")
            }
            Action::Settled(outcome) => write!(f, " outcome={:?}", outcome_name(outcome)),
        }
    }
}

/// Example events, one of each kind, for the tests of this module and of the sink.
#[cfg(test)]
pub(super) fn examples() -> Vec<AuditEvent> {
    use crate::identity::Role;

    let event = |caller, action| AuditEvent {
        at: Timestamp::from_micros(1_800_000_000_000_000),
        caller,
        cell: CellId(3),
        lease: LeaseId(uuid::Uuid::from_bytes([7; 16])),
        action,
    };
    vec![
        event(Caller::Trusted, Action::Begun { fence: 9, claims: 4, replayed: true }),
        event(Caller::Authenticated(Role::Cell(CellId(3))), Action::Settled(Outcome::Committed)),
        event(Caller::Authenticated(Role::Admin), Action::Settled(Outcome::RolledBack)),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A buffer in memory that collects the output of a test's log.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Logs the event through the logging library, whose form the event's own forms must equal.
    fn log(event: &AuditEvent) {
        let AuditEvent { caller, cell, lease, .. } = event;
        match event.action {
            Action::Begun { fence, claims, replayed } => {
                tracing::info!(target: "audit", %caller, %cell, %lease, fence, claims, replayed, "lease begun");
            }
            Action::Settled(outcome) => {
                let outcome = outcome_name(outcome);
                tracing::info!(target: "audit", %caller, %cell, %lease, outcome, "lease settled");
            }
        }
    }

    /// Returns the lines without their time, which differs between two runs. The time begins at
    /// byte `start` of each line, and its form is checked.
    fn without_time(lines: &str, start: usize) -> Vec<String> {
        let line = |line: &str| {
            let (before, rest) = line.split_at(start);
            let (time, after) = rest.split_at("2026-01-02T03:04:05.123456Z".len());
            time.parse::<jiff::Timestamp>().unwrap();
            format!("{before}{after}")
        };
        lines.lines().map(line).collect()
    }

    #[test]
    fn both_forms_are_those_of_the_operational_log() {
        for is_json in [false, true] {
            let (output, events) = (Output::default(), examples());
            let writer = output.clone();
            let log_all = || events.iter().for_each(log);
            let builder = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
            if is_json {
                tracing::subscriber::with_default(builder.json().flatten_event(true).finish(), log_all);
            } else {
                tracing::subscriber::with_default(builder.finish(), log_all);
            }
            let logged = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
            let line = |event: &AuditEvent| {
                if is_json { serde_json::to_string(event).unwrap() } else { event.to_string() }
            };
            let lines = events.iter().map(line).collect::<Vec<_>>().join("\n");
            let start = if is_json { r#"{"timestamp":""#.len() } else { 0 };
            assert_eq!(without_time(&lines, start), without_time(&logged, start));
        }
    }
}
