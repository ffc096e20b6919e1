//! A reconciler: a process that drives the engine's reconciliation machine for its cell. The
//! reconciler executes the machine's steps one at a time and decides nothing.

use leasehold_core::query::LeasePosition;
use leasehold_core::reconcile::{Event, LocalRow, Reconciliation, Settings, Step, Summary};
use leasehold_core::rules::parse_lease_id;
use leasehold_core::time::Timestamp;

use crate::database::micros;
use crate::network::{Request, Response};
use crate::process::Process;
use crate::step_context::{Calls, StepContext};

/// The number of lease rows in a page. It is small, so that lists have several pages.
const ROWS_PER_PAGE: usize = 2;

/// A process that settles its cell's outstanding leases.
#[derive(Clone, Debug, Default)]
pub struct Reconciler {
    /// The reconciler's run in progress, `None` while it is idle.
    pub run: Option<Reconciliation>,
    /// The summary of the reconciler's last run.
    pub last: Option<Summary>,
    /// The state of the reconciler's calls to the service.
    pub calls: Calls,
}

impl Reconciler {
    /// Executes the next step of the run. If no run is in progress, starts one first.
    pub fn step(&mut self, number: u8, context: &mut StepContext<'_>) {
        let stale_after_micros = micros(context.settings.thresholds.stale_after_seconds);
        let settings = Settings { stale_after_micros, rows_per_page: ROWS_PER_PAGE };
        let run = self.run.get_or_insert_with(|| Reconciliation::new(settings));
        let now = context.database_now;
        let event = match run.step() {
            Step::Done => {
                self.last = self.run.take().map(|run| run.summary().clone());
                return;
            }
            Step::ListLeases { cursor } => {
                let cursor = cursor.as_deref().and_then(read_cursor);
                return context.call(Process::Reconciler(number), &mut self.calls, Request::ListLeases { cursor });
            }
            Step::Settle { lease, outcome } => {
                let request = Request::Settle { lease, outcome };
                return context.call(Process::Reconciler(number), &mut self.calls, request);
            }
            Step::FindRows { leases } => {
                let rows = context.database.lease_rows().iter().filter(|row| leases.contains(&row.lease));
                Event::Rows { rows: rows.copied().collect(), now }
            }
            Step::ListRows { after, min_age_micros, limit } => {
                Event::Rows { rows: old_rows(context.database.lease_rows(), after, min_age_micros, limit, now), now }
            }
            Step::DeleteRow { lease, .. } => {
                context.database.delete_lease_row(lease);
                context.effects.leases.push(lease);
                Event::Deleted
            }
        };
        self.feed(event);
    }

    /// Passes an answer of the service to the run.
    pub fn answer(&mut self, answer: &Response) {
        self.calls.is_waiting = false;
        let event = match answer {
            Response::Leases { leases, now, next } => {
                Event::Leases { leases: leases.to_vec(), now: *now, cursor: next.map(write_cursor) }
            }
            Response::Settled(answer) => Event::Settled { answer: *answer },
            _ => Event::Failed,
        };
        self.feed(event);
    }

    /// Ends the wait for an answer: the run's step has failed.
    pub fn time_out(&mut self) {
        self.calls.is_waiting = false;
        self.feed(Event::Failed);
    }

    /// Ends the process, which loses its run.
    pub fn crash(&mut self) {
        self.run = None;
        self.calls.is_waiting = false;
    }

    fn feed(&mut self, event: Event) {
        if let Some(run) = &mut self.run {
            let fed = run.feed(event);
            debug_assert_eq!(fed, Ok(()), "a host answers the step that it was asked for");
        }
    }
}

fn old_rows(
    rows: &[LocalRow],
    after: Option<LocalRow>,
    age_micros: u64,
    limit: usize,
    now: Timestamp,
) -> Vec<LocalRow> {
    let is_old = |row: &&LocalRow| now.micros_since(row.created_at) >= age_micros;
    let mut page: Vec<LocalRow> = Vec::new();
    for row in rows.iter().filter(is_old).filter(|row| after.is_none_or(|after| **row > after)) {
        page.insert(page.partition_point(|before| before < row), *row);
    }
    page.truncate(limit);
    page
}

/// Returns a cursor as text. The machine stores this text without reading it.
fn write_cursor(position: LeasePosition) -> String {
    format!("{} {}", position.created_at.as_micros(), position.lease)
}

fn read_cursor(text: &str) -> Option<LeasePosition> {
    let (created_at, lease) = text.split_once(' ')?;
    Some(LeasePosition { created_at: Timestamp::from_micros(created_at.parse().ok()?), lease: parse_lease_id(lease)? })
}
