//! The code that is shared by every command that ends a grant: the same write gives the lock to the
//! next ask (K09).

use super::draw;
use super::reads::queue_of;
use crate::lease::{Fence, Fences};
use crate::lock::{
    Ask, AskId, AskState, Ended, Grant, GrantEnd, Lock, LockPath, LockState, LockValue, Turn, TurnKey, Withholding,
};
use crate::rows::{Changes, NetChanges};
use crate::session::{Session, SessionId};
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Transaction};

/// The changes that one command has gathered so far, and the newest fence given out.
pub(super) struct Draft {
    changes: Changes,
    newest: Fence,
    now: Timestamp,
}

impl Draft {
    pub(super) fn new<T: Transaction>(tx: &T, now: Timestamp) -> Result<Self, T::Error> {
        Ok(Self { changes: Changes::default(), newest: tx.last_fence()?, now })
    }

    /// Returns the changes gathered so far, so that a command can add its own.
    pub(super) fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    pub(super) fn into_changes(self) -> Changes {
        self.changes
    }

    /// Writes the changes, with the new row of the session whose asks they change.
    pub(super) fn write<T: Transaction>(mut self, tx: &mut T, id: SessionId, session: Session) -> Result<(), T::Error> {
        self.changes.sessions.push((id, Some(session)));
        tx.write(self.changes)
    }

    /// Grants a free lock to an ask and returns the fence.
    pub(super) fn grant(&mut self, lock: &mut Lock, id: AskId, ask: &Ask) -> Fence {
        let fence = draw(&mut self.newest);
        self.changes.fence = Some(fence);
        lock.state = LockState::Held(Grant { ask: id, session: ask.session, fence, granted_at: self.now });
        lock.updated_at = self.now;
        self.changes.asks.push((id, Some(Ask { state: AskState::Holding(fence), ..ask.clone() })));
        fence
    }

    /// Ends a grant, and keeps the end in `lock.last`. The lock is withheld if its holder may still work
    /// under it; else it is orphaned if a cleanup is due, and free if none is.
    pub(super) fn end(
        &mut self,
        lock: &mut Lock,
        grant: Grant,
        end: GrantEnd,
        value: LockValue,
        withheld: Option<Withholding>,
    ) {
        lock.obituary = lock.obituary_after(&grant, end, self.now);
        lock.last = Some(Ended { grant, end, value, ended_at: self.now });
        lock.state = withheld.map_or(lock.rest(), LockState::Withheld);
        lock.updated_at = self.now;
        self.changes.asks.push((grant.ask, None));
    }

    /// Removes asks from the queue of a lock, with their rows.
    pub(super) fn remove_waiting(&mut self, path: &LockPath, lock: &mut Lock, leaving: &[(AskId, u64)]) {
        for (ask, number) in leaving {
            lock.waiting = lock.waiting.saturating_sub(1);
            self.changes.turns.push((TurnKey { lock: path.clone(), number: *number }, None));
            self.changes.asks.push((*ask, None));
        }
    }

    /// Removes the asks `leaving` from the lock's queue, and adds the lock to the changes. A free
    /// lock goes to the first ask that remains in the queue.
    pub(super) fn finish<T: Transaction>(
        &mut self,
        tx: &T,
        path: &LockPath,
        mut lock: Lock,
        leaving: &[(AskId, u64)],
    ) -> Result<(), T::Error> {
        self.remove_waiting(path, &mut lock, leaving);
        if lock.state == LockState::Free && lock.waiting > 0 {
            self.serve(tx, path, &mut lock, leaving)?;
        }
        self.changes.locks.push((path.clone(), Some(lock)));
        Ok(())
    }

    fn serve<T: Transaction>(
        &mut self,
        tx: &T,
        path: &LockPath,
        lock: &mut Lock,
        leaving: &[(AskId, u64)],
    ) -> Result<(), T::Error> {
        // The stored queue still has the asks that leave with this command.
        let first = tx.first::<Turn>(&queue_of(path, leaving.len() + 1))?;
        let is_leaving = |key: &&TurnKey| leaving.iter().any(|(_, number)| *number == key.number);
        let key = first.iter().find(|key| !is_leaving(key)).ok_or(BrokenState::LockWithoutTurn)?;
        let id = tx.row::<Turn>(key)?.ok_or(BrokenState::LockWithoutTurn)?.ask;
        let ask = tx.row::<Ask>(&id)?.ok_or(BrokenState::TurnWithoutAsk(id))?.clone();
        lock.waiting -= 1;
        lock.served_turn = key.number;
        self.changes.turns.push((key.clone(), None));
        self.grant(lock, id, &ask);
        Ok(())
    }
}

/// A grant that a group of commands has written. The host tells the waiting caller. A caller that
/// misses the message gets the same grant by asking again (K05).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The ask that holds its lock now.
    pub ask: AskId,
    /// The session of the ask.
    pub session: SessionId,
    /// The fence of the grant.
    pub fence: Fence,
}

impl Granted {
    /// Returns the grant with the fence that the store has assigned to it.
    #[must_use]
    pub fn with_fences(self, fences: &Fences) -> Self {
        Self { fence: fences.of_grant(self.fence), ..self }
    }
}

/// Returns the grants that the saved changes of a group have made, in no particular order. If the
/// store is shared, their fences are placeholders: see [`Granted::with_fences`].
pub fn granted(changes: &NetChanges) -> impl Iterator<Item = Granted> {
    changes.asks.iter().filter_map(|change| {
        let is_waiting = |ask: &Ask| matches!(ask.state, AskState::Waiting(_));
        let ask = change.after.as_ref()?;
        let AskState::Holding(fence) = ask.state else { return None };
        let is_new = change.before.as_ref().is_none_or(is_waiting);
        is_new.then_some(Granted { ask: change.key, session: ask.session, fence })
    })
}
