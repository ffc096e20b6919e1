//! The ordered reads of sessions and locks: the first asks of a session, and the first turns of a
//! lock.

use std::ops::Bound;

use uuid::Uuid;

use crate::lock::{Ask, AskId, LockPath, Turn, TurnKey};
use crate::rows::OrderedRead;
use crate::session::{MAX_ASKS_PER_SESSION, SessionId};

/// Returns the read of all asks of a session. Its limit is one above [`MAX_ASKS_PER_SESSION`], so
/// the answer always reaches the end of the list.
pub fn asks_of(session: SessionId) -> OrderedRead<Ask> {
    let (from, to) = ((session, AskId(Uuid::nil())), (session, AskId(Uuid::max())));
    OrderedRead { from: Bound::Included(from), to: Bound::Included(to), limit: MAX_ASKS_PER_SESSION as usize + 1 }
}

/// Returns the session whose asks a read returns, `None` for any other read.
pub fn session_of(read: &OrderedRead<Ask>) -> Option<SessionId> {
    match &read.from {
        Bound::Included((session, _)) => Some(*session),
        Bound::Excluded(_) | Bound::Unbounded => None,
    }
}

/// Returns the read of the first turns in the queue of a lock.
pub fn queue_of(lock: &LockPath, limit: usize) -> OrderedRead<Turn> {
    let turn = |number| Bound::Included(TurnKey { lock: lock.clone(), number });
    OrderedRead { from: turn(0), to: turn(u64::MAX), limit }
}

/// Returns the lock whose turns a read returns, `None` for any other read.
pub fn lock_of(read: &OrderedRead<Turn>) -> Option<&LockPath> {
    match &read.from {
        Bound::Included(turn) => Some(&turn.lock),
        Bound::Excluded(_) | Bound::Unbounded => None,
    }
}
