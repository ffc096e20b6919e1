//! The keys and values of sessions, locks, asks and turns. The byte order of two keys is the order
//! of their parts.

use leasehold_core::lock::{Ask, AskId, Lock, LockPath, Turn, TurnKey};
use leasehold_core::rows::{LockOrder, SessionOrder};
use leasehold_core::session::{Session, SessionId};
use uuid::Uuid;

use super::Result;
use super::keyed_rows::{END, KeyedRow, time, without_time};
use super::rows::{Keyspace, encode};
use crate::store::stored;

impl KeyedRow for Session {
    fn key(id: &SessionId) -> Vec<u8> {
        id.0.as_bytes().into()
    }

    fn position_key(position: &SessionOrder) -> Vec<u8> {
        match position {
            SessionOrder::Live(id) => [&[0][..], id.0.as_bytes()].concat(),
            SessionOrder::Ended(at, id) => [&[1], &time(*at)[..], id.0.as_bytes()].concat(),
        }
    }

    fn read_key(bytes: &[u8]) -> Option<SessionId> {
        Uuid::from_slice(bytes).ok().map(SessionId)
    }

    fn read_position(bytes: &[u8], _: &[u8]) -> Option<SessionId> {
        match bytes.split_first()? {
            (0, id) => Self::read_key(id),
            (1, place) => Self::read_key(without_time(place)?),
            _ => None,
        }
    }

    fn value(&self) -> Result<Vec<u8>> {
        encode(&stored::Session::from(self))
    }

    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self> {
        rows.decode::<stored::Session>(bytes).map(Into::into)
    }
}

impl KeyedRow for Lock {
    fn key(path: &LockPath) -> Vec<u8> {
        [path.namespace().as_bytes(), &[END], path.stored_key().as_bytes()].concat()
    }

    fn position_key(position: &LockOrder) -> Vec<u8> {
        match position {
            LockOrder::Held(path) => [&[0][..], &Self::key(path)].concat(),
            LockOrder::Withheld(path) => [&[1][..], &Self::key(path)].concat(),
            LockOrder::Free(at, path) => [&[2], &time(*at)[..], &Self::key(path)].concat(),
            LockOrder::Orphaned(path) => [&[3][..], &Self::key(path)].concat(),
            LockOrder::SetAside(path) => [&[4][..], &Self::key(path)].concat(),
        }
    }

    fn read_key(bytes: &[u8]) -> Option<LockPath> {
        let (namespace, key) = std::str::from_utf8(bytes).ok()?.split_once(char::from(END))?;
        LockPath::parse_stored(namespace, key).ok()
    }

    fn read_position(bytes: &[u8], _: &[u8]) -> Option<LockPath> {
        match bytes.split_first()? {
            (0 | 1 | 3 | 4, path) => Self::read_key(path),
            (2, place) => Self::read_key(without_time(place)?),
            _ => None,
        }
    }

    fn value(&self) -> Result<Vec<u8>> {
        encode(&stored::Lock::from(self))
    }

    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self> {
        rows.decode::<stored::Lock>(bytes).map(Into::into)
    }
}

impl KeyedRow for Ask {
    fn key(id: &AskId) -> Vec<u8> {
        id.0.as_bytes().into()
    }

    fn position_key((session, ask): &(SessionId, AskId)) -> Vec<u8> {
        [&session.0.as_bytes()[..], ask.0.as_bytes()].concat()
    }

    fn read_key(bytes: &[u8]) -> Option<AskId> {
        Uuid::from_slice(bytes).ok().map(AskId)
    }

    fn read_position(bytes: &[u8], _: &[u8]) -> Option<AskId> {
        Self::read_key(bytes.split_first_chunk::<16>()?.1)
    }

    fn value(&self) -> Result<Vec<u8>> {
        encode(&stored::Ask::from(self))
    }

    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self> {
        rows.decode::<stored::Ask>(bytes).map(Into::into)
    }
}

impl KeyedRow for Turn {
    fn key(turn: &TurnKey) -> Vec<u8> {
        [&Lock::key(&turn.lock)[..], &[END], &turn.number.to_be_bytes()].concat()
    }

    fn position_key(turn: &TurnKey) -> Vec<u8> {
        Self::key(turn)
    }

    fn read_key(bytes: &[u8]) -> Option<TurnKey> {
        let (path, number) = bytes.split_last_chunk()?;
        let lock = Lock::read_key(path.strip_suffix(&[END])?)?;
        Some(TurnKey { lock, number: u64::from_be_bytes(*number) })
    }

    fn read_position(bytes: &[u8], _: &[u8]) -> Option<TurnKey> {
        Self::read_key(bytes)
    }

    fn value(&self) -> Result<Vec<u8>> {
        encode(&stored::Turn::from(self))
    }

    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self> {
        rows.decode::<stored::Turn>(bytes).map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn path() -> impl Strategy<Value = LockPath> {
        ("[a-c.\u{e9}]{1,4}", "[ -c\u{e9}\u{1f600}]{1,3}")
            .prop_filter_map("a path", |(namespace, key)| LockPath::parse_joined(&namespace, &key).ok())
    }

    fn session_order() -> impl Strategy<Value = SessionOrder> {
        (any::<bool>(), 0_u64..300, any::<u128>()).prop_map(|(is_live, at, id)| {
            let id = SessionId(Uuid::from_u128(id));
            if is_live { SessionOrder::Live(id) } else { SessionOrder::Ended(Timestamp::from_micros(at), id) }
        })
    }

    fn lock_order() -> impl Strategy<Value = LockOrder> {
        (0..5, 0_u64..300, path()).prop_map(|(list, at, path)| match list {
            0 => LockOrder::Held(path),
            1 => LockOrder::Withheld(path),
            2 => LockOrder::Orphaned(path),
            3 => LockOrder::SetAside(path),
            _ => LockOrder::Free(Timestamp::from_micros(at), path),
        })
    }

    fn turn() -> impl Strategy<Value = TurnKey> {
        (path(), any::<u64>()).prop_map(|(lock, number)| TurnKey { lock, number })
    }

    proptest! {
        #[test]
        fn k08_byte_order_is_the_order_of_positions(
            sessions in (session_order(), session_order()), locks in (lock_order(), lock_order()),
            turns in (turn(), turn()), asks in (any::<[u128; 2]>(), any::<[u128; 2]>()),
        ) {
            fn in_order<K: KeyedRow>(a: &K::Position, b: &K::Position) -> bool {
                K::position_key(a).cmp(&K::position_key(b)) == a.cmp(b)
            }
            let ask = |[session, ask]: [u128; 2]| (SessionId(Uuid::from_u128(session)), AskId(Uuid::from_u128(ask)));
            prop_assert!(in_order::<Session>(&sessions.0, &sessions.1));
            prop_assert!(in_order::<Lock>(&locks.0, &locks.1));
            prop_assert!(in_order::<Turn>(&turns.0, &turns.1));
            prop_assert!(in_order::<Ask>(&ask(asks.0), &ask(asks.1)));
        }

        #[test]
        fn keys_of_locks_read_back(session in session_order(), lock in lock_order(), turn in turn(), id: u128) {
            let (SessionOrder::Live(session_id) | SessionOrder::Ended(_, session_id)) = &session;
            let (LockOrder::Held(path) | LockOrder::Withheld(path) | LockOrder::Free(_, path)
                | LockOrder::Orphaned(path) | LockOrder::SetAside(path)) = &lock;
            prop_assert_eq!(Session::read_position(&Session::position_key(&session), &[]), Some(*session_id));
            prop_assert_eq!(Lock::read_position(&Lock::position_key(&lock), &[]), Some(path.clone()));
            prop_assert_eq!(Turn::read_key(&Turn::key(&turn)), Some(turn));
            let ask = AskId(Uuid::from_u128(id));
            prop_assert_eq!(Ask::read_position(&Ask::position_key(&(*session_id, ask)), &[]), Some(ask));
        }
    }
}
