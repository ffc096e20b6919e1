//! Reconciliation: a cell settles the leases that it has left outstanding (R01 to R05).
//!
//! A [`Reconciliation`] does no I/O. Its host executes each [`Step`] and passes the result back as
//! an [`Event`], until the step is [`Step::Done`]:
//!
//! ```
//! use leasehold_core::reconcile::{Event, Reconciliation, Settings, Settled, Step};
//! use leasehold_core::time::Timestamp;
//!
//! let mut run = Reconciliation::new(Settings { stale_after_micros: 600_000_000, rows_per_page: 1000 });
//! let now = Timestamp::from_micros(1);
//! loop {
//!     let event = match run.step() {
//!         // A host asks the server and its own database here. In this example, neither has a
//!         // lease.
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
//! **The server is read before the cell's database.** If a row is missing in the database, it was
//! missing at a time when the lease was already stale. The database refuses a COMMIT that late
//! (R04), so the row stays missing, and the lease can be rolled back. In the other order, the row
//! could appear between the two reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::lease::{LeaseId, Outcome};
use crate::time::Timestamp;

/// The presence of a lease on one side: on the server as an outstanding lease, or in the cell's
/// database as a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// The side has the lease, and the lease is younger than `stale_after_micros`.
    Fresh,
    /// The side has the lease, and the lease is at least `stale_after_micros` old.
    Stale,
    /// The side does not have the lease.
    Missing,
}

/// The decision about a lease (R01).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Leave the lease as it is: its local transaction may still be open.
    Leave,
    /// Commit the lease, then delete the row in the cell's database: the row proves that the local
    /// transaction was committed.
    Commit,
    /// Roll the lease back: the local transaction was not committed and can no longer be.
    RollBack,
    /// Find out how the lease was settled, report the lease as lost if it was rolled back, then
    /// delete the row in the cell's database. The server no longer lists the lease as outstanding.
    LookUp,
}

/// Returns the decision about a lease by its presence in the cell's database (`local`) and on the
/// server (`remote`). [`table::RECONCILE`](crate::table::RECONCILE) has the same decisions as data.
pub const fn decide(local: Presence, remote: Presence) -> Decision {
    use Presence::{Fresh, Missing, Stale};
    match (local, remote) {
        (Stale, Fresh | Stale) => Decision::Commit,
        (Stale, Missing) => Decision::LookUp,
        (Missing, Stale) => Decision::RollBack,
        (Fresh, _) | (Missing, Fresh | Missing) => Decision::Leave,
    }
}

/// The settings of a run of reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The age in microseconds from which on a lease, or a row in the cell's database, is stale.
    pub stale_after_micros: u64,
    /// The number of rows of the cell's database to list at a time.
    pub rows_per_page: usize,
}

/// A row in the cell's database for one lease. Rows are ordered by age, then by lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalRow {
    /// The time at which the row was written, by the clock of the cell's database.
    pub created_at: Timestamp,
    /// The lease that the row belongs to. The row is the only proof that the local transaction
    /// committed (R02).
    pub lease: LeaseId,
}

/// An outstanding lease, as the server lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteLease {
    /// The time at which the lease was begun, by the server's clock.
    pub created_at: Timestamp,
    /// The id of the outstanding lease.
    pub lease: LeaseId,
}

/// The step that the host must execute next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// List a page of the cell's outstanding leases on the server: answer with [`Event::Leases`].
    ListLeases {
        /// The cursor that came with the previous page, `None` for the first page.
        cursor: Option<String>,
    },
    /// Find the rows of these leases in the cell's database: answer with [`Event::Rows`], the rows
    /// that are present.
    FindRows {
        /// The leases whose rows to find.
        leases: Vec<LeaseId>,
    },
    /// List rows of the cell's database that have a minimal age by the database's clock, the oldest
    /// first: answer with [`Event::Rows`].
    ListRows {
        /// The last row of the previous page, `None` for the first page. The order is by age, then
        /// by lease.
        after: Option<LocalRow>,
        /// The minimal age of the rows, in microseconds.
        min_age_micros: u64,
        /// The most rows to list. An answer with fewer rows ends the list.
        limit: usize,
    },
    /// Commit or roll back a lease on the server: answer with [`Event::Settled`].
    Settle {
        /// The lease to settle.
        lease: LeaseId,
        /// Commit the lease or roll it back.
        outcome: Outcome,
    },
    /// Delete the row of a lease in the cell's database if it is still present: answer with
    /// [`Event::Deleted`]. If the lease is lost, report it before the deletion, since the row is
    /// the last trace of the lease.
    DeleteRow {
        /// The lease whose row to delete.
        lease: LeaseId,
        /// The fate of the lease, for the report.
        fate: Fate,
    },
    /// The run is over: see [`Reconciliation::summary`].
    Done,
}

/// The fate of a lease whose local transaction was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The lease is committed, as its local transaction is.
    Committed,
    /// The lease was rolled back although its local transaction was committed. The changed rows
    /// have no claims until a verification creates them again.
    Lost,
    /// The lease was settled so long ago that the server has forgotten the outcome.
    Forgotten,
}

/// The server's answer to a commit or rollback of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// The lease is settled as requested, now or before.
    Done,
    /// The server refused a commit with `LEASE_ROLLED_BACK`.
    RolledBack,
    /// The server refused a rollback with `LEASE_COMMITTED`.
    Committed,
    /// The server answered `LEASE_NOT_FOUND`: it has forgotten the lease, or never knew it.
    NotFound,
}

/// The result of a step, passed to [`Reconciliation::feed`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The result of [`Step::ListLeases`]: a page of outstanding leases.
    Leases {
        /// The outstanding leases of the page.
        leases: Vec<RemoteLease>,
        /// The server's time when it answered (R03).
        now: Timestamp,
        /// The cursor of the next page, `None` for the last page only.
        cursor: Option<String>,
    },
    /// The result of [`Step::FindRows`] or [`Step::ListRows`]: rows of the cell's database.
    Rows {
        /// The rows that were found or listed.
        rows: Vec<LocalRow>,
        /// The time of the cell's database when it answered (R03).
        now: Timestamp,
    },
    /// The result of [`Step::Settle`].
    Settled {
        /// The server's answer to the settle.
        answer: Settled,
    },
    /// The result of [`Step::DeleteRow`]: the row of the lease is gone.
    Deleted,
    /// The step failed, or its result is unknown. The run leaves the step's lease or page to the
    /// next run (R05).
    Failed,
}

/// The error for an event that does not answer the present step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no answer to the step that was asked for")]
pub struct OutOfTurn;

/// The counts of a run of reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Summary {
    /// The number of outstanding leases that the server listed.
    pub leases_seen: u64,
    /// The number of leases committed because the cell's database had their row.
    pub committed: u64,
    /// The number of leases rolled back because the cell's database lacked their row.
    pub rolled_back: u64,
    /// The number of leases that another process settled before this run could roll them back.
    pub settled_meanwhile: u64,
    /// The number of rows whose lease was no longer outstanding and was not rolled back: the lease
    /// was committed before, or is forgotten.
    pub looked_up: u64,
    /// The number of rows whose lease the server had forgotten.
    pub forgotten: u64,
    /// The leases that were rolled back although their local transaction was committed.
    pub lost: Vec<LeaseId>,
    /// The number of rows deleted from the cell's database.
    pub rows_deleted: u64,
    /// The number of steps about one lease that failed and are left to the next run.
    pub failed: u64,
    /// True if a page could not be read, so that the run may have missed leases.
    pub incomplete: bool,
}

#[derive(Clone, Debug, Hash)]
enum Work {
    Find(BTreeMap<LeaseId, Presence>),
    Settle(LeaseId, Decision),
    Delete(LeaseId, Fate),
}

/// The list that the run reads next, once no lease of the last page is left to handle.
#[derive(Clone, Debug, Hash)]
enum Reading {
    Leases(Option<String>),
    Rows(Option<LocalRow>),
    Finished,
}

/// A run of reconciliation. The host executes its steps.
#[derive(Clone, Debug, Hash)]
pub struct Reconciliation {
    settings: Settings,
    work: VecDeque<Work>,
    reading: Reading,
    failed: BTreeSet<LeaseId>,
    summary: Summary,
}

impl Reconciliation {
    /// Makes a run that begins with the first page of the server's outstanding leases.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Settings { rows_per_page: settings.rows_per_page.max(1), ..settings },
            work: VecDeque::new(),
            reading: Reading::Leases(None),
            failed: BTreeSet::new(),
            summary: Summary::default(),
        }
    }

    /// Returns the step that the host must execute. The step stays the same until
    /// [`feed`](Self::feed) takes its result.
    pub fn step(&self) -> Step {
        match (self.work.front(), &self.reading) {
            (Some(Work::Find(leases)), _) => Step::FindRows { leases: leases.keys().copied().collect() },
            (Some(Work::Settle(lease, Decision::RollBack)), _) => {
                Step::Settle { lease: *lease, outcome: Outcome::RolledBack }
            }
            // A commit also looks up how a lease was settled: the answer shows it (B22, B23). If
            // the lease is still outstanding, the commit is right, since the local row proves that
            // the local transaction committed (R02).
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

    /// Takes the result of the present step.
    ///
    /// # Errors
    /// The event does not answer the present step. The run has not changed.
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

    /// Returns the counts of this run of reconciliation so far.
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
            // If the local rows of a page of leases can't be read, the run can decide about none of
            // them. It then skips the rest of the server's list.
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

/// Returns the presences as a map by lease. `collect` would compile a sort for this type, which
/// takes more code than the map itself.
fn by_lease(presences: impl Iterator<Item = (LeaseId, Presence)>) -> BTreeMap<LeaseId, Presence> {
    let mut by_lease = BTreeMap::new();
    by_lease.extend(presences);
    by_lease
}

fn to_do(lease: LeaseId, decision: Decision) -> Option<Work> {
    (decision != Decision::Leave).then_some(Work::Settle(lease, decision))
}
