//! The stored form of queues, lanes, requests and bodies (version 6).

use std::borrow::Cow;
use std::num::NonZeroU32;

use leasehold_core::lease::Fence;
use leasehold_core::queue::{self, QueuePath, RequestId, TakeId};
use leasehold_core::rejection::Rejection;
use leasehold_core::session::SessionId;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::{Bytes, micros};

/// The stored name of a lane: its queue and its key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "LaneFields<String>")]
pub struct LanePath(queue::LanePath);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaneFields<T> {
    queue: T,
    key: T,
}

/// The stored form of a queue that is paused or limited: a value of the keyspace `queues`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// True if no lane of the queue is taken.
    pub is_paused: bool,
    /// The largest number of lanes that are taken at a time; `None` for any number.
    pub limit: Option<NonZeroU32>,
    /// The number of lanes that were taken under the limit and are not settled.
    pub taken: u32,
}

/// The stored form of a lane's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum LaneState {
    /// The lane has no request that waits or is worked.
    Idle,
    /// Requests wait.
    Waiting {
        /// The time before which the first of them is not taken, in microseconds since 1970.
        not_before: u64,
        /// The rank of the first of them among the ready lanes, in microseconds since 1970.
        rank: u64,
    },
    /// A worker holds the lane.
    Taken(LaneHold),
}

/// The stored form of a worker's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneHold {
    /// The take that began the hold.
    pub take: Uuid,
    /// The session of the worker.
    pub session: Uuid,
    /// The fence of the hold.
    pub fence: u64,
    /// The time of the take, in microseconds since 1970.
    pub taken_at: u64,
    /// The microseconds for which a host must observe the hold after an eviction.
    pub withholding_micros: u64,
    /// The number of the last request that was taken.
    pub last_number: u64,
    /// True if the queue's row counts the hold.
    pub is_counted: bool,
}

/// The stored way in which a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldEnd {
    /// The work succeeded.
    Completed,
    /// The work failed.
    Failed,
    /// The worker gave the requests back.
    GivenBack,
    /// The worker's session ended.
    Lost,
}

/// The stored form of the hold of a lane that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedHold {
    /// The hold that ended.
    pub hold: LaneHold,
    /// The way in which it ended.
    pub end: HoldEnd,
    /// The time of the end, in microseconds since 1970.
    pub ended_at: u64,
}

/// The stored bytes of a note of progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress(queue::Progress);

/// The stored form of a note of progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The progress that the worker noted.
    pub progress: Progress,
    /// The number of the last request that the worker had taken.
    pub last_number: u64,
}

/// The stored form of a lane: a value of the keyspace `lanes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// The state of the lane.
    pub state: LaneState,
    /// True if an operator has paused the lane.
    pub is_paused: bool,
    /// The number of requests that wait.
    pub waiting: u32,
    /// The number of the newest request.
    pub last_number: u64,
    /// The request that creates the lane's resource.
    pub create: Option<Uuid>,
    /// The newest note of progress.
    pub note: Option<Note>,
    /// The hold that ended last.
    pub last: Option<EndedHold>,
    /// The time of the last write, in microseconds since 1970.
    pub updated_at: u64,
}

/// The stored kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    /// The request creates the resource of its lane.
    Create,
    /// The request updates the resource of its lane.
    Update,
}

/// The stored state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestState {
    /// The request waits.
    New,
    /// A worker has taken the request.
    InProgress,
    /// The work succeeded.
    Complete,
    /// The last attempt failed.
    Error,
}

/// The stored priority of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(queue::Priority);

/// The stored form of a request: a value of the keyspace `requests`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The lane of the request.
    pub lane: LanePath,
    /// The place of the request in its lane.
    pub number: u64,
    /// The kind of the request.
    pub kind: RequestKind,
    /// The priority of the request.
    pub priority: Priority,
    /// The time before which the request is not taken, in microseconds since 1970.
    pub not_before: u64,
    /// The number of attempts so far.
    pub attempts: u32,
    /// The largest number of attempts.
    pub max_attempts: u32,
    /// The number of bytes in the body.
    pub body_bytes: u32,
    /// The hash (XXH3) of the body.
    pub body_hash: u64,
    /// The time of the submit, in microseconds since 1970.
    pub submitted_at: u64,
    /// The time of the last change of the state, in microseconds since 1970.
    pub updated_at: u64,
    /// The state of the request.
    pub state: RequestState,
}

/// The stored body of a request: a value of the keyspace `bodies`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBody(queue::RequestBody);

impl TryFrom<LaneFields<String>> for LanePath {
    type Error = Rejection;

    fn try_from(lane: LaneFields<String>) -> Result<Self, Rejection> {
        queue::LanePath::parse(QueuePath::parse(&lane.queue)?, &lane.key).map(Self)
    }
}

impl Serialize for LanePath {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        LaneFields { queue: self.0.queue().as_str(), key: self.0.key() }.serialize(to)
    }
}

impl From<&queue::LanePath> for LanePath {
    fn from(path: &queue::LanePath) -> Self {
        Self(path.clone())
    }
}

impl From<LanePath> for queue::LanePath {
    fn from(path: LanePath) -> Self {
        path.0
    }
}

impl TryFrom<u8> for Priority {
    type Error = Rejection;

    fn try_from(level: u8) -> Result<Self, Rejection> {
        queue::Priority::parse(level).map(Self)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority.0.into()
    }
}

impl Serialize for Progress {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Bytes(Cow::Borrowed(self.0.as_bytes())).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Progress {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = Bytes::deserialize(from)?;
        queue::Progress::parse(&bytes.0).map(Self).map_err(D::Error::custom)
    }
}

impl Serialize for RequestBody {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Bytes(Cow::Borrowed(self.0.as_bytes())).serialize(to)
    }
}

impl<'de> Deserialize<'de> for RequestBody {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = Bytes::deserialize(from)?;
        queue::RequestBody::parse(&bytes.0).map(Self).map_err(D::Error::custom)
    }
}

impl From<&queue::RequestBody> for RequestBody {
    fn from(body: &queue::RequestBody) -> Self {
        Self(body.clone())
    }
}

impl From<RequestBody> for queue::RequestBody {
    fn from(body: RequestBody) -> Self {
        body.0
    }
}

impl From<&queue::Queue> for Queue {
    fn from(queue: &queue::Queue) -> Self {
        let queue::Queue { is_paused, limit, taken } = *queue;
        Self { is_paused, limit, taken }
    }
}

impl From<Queue> for queue::Queue {
    fn from(queue: Queue) -> Self {
        let Queue { is_paused, limit, taken } = queue;
        Self { is_paused, limit, taken }
    }
}

impl From<&queue::LaneHold> for LaneHold {
    fn from(hold: &queue::LaneHold) -> Self {
        Self {
            take: hold.take.0,
            session: hold.session.0,
            fence: hold.fence.0,
            taken_at: hold.taken_at.as_micros(),
            withholding_micros: hold.withholding_micros,
            last_number: hold.last_number,
            is_counted: hold.is_counted,
        }
    }
}

impl From<LaneHold> for queue::LaneHold {
    fn from(hold: LaneHold) -> Self {
        Self {
            take: TakeId(hold.take),
            session: SessionId(hold.session),
            fence: Fence(hold.fence),
            taken_at: micros(hold.taken_at),
            withholding_micros: hold.withholding_micros,
            last_number: hold.last_number,
            is_counted: hold.is_counted,
        }
    }
}

impl From<queue::HoldEnd> for HoldEnd {
    fn from(end: queue::HoldEnd) -> Self {
        match end {
            queue::HoldEnd::Completed => Self::Completed,
            queue::HoldEnd::Failed => Self::Failed,
            queue::HoldEnd::GivenBack => Self::GivenBack,
            queue::HoldEnd::Lost => Self::Lost,
        }
    }
}

impl From<HoldEnd> for queue::HoldEnd {
    fn from(end: HoldEnd) -> Self {
        match end {
            HoldEnd::Completed => Self::Completed,
            HoldEnd::Failed => Self::Failed,
            HoldEnd::GivenBack => Self::GivenBack,
            HoldEnd::Lost => Self::Lost,
        }
    }
}

impl From<&queue::LaneState> for LaneState {
    fn from(state: &queue::LaneState) -> Self {
        match state {
            queue::LaneState::Idle => Self::Idle,
            queue::LaneState::Waiting(queue::Head { not_before, rank }) => {
                Self::Waiting { not_before: not_before.as_micros(), rank: rank.as_micros() }
            }
            queue::LaneState::Taken(hold) => Self::Taken(hold.into()),
        }
    }
}

impl From<LaneState> for queue::LaneState {
    fn from(state: LaneState) -> Self {
        match state {
            LaneState::Idle => Self::Idle,
            LaneState::Waiting { not_before, rank } => {
                Self::Waiting(queue::Head { not_before: micros(not_before), rank: micros(rank) })
            }
            LaneState::Taken(hold) => Self::Taken(hold.into()),
        }
    }
}

impl From<&queue::EndedHold> for EndedHold {
    fn from(ended: &queue::EndedHold) -> Self {
        Self { hold: (&ended.hold).into(), end: ended.end.into(), ended_at: ended.ended_at.as_micros() }
    }
}

impl From<EndedHold> for queue::EndedHold {
    fn from(ended: EndedHold) -> Self {
        Self { hold: ended.hold.into(), end: ended.end.into(), ended_at: micros(ended.ended_at) }
    }
}

impl From<&queue::Note> for Note {
    fn from(note: &queue::Note) -> Self {
        Self { progress: Progress(note.progress.clone()), last_number: note.last_number }
    }
}

impl From<Note> for queue::Note {
    fn from(note: Note) -> Self {
        Self { progress: note.progress.0, last_number: note.last_number }
    }
}

impl From<&queue::Lane> for Lane {
    fn from(lane: &queue::Lane) -> Self {
        Self {
            state: (&lane.state).into(),
            is_paused: lane.is_paused,
            waiting: lane.waiting,
            last_number: lane.last_number,
            create: lane.create.map(|create| create.0),
            note: lane.note.as_ref().map(Into::into),
            last: lane.last.as_ref().map(Into::into),
            updated_at: lane.updated_at.as_micros(),
        }
    }
}

impl From<Lane> for queue::Lane {
    fn from(lane: Lane) -> Self {
        Self {
            state: lane.state.into(),
            is_paused: lane.is_paused,
            waiting: lane.waiting,
            last_number: lane.last_number,
            create: lane.create.map(RequestId),
            note: lane.note.map(Into::into),
            last: lane.last.map(Into::into),
            updated_at: micros(lane.updated_at),
        }
    }
}

impl From<queue::RequestKind> for RequestKind {
    fn from(kind: queue::RequestKind) -> Self {
        match kind {
            queue::RequestKind::Create => Self::Create,
            queue::RequestKind::Update => Self::Update,
        }
    }
}

impl From<RequestKind> for queue::RequestKind {
    fn from(kind: RequestKind) -> Self {
        match kind {
            RequestKind::Create => Self::Create,
            RequestKind::Update => Self::Update,
        }
    }
}

impl From<queue::RequestState> for RequestState {
    fn from(state: queue::RequestState) -> Self {
        match state {
            queue::RequestState::New => Self::New,
            queue::RequestState::InProgress => Self::InProgress,
            queue::RequestState::Complete => Self::Complete,
            queue::RequestState::Error => Self::Error,
        }
    }
}

impl From<RequestState> for queue::RequestState {
    fn from(state: RequestState) -> Self {
        match state {
            RequestState::New => Self::New,
            RequestState::InProgress => Self::InProgress,
            RequestState::Complete => Self::Complete,
            RequestState::Error => Self::Error,
        }
    }
}

impl From<&queue::Request> for Request {
    fn from(request: &queue::Request) -> Self {
        Self {
            lane: (&request.lane).into(),
            number: request.number,
            kind: request.kind.into(),
            priority: Priority(request.priority),
            not_before: request.not_before.as_micros(),
            attempts: request.attempts,
            max_attempts: request.max_attempts,
            body_bytes: request.body.bytes,
            body_hash: request.body.hash,
            submitted_at: request.submitted_at.as_micros(),
            updated_at: request.updated_at.as_micros(),
            state: request.state.into(),
        }
    }
}

impl From<Request> for queue::Request {
    fn from(request: Request) -> Self {
        Self {
            lane: request.lane.0,
            number: request.number,
            kind: request.kind.into(),
            priority: request.priority.0,
            not_before: micros(request.not_before),
            attempts: request.attempts,
            max_attempts: request.max_attempts,
            body: queue::BodyDigest { bytes: request.body_bytes, hash: request.body_hash },
            submitted_at: micros(request.submitted_at),
            updated_at: micros(request.updated_at),
            state: request.state.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::time::Timestamp;

    use super::super::golden::golden;
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn path() -> queue::LanePath {
        queue::LanePath::parse(QueuePath::parse("a.b").unwrap(), "k").unwrap()
    }

    fn hold() -> queue::LaneHold {
        queue::LaneHold {
            take: TakeId(Uuid::from_u128(2)),
            session: SessionId(Uuid::from_u128(1)),
            fence: Fence(300),
            taken_at: at(1_700_000_000_000_000),
            withholding_micros: 300,
            last_number: 3,
            is_counted: true,
        }
    }

    fn lane(state: queue::LaneState, end: Option<queue::HoldEnd>) -> queue::Lane {
        let progress = queue::Progress::parse(&[0, 0xff]).unwrap();
        let is_worked = end.is_some();
        queue::Lane {
            state,
            is_paused: is_worked,
            waiting: 300,
            last_number: 301,
            create: is_worked.then_some(RequestId(Uuid::from_u128(3))),
            note: is_worked.then_some(queue::Note { progress, last_number: 3 }),
            last: end.map(|end| queue::EndedHold { hold: hold(), end, ended_at: at(5) }),
            updated_at: at(1),
        }
    }

    fn request(kind: queue::RequestKind, state: queue::RequestState) -> queue::Request {
        queue::Request {
            lane: path(),
            number: 300,
            kind,
            priority: queue::Priority::parse(9).unwrap(),
            not_before: at(2),
            attempts: 1,
            max_attempts: 300,
            body: queue::BodyDigest { bytes: 300, hash: u64::MAX },
            submitted_at: at(1_700_000_000_000_000),
            updated_at: at(3),
            state,
        }
    }

    #[test]
    fn the_bytes_and_the_json_of_lanes_stay() {
        use queue::{HoldEnd, LaneState as State};
        golden::<_, Lane>(
            &lane(State::Idle, None),
            "0000ac02ad0200000001",
            concat!(
                r#"{"state":"Idle","is_paused":false,"waiting":300,"last_number":301,"create":null,"not"#,
                r#"e":null,"last":null,"updated_at":1}"#,
            ),
        );
        let head = queue::Head { not_before: at(300), rank: at(1) };
        golden::<_, Lane>(
            &lane(State::Waiting(head), Some(HoldEnd::Completed)),
            concat!(
                "01ac020101ac02ad02011000000000000000000000000000000003010200ff0301100000000000000000",
                "00000000000000021000000000000000000000000000000001ac028080f9c0c1c48203ac020301000501",
            ),
            concat!(
                r#"{"state":{"Waiting":{"not_before":300,"rank":1}},"is_paused":true,"waiting":300,"las"#,
                r#"t_number":301,"create":"00000000-0000-0000-0000-000000000003","note":{"progress":"00"#,
                r#"ff","last_number":3},"last":{"hold":{"take":"00000000-0000-0000-0000-000000000002",""#,
                r#"session":"00000000-0000-0000-0000-000000000001","fence":300,"taken_at":1700000000000"#,
                r#"000,"withholding_micros":300,"last_number":3,"is_counted":true},"end":"Completed","e"#,
                r#"nded_at":5},"updated_at":1}"#,
            ),
        );
        golden::<_, Lane>(
            &lane(State::Taken(hold()), None),
            concat!(
                "0210000000000000000000000000000000021000000000000000000000000000000001ac028080f9c0c1",
                "c48203ac02030100ac02ad0200000001",
            ),
            concat!(
                r#"{"state":{"Taken":{"take":"00000000-0000-0000-0000-000000000002","session":"00000000"#,
                r#"-0000-0000-0000-000000000001","fence":300,"taken_at":1700000000000000,"withholding_m"#,
                r#"icros":300,"last_number":3,"is_counted":true}},"is_paused":false,"waiting":300,"last"#,
                r#"_number":301,"create":null,"note":null,"last":null,"updated_at":1}"#,
            ),
        );
        for (end, byte, name) in [
            (HoldEnd::Completed, 0, "Completed"),
            (HoldEnd::Failed, 1, "Failed"),
            (HoldEnd::GivenBack, 2, "GivenBack"),
            (HoldEnd::Lost, 3, "Lost"),
        ] {
            assert_eq!(postcard::to_stdvec(&super::HoldEnd::from(end)).unwrap(), [byte]);
            assert_eq!(serde_json::to_string(&super::HoldEnd::from(end)).unwrap(), format!("\"{name}\""));
            assert_eq!(queue::HoldEnd::from(postcard::from_bytes::<super::HoldEnd>(&[byte]).unwrap()), end);
        }
    }

    #[test]
    fn the_bytes_and_the_json_of_requests_stay() {
        use queue::{RequestKind as Kind, RequestState as State};
        golden::<_, Request>(
            &request(Kind::Create, State::New),
            "03612e62016bac0200090201ac02ac02ffffffffffffffffff018080f9c0c1c482030300",
            concat!(
                r#"{"lane":{"queue":"a.b","key":"k"},"number":300,"kind":"Create","priority":9,"not_bef"#,
                r#"ore":2,"attempts":1,"max_attempts":300,"body_bytes":300,"body_hash":1844674407370955"#,
                r#"1615,"submitted_at":1700000000000000,"updated_at":3,"state":"New"}"#,
            ),
        );
        golden::<_, Request>(
            &request(Kind::Update, State::InProgress),
            "03612e62016bac0201090201ac02ac02ffffffffffffffffff018080f9c0c1c482030301",
            concat!(
                r#"{"lane":{"queue":"a.b","key":"k"},"number":300,"kind":"Update","priority":9,"not_bef"#,
                r#"ore":2,"attempts":1,"max_attempts":300,"body_bytes":300,"body_hash":1844674407370955"#,
                r#"1615,"submitted_at":1700000000000000,"updated_at":3,"state":"InProgress"}"#,
            ),
        );
        golden::<_, Request>(
            &request(Kind::Update, State::Complete),
            "03612e62016bac0201090201ac02ac02ffffffffffffffffff018080f9c0c1c482030302",
            concat!(
                r#"{"lane":{"queue":"a.b","key":"k"},"number":300,"kind":"Update","priority":9,"not_bef"#,
                r#"ore":2,"attempts":1,"max_attempts":300,"body_bytes":300,"body_hash":1844674407370955"#,
                r#"1615,"submitted_at":1700000000000000,"updated_at":3,"state":"Complete"}"#,
            ),
        );
        golden::<_, Request>(
            &request(Kind::Update, State::Error),
            "03612e62016bac0201090201ac02ac02ffffffffffffffffff018080f9c0c1c482030303",
            concat!(
                r#"{"lane":{"queue":"a.b","key":"k"},"number":300,"kind":"Update","priority":9,"not_bef"#,
                r#"ore":2,"attempts":1,"max_attempts":300,"body_bytes":300,"body_hash":1844674407370955"#,
                r#"1615,"submitted_at":1700000000000000,"updated_at":3,"state":"Error"}"#,
            ),
        );
    }

    #[test]
    fn the_bytes_and_the_json_of_queues_bodies_and_paths_stay() {
        let limit = NonZeroU32::new(300);
        golden::<_, Queue>(
            &queue::Queue { is_paused: true, limit, taken: 2 },
            "0101ac0202",
            r#"{"is_paused":true,"limit":300,"taken":2}"#,
        );
        golden::<_, Queue>(
            &queue::Queue { is_paused: false, limit: None, taken: 0 },
            "000000",
            r#"{"is_paused":false,"limit":null,"taken":0}"#,
        );
        golden::<_, RequestBody>(&queue::RequestBody::parse(&[0, 0xff]).unwrap(), "0200ff", r#""00ff""#);
        golden::<_, LanePath>(&path(), "03612e62016b", r#"{"queue":"a.b","key":"k"}"#);
    }

    /// A row that breaks a limit is no row, in either form.
    #[test]
    fn rows_beyond_the_limits_are_refused() {
        let long = vec![0; queue::MAX_BODY_BYTES + 1];
        assert!(postcard::from_bytes::<RequestBody>(&postcard::to_stdvec(&Bytes(long.into())).unwrap()).is_err());
        assert!(serde_json::from_str::<Priority>("10").is_err() && serde_json::from_str::<Priority>("9").is_ok());
        assert!(serde_json::from_str::<LanePath>(r#"{"queue":"a..b","key":"k"}"#).is_err());
        assert!(serde_json::from_str::<LanePath>(r#"{"queue":"a","key":"\u0000"}"#).is_err());
    }
}
