//! Conversions between the rows of queues and the columns of their tables.

use std::num::NonZeroU32;

use leasehold_core::lease::Fence;
use leasehold_core::queue::{
    BodyDigest, EndedHold, Head, HoldEnd, Lane, LaneHold, LanePath, LaneState, Note, Priority, Progress, Queue,
    QueuePath, Request, RequestBody, RequestId, RequestKind, RequestState, TakeId,
};
use leasehold_core::rows::{LaneOrder, RowKind};
use leasehold_core::session::SessionId;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::columns::{Columns, Micros};
use super::composite::CompositeRows;
use super::lock_columns::{number_of, numbered, sent};
use crate::store::error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// The columns of `request_queues`, under the alias `q`, that [`queue`] reads.
pub(super) const QUEUE: &str = "q.queue, q.is_paused, q.row_limit, q.taken";

/// The columns of `request_lanes`, under the alias `l`, that [`lane`] reads.
pub(super) const LANE: &str = "l.queue, l.key, l.is_paused, l.waiting, l.last_number, l.create_uuid, l.not_before, l.rank, \
    l.fence, l.take_uuid, l.session_uuid, l.taken_at, l.withholding_micros, l.taken_number, l.is_counted, l.progress, \
    l.progress_number, l.last_fence, l.last_take_uuid, l.last_session_uuid, l.last_taken_at, l.last_withholding_micros, \
    l.last_taken_number, l.last_is_counted, l.last_end, l.last_ended_at, l.updated_at";

/// The columns of `open_requests` and `settled_requests`, under the alias `r`, that [`request`] reads.
pub(super) const REQUEST: &str = "r.uuid, r.queue, r.key, r.number, r.kind, r.priority, r.not_before, r.attempts, \
    r.max_attempts, r.body_bytes, r.body_hash, r.submitted_at, r.updated_at, r.state";

/// The ends of a hold, in the order of the numbers in `request_lanes.last_end`, from 1.
const ENDS: [HoldEnd; 4] = [HoldEnd::Completed, HoldEnd::Failed, HoldEnd::GivenBack, HoldEnd::Lost];

/// The kinds of requests, in the order of their numbers, from 1.
const KINDS: [RequestKind; 2] = [RequestKind::Create, RequestKind::Update];

/// The states of requests, in the order of their numbers, from 1.
const STATES: [RequestState; 4] =
    [RequestState::New, RequestState::InProgress, RequestState::Complete, RequestState::Error];

fn path(columns: &mut Columns<'_>) -> Result<LanePath> {
    let (queue, key): (&str, &str) = (columns.take()?, columns.take()?);
    let path = QueuePath::parse(queue).and_then(|queue| LanePath::parse(queue, key));
    path.map_err(|_| columns.damaged())
}

/// Reads a queue and its name from a row with the columns [`QUEUE`].
pub(super) fn queue(row: &Row) -> Result<(QueuePath, Queue)> {
    let mut columns = Columns::new(row, "request_queues");
    let path = QueuePath::parse(columns.take()?).map_err(|_| columns.damaged())?;
    let is_paused = columns.take()?;
    let number = |columns: &Columns<'_>, number| u32::try_from(number).map_err(|_| columns.damaged());
    let limit = match columns.take::<Option<i64>>()? {
        Some(limit) => NonZeroU32::new(number(&columns, limit)?),
        None => None,
    };
    let taken = columns.take::<i64>()?;
    Ok((path, Queue { is_paused, limit, taken: number(&columns, taken)? }))
}

/// Reads seven columns of a hold; `None` if they are NULL.
fn hold(columns: &mut Columns<'_>) -> Result<Option<LaneHold>> {
    let (fence, take): (Option<i64>, Option<Uuid>) = (columns.take()?, columns.take()?);
    let (session, taken_at): (Option<Uuid>, Option<Micros>) = (columns.take()?, columns.take()?);
    let (withholding, number): (Option<i64>, Option<i64>) = (columns.take()?, columns.take()?);
    let is_counted: Option<bool> = columns.take()?;
    let Some(fence) = fence else { return Ok(None) };
    match (take, session, taken_at, withholding, number, is_counted) {
        (Some(take), Some(session), Some(Micros(taken_at)), Some(withholding), Some(number), Some(is_counted)) => {
            Ok(Some(LaneHold {
                take: TakeId(take),
                session: SessionId(session),
                fence: Fence(fence.cast_unsigned()),
                taken_at,
                withholding_micros: withholding.cast_unsigned(),
                last_number: number.cast_unsigned(),
                is_counted,
            }))
        }
        _ => Err(columns.damaged()),
    }
}

fn note(columns: &mut Columns<'_>) -> Result<Option<Note>> {
    let (progress, number): (Option<&[u8]>, Option<i64>) = (columns.take()?, columns.take()?);
    let Some((progress, number)) = progress.zip(number) else { return Ok(None) };
    let progress = Progress::parse(progress).map_err(|_| columns.damaged())?;
    Ok(Some(Note { progress, last_number: number.cast_unsigned() }))
}

/// Reads a lane and its name from a row with the columns [`LANE`].
pub(super) fn lane(row: &Row) -> Result<(LanePath, Lane)> {
    let mut columns = Columns::new(row, "request_lanes");
    let path = path(&mut columns)?;
    let is_paused = columns.take()?;
    let waiting = columns.take::<i32>()?.cast_unsigned();
    let last_number = columns.take::<i64>()?.cast_unsigned();
    let create = columns.take::<Option<Uuid>>()?.map(RequestId);
    let (not_before, rank): (Option<Micros>, Option<Micros>) = (columns.take()?, columns.take()?);
    let head = not_before.zip(rank).map(|(not_before, rank)| Head { not_before: not_before.0, rank: rank.0 });
    let current = hold(&mut columns)?;
    let note = note(&mut columns)?;
    let last = hold(&mut columns)?;
    let (end, ended_at): (Option<i16>, Option<Micros>) = (columns.take()?, columns.take()?);
    let end = end.and_then(|end| numbered(&ENDS, end)).zip(ended_at);
    let last = match (last, end) {
        (None, None) => None,
        (Some(hold), Some((end, Micros(ended_at)))) => Some(EndedHold { hold, end, ended_at }),
        _ => return Err(columns.damaged()),
    };
    let updated_at = columns.take::<Micros>()?.0;
    let state = match (current, head) {
        (Some(hold), None) => LaneState::Taken(hold),
        (None, Some(head)) => LaneState::Waiting(head),
        (None, None) => LaneState::Idle,
        (Some(_), Some(_)) => return Err(columns.damaged()),
    };
    Ok((path, Lane { state, is_paused, waiting, last_number, create, note, last, updated_at }))
}

/// Reads a request and its id from a row with the columns [`REQUEST`].
pub(super) fn request(row: &Row) -> Result<(RequestId, Request)> {
    let mut columns = Columns::new(row, "open_requests");
    let id = RequestId(columns.take()?);
    let lane = path(&mut columns)?;
    let number = columns.take::<i64>()?.cast_unsigned();
    let kind = numbered(&KINDS, columns.take()?).ok_or_else(|| columns.damaged())?;
    let priority = u8::try_from(columns.take::<i16>()?).ok().and_then(|level| Priority::parse(level).ok());
    let priority = priority.ok_or_else(|| columns.damaged())?;
    let not_before = columns.take::<Micros>()?.0;
    let (attempts, max_attempts) = (columns.take::<i32>()?.cast_unsigned(), columns.take::<i32>()?.cast_unsigned());
    let (bytes, hash) = (columns.take::<i32>()?.cast_unsigned(), columns.take::<i64>()?.cast_unsigned());
    let (submitted_at, updated_at) = (columns.take::<Micros>()?.0, columns.take::<Micros>()?.0);
    let state = numbered(&STATES, columns.take()?).ok_or_else(|| columns.damaged())?;
    let body = BodyDigest { bytes, hash };
    Ok((
        id,
        Request {
            lane,
            number,
            kind,
            priority,
            not_before,
            attempts,
            max_attempts,
            body,
            submitted_at,
            updated_at,
            state,
        },
    ))
}

/// Reads a body and the id of its request from a row with these two columns.
pub(super) fn body(row: &Row) -> Result<(RequestId, RequestBody)> {
    let mut columns = Columns::new(row, "request_bodies");
    let id = RequestId(columns.take()?);
    let body = RequestBody::parse(columns.take()?).map_err(|_| columns.damaged())?;
    Ok((id, body))
}

/// Returns the number of the list that a lane is in, as in `request_lanes.list`.
fn list(path: &LanePath, lane: &Lane) -> i16 {
    match Lane::position(path, lane) {
        Some(LaneOrder::Ready(..)) => 1,
        Some(LaneOrder::Delayed(..)) => 2,
        Some(LaneOrder::Taken(..)) => 3,
        Some(LaneOrder::Paused(_)) => 4,
        Some(LaneOrder::Idle(..)) | None => 5,
    }
}

impl CompositeRows {
    /// Adds a row of the composite type `new_queue`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_queue(&mut self, path: &QueuePath, queue: &Queue) -> Result<()> {
        self.push(&[
            (&path.as_str(), Type::TEXT),
            (&queue.is_paused, Type::BOOL),
            (&queue.limit.map(|limit| i64::from(limit.get())), Type::INT8),
            (&i64::from(queue.taken), Type::INT8),
        ])
    }

    /// Adds a row of the composite type `new_lane`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_lane(&mut self, path: &LanePath, lane: &Lane) -> Result<()> {
        let head = match &lane.state {
            LaneState::Waiting(head) => Some(head),
            LaneState::Idle | LaneState::Taken(_) => None,
        };
        let (hold, note, last) = (lane.hold(), lane.note.as_ref(), lane.last.as_ref());
        let ended = last.map(|last| &last.hold);
        self.push(&[
            (&path.queue().as_str(), Type::TEXT),
            (&path.key(), Type::TEXT),
            (&list(path, lane), Type::INT2),
            (&lane.is_paused, Type::BOOL),
            (&lane.waiting.cast_signed(), Type::INT4),
            (&lane.last_number.cast_signed(), Type::INT8),
            (&lane.create.map(|create| create.0), Type::UUID),
            (&head.map(|head| Micros(head.not_before)), Type::TIMESTAMPTZ),
            (&head.map(|head| Micros(head.rank)), Type::TIMESTAMPTZ),
            (&hold.map(|hold| sent(hold.fence)), Type::INT8),
            (&hold.map(|hold| hold.take.0), Type::UUID),
            (&hold.map(|hold| hold.session.0), Type::UUID),
            (&hold.map(|hold| Micros(hold.taken_at)), Type::TIMESTAMPTZ),
            (&hold.map(|hold| hold.withholding_micros.cast_signed()), Type::INT8),
            (&hold.map(|hold| hold.last_number.cast_signed()), Type::INT8),
            (&hold.map(|hold| hold.is_counted), Type::BOOL),
            (&note.map(|note| note.progress.as_bytes()), Type::BYTEA),
            (&note.map(|note| note.last_number.cast_signed()), Type::INT8),
            (&ended.map(|hold| sent(hold.fence)), Type::INT8),
            (&ended.map(|hold| hold.take.0), Type::UUID),
            (&ended.map(|hold| hold.session.0), Type::UUID),
            (&ended.map(|hold| Micros(hold.taken_at)), Type::TIMESTAMPTZ),
            (&ended.map(|hold| hold.withholding_micros.cast_signed()), Type::INT8),
            (&ended.map(|hold| hold.last_number.cast_signed()), Type::INT8),
            (&ended.map(|hold| hold.is_counted), Type::BOOL),
            (&last.map(|last| number_of(&ENDS, &last.end)), Type::INT2),
            (&last.map(|last| Micros(last.ended_at)), Type::TIMESTAMPTZ),
            (&Micros(lane.updated_at), Type::TIMESTAMPTZ),
        ])
    }

    /// Adds a row of the composite type `new_request`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_request(&mut self, id: RequestId, request: &Request) -> Result<()> {
        self.push(&[
            (&id.0, Type::UUID),
            (&request.lane.queue().as_str(), Type::TEXT),
            (&request.lane.key(), Type::TEXT),
            (&request.number.cast_signed(), Type::INT8),
            (&number_of(&KINDS, &request.kind), Type::INT2),
            (&i16::from(u8::from(request.priority)), Type::INT2),
            (&Micros(request.not_before), Type::TIMESTAMPTZ),
            (&request.attempts.cast_signed(), Type::INT4),
            (&request.max_attempts.cast_signed(), Type::INT4),
            (&request.body.bytes.cast_signed(), Type::INT4),
            (&request.body.hash.cast_signed(), Type::INT8),
            (&Micros(request.submitted_at), Type::TIMESTAMPTZ),
            (&Micros(request.updated_at), Type::TIMESTAMPTZ),
            (&number_of(&STATES, &request.state), Type::INT2),
        ])
    }

    /// Adds a row of the composite type `new_body`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_body(&mut self, id: RequestId, body: &RequestBody) -> Result<()> {
        self.push(&[(&id.0, Type::UUID), (&body.as_bytes(), Type::BYTEA)])
    }
}
