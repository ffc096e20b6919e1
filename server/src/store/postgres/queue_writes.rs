//! The changes of a group to queues, as the parameters of one function.
//!
//! The fences of new holds are placeholders, as those of new grants are: see [`super::lock_writes`]. The statement
//! passes the fences that the write of sessions and locks has drawn on to this function.

use leasehold_core::queue::{Lane, Queue, Request, RequestBody};
use leasehold_core::rows::{NetChanges, RowChange};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::columns::Parameters;
use super::composite::CompositeRows;
use super::lock_writes::sorted;
use crate::store::error::StoreError;

/// The changes of a group to queues, sorted by kind.
#[derive(Default)]
pub(super) struct QueueWrites<'a> {
    made_queues: CompositeRows,
    changed_queues: CompositeRows,
    removed_queues: Vec<&'a str>,
    made_lanes: CompositeRows,
    changed_lanes: CompositeRows,
    forgotten_lanes: (Vec<&'a str>, Vec<&'a str>),
    // The requests that leave the table of open ones, and those that leave the table of settled ones.
    closed: Vec<Uuid>,
    reopened: Vec<Uuid>,
    opened: CompositeRows,
    changed: CompositeRows,
    settled: CompositeRows,
    bodies: CompositeRows,
    removed_bodies: Vec<Uuid>,
}

impl<'a> QueueWrites<'a> {
    /// Sorts the changes of a group by kind, and each kind by its keys.
    ///
    /// # Errors
    /// A row has a value that its column can't have.
    pub(super) fn of(changes: &'a NetChanges) -> Result<Self, StoreError> {
        let NetChanges { queues, lanes, requests, bodies, .. } = changes;
        let mut writes = Self::default();
        sorted(queues).into_iter().try_for_each(|change| writes.queue(change))?;
        sorted(lanes).into_iter().try_for_each(|change| writes.lane(change))?;
        sorted(requests).into_iter().try_for_each(|change| writes.request(change))?;
        sorted(bodies).into_iter().try_for_each(|change| writes.body(change))?;
        Ok(writes)
    }

    fn queue(&mut self, change: &'a RowChange<Queue>) -> Result<(), StoreError> {
        match (&change.before, &change.after) {
            (None, Some(queue)) => self.made_queues.push_queue(&change.key, queue),
            (Some(_), Some(queue)) => self.changed_queues.push_queue(&change.key, queue),
            (Some(_), None) => {
                self.removed_queues.push(change.key.as_str());
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn lane(&mut self, change: &'a RowChange<Lane>) -> Result<(), StoreError> {
        match (&change.before, &change.after) {
            (None, Some(lane)) => self.made_lanes.push_lane(&change.key, lane),
            (Some(_), Some(lane)) => self.changed_lanes.push_lane(&change.key, lane),
            (Some(_), None) => {
                self.forgotten_lanes.0.push(change.key.queue().as_str());
                self.forgotten_lanes.1.push(change.key.key());
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn request(&mut self, change: &RowChange<Request>) -> Result<(), StoreError> {
        let is_settled = |row: &Option<Request>| row.as_ref().map(Request::is_settled);
        let (before, after) = (is_settled(&change.before), is_settled(&change.after));
        // A request that is worked within the group and settled again has another row among the settled ones.
        if before == Some(true) {
            self.reopened.push(change.key.0);
        } else if before == Some(false) && after != Some(false) {
            self.closed.push(change.key.0);
        }
        let Some(request) = &change.after else { return Ok(()) };
        let rows = match (before, after) {
            (_, Some(true)) => &mut self.settled,
            (Some(false), _) => &mut self.changed,
            _ => &mut self.opened,
        };
        rows.push_request(change.key, request)
    }

    fn body(&mut self, change: &RowChange<RequestBody>) -> Result<(), StoreError> {
        self.removed_bodies.extend(change.before.as_ref().map(|_| change.key.0));
        change.after.as_ref().map_or(Ok(()), |body| self.bodies.push_body(change.key, body))
    }

    /// True if the group changes no row of queues.
    pub(super) fn is_empty(&self) -> bool {
        let queues = self.made_queues.is_empty() && self.changed_queues.is_empty() && self.removed_queues.is_empty();
        let lanes = self.made_lanes.is_empty() && self.changed_lanes.is_empty() && self.forgotten_lanes.0.is_empty();
        let moved = self.closed.is_empty() && self.reopened.is_empty() && self.settled.is_empty();
        let requests = self.opened.is_empty() && self.changed.is_empty() && moved;
        queues && lanes && requests && self.bodies.is_empty() && self.removed_bodies.is_empty()
    }

    /// Returns the call of `save_queues`. `fences` is the SQL of an array with the drawn fences, and `parameters` the
    /// number of the parameters before those of [`parameters`](Self::parameters).
    pub(super) fn call(fences: &str, parameters: usize) -> String {
        let types = [
            "new_queue[]",
            "new_queue[]",
            "text[]",
            "new_lane[]",
            "new_lane[]",
            "text[]",
            "text[]",
            "uuid[]",
            "uuid[]",
            "new_request[]",
            "new_request[]",
            "new_request[]",
            "new_body[]",
            "uuid[]",
        ];
        let arguments = (parameters + 1..).zip(types).map(|(number, kind)| format!(", ${number}::{kind}"));
        format!("SELECT save_queues({fences}{})", arguments.collect::<String>())
    }

    /// Returns the parameters of the function, without the fences.
    pub(super) fn parameters(&self) -> Parameters<'_> {
        [
            self.made_queues.parameter(),
            self.changed_queues.parameter(),
            vec![(&self.removed_queues as _, Type::TEXT_ARRAY)],
            self.made_lanes.parameter(),
            self.changed_lanes.parameter(),
            vec![(&self.forgotten_lanes.0 as _, Type::TEXT_ARRAY), (&self.forgotten_lanes.1 as _, Type::TEXT_ARRAY)],
            vec![(&self.closed as _, Type::UUID_ARRAY), (&self.reopened as _, Type::UUID_ARRAY)],
            self.opened.parameter(),
            self.changed.parameter(),
            self.settled.parameter(),
            self.bodies.parameter(),
            vec![(&self.removed_bodies as _, Type::UUID_ARRAY)],
        ]
        .concat()
    }
}
