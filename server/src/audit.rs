//! One line in the log, target `audit`, for every lease begun and settled, and the last of them in memory, for the page.
//! Never a claim's value.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::claim::CellId;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::time::Timestamp;
use leasehold_core::update::{Command, Reply};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::identity::Caller;

/// How many entries are kept in memory: what a person can look through, in about a megabyte.
const RECENT: usize = 10_000;

/// What a caller's command did to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    at: Timestamp,
    caller: Caller,
    cell: CellId,
    lease: LeaseId,
    deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Begun { fence: u64, claims: usize, replayed: bool },
    Settled(Outcome),
}

impl Entry {
    /// What a command did; none where it did what had been done before. Where the command was `tried` before and that
    /// try's outcome is unknown, it is told either way: twice is better than never.
    pub fn of(at: Timestamp, caller: Caller, command: &Command, reply: &Reply, tried: bool) -> Option<Self> {
        match (command, reply) {
            (Command::Begin(begin), Reply::Begun(begun)) => {
                let (fence, claims, replayed) = (begun.fence.0, begin.batch.entries().len(), begun.replayed);
                let deed = Deed::Begun { fence, claims, replayed };
                Some(Self { at, caller, cell: begin.cell, lease: begun.lease, deed })
            }
            (Command::Settle(settle), Reply::Settled(changed)) if *changed || tried => {
                let deed = Deed::Settled(settle.outcome);
                Some(Self { at, caller, cell: settle.cell, lease: settle.lease, deed })
            }
            _ => None,
        }
    }

    /// Writes it into the log.
    pub fn log(&self) {
        let Self { caller, cell, lease, .. } = self;
        match self.deed {
            Deed::Begun { fence, claims, replayed } => {
                tracing::info!(target: "audit", %caller, %cell, %lease, fence, claims, replayed, "lease begun");
            }
            Deed::Settled(outcome) => {
                let outcome = spelling(outcome);
                tracing::info!(target: "audit", %caller, %cell, %lease, outcome, "lease settled");
            }
        }
    }
}

fn spelling(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack => "rolled_back",
    }
}

/// As its line in the log is, where the log is JSON.
impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut line = to.serialize_map(None)?;
        let at = i64::try_from(self.at.as_micros()).ok().and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
        line.serialize_entry("timestamp", &at.map(|at| format!("{at:.6}")))?;
        line.serialize_entry("level", "INFO")?;
        let message = if matches!(self.deed, Deed::Begun { .. }) { "lease begun" } else { "lease settled" };
        line.serialize_entry("message", message)?;
        line.serialize_entry("caller", &self.caller.to_string())?;
        line.serialize_entry("cell", &self.cell.to_string())?;
        line.serialize_entry("lease", &self.lease.to_string())?;
        match self.deed {
            Deed::Begun { fence, claims, replayed } => {
                line.serialize_entry("fence", &fence)?;
                line.serialize_entry("claims", &claims)?;
                line.serialize_entry("replayed", &replayed)?;
            }
            Deed::Settled(outcome) => line.serialize_entry("outcome", spelling(outcome))?,
        }
        line.serialize_entry("target", "audit")?;
        line.end()
    }
}

/// The last entries, the oldest first.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<Entry>>);

impl Recent {
    /// Keeps entries, in the places of the oldest where there are too many.
    pub fn keep(&self, added: Vec<Entry>) {
        let mut entries = self.lock();
        entries.extend(added);
        let surplus = entries.len().saturating_sub(RECENT);
        entries.drain(..surplus);
    }

    /// One JSON line for each.
    ///
    /// # Errors
    /// Never in practice: every entry has a form in JSON.
    pub fn json_lines(&self) -> serde_json::Result<String> {
        let entries = self.lock().clone();
        entries.iter().map(|entry| serde_json::to_string(entry).map(|line| line + "\n")).collect()
    }

    /// A thread that panicked has left the queue whole: each change of it is one call.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use std::io::{self, Write};
    use std::sync::Arc;

    use leasehold_core::claim::CellId;
    use serde_json::Value;

    use super::*;
    use crate::identity::Role;

    /// Where a log of this test goes.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines with the clock taken out, which differs.
    fn timeless(lines: &str) -> Vec<String> {
        let line = |line: &str| {
            let (clock, rest) = line.strip_prefix(r#"{"timestamp":""#).unwrap().split_once('"').unwrap();
            assert!(clock.parse::<jiff::Timestamp>().is_ok() && clock.len() == "2026-01-02T03:04:05.123456Z".len());
            rest.to_owned()
        };
        lines.lines().map(line).collect()
    }

    fn entries() -> Vec<Entry> {
        let lease = LeaseId(uuid::Uuid::from_bytes([7; 16]));
        let entry = |caller, deed| Entry {
            at: Timestamp::from_micros(1_800_000_000_000_000),
            caller,
            cell: CellId(3),
            lease,
            deed,
        };
        vec![
            entry(Caller::Trusted, Deed::Begun { fence: 9, claims: 4, replayed: true }),
            entry(Caller::Known(Role::Cell(CellId(3))), Deed::Settled(Outcome::Committed)),
            entry(Caller::Known(Role::Admin), Deed::Settled(Outcome::RolledBack)),
        ]
    }

    #[test]
    fn what_is_kept_reads_as_the_log_does() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), || entries().iter().for_each(Entry::log));
        let recent = Recent::default();
        recent.keep(entries());
        let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(timeless(&recent.json_lines().unwrap()), timeless(&logged));
    }

    #[test]
    fn the_oldest_make_room() {
        let recent = Recent::default();
        for _ in 0..2 * RECENT / 3 + 10 {
            recent.keep(entries());
        }
        let lines = recent.json_lines().unwrap();
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!((lines.lines().count(), &last["outcome"]), (RECENT, &"rolled_back".into()));
    }
}
