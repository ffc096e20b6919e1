//! A lock: a named resource that at most one session holds at a time, and the asks that wait for
//! it.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::division::{Division, MAX_SLOTS, ShareMode};
use crate::lease::Fence;
use crate::rejection::{Detail, Reason, Rejection};
use crate::session::{SessionId, check_limit};
use crate::time::Timestamp;

/// The largest number of bytes in a namespace, with its separators (K21).
pub const MAX_NAMESPACE_BYTES: usize = 255;
/// The largest number of bytes in the key of a lock (K21).
pub const MAX_KEY_BYTES: usize = 512;
/// The largest number of bytes in the value of a release (K21). With it a release still fits into
/// the 4 KiB of a small request, and a server refuses no small request for its load.
pub const MAX_VALUE_BYTES: usize = 2_048;
/// The largest number of asks that may wait for one lock (K21).
pub const MAX_WAITERS_PER_LOCK: u32 = 10_000;

/// The largest number of asks that an ask names as held by its caller (K21).
pub const MAX_HELD_ASKS: usize = 64;

/// The largest number of cleanups that may be begun after a holder has died (K21).
pub const MAX_CLEANUPS: u32 = 1_000;

/// The pause after the first failed cleanup, in microseconds: 1 second. Each later pause is twice as
/// long.
const FIRST_CLEANUP_PAUSE_MICROS: u64 = 1_000_000;
/// The longest pause after a failed cleanup, in microseconds: 1 minute.
const LAST_CLEANUP_PAUSE_MICROS: u64 = 60_000_000;

/// The longest wait for a lock, in microseconds: 1 day (K21).
pub const MAX_WAIT_MICROS: u64 = 86_400_000_000;

/// Checks the longest time that an ask waits, in microseconds.
///
/// # Errors
/// The time is longer than [`MAX_WAIT_MICROS`] (K21).
pub fn check_wait(micros: u64) -> Result<(), Rejection> {
    check_limit("wait_micros", MAX_WAIT_MICROS, micros)
}

/// The separator between the parts of a namespace.
pub(crate) const SEPARATOR: char = '.';
/// The characters that no part of a namespace has: the separator, and the slash that people write between
/// a namespace and a key.
const SEPARATORS: [char; 2] = [SEPARATOR, '/'];
const NAMESPACE_FORM: &str =
    "`namespace` has no part, or a part that is empty or has a dot, a slash or a control character";
const QUEUE_FORM: &str = "`queue` has no part, or a part that is empty or has a dot, a slash or a control character";
/// The character between the namespace and the key of a path.
const KEY_SEPARATOR: char = '\0';
/// The character between the key of a lock and the number of one of its slots. It is a control character,
/// so no key has it, and the slots of a lock come right after the lock.
const SLOT_SEPARATOR: char = '\u{1f}';

/// The name of a lock: a namespace of one or more parts, and a key. Or the name of a slot of a lock that
/// is shared (K13): the same with the number of the slot. Paths are ordered by namespace first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "PathFields", into = "PathFields")]
pub struct LockPath {
    // The namespace, `KEY_SEPARATOR` and the key. For a slot, `SLOT_SEPARATOR` and the character whose code
    // is its number. No part has a control character, so the order of this text is that of the parts.
    name: Arc<str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathFields {
    namespace: String,
    key: String,
    slot: u32,
}

impl TryFrom<PathFields> for LockPath {
    type Error = Rejection;

    fn try_from(path: PathFields) -> Result<Self, Rejection> {
        Self::parse_joined(&path.namespace, &path.key)?.at_slot(path.slot)
    }
}

impl From<LockPath> for PathFields {
    fn from(path: LockPath) -> Self {
        Self { namespace: path.namespace().into(), key: path.key().into(), slot: path.slot() }
    }
}

impl LockPath {
    /// Parses the parts of a namespace and a key.
    ///
    /// # Errors
    /// The namespace has no part, a part is empty, or has a separator or a control character (K16).
    /// The key is empty or has a control character, or a limit is exceeded (K21).
    pub fn parse(namespace: &[&str], key: &str) -> Result<Self, Rejection> {
        check_parts(namespace, NAMESPACE_FORM)?;
        if key.is_empty() || key.contains(char::is_control) {
            return Err(invalid("`key` is empty or has a control character"));
        }
        let namespace = namespace.join(".");
        check_limit("key_bytes", MAX_KEY_BYTES as u64, key.len() as u64)?;
        Ok(Self::joined(&namespace, key))
    }

    /// Parses a namespace whose parts are joined by dots, and a key.
    ///
    /// # Errors
    /// [`parse`](Self::parse) refuses the parts or the key.
    pub fn parse_joined(namespace: &str, key: &str) -> Result<Self, Rejection> {
        Self::parse(&namespace.split(SEPARATOR).collect::<Vec<_>>(), key)
    }

    fn joined(namespace: &str, key: &str) -> Self {
        let mut name = String::with_capacity(namespace.len() + 1 + key.len());
        name.push_str(namespace);
        name.push(KEY_SEPARATOR);
        name.push_str(key);
        Self { name: name.into() }
    }

    /// Returns a path before every lock of a namespace, as the bound of a range. It names no lock,
    /// because its key is empty.
    pub(crate) fn first_of(namespace: &str) -> Self {
        Self::joined(namespace, "")
    }

    /// Returns the path of a slot of this lock, or of the lock itself for 0.
    ///
    /// # Errors
    /// No lock has a slot with this number (K21).
    pub fn at_slot(&self, slot: u32) -> Result<Self, Rejection> {
        check_limit("slot", MAX_SLOTS.into(), slot.into())?;
        Ok(self.slot_path(slot))
    }

    /// Returns the path of a slot of this lock, or of the lock itself for 0.
    pub(crate) fn slot_path(&self, slot: u32) -> Self {
        let mut name = String::from(self.parts().0);
        if let Some(slot) = char::from_u32(slot).filter(|_| slot > 0) {
            name.push(SLOT_SEPARATOR);
            name.push(slot);
        }
        Self { name: name.into() }
    }

    /// Returns the name of the lock, and the number of the slot.
    fn parts(&self) -> (&str, u32) {
        match self.name.split_once(SLOT_SEPARATOR) {
            Some((lock, slot)) => (lock, slot.chars().next().map_or(0, u32::from)),
            None => (&self.name, 0),
        }
    }

    /// Parses the path that a store has kept, from what [`namespace`](Self::namespace) and
    /// [`stored_key`](Self::stored_key) returned.
    ///
    /// # Errors
    /// [`parse`](Self::parse) refuses the parts or the key, or no lock has such a slot.
    pub fn parse_stored(namespace: &str, key: &str) -> Result<Self, Rejection> {
        let Some((key, slot)) = key.split_once(SLOT_SEPARATOR) else { return Self::parse_joined(namespace, key) };
        let slot = slot.parse().ok().filter(|slot| (1..=MAX_SLOTS).contains(slot));
        let slot = slot.ok_or_else(|| invalid("the slot of a lock is no number of one"))?;
        Ok(Self::parse_joined(namespace, key)?.slot_path(slot))
    }

    /// Returns the parts of the namespace, joined by dots.
    pub fn namespace(&self) -> &str {
        self.name.split_once(KEY_SEPARATOR).map_or("", |(namespace, _)| namespace)
    }

    /// Returns the key of the lock within its namespace.
    pub fn key(&self) -> &str {
        self.parts().0.split_once(KEY_SEPARATOR).map_or("", |(_, key)| key)
    }

    /// Returns the key with which stores keep the path: the key of the lock, with the slot if it is one. The
    /// order of stored keys is the order of paths.
    pub fn stored_key(&self) -> Cow<'_, str> {
        match self.slot() {
            0 => Cow::Borrowed(self.key()),
            slot => Cow::Owned(format!("{}{SLOT_SEPARATOR}{slot:03}", self.key())),
        }
    }

    /// Returns the number of the slot; 0 if this is the path of a lock.
    pub fn slot(&self) -> u32 {
        self.parts().1
    }

    /// Returns the path of the lock that has this slot, or this path if it is of a lock.
    #[must_use]
    pub fn base(&self) -> Self {
        if self.slot() == 0 { self.clone() } else { self.slot_path(0) }
    }

    /// True if this path is of that lock, or of a slot of it.
    pub fn is_of(&self, lock: &Self) -> bool {
        self.parts().0 == &*lock.name
    }
}

/// Writes the namespace alone: keys appear in no log and no error (K24).
impl fmt::Display for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.namespace().fmt(f)
    }
}

/// Writes the namespace alone: a log that prints a command or a row shows no key (K24).
impl fmt::Debug for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockPath").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}

/// The id of an ask. Callers generate the ids, so that a repeated acquire is recognised (K05).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AskId(pub Uuid);

impl fmt::Display for AskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of an ask. An ask that has ended has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AskState {
    /// The ask waits at this turn of its lock. Smaller turns are served first (K08).
    Waiting(u64),
    /// The ask holds its lock under this fence.
    Holding(Fence),
}

/// The row of an ask: one acquire of a session, until its release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The session that asks.
    pub session: SessionId,
    /// The lock that the session asks for. Once the ask holds a slot of it, the slot.
    pub lock: LockPath,
    /// The way in which the ask shares the lock; `None` if it wants the lock alone.
    pub share: Option<ShareMode>,
    /// The asks under which the caller holds locks while it waits for this one, or asks for others
    /// together with it. At most [`MAX_HELD_ASKS`].
    pub held: Vec<AskId>,
    /// The time of the acquire.
    pub asked_at: Timestamp,
    /// The state of the ask: waiting or holding.
    pub state: AskState,
}

/// The key of a turn: a place in the queue of asks that wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnKey {
    /// The lock that is waited for.
    pub lock: LockPath,
    /// The number of the turn: larger than every earlier turn of the lock.
    pub number: u64,
}

/// The row of a turn: a place in the queue of asks that wait for a lock. A lock's turns, in the
/// order of their keys, are its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The ask that waits at this turn.
    pub ask: AskId,
}

/// A grant of a lock to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The ask that holds the lock.
    pub ask: AskId,
    /// The session of the ask.
    pub session: SessionId,
    /// The fence of the grant, larger than every fence before it (K05).
    pub fence: Fence,
    /// The time of the grant.
    pub granted_at: Timestamp,
}

/// The reason why a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GrantEnd {
    /// The holder released the lock and reported that the work succeeded (K03).
    Succeeded,
    /// The holder released the lock and reported that the work failed (K03).
    Failed,
    /// The caller left the queue after the lock was granted and before the caller learnt of the
    /// grant (K09).
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

/// The grant of a lock that ended last. It is kept so that a repeated release gets the true answer
/// (K19), and for readers of the released value (K03).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// The grant that ended.
    pub grant: Grant,
    /// The reason of the end.
    pub end: GrantEnd,
    /// The value that the holder gave with its release, empty if it gave none.
    pub value: LockValue,
    /// The time of the end.
    pub ended_at: Timestamp,
}

/// The value that a holder gives with its release: bytes that the engine stores and never decodes.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LockValue(Arc<[u8]>);

impl LockValue {
    /// Parses the value of a release.
    ///
    /// # Errors
    /// The value is longer than [`MAX_VALUE_BYTES`] (K21).
    pub fn parse(bytes: &[u8]) -> Result<Self, Rejection> {
        check_limit("value_bytes", MAX_VALUE_BYTES as u64, bytes.len() as u64)?;
        Ok(Self(bytes.into()))
    }

    /// Returns the bytes of the value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Writes the length alone: values appear in no log and no error (K24).
impl fmt::Debug for LockValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockValue({} bytes)", self.0.len())
    }
}

/// A lock that was taken from its holder and is not granted again before the holder's time is over
/// (K20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withholding {
    /// The fence of the grant that was taken away.
    pub fence: Fence,
    /// The microseconds for which a host must observe the lock as withheld before it is granted
    /// again: [`Terms::withholding_micros`](crate::session::Terms::withholding_micros) of the former
    /// holder's session.
    pub silence_micros: u64,
}

/// The note of a grant that ended without a release, in a namespace that is reaped. It stays with the
/// lock until a cleanup has succeeded (K17).
///
/// A cleanup is a grant of its own: the cleaner holds the lock under a new fence, so the guard refuses
/// what the former holder still writes. A success releases the lock as any release does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Obituary {
    /// The fence of the grant that ended.
    pub fence: Fence,
    /// The reason of the grant's end.
    pub end: GrantEnd,
    /// The time of the grant's end.
    pub ended_at: Timestamp,
    /// The number of cleanups that were begun. One that its caller never learnt of is not counted.
    pub attempts: u32,
}

/// The state of a lock. A lock without a row is free, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockState {
    /// The lock has no holder, and nobody waits for it.
    Free,
    /// One ask holds the lock.
    Held(Grant),
    /// The lock was taken from its holder and is not granted again before the holder's time is over
    /// (K20).
    Withheld(Withholding),
    /// The lock waits for a cleanup, and is not granted to an ask before (K17). Its obituary tells why.
    Orphaned,
    /// Slots of the lock are taken: held, withheld or orphaned. Each has a row of its own (K13).
    Divided(Division),
}

/// The row of a lock. Every acquire and every release changes the row, so concurrent ones conflict
/// in a store that several servers write to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The state of the lock: free, held, withheld, orphaned or divided.
    pub state: LockState,
    /// The number of asks that wait.
    pub waiting: u32,
    /// The turn that was served last, 0 before the first.
    pub served_turn: u64,
    /// The turn of the newest ask that waited, 0 before the first.
    pub last_turn: u64,
    /// The last grant that ended, `None` before the first end.
    pub last: Option<Ended>,
    /// The time of the last change of the lock's state.
    pub updated_at: Timestamp,
    /// The most cleanups of one obituary that are begun; `None` if the lock is not reaped.
    pub reaped: Option<NonZeroU32>,
    /// The grant whose cleanup has not succeeded yet; `None` if no cleanup is due.
    pub obituary: Option<Obituary>,
}

impl Lock {
    /// Returns a free lock that nobody has held.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: LockState::Free,
            waiting: 0,
            served_turn: 0,
            last_turn: 0,
            last: None,
            updated_at: now,
            reaped: None,
            obituary: None,
        }
    }

    /// Returns the grant of the lock, `None` if it is not held.
    pub fn grant(&self) -> Option<&Grant> {
        match &self.state {
            LockState::Held(grant) => Some(grant),
            LockState::Free | LockState::Withheld(_) | LockState::Orphaned | LockState::Divided(_) => None,
        }
    }

    /// Returns where an ask that shares the lock in this way could hold it now: the number of a free slot,
    /// or 0 for the whole lock. `None` if the ask has to wait.
    pub fn room_for(&self, share: Option<ShareMode>) -> Option<u32> {
        match (self.state, share) {
            (LockState::Free, None) => Some(0),
            (LockState::Free, Some(share)) => Division::new(share).free(),
            (LockState::Divided(division), Some(share)) if division.share == share => division.free(),
            _ => None,
        }
    }

    /// True if an ask can hold the lock now, if it shares the lock in the way that is wanted.
    pub(crate) fn has_room(&self) -> bool {
        match self.state {
            LockState::Free => true,
            LockState::Divided(division) => division.free().is_some(),
            LockState::Held(_) | LockState::Withheld(_) | LockState::Orphaned => false,
        }
    }

    /// Notes that a slot is taken, or not.
    pub(crate) fn set_slot(&mut self, slot: u32, share: ShareMode, is_taken: bool) {
        let mut division = match self.state {
            LockState::Divided(division) => division,
            _ => Division::new(share),
        };
        if is_taken {
            division.mark(slot)
        } else {
            division.give_back(slot)
        }
        self.state = if division.taken() == 0 { LockState::Free } else { LockState::Divided(division) };
    }

    /// Returns the state of the lock when nobody holds it and nobody may still work under it.
    pub(crate) fn rest(&self) -> LockState {
        if self.obituary.is_some() { LockState::Orphaned } else { LockState::Free }
    }

    /// True if as many cleanups were begun as are allowed. An orphaned lock is then set aside: it waits
    /// for an operator (K17).
    pub fn is_exhausted(&self) -> bool {
        let attempts = self.obituary.map_or(0, |obituary| obituary.attempts);
        attempts >= self.reaped.map_or(u32::MAX, NonZeroU32::get)
    }

    /// Returns the microseconds from the lock's last change until a host offers its cleanup: none, or a
    /// pause after a failure, so that one lock whose cleanup fails does not keep cleaners from the others
    /// (pg-boss#849). `None` if no cleanup may begin.
    pub fn cleanup_pause_micros(&self) -> Option<u64> {
        let obituary = self.obituary.filter(|_| self.state == LockState::Orphaned && !self.is_exhausted())?;
        let Some(failed) = obituary.attempts.checked_sub(1) else { return Some(0) };
        Some((FIRST_CLEANUP_PAUSE_MICROS << failed.min(6)).min(LAST_CLEANUP_PAUSE_MICROS))
    }

    /// Returns the obituary after a grant has ended. A release is a report, and a caller that left never
    /// learnt of its grant; any other end needs a cleanup where the lock is reaped.
    pub(crate) fn obituary_after(&self, grant: &Grant, end: GrantEnd, ended_at: Timestamp) -> Option<Obituary> {
        match (self.obituary, end) {
            (_, GrantEnd::Succeeded) => None,
            (None, GrantEnd::Failed | GrantEnd::Left) => None,
            (Some(obituary), GrantEnd::Left) => {
                Some(Obituary { attempts: obituary.attempts.saturating_sub(1), ..obituary })
            }
            (Some(obituary), _) => Some(obituary),
            (None, GrantEnd::Closed | GrantEnd::Expired | GrantEnd::Evicted | GrantEnd::Forced) => {
                self.reaped.map(|_| Obituary { fence: grant.fence, end, ended_at, attempts: 0 })
            }
        }
    }

    /// Ends a grant of this lock, and keeps the end in `last`. The lock is withheld if its holder may still
    /// work under it; else it is orphaned if a cleanup is due, and free if none is.
    pub(crate) fn end(&mut self, ended: Ended, withheld: Option<Withholding>) {
        self.obituary = self.obituary_after(&ended.grant, ended.end, ended.ended_at);
        self.state = withheld.map_or(self.rest(), LockState::Withheld);
        self.updated_at = ended.ended_at;
        self.last = Some(ended);
    }

    /// Returns the last grant if an operator took the lock from its holder (K20).
    fn forced(&self) -> Option<&Grant> {
        self.last.as_ref().filter(|last| last.end == GrantEnd::Forced).map(|last| &last.grant)
    }

    /// Returns the grant that an operator took from its holder by a change of the lock's row. A host
    /// tells it to the holder with the next renewal, by [`Observer`](crate::observer::Observer).
    pub fn newly_forced<'a>(before: Option<&Self>, after: Option<&'a Self>) -> Option<&'a Grant> {
        after.and_then(Self::forced).filter(|grant| before.and_then(Self::forced) != Some(grant))
    }

    /// Returns the largest number of asks that may be served before the ask at `turn`. Asks that
    /// left the queue may be counted.
    pub fn ahead_of(&self, turn: u64) -> u32 {
        let turns = turn.saturating_sub(self.served_turn).saturating_sub(1);
        u32::try_from(turns).unwrap_or(u32::MAX).min(self.waiting.saturating_sub(1))
    }
}

/// Checks a namespace whose parts are joined by dots (K16).
pub(crate) fn check_namespace(joined: &str) -> Result<(), Rejection> {
    check_parts(&joined.split(SEPARATOR).collect::<Vec<_>>(), NAMESPACE_FORM)
}

/// Checks the name of a queue, which has the form of a namespace.
///
/// # Errors
/// A part is empty or has a control character, or the name is too long.
pub(crate) fn check_queue(name: &str) -> Result<(), Rejection> {
    check_parts(&name.split(SEPARATOR).collect::<Vec<_>>(), QUEUE_FORM)
}

fn check_parts(parts: &[&str], form: &'static str) -> Result<(), Rejection> {
    let is_bad = |part: &&str| part.is_empty() || part.contains(|c: char| SEPARATORS.contains(&c) || c.is_control());
    if parts.is_empty() || parts.iter().any(is_bad) {
        return Err(invalid(form));
    }
    let separators = parts.len() - 1;
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>() + separators;
    check_limit("namespace_bytes", MAX_NAMESPACE_BYTES as u64, bytes as u64)
}

fn invalid(what: &'static str) -> Rejection {
    Rejection::whole(Reason::InvalidUpdate, Detail::Form(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(namespace: &[&str], key: &str) -> Reason {
        LockPath::parse(namespace, key).unwrap_err().reason()
    }

    #[test]
    fn k16_a_part_that_is_empty_or_has_a_separator_is_refused() {
        let path = LockPath::parse(&["user", "update"], "7.1").unwrap();
        assert_eq!((path.namespace(), path.key()), ("user.update", "7.1"));
        assert_eq!(LockPath::parse_joined("user.update", "7.1"), Ok(path));
        for namespace in [&[][..], &[""], &["a", ""], &["a.b"], &["a/b"], &["a\n"]] {
            assert_eq!(reason(namespace, "k"), Reason::InvalidUpdate, "{namespace:?}");
        }
        assert!(LockPath::parse_joined("a..b", "k").is_err());
        assert_eq!(reason(&["a"], ""), Reason::InvalidUpdate);
        assert_eq!(reason(&["a"], "\0"), Reason::InvalidUpdate);
    }

    #[test]
    fn k13_the_path_of_a_slot_names_its_lock() {
        let lock = LockPath::parse(&["a", "b"], "é.1").unwrap();
        let slot = lock.at_slot(256).unwrap();
        assert_eq!((slot.key(), slot.slot(), slot.base(), lock.slot()), ("é.1", 256, lock.clone(), 0));
        assert_eq!(LockPath::parse_stored("a.b", &slot.stored_key()), Ok(slot.clone()));
        assert_eq!(LockPath::parse_stored("a.b", &lock.stored_key()), Ok(lock.clone()));
        assert!(
            LockPath::parse_stored("a", "k\u{1f}000").is_err() && LockPath::parse_stored("a", "k\u{1f}257").is_err()
        );
        assert!(slot.is_of(&lock) && lock.is_of(&lock) && !lock.is_of(&slot));
        assert!(!LockPath::parse(&["a", "b"], "é").unwrap().is_of(&lock));
        assert_eq!((lock.at_slot(0), lock.at_slot(257).is_err()), (Ok(lock.clone()), true));
        // The slots of a lock come right after it.
        assert!(lock < slot && slot < LockPath::parse(&["a", "b"], "é.1 ").unwrap());
        assert!(LockPath::parse(&["a", "b"], &slot.stored_key()).is_err());
    }

    #[test]
    fn k21_long_keys_and_values_are_refused() {
        assert_eq!(reason(&["a"], &"k".repeat(2_048)), Reason::LimitExceeded);
        assert_eq!(reason(&[&"n".repeat(256)], "k"), Reason::LimitExceeded);
        assert_eq!(LockValue::parse(&[0; 2_049]).unwrap_err().reason(), Reason::LimitExceeded);
        assert_eq!(LockValue::parse(&[7; 2_048]).unwrap().as_bytes().len(), 2_048);
    }

    #[test]
    fn k24_no_key_and_no_value_is_printed() {
        let path = LockPath::parse(&["user"], "secret").unwrap();
        let value = LockValue::parse(b"secret").unwrap();
        assert!(!format!("{path} {path:?} {value:?}").contains("secret"));
    }
}
