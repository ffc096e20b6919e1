//! Reconciliation: what a cell does about leases that were never settled (R01 to R05).
//!
//! A [`Reconciliation`] never calls out. Its host asks for the [`Step`] to take, takes it, and feeds back the [`Event`]
//! that came of it, until the step is [`Step::Done`]:
//!
//! ```text
//! while (step = reconciliation.step()) is not Done { reconciliation.feed(the event of taking it) }
//! ```
//!
//! The server's outstanding leases are read before the cell's own rows of them. What is missing locally then was missing
//! after the server had called the lease stale, and a local COMMIT that comes so late is refused by the database (R04).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::lease::{LeaseId, Outcome};
use crate::time::Timestamp;

/// How one side stands to a lease: the server to one that is outstanding, the cell to its row of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// There, and younger than the threshold.
    Fresh,
    /// There, and as old as the threshold or older.
    Stale,
    /// Not there.
    Missing,
}

/// What to do about a lease (R01).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Whoever began it may still be at it.
    Leave,
    /// The local transaction was committed: commit the lease, then delete the local row.
    Commit,
    /// The local transaction was not, and can't be any more.
    RollBack,
    /// It is settled: learn how, report it where it was rolled back, then delete the local row.
    LookUp,
}

/// The decision about a lease, from how either side stands to it. As data: [`table::RECONCILE`](crate::table::RECONCILE).
pub const fn decide(local: Presence, remote: Presence) -> Decision {
    use Presence::{Fresh, Missing, Stale};
    match (local, remote) {
        (Stale, Fresh | Stale) => Decision::Commit,
        (Stale, Missing) => Decision::LookUp,
        (Missing, Stale) => Decision::RollBack,
        (Fresh, _) | (Missing, Fresh | Missing) => Decision::Leave,
    }
}

/// What a run goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// From which age on a lease or a local row is stale.
    pub stale_after_micros: u64,
    /// How many local rows to list at a time.
    pub rows_per_page: usize,
}

/// A local row's place in the order of lists: by age, then by lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalRow {
    /// When the row was written, by the database's clock.
    pub created_at: Timestamp,
    /// The lease that it is the proof of (R02).
    pub lease: LeaseId,
}

/// An outstanding lease as the server lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteLease {
    /// When it was begun, by the server's clock.
    pub created_at: Timestamp,
    /// The lease.
    pub lease: LeaseId,
}

/// What the host is to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// List a page of the cell's outstanding leases: answer [`Event::Leases`].
    ListLeases {
        /// Where the page before said that this one begins; none for the first.
        cursor: Option<String>,
    },
    /// Find the local rows of these leases: answer [`Event::Rows`] with those that are there.
    FindRows {
        /// The leases.
        leases: Vec<LeaseId>,
    },
    /// List local rows that are at least this old by the database's clock, the oldest first: answer [`Event::Rows`].
    ListRows {
        /// Only rows after this one, by age and lease.
        after: Option<LocalRow>,
        /// From which age on.
        min_age_micros: u64,
        /// How many at the most; fewer end the list.
        limit: usize,
    },
    /// Commit or roll back a lease: answer [`Event::Settled`].
    Settle {
        /// The lease.
        lease: LeaseId,
        /// Which of the two.
        outcome: Outcome,
    },
    /// Delete a local row, if it is still there: answer [`Event::Deleted`]. Say a lost lease to people before.
    DeleteRow {
        /// The lease whose row it is.
        lease: LeaseId,
        /// What became of the lease.
        fate: Fate,
    },
    /// The run is over: see [`Reconciliation::summary`].
    Done,
}

/// What became of a lease whose local transaction was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It is committed: all is well.
    Committed,
    /// It was rolled back, so the claims of committed rows are gone: lost until a verification makes them anew.
    Lost,
    /// It was settled so long ago that nobody knows how.
    Forgotten,
}

/// How the server answered a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// Done, now or before.
    Done,
    /// `LEASE_ROLLED_BACK`.
    RolledBack,
    /// `LEASE_COMMITTED`.
    Committed,
    /// `LEASE_NOT_FOUND`.
    NotFound,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A page of outstanding leases.
    Leases {
        /// The leases.
        leases: Vec<RemoteLease>,
        /// The server's time when it answered (R03).
        now: Timestamp,
        /// Where the next page begins; absent on the last one only.
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
    /// The local row is gone.
    Deleted,
    /// The step failed, or nobody knows what came of it: what it was about is left for the next run (R05).
    Failed,
}

/// The event is no answer to the step that is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no answer to the step that was asked for")]
pub struct OutOfTurn;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Summary {
    /// Outstanding leases that the server listed.
    pub leases_seen: u64,
    /// Leases committed because their local row was there.
    pub committed: u64,
    /// Leases rolled back because no local row was there.
    pub rolled_back: u64,
    /// Leases that were settled otherwise, before the run could roll them back.
    pub settled_meanwhile: u64,
    /// Local rows whose lease was committed, or settled so long ago that it is forgotten.
    pub looked_up: u64,
    /// Of those, the forgotten ones.
    pub forgotten: u64,
    /// Leases that were rolled back although their local transaction was committed: the claims are lost.
    pub lost: Vec<LeaseId>,
    /// Local rows deleted.
    pub rows_deleted: u64,
    /// Steps about one lease that failed and are left for the next run.
    pub failed: u64,
    /// Whether some page could not be read, so that not every lease was seen.
    pub incomplete: bool,
}

#[derive(Clone, Debug, Hash)]
enum Work {
    Find(BTreeMap<LeaseId, Presence>),
    Settle(LeaseId, Decision),
    Delete(LeaseId, Fate),
}

/// What to read once there is nothing to do.
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

    /// What to do next: the same until its event is fed.
    pub fn step(&self) -> Step {
        match (self.work.front(), &self.reading) {
            (Some(Work::Find(leases)), _) => Step::FindRows { leases: leases.keys().copied().collect() },
            (Some(Work::Settle(lease, Decision::RollBack)), _) => {
                Step::Settle { lease: *lease, outcome: Outcome::RolledBack }
            }
            // To commit is also how to look up: the answer says how the lease was settled (B22, B23), and the local row
            // is the proof that nothing else than a commit can be right (R02).
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

    /// What came of the step.
    ///
    /// # Errors
    /// It is no answer to the step; nothing has changed.
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

    /// What the run has done so far.
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
            // The local database can't be read: there is nothing to decide on.
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

/// One by one: `collect` would bring a sort of its own, which is more code than a map.
fn by_lease(presences: impl Iterator<Item = (LeaseId, Presence)>) -> BTreeMap<LeaseId, Presence> {
    let mut by_lease = BTreeMap::new();
    by_lease.extend(presences);
    by_lease
}

fn to_do(lease: LeaseId, decision: Decision) -> Option<Work> {
    (decision != Decision::Leave).then_some(Work::Settle(lease, decision))
}
