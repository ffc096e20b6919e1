//! Conversions between the tables of sessions and locks and the engine's rows.

use std::num::NonZeroU32;
use std::ops::Bound;

use leasehold_core::division::{Division, ShareMode};
use leasehold_core::lease::Fence;
use leasehold_core::lock::{
    Ask, AskId, AskState, Ended, Grant, GrantEnd, Lock, LockPath, LockState, LockValue, Obituary, Turn, TurnKey,
    Withholding,
};
use leasehold_core::rows::RowKind;
use leasehold_core::session::{Principal, Session, SessionEnd, SessionId, SessionState, Terms};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::columns::{Columns, Micros, damaged};
use super::composite::CompositeRows;
use crate::store::error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// The columns of `lock_sessions`, under the alias `s`, that [`session`] reads.
pub(super) const SESSION: &str = "s.uuid, s.principal, s.duration_micros, s.grace_micros, s.opened_at, s.updated_at, \
    s.renewals, s.asks, s.ended";

/// The columns of `locks`, under the alias `l`, that [`lock`] reads.
pub(super) const LOCK: &str = "l.namespace, l.key, l.state, l.waiting, l.served_turn, l.last_turn, l.fence, l.ask_uuid, \
    l.session_uuid, l.granted_at, l.silence_micros, l.last_fence, l.last_ask_uuid, l.last_session_uuid, \
    l.last_granted_at, l.last_end, l.last_value, l.last_ended_at, l.updated_at, l.most_attempts, l.obituary_fence, \
    l.obituary_end, l.obituary_ended_at, l.obituary_attempts, l.share, l.slots";

/// The columns of `lock_asks`, under the alias `a`, that [`ask`] reads.
pub(super) const ASK: &str = "a.uuid, a.session_uuid, a.namespace, a.key, a.asked_at, a.turn, a.fence, a.share, a.held";

/// The columns of `lock_turns`, under the alias `t`, that [`turn`] reads.
pub(super) const TURN: &str = "t.namespace, t.key, t.number, t.ask_uuid";

/// Every reason of the end of a grant, in the order of the numbers in `locks.last_end`, from 1.
const ENDS: [GrantEnd; 7] = [
    GrantEnd::Succeeded,
    GrantEnd::Failed,
    GrantEnd::Left,
    GrantEnd::Closed,
    GrantEnd::Expired,
    GrantEnd::Evicted,
    GrantEnd::Forced,
];

/// Every end of a session, in the order of the numbers in `lock_sessions.ended`, from 1.
const SESSION_ENDS: [SessionEnd; 3] = [SessionEnd::Closed, SessionEnd::Expired, SessionEnd::Evicted];

/// Returns the number of a value in a list that begins with number 1.
pub(super) fn number_of<T: PartialEq>(list: &[T], value: &T) -> i16 {
    let at = list.iter().position(|known| known == value);
    at.and_then(|at| i16::try_from(at + 1).ok()).unwrap_or_default()
}

/// Returns the value that has this number in a list that begins with number 1.
pub(super) fn numbered<T: Copy>(list: &[T], number: i16) -> Option<T> {
    list.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// Returns the number with which a fence is sent: a negative number for a placeholder, -1 for the
/// first of the group.
pub(super) fn sent(fence: Fence) -> i64 {
    match fence.0.checked_sub(Fence::PLACEHOLDER.0) {
        Some(count) => count.cast_signed().saturating_neg(),
        None => fence.0.cast_signed(),
    }
}

fn path(columns: &mut Columns<'_>) -> Result<LockPath> {
    let (namespace, key): (&str, &str) = (columns.take()?, columns.take()?);
    LockPath::parse_stored(namespace, key).map_err(|_| columns.damaged())
}

/// Reads a session and its id from a row with the columns [`SESSION`].
pub(super) fn session(row: &Row) -> Result<(SessionId, Session)> {
    let mut columns = Columns::new(row, "lock_sessions");
    let id = SessionId(columns.take()?);
    let damaged = |_| damaged("lock_sessions");
    let principal = Principal::parse(columns.take()?).map_err(damaged)?;
    let (duration, grace): (i64, i64) = (columns.take()?, columns.take()?);
    let terms = Terms::parse(duration.cast_unsigned(), grace.cast_unsigned()).map_err(damaged)?;
    let (opened_at, updated_at) = (columns.take::<Micros>()?.0, columns.take::<Micros>()?.0);
    let renewals = columns.take::<i64>()?.cast_unsigned();
    let asks = columns.take::<i32>()?.cast_unsigned();
    let state = match columns.take::<Option<i16>>()? {
        None => SessionState::Live,
        Some(end) => SessionState::Ended(numbered(&SESSION_ENDS, end).ok_or_else(|| columns.damaged())?),
    };
    Ok((id, Session { principal, terms, opened_at, updated_at, renewals, asks, state }))
}

/// The columns of a grant that may be NULL.
struct GrantColumns {
    fence: Option<i64>,
    ask: Option<Uuid>,
    session: Option<Uuid>,
    granted_at: Option<Micros>,
}

impl GrantColumns {
    fn take(columns: &mut Columns<'_>) -> Result<Self> {
        Ok(Self { fence: columns.take()?, ask: columns.take()?, session: columns.take()?, granted_at: columns.take()? })
    }

    fn grant(&self) -> Option<Grant> {
        let (ask, session) = (AskId(self.ask?), SessionId(self.session?));
        Some(Grant { ask, session, fence: Fence(self.fence?.cast_unsigned()), granted_at: self.granted_at?.0 })
    }
}

/// Reads a lock and its path from a row with the columns [`LOCK`].
pub(super) fn lock(row: &Row) -> Result<(LockPath, Lock)> {
    let mut columns = Columns::new(row, "locks");
    let path = path(&mut columns)?;
    let state: i16 = columns.take()?;
    let waiting = columns.take::<i32>()?.cast_unsigned();
    let served_turn = columns.take::<i64>()?.cast_unsigned();
    let last_turn = columns.take::<i64>()?.cast_unsigned();
    let current = GrantColumns::take(&mut columns)?;
    let silence: Option<i64> = columns.take()?;
    let last = last(&mut columns)?;
    let updated_at = columns.take::<Micros>()?.0;
    let reaped = columns.take::<Option<i32>>()?.and_then(|most| NonZeroU32::new(most.cast_unsigned()));
    let obituary = obituary(&mut columns)?;
    let division = division(&mut columns)?;
    let state = match (state, current.grant(), current.fence, silence, obituary.is_some()) {
        (1, None, None, None, false) => LockState::Free,
        (2, Some(grant), _, None, false) | (5, Some(grant), _, None, true) => LockState::Held(grant),
        (3, None, Some(fence), Some(silence), false) | (6, None, Some(fence), Some(silence), true) => {
            let (fence, silence_micros) = (Fence(fence.cast_unsigned()), silence.cast_unsigned());
            LockState::Withheld(Withholding { fence, silence_micros })
        }
        (4, None, None, None, true) => LockState::Orphaned,
        (7, None, None, None, false) => LockState::Divided(division.ok_or_else(|| columns.damaged())?),
        _ => return Err(columns.damaged()),
    };
    Ok((path, Lock { state, waiting, served_turn, last_turn, last, updated_at, reaped, obituary }))
}

fn division(columns: &mut Columns<'_>) -> Result<Option<Division>> {
    let (share, slots): (Option<i16>, Option<&[u8]>) = (columns.take()?, columns.take()?);
    let Some((share, slots)) = share.zip(slots) else { return Ok(None) };
    let (bytes, rest) = slots.as_chunks::<8>();
    let words =
        <[[u8; 8]; 4]>::try_from(bytes).ok().filter(|_| rest.is_empty()).map(|words| words.map(u64::from_be_bytes));
    let division = words.and_then(|words| Division::from_words(read_share(share)?, words));
    division.map(Some).ok_or_else(|| columns.damaged())
}

fn read_share(number: i16) -> Option<ShareMode> {
    ShareMode::numbered(u16::try_from(number).ok()?).ok()
}

fn obituary(columns: &mut Columns<'_>) -> Result<Option<Obituary>> {
    let (fence, end): (Option<i64>, Option<i16>) = (columns.take()?, columns.take()?);
    let (ended_at, attempts): (Option<Micros>, Option<i32>) = (columns.take()?, columns.take()?);
    let Some(fence) = fence else { return Ok(None) };
    match (end.and_then(|end| numbered(&ENDS, end)), ended_at, attempts) {
        (Some(end), Some(Micros(ended_at)), Some(attempts)) => {
            let (fence, attempts) = (Fence(fence.cast_unsigned()), attempts.cast_unsigned());
            Ok(Some(Obituary { fence, end, ended_at, attempts }))
        }
        _ => Err(columns.damaged()),
    }
}

fn last(columns: &mut Columns<'_>) -> Result<Option<Ended>> {
    let grant = GrantColumns::take(columns)?.grant();
    let (end, value): (Option<i16>, Option<&[u8]>) = (columns.take()?, columns.take()?);
    let ended_at: Option<Micros> = columns.take()?;
    let Some(grant) = grant else { return Ok(None) };
    let end = end.and_then(|end| numbered(&ENDS, end));
    let value = value.and_then(|value| LockValue::parse(value).ok());
    match (end, value, ended_at) {
        (Some(end), Some(value), Some(ended_at)) => Ok(Some(Ended { grant, end, value, ended_at: ended_at.0 })),
        _ => Err(columns.damaged()),
    }
}

/// Reads an ask and its id from a row with the columns [`ASK`].
pub(super) fn ask(row: &Row) -> Result<(AskId, Ask)> {
    let mut columns = Columns::new(row, "lock_asks");
    let (id, session) = (AskId(columns.take()?), SessionId(columns.take()?));
    let lock = path(&mut columns)?;
    let asked_at = columns.take::<Micros>()?.0;
    let state = match (columns.take::<Option<i64>>()?, columns.take::<Option<i64>>()?) {
        (Some(turn), None) => AskState::Waiting(turn.cast_unsigned()),
        (None, Some(fence)) => AskState::Holding(Fence(fence.cast_unsigned())),
        _ => return Err(columns.damaged()),
    };
    let share = columns.take::<Option<i16>>()?;
    let share = share.map(|share| read_share(share).ok_or_else(|| columns.damaged())).transpose()?;
    let held = columns.take::<Option<Vec<uuid::Uuid>>>()?.unwrap_or_default().into_iter().map(AskId).collect();
    Ok((id, Ask { session, lock, share, held, asked_at, state }))
}

/// Reads a turn and its key from a row with the columns [`TURN`].
pub(super) fn turn(row: &Row) -> Result<(TurnKey, Turn)> {
    let mut columns = Columns::new(row, "lock_turns");
    let lock = path(&mut columns)?;
    let number = columns.take::<i64>()?.cast_unsigned();
    Ok((TurnKey { lock, number }, Turn { ask: AskId(columns.take()?) }))
}

impl CompositeRows {
    /// Adds a row of the composite type `new_session`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_session(&mut self, id: SessionId, session: &Session) -> Result<()> {
        let ended = match session.state {
            SessionState::Live => None,
            SessionState::Ended(end) => Some(number_of(&SESSION_ENDS, &end)),
        };
        self.push(&[
            (&id.0, Type::UUID),
            (&session.principal.as_str(), Type::TEXT),
            (&session.terms.duration_micros().cast_signed(), Type::INT8),
            (&session.terms.grace_micros().cast_signed(), Type::INT8),
            (&Micros(session.opened_at), Type::TIMESTAMPTZ),
            (&Micros(session.updated_at), Type::TIMESTAMPTZ),
            (&session.renewals.cast_signed(), Type::INT8),
            (&session.asks.cast_signed(), Type::INT4),
            (&ended, Type::INT2),
        ])
    }

    /// Adds a row of the composite type `new_lock`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_lock(&mut self, path: &LockPath, lock: &Lock) -> Result<()> {
        let is_due = lock.obituary.is_some();
        let (number, fence, silence) = match lock.state {
            LockState::Free => (1_i16, None, None),
            LockState::Held(grant) => (if is_due { 5 } else { 2 }, Some(grant.fence), None),
            LockState::Withheld(Withholding { fence, silence_micros }) => {
                (if is_due { 6 } else { 3 }, Some(fence), Some(silence_micros))
            }
            LockState::Orphaned => (4, None, None),
            LockState::Divided(_) => (7, None, None),
        };
        let (grant, last) = (lock.grant(), lock.last.as_ref());
        self.push(&[
            (&path.namespace(), Type::TEXT),
            (&&*path.stored_key(), Type::TEXT),
            (&number, Type::INT2),
            (&lock.waiting.cast_signed(), Type::INT4),
            (&lock.served_turn.cast_signed(), Type::INT8),
            (&lock.last_turn.cast_signed(), Type::INT8),
            (&fence.map(sent), Type::INT8),
            (&grant.map(|grant| grant.ask.0), Type::UUID),
            (&grant.map(|grant| grant.session.0), Type::UUID),
            (&grant.map(|grant| Micros(grant.granted_at)), Type::TIMESTAMPTZ),
            (&silence.map(u64::cast_signed), Type::INT8),
            (&last.map(|last| sent(last.grant.fence)), Type::INT8),
            (&last.map(|last| last.grant.ask.0), Type::UUID),
            (&last.map(|last| last.grant.session.0), Type::UUID),
            (&last.map(|last| Micros(last.grant.granted_at)), Type::TIMESTAMPTZ),
            (&last.map(|last| number_of(&ENDS, &last.end)), Type::INT2),
            (&last.map(|last| last.value.as_bytes()), Type::BYTEA),
            (&last.map(|last| Micros(last.ended_at)), Type::TIMESTAMPTZ),
            (&Micros(lock.updated_at), Type::TIMESTAMPTZ),
        ])
    }

    /// Adds a row of the composite type `new_obituary`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_obituary(&mut self, path: &LockPath, lock: &Lock) -> Result<()> {
        let obituary = lock.obituary.as_ref();
        // The column holds no larger number, and nobody tries so often.
        let most = lock.reaped.map(|most| i32::try_from(most.get()).unwrap_or(i32::MAX));
        self.push(&[
            (&path.namespace(), Type::TEXT),
            (&&*path.stored_key(), Type::TEXT),
            (&most, Type::INT4),
            (&obituary.map(|obituary| sent(obituary.fence)), Type::INT8),
            (&obituary.map(|obituary| number_of(&ENDS, &obituary.end)), Type::INT2),
            (&obituary.map(|obituary| Micros(obituary.ended_at)), Type::TIMESTAMPTZ),
            (&obituary.map(|obituary| obituary.attempts.cast_signed()), Type::INT4),
        ])
    }

    /// Adds a row of the composite type `new_division`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_division(&mut self, path: &LockPath, division: Option<Division>) -> Result<()> {
        let share = division.map(|division| division.share.number().cast_signed());
        let slots = division.map(|division| division.words().map(u64::to_be_bytes).concat());
        self.push(&[
            (&path.namespace(), Type::TEXT),
            (&&*path.stored_key(), Type::TEXT),
            (&share, Type::INT2),
            (&slots, Type::BYTEA),
        ])
    }

    /// Adds a row of the composite type `new_share`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_share(&mut self, id: AskId, ask: &Ask) -> Result<()> {
        let held: Vec<_> = ask.held.iter().map(|held| held.0).collect();
        self.push(&[
            (&id.0, Type::UUID),
            (&ask.share.map(|share| share.number().cast_signed()), Type::INT2),
            (&Some(held).filter(|held| !held.is_empty()), Type::UUID_ARRAY),
        ])
    }

    /// Adds a row of the composite type `new_ask`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_ask(&mut self, id: AskId, ask: &Ask) -> Result<()> {
        let (turn, fence) = match ask.state {
            AskState::Waiting(turn) => (Some(turn.cast_signed()), None),
            AskState::Holding(fence) => (None, Some(sent(fence))),
        };
        self.push(&[
            (&id.0, Type::UUID),
            (&ask.session.0, Type::UUID),
            (&ask.lock.namespace(), Type::TEXT),
            (&&*ask.lock.stored_key(), Type::TEXT),
            (&Micros(ask.asked_at), Type::TIMESTAMPTZ),
            (&turn, Type::INT8),
            (&fence, Type::INT8),
        ])
    }

    /// Adds a row of the composite type `new_turn`.
    ///
    /// # Errors
    /// A value can't be written as its column's type.
    pub(super) fn push_turn(&mut self, key: &TurnKey, turn: &Turn) -> Result<()> {
        self.push(&[
            (&key.lock.namespace(), Type::TEXT),
            (&&*key.lock.stored_key(), Type::TEXT),
            (&key.number.cast_signed(), Type::INT8),
            (&turn.ask.0, Type::UUID),
        ])
    }
}

/// The bounds of a range within one list of a kind.
pub(super) type Clipped<T> = (Bound<T>, Bound<T>);

/// Returns the part of a range of positions that lies in one list of the kind; `None` if there is no
/// such part. The lists have numbers, and lists with larger numbers come later. `place` returns the
/// number of a position's list, and the place in that list.
pub(super) fn clip<K: RowKind, T>(
    range: (&Bound<K::Position>, &Bound<K::Position>),
    list: u8,
    place: impl Fn(&K::Position) -> (u8, T),
) -> Option<Clipped<T>> {
    let clipped = |bound: &Bound<K::Position>, is_outside: fn(u8, u8) -> bool| {
        let (position, is_included) = match bound {
            Bound::Unbounded => return Some(Bound::Unbounded),
            Bound::Included(position) => (position, true),
            Bound::Excluded(position) => (position, false),
        };
        let (of, at) = place(position);
        if of != list {
            return (!is_outside(of, list)).then_some(Bound::Unbounded);
        }
        Some(if is_included { Bound::Included(at) } else { Bound::Excluded(at) })
    };
    Some((clipped(range.0, |of, list| of > list)?, clipped(range.1, |of, list| of < list)?))
}
