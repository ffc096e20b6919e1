//! One event of the audit trail, and the two forms in which it is written: a JSON object for
//! machines, and a line of text for people.

use std::fmt;

use leasehold_core::cell::CellId;
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::locking::end::Cause;
use leasehold_core::locking::resolve::Resolution;
use leasehold_core::locking::{LockCommand, LockReply};
use leasehold_core::organization::OrganizationId;
use leasehold_core::session::SessionId;
use leasehold_core::time::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::TARGET;
use crate::identity::Caller;
use crate::store::{RaisedFences, system_time};

/// An event of the audit trail: a caller's command began or settled a lease, an operator took a lock
/// or evicted a session, a server started on a restored copy, or an operator accepted a copy of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    at: Timestamp,
    caller: Caller,
    action: Action,
}

/// The audited change: of a lease, a lock or a session by a command, or of a restored store's fences
/// by a start.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Begun { lease: AuditedLease, fence: u64, claims: usize, replayed: bool, organization: Option<OrganizationId> },
    Settled { lease: AuditedLease, outcome: Outcome },
    Restored { store: Uuid, from: u64, to: u64 },
    Adopted { store: Uuid },
    // The key of the lock is left out: it may be personal (K24).
    Forced { namespace: String, fence: u64, at_once: bool },
    Evicted { session: SessionId },
    Resolved { namespace: String, fence: u64, resolution: Resolution },
}

/// The lease of an event, and its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AuditedLease {
    cell: CellId,
    id: LeaseId,
}

impl AuditEvent {
    /// Returns the audit event of an executed command; `None` if the command changed nothing that
    /// is audited.
    ///
    /// `may_have_written` is true if an earlier attempt may have written the command's changes.
    /// This attempt may then find the lease settled already. The event is recorded all the same: a
    /// duplicate event is better than a missing one.
    pub fn of_command(
        at: Timestamp,
        caller: Caller,
        command: &Command,
        reply: &Reply,
        may_have_written: bool,
    ) -> Option<Self> {
        let action = match (command, reply) {
            (Command::Begin(begin), Reply::Begun(begun)) => {
                let lease = AuditedLease { cell: begin.cell, id: begun.lease };
                let (fence, claims, replayed) = (begun.fence.0, begin.batch.entries().len(), begun.replayed);
                Action::Begun { lease, fence, claims, replayed, organization: begin.organization }
            }
            (Command::Settle(settle), Reply::Settled(changed)) if *changed || may_have_written => {
                let lease = AuditedLease { cell: settle.cell, id: settle.lease };
                Action::Settled { lease, outcome: settle.outcome }
            }
            (Command::Lock(command), Reply::Lock(LockReply::Done(changed))) if *changed || may_have_written => {
                Action::of_operator(command)?
            }
            _ => return None,
        };
        Some(Self { at, caller, action })
    }

    /// Returns the event of a start on a restored copy, which raised the fences.
    pub fn of_restore(at: Timestamp, store: Uuid, fences: RaisedFences) -> Self {
        let action = Action::Restored { store, from: fences.from.0, to: fences.to.0 };
        Self { at, caller: Caller::Server, action }
    }

    /// Returns the event of an operator who accepted a copy of the tables of a store.
    pub fn of_adoption(store: Uuid) -> Self {
        Self { at: system_time(), caller: Caller::Server, action: Action::Adopted { store } }
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
            Action::Settled { .. } => "lease settled",
            Action::Restored { .. } => "store restored",
            Action::Adopted { .. } => "database adopted",
            Action::Forced { .. } => "lock forced",
            Action::Evicted { .. } => "session evicted",
            Action::Resolved { .. } => "orphan resolved",
        }
    }
}

impl Action {
    /// Returns the audited change of an operator's command of locks; `None` for a service's.
    fn of_operator(command: &LockCommand) -> Option<Self> {
        match command {
            LockCommand::Force(force) => {
                let namespace = force.lock.namespace().to_owned();
                Some(Self::Forced { namespace, fence: force.fence.0, at_once: force.at_once })
            }
            LockCommand::End(end) if end.cause == Cause::Evict => Some(Self::Evicted { session: end.session }),
            LockCommand::Resolve(resolve) => {
                let namespace = resolve.lock.namespace().to_owned();
                Some(Self::Resolved { namespace, fence: resolve.fence.0, resolution: resolve.resolution })
            }
            _ => None,
        }
    }
}

/// The text of a resolution in the field `resolution` of an audit event.
fn resolution_name(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Retry => "retry",
        Resolution::Cleaned => "cleaned",
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
/// in one stream, and the web page reads both (`wasm/visualiser/src/model/audit.ts`).
impl Serialize for AuditEvent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut line = to.serialize_map(None)?;
        line.serialize_entry("timestamp", &self.time())?;
        line.serialize_entry("level", "INFO")?;
        line.serialize_entry("message", self.message())?;
        line.serialize_entry("caller", &self.caller.to_string())?;
        if let Action::Begun { lease, .. } | Action::Settled { lease, .. } = &self.action {
            line.serialize_entry("cell", &lease.cell.to_string())?;
            line.serialize_entry("lease", &lease.id.to_string())?;
        }
        match &self.action {
            Action::Begun { fence, claims, replayed, organization, .. } => {
                line.serialize_entry("fence", fence)?;
                line.serialize_entry("claims", claims)?;
                line.serialize_entry("replayed", replayed)?;
                if let Some(organization) = organization {
                    line.serialize_entry("organization", &organization.to_string())?;
                }
            }
            Action::Settled { outcome, .. } => line.serialize_entry("outcome", outcome_name(*outcome))?,
            Action::Restored { store, from, to } => {
                line.serialize_entry("store", &store.to_string())?;
                line.serialize_entry("fence_before", from)?;
                line.serialize_entry("fence_after", to)?;
            }
            Action::Adopted { store } => line.serialize_entry("store", &store.to_string())?,
            Action::Forced { namespace, fence, at_once } => {
                line.serialize_entry("namespace", namespace)?;
                line.serialize_entry("fence", fence)?;
                line.serialize_entry("at_once", at_once)?;
            }
            Action::Evicted { session } => line.serialize_entry("session", &session.to_string())?,
            Action::Resolved { namespace, fence, resolution } => {
                line.serialize_entry("namespace", namespace)?;
                line.serialize_entry("fence", fence)?;
                line.serialize_entry("resolution", resolution_name(*resolution))?;
            }
        }
        line.serialize_entry("target", TARGET)?;
        line.end()
    }
}

/// Writes the event in the form of a text line of the operational log.
impl fmt::Display for AuditEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, message, caller) = (self.time().unwrap_or_default(), self.message(), &self.caller);
        write!(f, "{time}  INFO {TARGET}: {message} caller={caller}")?;
        match &self.action {
            Action::Begun { lease, fence, claims, replayed, organization } => {
                write!(f, "{lease} fence={fence} claims={claims} replayed={replayed}")?;
                organization.as_ref().map_or(Ok(()), |organization| write!(f, " organization={organization}"))
            }
            Action::Settled { lease, outcome } => write!(f, "{lease} outcome={:?}", outcome_name(*outcome)),
            Action::Restored { store, from, to } => {
                write!(f, " store={store} fence_before={from} fence_after={to}")
            }
            Action::Adopted { store } => write!(f, " store={store}"),
            Action::Forced { namespace, fence, at_once } => {
                write!(f, " namespace={namespace:?} fence={fence} at_once={at_once}")
            }
            Action::Evicted { session } => write!(f, " session={session}"),
            Action::Resolved { namespace, fence, resolution } => {
                write!(f, " namespace={namespace:?} fence={fence} resolution={:?}", resolution_name(*resolution))
            }
        }
    }
}

/// Writes the lease as fields of a text line, each with a space in front of it.
impl fmt::Display for AuditedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " cell={} lease={}", self.cell, self.id)
    }
}

/// Example events, one of each kind, for the tests of this module and of the sink.
#[cfg(test)]
pub(super) fn examples() -> Vec<AuditEvent> {
    use crate::identity::Role;

    let event = |caller, action| AuditEvent { at: Timestamp::from_micros(1_800_000_000_000_000), caller, action };
    let lease = AuditedLease { cell: CellId(3), id: LeaseId(Uuid::from_bytes([7; 16])) };
    let settled = |outcome| Action::Settled { lease, outcome };
    let begun = |replayed, organization| Action::Begun { lease, fence: 9, claims: 4, replayed, organization };
    vec![
        event(Caller::Server, Action::Restored { store: Uuid::from_bytes([8; 16]), from: 5, to: 9 }),
        event(Caller::Server, Action::Adopted { store: Uuid::from_bytes([8; 16]) }),
        event(Caller::Trusted, begun(true, None)),
        event(Caller::Trusted, begun(false, OrganizationId::try_from(300).ok())),
        event(Caller::Authenticated(Role::Cell(CellId(3))), settled(Outcome::Committed)),
        event(
            Caller::Authenticated(Role::Admin),
            Action::Forced { namespace: "user.update".into(), fence: 7, at_once: true },
        ),
        event(Caller::Trusted, Action::Evicted { session: SessionId(Uuid::from_bytes([6; 16])) }),
        event(
            Caller::Authenticated(Role::Admin),
            Action::Resolved { namespace: "user.update".into(), fence: 7, resolution: Resolution::Cleaned },
        ),
        event(Caller::Authenticated(Role::Admin), settled(Outcome::RolledBack)),
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

    /// Logs the event through the logging library. The event's own two forms must equal the output.
    fn log(event: &AuditEvent) {
        let AuditEvent { caller, .. } = event;
        match event.action.clone() {
            Action::Begun { lease: AuditedLease { cell, id }, fence, claims, replayed, organization } => {
                let organization = organization.map(tracing::field::display);
                tracing::info!(
                    target: "audit", %caller, %cell, lease = %id, fence, claims, replayed, organization, "lease begun"
                );
            }
            Action::Settled { lease: AuditedLease { cell, id }, outcome } => {
                let outcome = outcome_name(outcome);
                tracing::info!(target: "audit", %caller, %cell, lease = %id, outcome, "lease settled");
            }
            Action::Restored { store, from, to } => {
                tracing::info!(
                    target: "audit", %caller, %store, fence_before = from, fence_after = to, "store restored"
                );
            }
            Action::Adopted { store } => tracing::info!(target: "audit", %caller, %store, "database adopted"),
            Action::Forced { namespace, fence, at_once } => {
                tracing::info!(target: "audit", %caller, namespace, fence, at_once, "lock forced");
            }
            Action::Evicted { session } => tracing::info!(target: "audit", %caller, %session, "session evicted"),
            Action::Resolved { namespace, fence, resolution } => {
                let resolution = resolution_name(resolution);
                tracing::info!(target: "audit", %caller, namespace, fence, resolution, "orphan resolved");
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
