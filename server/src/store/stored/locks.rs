//! The stored form of sessions, locks, asks and turns (version 3), of reaped locks (version 4) and of
//! shared ones (version 5).

use std::borrow::Cow;
use std::num::NonZeroU32;

use leasehold_core::division::{self, Division};
use leasehold_core::lease::Fence;
use leasehold_core::lock::{self, AskId, LockPath, LockValue};
use leasehold_core::rejection::Rejection;
use leasehold_core::session::{self, SessionId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::{Bytes, micros};

/// The stored name of the service that opened a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Principal(session::Principal);

/// The stored duration and grace of a session, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TermsFields", into = "TermsFields")]
pub struct Terms(session::Terms);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TermsFields {
    duration_micros: u64,
    grace_micros: u64,
}

/// The stored form of a session's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionState {
    /// The session is live.
    Live,
    /// The service closed the session.
    Closed,
    /// The session was silent for its duration and grace.
    Expired,
    /// An operator evicted the session.
    Evicted,
}

/// The stored form of a session: a value of the keyspace `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The service that opened the session.
    pub principal: Principal,
    /// The duration and grace of the session.
    pub terms: Terms,
    /// The time when the session was opened, in microseconds since 1970.
    pub opened_at: u64,
    /// The time of the session's end or of its last written renewal, in microseconds since 1970.
    pub updated_at: u64,
    /// The number of written renewals.
    pub renewals: u64,
    /// The number of the session's asks.
    pub asks: u32,
    /// The state of the session.
    pub state: SessionState,
}

/// The stored form of a lock's path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PathFields<String>")]
pub struct Path(LockPath);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathFields<T> {
    namespace: T,
    key: T,
}

/// The stored form of an ask's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskState {
    /// The ask waits at this turn of its lock.
    Waiting(u64),
    /// The ask holds its lock under this fence.
    Holding(u64),
    /// The ask waits at this turn, on these terms: a row of version 5.
    WaitingOn(u64, AskTerms),
    /// The ask holds its lock under this fence, on these terms: a row of version 5.
    HoldingOn(u64, AskTerms),
}

/// The stored form of what an ask adds to the wish for a lock alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskTerms {
    /// The way in which the ask shares its lock.
    pub share: Option<Share>,
    /// The asks that its caller holds while it waits.
    pub held: Vec<Uuid>,
}

/// The stored way to share a lock: 0 for shared asks, else the number of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Share(division::ShareMode);

/// The stored form of the state of a divided lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DividedFields", into = "DividedFields")]
pub struct DividedState {
    division: Division,
    most_attempts: Option<NonZeroU32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DividedFields {
    share: Share,
    /// The taken slots as bits: the lowest bit of the first word is slot 1.
    slots: [u64; 4],
    /// The most cleanups of one obituary that are begun; `None` if the lock is not reaped.
    most_attempts: Option<NonZeroU32>,
}

/// The stored form of an ask: a value of the keyspace `asks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The session that asks.
    pub session: Uuid,
    /// The lock that the session asks for.
    pub lock: Path,
    /// The time of the acquire, in microseconds since 1970.
    pub asked_at: u64,
    /// The state of the ask.
    pub state: AskState,
}

/// The stored form of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The ask that holds the lock.
    pub ask: Uuid,
    /// The session of the ask.
    pub session: Uuid,
    /// The fence of the grant.
    pub fence: u64,
    /// The time of the grant, in microseconds since 1970.
    pub granted_at: u64,
}

/// The stored reason of the end of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantEnd {
    /// The holder released the lock, and its work succeeded.
    Succeeded,
    /// The holder released the lock, and its work failed.
    Failed,
    /// The caller left before it learnt of the grant.
    Left,
    /// The holder's session was closed.
    Closed,
    /// The holder's session expired.
    Expired,
    /// An operator evicted the holder's session.
    Evicted,
    /// An operator took the lock from its holder.
    Forced,
}

/// The stored value of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(LockValue);

/// The stored form of the grant of a lock that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// The grant that ended.
    pub grant: Grant,
    /// The reason of the end.
    pub end: GrantEnd,
    /// The value that the holder gave with its release.
    pub value: Value,
    /// The time of the end, in microseconds since 1970.
    pub ended_at: u64,
}

/// The stored form of a lock's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum LockState {
    /// The lock has no holder.
    Free,
    /// An ask holds the lock.
    Held(Grant),
    /// The lock was taken from its holder, and is not granted again before the holder's time is
    /// over.
    Withheld {
        /// The fence of the grant that was taken away.
        fence: u64,
        /// The microseconds for which a host must observe the lock as withheld.
        silence_micros: u64,
    },
    /// The lock is reaped: a row of version 4.
    Reaped(ReapedState),
    /// Slots of the lock are taken: a row of version 5.
    Divided(DividedState),
}

/// The stored form of the state of a reaped lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReapedState {
    /// The state of the lock.
    pub state: LockRest,
    /// The most cleanups of one obituary that are begun; `None` if the lock is not reaped any more.
    pub most_attempts: Option<NonZeroU32>,
    /// The grant whose cleanup is due.
    pub obituary: Option<Obituary>,
}

/// The stored form of the state of a reaped lock, without its obituary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum LockRest {
    /// The lock has no holder.
    Free,
    /// An ask holds the lock.
    Held(Grant),
    /// The lock was taken from its holder.
    Withheld {
        /// The fence of the grant that was taken away.
        fence: u64,
        /// The microseconds for which a host must observe the lock as withheld.
        silence_micros: u64,
    },
    /// The lock waits for a cleanup.
    Orphaned,
}

/// The stored form of a grant whose cleanup is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Obituary {
    /// The fence of the grant that ended.
    pub fence: u64,
    /// The reason of the grant's end.
    pub end: GrantEnd,
    /// The time of the grant's end, in microseconds since 1970.
    pub ended_at: u64,
    /// The number of cleanups that were begun.
    pub attempts: u32,
}

/// The stored form of a lock: a value of the keyspace `locks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The state of the lock.
    pub state: LockState,
    /// The number of asks that wait.
    pub waiting: u32,
    /// The turn that was served last.
    pub served_turn: u64,
    /// The turn of the newest ask that waited.
    pub last_turn: u64,
    /// The grant that ended last.
    pub last: Option<Ended>,
    /// The time of the last change of the state, in microseconds since 1970.
    pub updated_at: u64,
}

/// The stored form of a turn's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnKey {
    /// The lock that is waited for.
    pub lock: Path,
    /// The number of the turn.
    pub number: u64,
}

/// The stored form of a turn: a value of the keyspace `turns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The ask that waits at this turn.
    pub ask: Uuid,
}

impl TryFrom<String> for Principal {
    type Error = Rejection;

    fn try_from(name: String) -> Result<Self, Rejection> {
        session::Principal::parse(&name).map(Self)
    }
}

impl From<Principal> for String {
    fn from(principal: Principal) -> Self {
        principal.0.as_str().into()
    }
}

impl TryFrom<TermsFields> for Terms {
    type Error = Rejection;

    fn try_from(terms: TermsFields) -> Result<Self, Rejection> {
        session::Terms::parse(terms.duration_micros, terms.grace_micros).map(Self)
    }
}

impl From<Terms> for TermsFields {
    fn from(Terms(terms): Terms) -> Self {
        Self { duration_micros: terms.duration_micros(), grace_micros: terms.grace_micros() }
    }
}

impl TryFrom<PathFields<String>> for Path {
    type Error = Rejection;

    fn try_from(path: PathFields<String>) -> Result<Self, Rejection> {
        LockPath::parse_stored(&path.namespace, &path.key).map(Self)
    }
}

impl TryFrom<u16> for Share {
    type Error = Rejection;

    fn try_from(number: u16) -> Result<Self, Rejection> {
        division::ShareMode::numbered(number).map(Self)
    }
}

impl From<Share> for u16 {
    fn from(share: Share) -> Self {
        share.0.number()
    }
}

impl TryFrom<DividedFields> for DividedState {
    type Error = &'static str;

    fn try_from(DividedFields { share, slots, most_attempts }: DividedFields) -> Result<Self, &'static str> {
        let division = Division::from_words(share.0, slots).ok_or("the taken slots are none of the lock")?;
        Ok(Self { division, most_attempts })
    }
}

impl From<DividedState> for DividedFields {
    fn from(DividedState { division, most_attempts }: DividedState) -> Self {
        Self { share: Share(division.share), slots: division.words(), most_attempts }
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        PathFields { namespace: self.0.namespace(), key: &*self.0.stored_key() }.serialize(to)
    }
}

impl From<&LockPath> for Path {
    fn from(path: &LockPath) -> Self {
        Self(path.clone())
    }
}

impl From<Path> for LockPath {
    fn from(path: Path) -> Self {
        path.0
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Bytes(Cow::Borrowed(self.0.as_bytes())).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = Bytes::deserialize(from)?;
        LockValue::parse(&bytes.0).map(Self).map_err(D::Error::custom)
    }
}

impl From<&session::Session> for Session {
    fn from(session: &session::Session) -> Self {
        use session::SessionEnd::{Closed, Evicted, Expired};
        let state = match session.state {
            session::SessionState::Live => SessionState::Live,
            session::SessionState::Ended(Closed) => SessionState::Closed,
            session::SessionState::Ended(Expired) => SessionState::Expired,
            session::SessionState::Ended(Evicted) => SessionState::Evicted,
        };
        Self {
            principal: Principal(session.principal.clone()),
            terms: Terms(session.terms),
            opened_at: session.opened_at.as_micros(),
            updated_at: session.updated_at.as_micros(),
            renewals: session.renewals,
            asks: session.asks,
            state,
        }
    }
}

impl From<Session> for session::Session {
    fn from(session: Session) -> Self {
        use session::SessionEnd::{Closed, Evicted, Expired};
        let state = match session.state {
            SessionState::Live => session::SessionState::Live,
            SessionState::Closed => session::SessionState::Ended(Closed),
            SessionState::Expired => session::SessionState::Ended(Expired),
            SessionState::Evicted => session::SessionState::Ended(Evicted),
        };
        Self {
            principal: session.principal.0,
            terms: session.terms.0,
            opened_at: micros(session.opened_at),
            updated_at: micros(session.updated_at),
            renewals: session.renewals,
            asks: session.asks,
            state,
        }
    }
}

impl From<&lock::Ask> for Ask {
    fn from(ask: &lock::Ask) -> Self {
        let terms = || AskTerms { share: ask.share.map(Share), held: ask.held.iter().map(|held| held.0).collect() };
        let state = match (ask.state, ask.share.is_none() && ask.held.is_empty()) {
            (lock::AskState::Waiting(turn), true) => AskState::Waiting(turn),
            (lock::AskState::Holding(fence), true) => AskState::Holding(fence.0),
            (lock::AskState::Waiting(turn), false) => AskState::WaitingOn(turn, terms()),
            (lock::AskState::Holding(fence), false) => AskState::HoldingOn(fence.0, terms()),
        };
        Self { session: ask.session.0, lock: (&ask.lock).into(), asked_at: ask.asked_at.as_micros(), state }
    }
}

impl From<Ask> for lock::Ask {
    fn from(ask: Ask) -> Self {
        let alone = AskTerms { share: None, held: Vec::new() };
        let (state, terms) = match ask.state {
            AskState::Waiting(turn) => (lock::AskState::Waiting(turn), alone),
            AskState::Holding(fence) => (lock::AskState::Holding(Fence(fence)), alone),
            AskState::WaitingOn(turn, terms) => (lock::AskState::Waiting(turn), terms),
            AskState::HoldingOn(fence, terms) => (lock::AskState::Holding(Fence(fence)), terms),
        };
        let (share, held) = (terms.share.map(|share| share.0), terms.held.into_iter().map(AskId).collect());
        let (session, lock) = (SessionId(ask.session), ask.lock.into());
        Self { session, lock, share, held, asked_at: micros(ask.asked_at), state }
    }
}

impl From<lock::Grant> for Grant {
    fn from(grant: lock::Grant) -> Self {
        let lock::Grant { ask, session, fence, granted_at } = grant;
        Self { ask: ask.0, session: session.0, fence: fence.0, granted_at: granted_at.as_micros() }
    }
}

impl From<Grant> for lock::Grant {
    fn from(grant: Grant) -> Self {
        Self {
            ask: AskId(grant.ask),
            session: SessionId(grant.session),
            fence: Fence(grant.fence),
            granted_at: micros(grant.granted_at),
        }
    }
}

impl From<lock::GrantEnd> for GrantEnd {
    fn from(end: lock::GrantEnd) -> Self {
        match end {
            lock::GrantEnd::Succeeded => Self::Succeeded,
            lock::GrantEnd::Failed => Self::Failed,
            lock::GrantEnd::Left => Self::Left,
            lock::GrantEnd::Closed => Self::Closed,
            lock::GrantEnd::Expired => Self::Expired,
            lock::GrantEnd::Evicted => Self::Evicted,
            lock::GrantEnd::Forced => Self::Forced,
        }
    }
}

impl From<GrantEnd> for lock::GrantEnd {
    fn from(end: GrantEnd) -> Self {
        match end {
            GrantEnd::Succeeded => Self::Succeeded,
            GrantEnd::Failed => Self::Failed,
            GrantEnd::Left => Self::Left,
            GrantEnd::Closed => Self::Closed,
            GrantEnd::Expired => Self::Expired,
            GrantEnd::Evicted => Self::Evicted,
            GrantEnd::Forced => Self::Forced,
        }
    }
}

impl From<&lock::Ended> for Ended {
    fn from(ended: &lock::Ended) -> Self {
        let value = Value(ended.value.clone());
        Self { grant: ended.grant.into(), end: ended.end.into(), value, ended_at: ended.ended_at.as_micros() }
    }
}

impl From<Ended> for lock::Ended {
    fn from(ended: Ended) -> Self {
        let (grant, end) = (ended.grant.into(), ended.end.into());
        Self { grant, end, value: ended.value.0, ended_at: micros(ended.ended_at) }
    }
}

impl From<lock::Obituary> for Obituary {
    fn from(obituary: lock::Obituary) -> Self {
        let lock::Obituary { fence, end, ended_at, attempts } = obituary;
        Self { fence: fence.0, end: end.into(), ended_at: ended_at.as_micros(), attempts }
    }
}

impl From<Obituary> for lock::Obituary {
    fn from(obituary: Obituary) -> Self {
        let Obituary { fence, end, ended_at, attempts } = obituary;
        Self { fence: Fence(fence), end: end.into(), ended_at: micros(ended_at), attempts }
    }
}

impl From<LockRest> for lock::LockState {
    fn from(state: LockRest) -> Self {
        match state {
            LockRest::Free => Self::Free,
            LockRest::Held(grant) => Self::Held(grant.into()),
            LockRest::Withheld { fence, silence_micros } => {
                Self::Withheld(lock::Withholding { fence: Fence(fence), silence_micros })
            }
            LockRest::Orphaned => Self::Orphaned,
        }
    }
}

/// Returns the version of an ask's row.
pub fn version_of_ask(ask: &lock::Ask) -> u64 {
    let is_plain = ask.share.is_none() && ask.held.is_empty() && ask.lock.slot() == 0;
    if is_plain { super::LOCK_VERSION } else { super::SHARED_VERSION }
}

/// Returns the version of a lock's row. A slot has a row only beside that of its divided lock.
pub fn version_of_lock(lock: &lock::Lock) -> u64 {
    match LockState::from(lock) {
        LockState::Free | LockState::Held(_) | LockState::Withheld { .. } => super::LOCK_VERSION,
        LockState::Reaped(_) => super::REAPED_VERSION,
        LockState::Divided(_) => super::SHARED_VERSION,
    }
}

/// A lock that is not reaped has the bytes of version 3.
impl From<&lock::Lock> for LockState {
    fn from(lock: &lock::Lock) -> Self {
        let is_reaped = lock.reaped.is_some() || lock.obituary.is_some();
        let reaped = |state| {
            Self::Reaped(ReapedState { state, most_attempts: lock.reaped, obituary: lock.obituary.map(Into::into) })
        };
        match lock.state {
            lock::LockState::Free if !is_reaped => Self::Free,
            lock::LockState::Free => reaped(LockRest::Free),
            lock::LockState::Held(grant) if !is_reaped => Self::Held(grant.into()),
            lock::LockState::Held(grant) => reaped(LockRest::Held(grant.into())),
            lock::LockState::Withheld(lock::Withholding { fence: Fence(fence), silence_micros }) => match is_reaped {
                false => Self::Withheld { fence, silence_micros },
                true => reaped(LockRest::Withheld { fence, silence_micros }),
            },
            lock::LockState::Orphaned => reaped(LockRest::Orphaned),
            lock::LockState::Divided(division) => Self::Divided(DividedState { division, most_attempts: lock.reaped }),
        }
    }
}

impl From<&lock::Lock> for Lock {
    fn from(lock: &lock::Lock) -> Self {
        Self {
            state: lock.into(),
            waiting: lock.waiting,
            served_turn: lock.served_turn,
            last_turn: lock.last_turn,
            last: lock.last.as_ref().map(Into::into),
            updated_at: lock.updated_at.as_micros(),
        }
    }
}

impl From<Lock> for lock::Lock {
    fn from(lock: Lock) -> Self {
        let (state, reaped, obituary) = match lock.state {
            LockState::Free => (lock::LockState::Free, None, None),
            LockState::Held(grant) => (lock::LockState::Held(grant.into()), None, None),
            LockState::Withheld { fence, silence_micros } => {
                (LockRest::Withheld { fence, silence_micros }.into(), None, None)
            }
            LockState::Reaped(ReapedState { state, most_attempts, obituary }) => {
                (state.into(), most_attempts, obituary.map(Into::into))
            }
            LockState::Divided(DividedState { division, most_attempts }) => {
                (lock::LockState::Divided(division), most_attempts, None)
            }
        };
        Self {
            state,
            waiting: lock.waiting,
            served_turn: lock.served_turn,
            last_turn: lock.last_turn,
            last: lock.last.map(Into::into),
            updated_at: micros(lock.updated_at),
            reaped,
            obituary,
        }
    }
}

impl From<&lock::TurnKey> for TurnKey {
    fn from(key: &lock::TurnKey) -> Self {
        Self { lock: (&key.lock).into(), number: key.number }
    }
}

impl From<TurnKey> for lock::TurnKey {
    fn from(key: TurnKey) -> Self {
        Self { lock: key.lock.into(), number: key.number }
    }
}

impl From<&lock::Turn> for Turn {
    fn from(turn: &lock::Turn) -> Self {
        Self { ask: turn.ask.0 }
    }
}

impl From<Turn> for lock::Turn {
    fn from(turn: Turn) -> Self {
        Self { ask: AskId(turn.ask) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::session::{MAX_DURATION_MICROS, MIN_GRACE_MICROS};
    use leasehold_core::time::Timestamp;

    use super::super::golden::golden;
    use super::*;

    fn grant() -> lock::Grant {
        let (ask, session) = (AskId(Uuid::from_u128(2)), SessionId(Uuid::from_u128(1)));
        lock::Grant { ask, session, fence: Fence(300), granted_at: Timestamp::from_micros(1_700_000_000_000_000) }
    }

    fn session(state: session::SessionState) -> session::Session {
        session::Session {
            principal: session::Principal::parse("svc").unwrap(),
            terms: session::Terms::parse(MAX_DURATION_MICROS, MIN_GRACE_MICROS).unwrap(),
            opened_at: Timestamp::from_micros(1_700_000_000_000_000),
            updated_at: Timestamp::from_micros(1),
            renewals: 300,
            asks: 2,
            state,
        }
    }

    fn lock(state: lock::LockState, end: Option<lock::GrantEnd>) -> lock::Lock {
        let value = LockValue::parse(&[0, 0xff]).unwrap();
        let last = end.map(|end| lock::Ended { grant: grant(), end, value, ended_at: Timestamp::from_micros(5) });
        let updated_at = Timestamp::from_micros(1);
        lock::Lock { state, waiting: 1, served_turn: 2, last_turn: 300, last, ..lock::Lock::new(updated_at) }
    }

    fn ask(state: lock::AskState) -> lock::Ask {
        let lock = LockPath::parse_joined("a.b", "k").unwrap();
        lock::Ask {
            session: SessionId(Uuid::from_u128(1)),
            lock,
            share: None,
            held: Vec::new(),
            asked_at: Timestamp::from_micros(1),
            state,
        }
    }

    #[test]
    fn the_bytes_and_the_json_of_locks_stay() {
        use lock::LockState as State;
        let withholding = lock::Withholding { fence: Fence(300), silence_micros: 300 };
        golden::<_, Lock>(
            &lock(State::Free, None),
            "000102ac020001",
            concat!(
                r#"{"state":"Free","waiting":1,"served_turn":2,"last_turn":300,"last":null,"updated_at":1"#,
                r#"}"#
            ),
        );
        golden::<_, Lock>(
            &lock(State::Held(grant()), Some(lock::GrantEnd::Forced)),
            concat!(
                "0110000000000000000000000000000000021000000000000000000000000000000001ac028080f9c0c1c4",
                "82030102ac020110000000000000000000000000000000021000000000000000000000000000000001ac02",
                "8080f9c0c1c48203060200ff0501"
            ),
            concat!(
                r#"{"state":{"Held":{"ask":"00000000-0000-0000-0000-000000000002","session":"00000000-000"#,
                r#"0-0000-0000-000000000001","fence":300,"granted_at":1700000000000000}},"waiting":1,"ser"#,
                r#"ved_turn":2,"last_turn":300,"last":{"grant":{"ask":"00000000-0000-0000-0000-0000000000"#,
                r#"02","session":"00000000-0000-0000-0000-000000000001","fence":300,"granted_at":17000000"#,
                r#"00000000},"end":"Forced","value":"00ff","ended_at":5},"updated_at":1}"#
            ),
        );
        golden::<_, Lock>(
            &lock(State::Withheld(withholding), Some(lock::GrantEnd::Succeeded)),
            concat!(
                "02ac02ac020102ac0201100000000000000000000000000000000210000000000000000000000000000000",
                "01ac028080f9c0c1c48203000200ff0501"
            ),
            concat!(
                r#"{"state":{"Withheld":{"fence":300,"silence_micros":300}},"waiting":1,"served_turn":2,""#,
                r#"last_turn":300,"last":{"grant":{"ask":"00000000-0000-0000-0000-000000000002","session""#,
                r#":"00000000-0000-0000-0000-000000000001","fence":300,"granted_at":1700000000000000},"en"#,
                r#"d":"Succeeded","value":"00ff","ended_at":5},"updated_at":1}"#
            ),
        );
    }

    #[test]
    fn the_bytes_and_the_json_of_reaped_locks_stay() {
        let (fence, ended_at) = (Fence(300), Timestamp::from_micros(5));
        let obituary = Some(lock::Obituary { fence, end: lock::GrantEnd::Expired, ended_at, attempts: 2 });
        let withholding = lock::Withholding { fence, silence_micros: 300 };
        let reaped = |state, obituary| lock::Lock { reaped: NonZeroU32::new(3), obituary, ..lock(state, None) };
        assert_eq!(version_of_lock(&lock(lock::LockState::Free, None)), 3);
        for state in [
            reaped(lock::LockState::Free, None),
            reaped(lock::LockState::Orphaned, obituary),
            reaped(lock::LockState::Held(grant()), obituary),
            reaped(lock::LockState::Withheld(withholding), obituary),
        ] {
            assert_eq!(version_of_lock(&state), 4);
            let encoded = postcard::to_stdvec(&Lock::from(&state)).unwrap();
            assert_eq!(lock::Lock::from(postcard::from_bytes::<Lock>(&encoded).unwrap()), state);
        }
        golden::<_, Lock>(
            &reaped(lock::LockState::Orphaned, obituary),
            "0303010301ac020405020102ac020001",
            concat!(
                r#"{"state":{"Reaped":{"state":"Orphaned","most_attempts":3,"obituary":{"fence":300,"end":"Expir"#,
                r#"ed","ended_at":5,"attempts":2}}},"waiting":1,"served_turn":2,"last_turn":300,"last":null,"upda"#,
                r#"ted_at":1}"#
            ),
        );
    }

    #[test]
    fn the_bytes_and_the_json_of_shared_locks_stay() {
        let permits = division::ShareMode::permits(200).unwrap();
        let division = Division::from_words(permits, [5, 0, 1, 0]).unwrap();
        let divided = lock::Lock { reaped: NonZeroU32::new(3), ..lock(lock::LockState::Divided(division), None) };
        assert_eq!(version_of_lock(&divided), 5);
        golden::<_, Lock>(
            &divided,
            "04c8010500010001030102ac020001",
            concat!(
                r#"{"state":{"Divided":{"share":200,"slots":[5,0,1,0],"most_attempts":3}},"waiting":1,"serve"#,
                r#"d_turn":2,"last_turn":300,"last":null,"updated_at":1}"#
            ),
        );
        let sharing = |state, share| lock::Ask { share: Some(share), ..ask(state) };
        let waiting = sharing(lock::AskState::Waiting(300), division::ShareMode::Shared);
        let slot = waiting.lock.at_slot(7).unwrap();
        let holding = lock::Ask { lock: slot, ..sharing(lock::AskState::Holding(Fence(300)), permits) };
        golden::<_, Ask>(
            &waiting,
            "100000000000000000000000000000000103612e62016b0102ac02010000",
            concat!(
                r#"{"session":"00000000-0000-0000-0000-000000000001","lock":{"namespace":"a.b","key":"k"}"#,
                r#","asked_at":1,"state":{"WaitingOn":[300,{"share":0,"held":[]}]}}"#
            ),
        );
        golden::<_, Ask>(
            &holding,
            "100000000000000000000000000000000103612e62056b1f3030370103ac0201c80100",
            concat!(
                r#"{"session":"00000000-0000-0000-0000-000000000001","lock":{"namespace":"a.b","key":"k\u0"#,
                r#"01f007"},"asked_at":1,"state":{"HoldingOn":[300,{"share":200,"held":[]}]}}"#
            ),
        );
        let nested = lock::Ask { held: vec![AskId(Uuid::from_u128(2))], ..ask(lock::AskState::Waiting(300)) };
        golden::<_, Ask>(
            &nested,
            "100000000000000000000000000000000103612e62016b0102ac0200011000000000000000000000000000000002",
            concat!(
                r#"{"session":"00000000-0000-0000-0000-000000000001","lock":{"namespace":"a.b","key":"k"}"#,
                r#","asked_at":1,"state":{"WaitingOn":[300,{"share":null,"held":["00000000-0000-0000-0000-0"#,
                r#"00000000002"]}]}}"#
            ),
        );
        let versions = [&waiting, &holding, &nested, &ask(lock::AskState::Waiting(1))].map(version_of_ask);
        assert_eq!(versions, [5, 5, 5, 3]);
        // Slots beyond the permits, or none, are no division.
        let refused = |slots: &str| {
            let json = format!(r#"{{"share":2,"slots":{slots},"most_attempts":null}}"#);
            serde_json::from_str::<DividedState>(&json).is_err()
        };
        assert!(refused("[4,0,0,0]") && refused("[0,0,0,0]") && !refused("[2,0,0,0]"));
    }

    #[test]
    fn the_bytes_and_the_json_of_sessions_asks_and_turns_stay() {
        let key = lock::TurnKey { lock: LockPath::parse_joined("a.b", "k").unwrap(), number: 300 };
        golden::<_, Session>(
            &session(session::SessionState::Live),
            "0373766380c0ddeec102a08d068080f9c0c1c4820301ac020200",
            concat!(
                r#"{"principal":"svc","terms":{"duration_micros":86400000000,"grace_micros":100000},"open"#,
                r#"ed_at":1700000000000000,"updated_at":1,"renewals":300,"asks":2,"state":"Live"}"#
            ),
        );
        golden::<_, Session>(
            &session(session::SessionState::Ended(session::SessionEnd::Evicted)),
            "0373766380c0ddeec102a08d068080f9c0c1c4820301ac020203",
            concat!(
                r#"{"principal":"svc","terms":{"duration_micros":86400000000,"grace_micros":100000},"open"#,
                r#"ed_at":1700000000000000,"updated_at":1,"renewals":300,"asks":2,"state":"Evicted"}"#
            ),
        );
        golden::<_, Ask>(
            &ask(lock::AskState::Waiting(300)),
            "100000000000000000000000000000000103612e62016b0100ac02",
            concat!(
                r#"{"session":"00000000-0000-0000-0000-000000000001","lock":{"namespace":"a.b","key":"k"}"#,
                r#","asked_at":1,"state":{"Waiting":300}}"#
            ),
        );
        golden::<_, Ask>(
            &ask(lock::AskState::Holding(Fence(300))),
            "100000000000000000000000000000000103612e62016b0101ac02",
            concat!(
                r#"{"session":"00000000-0000-0000-0000-000000000001","lock":{"namespace":"a.b","key":"k"}"#,
                r#","asked_at":1,"state":{"Holding":300}}"#
            ),
        );
        golden::<_, Turn>(
            &lock::Turn { ask: AskId(Uuid::from_u128(2)) },
            "1000000000000000000000000000000002",
            r#"{"ask":"00000000-0000-0000-0000-000000000002"}"#,
        );
        golden::<_, TurnKey>(&key, "03612e62016bac02", r#"{"lock":{"namespace":"a.b","key":"k"},"number":300}"#);
    }

    #[test]
    fn every_state_and_end_comes_back_as_it_was() {
        use lock::GrantEnd::{Closed, Evicted, Expired, Failed, Forced, Left, Succeeded};
        for end in [Succeeded, Failed, Left, Closed, Expired, Evicted, Forced] {
            assert_eq!(lock::GrantEnd::from(GrantEnd::from(end)), end);
        }
        use session::SessionEnd;
        for end in [SessionEnd::Closed, SessionEnd::Expired, SessionEnd::Evicted] {
            let ended = session(session::SessionState::Ended(end));
            assert_eq!(session::Session::from(Session::from(&ended)), ended);
        }
    }

    #[test]
    fn k16_a_row_that_the_engine_could_not_have_made_is_not_read() {
        let refused = |json: &str| serde_json::from_str::<Path>(json).is_err();
        assert!(!refused(r#"{"namespace":"a","key":"k"}"#));
        assert!(refused(r#"{"namespace":"a..b","key":"k"}"#) && refused(r#"{"namespace":"a","key":""}"#));
        assert!(serde_json::from_str::<Terms>(r#"{"duration_micros":0,"grace_micros":100000}"#).is_err());
        assert!(serde_json::from_str::<Principal>("\"a b\"").is_err());
        assert!(serde_json::from_str::<Value>(&format!("\"{}\"", "00".repeat(4_097))).is_err());
    }
}
