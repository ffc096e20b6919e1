//! A queue: requests that fronts submit and workers take. The requests of one key are a *lane*, which
//! is worked in order by one worker at a time.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::fingerprint::hash;
use crate::lease::Fence;
use crate::lock::{MAX_KEY_BYTES, MAX_VALUE_BYTES, check_queue};
use crate::rejection::{Detail, Reason, Rejection};
use crate::session::{SessionId, check_limit};
use crate::time::Timestamp;

/// The largest number of bytes in the body of a request.
pub const MAX_BODY_BYTES: usize = 65_536;
/// The largest number of bytes in a note of progress.
pub const MAX_PROGRESS_BYTES: usize = MAX_VALUE_BYTES;
/// The largest number of requests that one submit may have.
pub const MAX_SUBMITTED_REQUESTS: usize = 1_000;
/// The largest number of bytes in the bodies of one submit.
pub const MAX_SUBMITTED_BYTES: usize = 4_194_304;
/// The largest number of requests that are taken as one. One write settles all of them.
pub const MAX_BATCH_REQUESTS: usize = 100;
/// The largest number of bytes in the bodies that are taken as one. Each body fits alone.
pub const MAX_BATCH_BYTES: usize = 1_048_576;
/// The largest number of requests that may wait in one lane.
pub const MAX_WAITING_PER_LANE: u32 = 1_000_000;
/// The name of this limit.
pub(crate) const WAITING_PER_LANE: &str = "waiting_per_lane";
/// The largest number of attempts that a request may have (Q03).
pub const MAX_ATTEMPTS: u32 = 1_000;
/// The longest time by which a request or its next attempt may be put off, in microseconds: 1 year
/// (Q12, Q13).
pub const MAX_DELAY_MICROS: u64 = 365 * 86_400_000_000;
/// The highest priority.
pub const MAX_PRIORITY: u8 = 9;
/// The time by which each step of priority moves a request ahead, in microseconds: 1 minute. A
/// request of the highest priority passes those of the lowest that came at most nine minutes before
/// it, so the lowest never starve (Q12).
pub const HEAD_START_MICROS: u64 = 60_000_000;

/// The name of a queue: one or more parts that are joined by dots, by the rules of a lock's
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QueuePath(Arc<str>);

impl QueuePath {
    /// Parses the parts of a name, joined by dots.
    ///
    /// # Errors
    /// A part is empty or has a control character, or the name is too long.
    pub fn parse(name: &str) -> Result<Self, Rejection> {
        check_queue(name)?;
        Ok(Self(name.into()))
    }

    /// Returns the parts of the name, joined by dots.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for QueuePath {
    type Error = Rejection;

    fn try_from(name: String) -> Result<Self, Rejection> {
        Self::parse(&name)
    }
}

impl From<QueuePath> for String {
    fn from(path: QueuePath) -> Self {
        path.as_str().into()
    }
}

/// The name of a lane: its queue, and the key of the resource that its requests are about. Lanes are
/// ordered by queue first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "LaneFields", into = "LaneFields")]
pub struct LanePath {
    queue: QueuePath,
    key: Arc<str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaneFields {
    queue: String,
    key: String,
}

impl TryFrom<LaneFields> for LanePath {
    type Error = Rejection;

    fn try_from(lane: LaneFields) -> Result<Self, Rejection> {
        Self::parse(QueuePath::parse(&lane.queue)?, &lane.key)
    }
}

impl From<LanePath> for LaneFields {
    fn from(path: LanePath) -> Self {
        Self { queue: path.queue.as_str().into(), key: path.key().into() }
    }
}

impl LanePath {
    /// Parses the key of a lane.
    ///
    /// # Errors
    /// The key is empty, has a control character or is too long.
    pub fn parse(queue: QueuePath, key: &str) -> Result<Self, Rejection> {
        if key.is_empty() || key.contains(char::is_control) {
            return Err(invalid("`key` is empty or has a control character"));
        }
        check_limit("key_bytes", MAX_KEY_BYTES as u64, key.len() as u64)?;
        Ok(Self { queue, key: key.into() })
    }

    /// Returns a path before every lane, as the bound of a range. It names no lane, because its parts
    /// are empty.
    pub(crate) fn first() -> Self {
        Self { queue: QueuePath("".into()), key: "".into() }
    }

    /// Returns the queue of the lane.
    pub fn queue(&self) -> &QueuePath {
        &self.queue
    }

    /// Returns the key of the lane within its queue.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// Writes the queue alone: keys appear in no log and no error (Q22).
impl fmt::Display for LanePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.fmt(f)
    }
}

/// Writes the queue alone: a log that prints a command or a row shows no key (Q22).
impl fmt::Debug for LanePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LanePath").field("queue", &self.queue.as_str()).finish_non_exhaustive()
    }
}

/// The id of a request. Fronts generate the ids, so that a repeated submit is recognised (Q09).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub Uuid);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a take. Workers generate the ids, so that a repeated take gets the same batch again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TakeId(pub Uuid);

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequestKind {
    /// The request creates the resource of its lane. It is taken alone, and a resource has at most
    /// one (Q09).
    Create,
    /// The request updates the resource of its lane. Waiting updates are taken as one (Q02).
    Update,
}

/// The priority of a request, 0 to [`MAX_PRIORITY`]. Higher ones come first, by a
/// [head start](HEAD_START_MICROS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

impl Priority {
    /// Parses a priority.
    ///
    /// # Errors
    /// The priority is above [`MAX_PRIORITY`].
    pub fn parse(level: u8) -> Result<Self, Rejection> {
        check_limit("priority", MAX_PRIORITY.into(), level.into())?;
        Ok(Self(level))
    }

    fn head_start_micros(self) -> u64 {
        u64::from(self.0) * HEAD_START_MICROS
    }
}

impl TryFrom<u8> for Priority {
    type Error = Rejection;

    fn try_from(level: u8) -> Result<Self, Rejection> {
        Self::parse(level)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority.0
    }
}

/// The body of a request: bytes that the engine stores and never decodes. It is a row of its own,
/// written once, since the request's row changes with each take and settle.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestBody(Arc<[u8]>);

impl RequestBody {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// The body is longer than [`MAX_BODY_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Rejection> {
        check_limit("body_bytes", MAX_BODY_BYTES as u64, bytes.len() as u64)?;
        Ok(Self(bytes.into()))
    }

    /// Returns the bytes of the body.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the length and the hash of the body, by which a repeated submit is compared with the
    /// first.
    pub fn digest(&self) -> BodyDigest {
        // No longer body can be parsed, so the length never saturates.
        let bytes = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        BodyDigest { bytes, hash: hash([&self.0, &[]]) }
    }
}

/// Writes the length alone: bodies appear in no log and no error (Q22).
impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestBody({} bytes)", self.0.len())
    }
}

/// The length and the hash (XXH3) of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BodyDigest {
    /// The number of bytes in the body.
    pub bytes: u32,
    /// The hash of the bytes.
    pub hash: u64,
}

/// The progress that a worker noted: bytes for the next worker of the lane, should this one fail
/// (Q20). The engine never decodes them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Progress(Arc<[u8]>);

impl Progress {
    /// Parses a note of progress.
    ///
    /// # Errors
    /// The note is longer than [`MAX_PROGRESS_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Rejection> {
        check_limit("progress_bytes", MAX_PROGRESS_BYTES as u64, bytes.len() as u64)?;
        Ok(Self(bytes.into()))
    }

    /// Returns the bytes of the note.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Writes the length alone: notes appear in no log and no error (Q22).
impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Progress({} bytes)", self.0.len())
    }
}

/// The most requests of a lane that a worker takes as one, 1 to [`MAX_BATCH_REQUESTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchSize(usize);

impl BatchSize {
    /// The largest size.
    pub const MAX: Self = Self(MAX_BATCH_REQUESTS);

    /// Parses a size.
    ///
    /// # Errors
    /// The size is 0 or above [`MAX_BATCH_REQUESTS`].
    pub fn parse(requests: u32) -> Result<Self, Rejection> {
        if requests == 0 {
            return Err(invalid("`max_requests` is 0"));
        }
        check_limit("max_requests", MAX_BATCH_REQUESTS as u64, requests.into())?;
        Ok(Self(requests as usize))
    }

    /// Returns the number of requests.
    pub fn get(self) -> usize {
        self.0
    }
}

/// Returns the number of attempts that a new request may have.
///
/// # Errors
/// The number is 0 or above [`MAX_ATTEMPTS`].
pub fn check_attempts(attempts: u32) -> Result<u32, Rejection> {
    if attempts == 0 {
        return Err(invalid("`max_attempts` is 0"));
    }
    check_limit("max_attempts", MAX_ATTEMPTS.into(), attempts.into())?;
    Ok(attempts)
}

/// The state of a request. A request that was withdrawn or forgotten has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequestState {
    /// The request waits to be taken.
    New,
    /// A worker has taken the request.
    InProgress,
    /// The work succeeded.
    Complete,
    /// The last attempt failed. The request can be submitted again (Q13).
    Error,
}

/// The row of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The lane of the request.
    pub lane: LanePath,
    /// The place of the request in its lane: larger than that of every earlier one. A retry keeps
    /// its place.
    pub number: u64,
    /// The kind of the request.
    pub kind: RequestKind,
    /// The priority of the request.
    pub priority: Priority,
    /// The time before which the request is not taken (Q12).
    pub not_before: Timestamp,
    /// The number of attempts so far. An attempt counts when the request is taken, so that a request
    /// that kills its worker is not taken for ever (Q03).
    pub attempts: u32,
    /// The largest number of attempts.
    pub max_attempts: u32,
    /// The length and hash of the body.
    pub body: BodyDigest,
    /// The time of the submit.
    pub submitted_at: Timestamp,
    /// The time of the last change of the state.
    pub updated_at: Timestamp,
    /// The state of the request.
    pub state: RequestState,
}

impl Request {
    /// True if the request waits to be taken.
    pub fn is_new(&self) -> bool {
        self.state == RequestState::New
    }

    /// True if the request is complete, or has failed for the last time.
    pub fn is_settled(&self) -> bool {
        matches!(self.state, RequestState::Complete | RequestState::Error)
    }

    /// Returns the request as it is taken.
    pub(crate) fn taken(&self, now: Timestamp) -> Self {
        let attempts = self.attempts.saturating_add(1);
        Self { attempts, state: RequestState::InProgress, updated_at: now, ..self.clone() }
    }

    /// Returns the request as it is after the end of the hold under which it was worked. `retry_at` is
    /// the time of the next attempt, should there be one (Q13).
    pub(crate) fn ended(&self, end: HoldEnd, retry_at: Timestamp, now: Timestamp) -> Self {
        let mut request = Self { updated_at: now, ..self.clone() };
        match end {
            HoldEnd::Completed => request.state = RequestState::Complete,
            HoldEnd::GivenBack => {
                request.state = RequestState::New;
                request.attempts = request.attempts.saturating_sub(1);
            }
            HoldEnd::Failed | HoldEnd::Lost if self.attempts >= self.max_attempts => {
                request.state = RequestState::Error;
            }
            HoldEnd::Failed | HoldEnd::Lost => {
                request.state = RequestState::New;
                request.not_before = retry_at;
            }
        }
        request
    }
}

/// The way in which a worker's hold of a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HoldEnd {
    /// The work succeeded.
    Completed,
    /// The work failed.
    Failed,
    /// The worker gave the requests back, which counts no attempt (Q11).
    GivenBack,
    /// The worker's session ended (Q03).
    Lost,
}

/// A worker's hold of a lane, from the take to the settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneHold {
    /// The take that began the hold.
    pub take: TakeId,
    /// The session of the worker.
    pub session: SessionId,
    /// The fence of the hold, larger than every fence before it (Q10).
    pub fence: Fence,
    /// The time of the take.
    pub taken_at: Timestamp,
    /// The microseconds for which a host must observe the hold after an operator evicted the worker's
    /// session: [`Terms::withholding_micros`](crate::session::Terms::withholding_micros).
    pub withholding_micros: u64,
    /// The number of the last request that was taken.
    pub last_number: u64,
    /// True if the queue's row counts the hold (Q17).
    pub is_counted: bool,
}

/// The hold of a lane that ended last. It is kept so that a repeated settle gets the true answer
/// (Q10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedHold {
    /// The hold that ended.
    pub hold: LaneHold,
    /// The way in which it ended.
    pub end: HoldEnd,
    /// The time of the end.
    pub ended_at: Timestamp,
}

/// The first request that waits in a lane, as far as the order of lanes depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The time before which the request is not taken.
    pub not_before: Timestamp,
    /// The time by which ready lanes are ordered: when the request could be taken first, less the
    /// head start of its priority. The order needs no further work as time passes (Q12).
    pub rank: Timestamp,
}

impl Head {
    /// Returns the head of a lane whose first request is this one.
    pub fn of(request: &Request) -> Self {
        let ready_at = request.submitted_at.max(request.not_before);
        let rank = ready_at.minus_micros(request.priority.head_start_micros());
        Self { not_before: request.not_before, rank }
    }
}

/// The newest note of a lane's worker. It is handed on with the requests that it is about, and no longer
/// (Q20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The progress that the worker noted.
    pub progress: Progress,
    /// The number of the last request that the worker had taken. Requests behind it have made no progress.
    pub last_number: u64,
}

/// The state of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaneState {
    /// The lane has no request that waits or is worked.
    Idle,
    /// Requests wait, and no worker has taken any.
    Waiting(Head),
    /// A worker holds the lane, and works on its first requests.
    Taken(LaneHold),
}

/// The row of a lane. Every submit, take and settle changes the row, so that any two of them conflict
/// in a store that several servers write to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// The state of the lane: idle, waiting or taken.
    pub state: LaneState,
    /// True if an operator has paused the lane (Q19).
    pub is_paused: bool,
    /// The number of requests that wait.
    pub waiting: u32,
    /// The number of the newest request, 0 before the first.
    pub last_number: u64,
    /// The request that creates the lane's resource, for as long as it is remembered (Q09).
    pub create: Option<RequestId>,
    /// The newest note of progress (Q20).
    pub note: Option<Note>,
    /// The last hold that ended, `None` before the first end.
    pub last: Option<EndedHold>,
    /// The time of the last write of the row.
    pub updated_at: Timestamp,
}

impl Lane {
    /// Returns the row of a lane that had none.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            state: LaneState::Idle,
            is_paused: false,
            waiting: 0,
            last_number: 0,
            create: None,
            note: None,
            last: None,
            updated_at: now,
        }
    }

    /// Returns the hold of the lane, `None` if no worker has taken it.
    pub fn hold(&self) -> Option<&LaneHold> {
        match &self.state {
            LaneState::Taken(hold) => Some(hold),
            LaneState::Idle | LaneState::Waiting(_) => None,
        }
    }

    /// True if a worker can take the first requests of the lane now.
    pub fn is_ready(&self, now: Timestamp) -> bool {
        matches!(self.state, LaneState::Waiting(head) if head.not_before <= now) && !self.is_paused
    }

    /// Adds a request to the end of the lane, and gives it its place.
    ///
    /// # Errors
    /// The lane has as many waiting requests as it may have.
    pub(crate) fn add(&mut self, request: &mut Request) -> Result<(), Rejection> {
        check_limit(WAITING_PER_LANE, MAX_WAITING_PER_LANE.into(), u64::from(self.waiting) + 1)?;
        self.last_number = self.last_number.saturating_add(1);
        self.waiting = self.waiting.saturating_add(1);
        request.number = self.last_number;
        if self.state == LaneState::Idle {
            self.state = LaneState::Waiting(Head::of(request));
        }
        Ok(())
    }
}

/// The row of a queue that an operator has paused or limited. Any other queue has none, so that its takes
/// and settles do not wait for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// True if no lane of the queue is taken (Q19).
    pub is_paused: bool,
    /// The largest number of lanes of the queue that are taken at a time, `None` for any number (Q17).
    pub limit: Option<NonZeroU32>,
    /// The number of lanes that were taken since the queue has a limit, and are not settled.
    pub taken: u32,
}

impl Queue {
    /// True if one more lane of the queue can be taken. A host offers no lanes of a queue that is not open.
    pub fn is_open(&self) -> bool {
        !self.is_paused && self.limit.is_none_or(|limit| self.taken < limit.get())
    }
}

pub(crate) fn invalid(what: &'static str) -> Rejection {
    Rejection::whole(Reason::InvalidUpdate, Detail::Form(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> QueuePath {
        QueuePath::parse("sheets.refresh").unwrap()
    }

    #[test]
    fn a_queue_has_the_rules_of_a_namespace_and_a_lane_those_of_a_key() {
        for name in ["", ".", "a..b", "a.\0"] {
            assert_eq!(QueuePath::parse(name).unwrap_err().reason(), Reason::InvalidUpdate, "{name:?}");
        }
        assert_eq!(QueuePath::parse(&"q".repeat(256)).unwrap_err().reason(), Reason::LimitExceeded);
        for key in ["", "a\u{1f}"] {
            assert_eq!(LanePath::parse(queue(), key).unwrap_err().reason(), Reason::InvalidUpdate, "{key:?}");
        }
        assert_eq!(LanePath::parse(queue(), &"k".repeat(513)).unwrap_err().reason(), Reason::LimitExceeded);
        let lane = LanePath::parse(queue(), "7.a").unwrap();
        assert_eq!((lane.queue(), lane.key()), (&queue(), "7.a"));
        assert!(LanePath::first() < lane);
    }

    #[test]
    fn bodies_notes_priorities_and_attempts_are_bounded() {
        let limit = |refused: Rejection| (refused.reason(), refused.to_string());
        let (reason, text) = limit(RequestBody::parse(&[0; MAX_BODY_BYTES + 1]).unwrap_err());
        assert!(reason == Reason::LimitExceeded && text.ends_with("`body_bytes` is 65537, at most 65536 is allowed"));
        assert_eq!(limit(Progress::parse(&[0; MAX_PROGRESS_BYTES + 1]).unwrap_err()).0, Reason::LimitExceeded);
        assert_eq!(limit(Priority::parse(10).unwrap_err()).0, Reason::LimitExceeded);
        assert_eq!(limit(check_attempts(1_001).unwrap_err()).0, Reason::LimitExceeded);
        assert_eq!(limit(check_attempts(0).unwrap_err()).0, Reason::InvalidUpdate);
        assert!(RequestBody::parse(&[0; MAX_BODY_BYTES]).is_ok() && check_attempts(1_000).is_ok());
    }

    #[test]
    fn q22_no_key_body_or_note_is_printed() {
        let lane = LanePath::parse(queue(), "alice").unwrap();
        let (body, note) = (RequestBody::parse(b"alice").unwrap(), Progress::parse(b"alice").unwrap());
        let text = format!("{lane} {lane:?} {body:?} {note:?}");
        assert!(!text.contains("alice") && text.contains("sheets.refresh"), "{text}");
    }
}
