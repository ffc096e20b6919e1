//! Reconciliation: a cell's settling of leases that were left outstanding (R01 to R05).
//!
//! A [`Reconciliation`] never calls out. Its host asks for the [`Step`], takes it, and feeds back
//! the resulting [`Event`] until the step is [`Step::Done`]:
//!
//! ```
//! use leasehold_core::reconcile::{Event, Reconciliation, Settings, Settled, Step};
//! use leasehold_core::time::Timestamp;
//!
//! let mut run = Reconciliation::new(Settings { stale_after_micros: 600_000_000, rows_per_page: 1000 });
//! let now = Timestamp::from_micros(1);
//! loop {
//!     let event = match run.step() {
//!         // A host asks the server and its own database here; in this example both have nothing.
//!         Step::ListLeases { .. } => Event::Leases { leases: vec![], now, cursor: None },
//!         Step::FindRows { .. } | Step::ListRows { .. } => Event::Rows { rows: vec![], now },
//!         Step::Settle { .. } => Event::Settled { answer: Settled::Done },
//!         Step::DeleteRow { .. } => Event::Deleted,
//!         Step::Done => break,
//!     };
//!     run.feed(event)?;
//! }
//! assert_eq!((run.summary().leases_seen, run.summary().incomplete), (0, false));
//! # Ok::<(), leasehold_core::reconcile::OutOfTurn>(())
//! ```
//!
//! **The server is read before the cell.** A row that is missing locally was then missing after the
//! server had called its lease stale. A local COMMIT that late is refused by the database (R04), so
//! the row stays missing, and the lease can be rolled back. Read in the other order, the row could
//! appear between the two reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::lease::{LeaseId, Outcome};
use crate::time::Timestamp;

/// The presence of a lease on one side: as an outstanding lease on the server, or as the cell's own
/// row of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// This side has the lease, and the lease is younger than `stale_after_micros`.
    Fresh,
    /// This side has the lease, and the lease is as old as `stale_after_micros` or older.
    Stale,
    /// This side does not have the lease.
    Missing,
}

/// The decision about a lease (R01).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Leave the lease alone: its transaction may still be open.
    Leave,
    /// Commit the lease and then delete the local row: the local transaction was committed.
    Commit,
    /// Roll the lease back: the local transaction was not committed and can't be any more.
    RollBack,
    /// Look up the lease's outcome, report the lease if it was rolled back, and delete the local
    /// row: the lease is settled.
    LookUp,
}

/// The decision about a lease by its presence on both sides. The same as a table:
/// [`table::RECONCILE`](crate::table::RECONCILE).
pub const fn decide(local: Presence, remote: Presence) -> Decision {
    use Presence::{Fresh, Missing, Stale};
    match (local, remote) {
        (Stale, Fresh | Stale) => Decision::Commit,
        (Stale, Missing) => Decision::LookUp,
        (Missing, Stale) => Decision::RollBack,
        (Fresh, _) | (Missing, Fresh | Missing) => Decision::Leave,
    }
}

/// The settings of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The age from which on a lease or a local row is stale.
    pub stale_after_micros: u64,
    /// The number of local rows to list at a time.
    pub rows_per_page: usize,
}

/// A local row of a lease, and its place in the list: by age, then by lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalRow {
    /// The time at which the row was written, by the database's clock.
    pub created_at: Timestamp,
    /// The lease. The row is the only proof that the local transaction committed (R02).
    pub lease: LeaseId,
}

/// An outstanding lease in the server's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteLease {
    /// The time of the begin, by the server's clock.
    pub created_at: Timestamp,
    /// The lease.
    pub lease: LeaseId,
}

/// The host's next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// List a page of the cell's outstanding leases: answer [`Event::Leases`].
    ListLeases {
        /// The cursor that came with the page before, `None` for the first page.
        cursor: Option<String>,
    },
    /// Find the local rows of these leases: answer [`Event::Rows`] with the rows that are present.
    FindRows {
        /// The leases.
        leases: Vec<LeaseId>,
    },
    /// List local rows of at least a minimal age by the database's clock, the oldest first: answer
    /// [`Event::Rows`].
    ListRows {
        /// The row after which the list begins, by age and lease.
        after: Option<LocalRow>,
        /// The minimal age.
        min_age_micros: u64,
        /// The most rows to list. Fewer rows end the list.
        limit: usize,
    },
    /// Commit or roll back a lease: answer [`Event::Settled`].
    Settle {
        /// The lease.
        lease: LeaseId,
        /// Commit or roll back.
        outcome: Outcome,
    },
    /// Delete a local row if it is still present: answer [`Event::Deleted`]. Report a lost lease
    /// before, since the row is the last trace of it.
    DeleteRow {
        /// The row's lease.
        lease: LeaseId,
        /// The lease's fate.
        fate: Fate,
    },
    /// The run is over: see [`Reconciliation::summary`].
    Done,
}

/// The fate of a lease whose local transaction was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The lease is committed, as it should be.
    Committed,
    /// The lease was rolled back, so committed rows have lost their claims until a verification
    /// creates them again.
    Lost,
    /// The lease was settled so long ago that its outcome is forgotten.
    Forgotten,
}

/// The server's answer to a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// The lease is settled as asked, now or before.
    Done,
    /// `LEASE_ROLLED_BACK`.
    RolledBack,
    /// `LEASE_COMMITTED`.
    Committed,
    /// `LEASE_NOT_FOUND`.
    NotFound,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A page of outstanding leases.
    Leases {
        /// The leases.
        leases: Vec<RemoteLease>,
        /// The server's time when it answered (R03).
        now: Timestamp,
        /// The cursor of the next page. Only the last page has none.
        cursor: Option<String>,
    },
    /// Local rows.
    Rows {
        /// The rows.
        rows: Vec<LocalRow>,
        /// The database's time when it answered (R03).
        now: Timestamp,
    },
    /// The server's answer to a settle.
    Settled {
        /// The answer.
        answer: Settled,
    },
    /// The local row is deleted.
    Deleted,
    /// The step failed, or its result is unknown. Its lease or page is left to the next run (R05).
    Failed,
}

/// The event does not answer the present step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no answer to the step that was asked for")]
pub struct OutOfTurn;

/// The counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Summary {
    /// Outstanding leases that the server listed.
    pub leases_seen: u64,
    /// Leases committed because their local row was present.
    pub committed: u64,
    /// Leases rolled back because their local row was missing.
    pub rolled_back: u64,
    /// Leases that another process settled before the run could roll them back.
    pub settled_meanwhile: u64,
    /// Local rows whose lease was committed before, or is forgotten.
    pub looked_up: u64,
    /// Local rows whose lease is forgotten.
    pub forgotten: u64,
    /// Leases that were rolled back although their local transaction was committed.
    pub lost: Vec<LeaseId>,
    /// Local rows deleted.
    pub rows_deleted: u64,
    /// Steps about one lease that failed and are left to the next run.
    pub failed: u64,
    /// True if a page could not be read, so that the run may not have seen every lease.
    pub incomplete: bool,
}

#[derive(Clone, Debug, Hash)]
enum Work {
    Find(BTreeMap<LeaseId, Presence>),
    Settle(LeaseId, Decision),
    Delete(LeaseId, Fate),
}

/// The list to read once no work is left.
#[derive(Clone, Debug, Hash)]
enum Reading {
    Leases(Option<String>),
    Rows(Option<LocalRow>),
    Finished,
}

/// A run of reconciliation.
#[derive(Clone, Debug, Hash)]
pub struct Reconciliation {
    settings: Settings,
    work: VecDeque<Work>,
    reading: Reading,
    failed: BTreeSet<LeaseId>,
    summary: Summary,
}

impl Reconciliation {
    /// A new run.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Settings { rows_per_page: settings.rows_per_page.max(1), ..settings },
            work: VecDeque::new(),
            reading: Reading::Leases(None),
            failed: BTreeSet::new(),
            summary: Summary::default(),
        }
    }

    /// The next step. It stays the same until its event is fed.
    pub fn step(&self) -> Step {
        match (self.work.front(), &self.reading) {
            (Some(Work::Find(leases)), _) => Step::FindRows { leases: leases.keys().copied().collect() },
            (Some(Work::Settle(lease, Decision::RollBack)), _) => {
                Step::Settle { lease: *lease, outcome: Outcome::RolledBack }
            }
            // A commit also looks up the outcome: the answer tells it (B22, B23). If the lease is
            // still outstanding after all, the commit is right, since the local row proves that the
            // local transaction committed (R02).
            (Some(Work::Settle(lease, _)), _) => Step::Settle { lease: *lease, outcome: Outcome::Committed },
            (Some(Work::Delete(lease, fate)), _) => Step::DeleteRow { lease: *lease, fate: *fate },
            (None, Reading::Leases(cursor)) => Step::ListLeases { cursor: cursor.clone() },
            (None, Reading::Rows(after)) => Step::ListRows {
                after: *after,
                min_age_micros: self.settings.stale_after_micros,
                limit: self.settings.rows_per_page,
            },
            (None, Reading::Finished) => Step::Done,
        }
    }

    /// Takes the result of the step.
    ///
    /// # Errors
    /// The event does not answer the step. The run has not changed.
    pub fn feed(&mut self, event: Event) -> Result<(), OutOfTurn> {
        match (self.work.front().cloned(), event) {
            (None, event) => self.read(event),
            (Some(work), Event::Failed) => {
                self.work.pop_front();
                self.fail(work);
                Ok(())
            }
            (Some(work), event) => {
                self.finish(work, event)?;
                self.work.pop_front();
                Ok(())
            }
        }
    }

    /// The counts of the run so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn read(&mut self, event: Event) -> Result<(), OutOfTurn> {
        match (&self.reading, event) {
            (Reading::Leases(_), Event::Leases { leases, now, cursor }) => {
                self.summary.leases_seen += leases.len() as u64;
                self.reading = if cursor.is_some() { Reading::Leases(cursor) } else { Reading::Rows(None) };
                let seen = leases.iter().map(|lease| (lease.lease, self.presence(lease.created_at, now)));
                let seen = by_lease(seen);
                self.work.extend((!seen.is_empty()).then_some(Work::Find(seen)));
            }
            (Reading::Rows(_), Event::Rows { rows, now }) => {
                let more = rows.len() >= self.settings.rows_per_page;
                self.reading =
                    rows.last().filter(|_| more).map_or(Reading::Finished, |last| Reading::Rows(Some(*last)));
                for row in rows.iter().filter(|row| !self.failed.contains(&row.lease)) {
                    let local = self.presence(row.created_at, now);
                    self.work.extend(to_do(row.lease, decide(local, Presence::Missing)));
                }
            }
            (Reading::Leases(_), Event::Failed) => self.give_up(Reading::Rows(None)),
            (Reading::Rows(_), Event::Failed) => self.give_up(Reading::Finished),
            _ => return Err(OutOfTurn),
        }
        Ok(())
    }

    fn finish(&mut self, work: Work, event: Event) -> Result<(), OutOfTurn> {
        match (work, event) {
            (Work::Find(leases), Event::Rows { rows, now }) => self.found(leases, &rows, now),
            (Work::Settle(lease, decision), Event::Settled { answer }) => self.settled(lease, decision, answer),
            (Work::Delete(_, _), Event::Deleted) => self.summary.rows_deleted += 1,
            _ => return Err(OutOfTurn),
        }
        Ok(())
    }

    fn found(&mut self, leases: BTreeMap<LeaseId, Presence>, rows: &[LocalRow], now: Timestamp) {
        let local = by_lease(rows.iter().map(|row| (row.lease, self.presence(row.created_at, now))));
        for (lease, remote) in leases {
            let local = local.get(&lease).copied().unwrap_or(Presence::Missing);
            self.work.extend(to_do(lease, decide(local, remote)));
        }
    }

    fn settled(&mut self, lease: LeaseId, decision: Decision, answer: Settled) {
        if decision == Decision::RollBack {
            match answer {
                Settled::Done | Settled::RolledBack => self.summary.rolled_back += 1,
                Settled::Committed | Settled::NotFound => self.summary.settled_meanwhile += 1,
            }
            return;
        }
        let fate = match answer {
            Settled::Done | Settled::Committed => Fate::Committed,
            Settled::RolledBack => Fate::Lost,
            Settled::NotFound => Fate::Forgotten,
        };
        match (fate, decision) {
            (Fate::Lost, _) => self.summary.lost.push(lease),
            (Fate::Committed, Decision::Commit) => self.summary.committed += 1,
            (Fate::Committed | Fate::Forgotten, _) => self.summary.looked_up += 1,
        }
        self.summary.forgotten += u64::from(fate == Fate::Forgotten);
        self.work.push_back(Work::Delete(lease, fate));
    }

    fn fail(&mut self, work: Work) {
        match work {
            // Without the local rows no lease can be decided on, so the run gives up the server's
            // list.
            Work::Find(_) => self.give_up(Reading::Rows(None)),
            Work::Settle(lease, _) | Work::Delete(lease, _) => {
                self.summary.failed += 1;
                self.failed.insert(lease);
            }
        }
    }

    fn give_up(&mut self, next: Reading) {
        self.summary.incomplete = true;
        self.reading = next;
    }

    fn presence(&self, created_at: Timestamp, now: Timestamp) -> Presence {
        let stale = now.micros_since(created_at) >= self.settings.stale_after_micros;
        if stale { Presence::Stale } else { Presence::Fresh }
    }
}

/// The presences by lease. `collect` would compile a sort for this type, which is more code than
/// the map.
fn by_lease(presences: impl Iterator<Item = (LeaseId, Presence)>) -> BTreeMap<LeaseId, Presence> {
    let mut by_lease = BTreeMap::new();
    by_lease.extend(presences);
    by_lease
}

fn to_do(lease: LeaseId, decision: Decision) -> Option<Work> {
    (decision != Decision::Leave).then_some(Work::Settle(lease, decision))
}
