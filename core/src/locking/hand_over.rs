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

    /// Grants a lock, or the slot of it with this number, to an ask. There must be
    /// [room](Lock::room_for).
    pub(super) fn grant(&mut self, path: &LockPath, lock: &mut Lock, slot: u32, id: AskId, ask: &Ask) -> HeldSlot {
        let fence = match ask.share.filter(|_| slot > 0) {
            None => self.hold(path, lock, id, ask),
            Some(share) => {
                let (at, mut row) = (path.slot_path(slot), Lock { reaped: lock.reaped, ..Lock::new(self.now) });
                let fence = self.hold(&at, &mut row, id, ask);
                self.changes.locks.push((at, Some(row)));
                lock.set_slot(slot, share, true);
                lock.updated_at = self.now;
                fence
            }
        };
        HeldSlot { fence, slot }
    }

    /// Grants the lock or slot of this row to an ask, and returns the fence.
    pub(super) fn hold(&mut self, at: &LockPath, row: &mut Lock, id: AskId, ask: &Ask) -> Fence {
        let fence = draw(&mut self.newest);
        self.changes.fence = Some(fence);
        row.state = LockState::Held(Grant { ask: id, session: ask.session, fence, granted_at: self.now });
        row.updated_at = self.now;
        let ask = Ask { state: AskState::Holding(fence), lock: at.clone(), ..ask.clone() };
        self.changes.asks.push((id, Some(ask)));
        fence
    }

    /// Ends a grant of a lock, or of a slot of it: see [`Lock::end`].
    pub(super) fn end(
        &mut self,
        held: &mut HeldAt,
        (grant, end, value): (Grant, GrantEnd, LockValue),
        withheld: Option<Withholding>,
    ) {
        let ended = Ended { grant, end, value, ended_at: self.now };
        match &mut held.slot {
            None => held.lock.end(ended, withheld),
            Some(row) => {
                row.end(ended, withheld);
                // The row of a free slot goes, and the lock keeps the end in its place.
                if row.state == LockState::Free {
                    held.lock.last = row.last.take();
                }
            }
        }
        self.changes.asks.push((grant.ask, None));
        self.give_back(held);
    }

    /// Gives a slot back to its lock if nobody holds it and nobody may still work under it.
    pub(super) fn give_back(&mut self, held: &mut HeldAt) {
        let Some(row) = held.slot.take() else { return };
        let is_free = row.state == LockState::Free;
        if let LockState::Divided(division) = held.lock.state
            && is_free
        {
            held.lock.set_slot(held.path.slot(), division.share, false);
            held.lock.updated_at = self.now;
        }
        self.changes.locks.push((held.path.clone(), (!is_free).then_some(row)));
    }

    /// Removes asks from the queue of a lock, with their rows.
    pub(super) fn remove_waiting(&mut self, path: &LockPath, lock: &mut Lock, leaving: &[(AskId, u64)]) {
        for (ask, number) in leaving {
            lock.waiting = lock.waiting.saturating_sub(1);
            self.changes.turns.push((TurnKey { lock: path.clone(), number: *number }, None));
            self.changes.asks.push((*ask, None));
        }
    }

    /// Removes the asks `leaving` from the lock's queue, and adds the lock to the changes. A lock with
    /// room goes to the first asks that remain in the queue: to one, or to several that share it.
    ///
    /// # Errors
    /// The store failed.
    pub(super) fn finish<T: Transaction>(
        &mut self,
        tx: &T,
        path: &LockPath,
        mut lock: Lock,
        leaving: &[(AskId, u64)],
    ) -> Result<(), T::Error> {
        self.remove_waiting(path, &mut lock, leaving);
        let mut served = 0;
        while lock.waiting > 0 && lock.has_room() {
            // The stored queue still has the asks that leave with this command, and those served.
            let first = tx.first::<Turn>(&queue_of(path, leaving.len() + served + 1))?;
            let is_leaving = |key: &&TurnKey| leaving.iter().any(|(_, number)| *number == key.number);
            let key = first.iter().filter(|key| !is_leaving(key)).nth(served).ok_or(BrokenState::LockWithoutTurn)?;
            let id = tx.row::<Turn>(key)?.ok_or(BrokenState::LockWithoutTurn)?.ask;
            let ask = tx.row::<Ask>(&id)?.ok_or(BrokenState::TurnWithoutAsk(id))?;
            let Some(slot) = lock.room_for(ask.share) else { break };
            lock.waiting -= 1;
            lock.served_turn = key.number;
            self.changes.turns.push((key.clone(), None));
            self.grant(path, &mut lock, slot, id, &ask.clone());
            served += 1;
        }
        self.changes.locks.push((path.clone(), Some(lock)));
        Ok(())
    }
}

/// A lock or a slot of it, with the row of the lock and that of the slot.
pub(super) struct HeldAt {
    /// The path of the lock or of the slot.
    pub(super) path: LockPath,
    /// The row of the lock.
    pub(super) lock: Lock,
    /// The row of the slot; `None` for the lock itself.
    pub(super) slot: Option<Lock>,
}

impl HeldAt {
    /// Reads the rows of a lock or of a slot. `None` if there is none.
    ///
    /// # Errors
    /// The store failed.
    pub(super) fn read<T: Transaction>(tx: &T, path: &LockPath) -> Result<Option<Self>, T::Error> {
        let Some(row) = tx.row::<Lock>(path)?.cloned() else { return Ok(None) };
        if path.slot() == 0 {
            return Ok(Some(Self { path: path.clone(), lock: row, slot: None }));
        }
        let lock = tx.row::<Lock>(&path.base())?.ok_or(BrokenState::SlotWithoutLock)?.clone();
        Ok(Some(Self { path: path.clone(), lock, slot: Some(row) }))
    }

    /// Returns the row of the slot, or of the lock itself.
    pub(super) fn row(&self) -> &Lock {
        self.slot.as_ref().unwrap_or(&self.lock)
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
    /// The lock or slot that the ask holds.
    pub hold: HeldSlot,
}

impl Granted {
    /// Returns the grant with the fence that the store has assigned to it.
    #[must_use]
    pub fn with_fences(self, fences: &Fences) -> Self {
        Self { hold: self.hold.with_fences(fences), ..self }
    }
}

/// What an ask holds: a lock, or a slot of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldSlot {
    /// The fence of the grant.
    pub fence: Fence,
    /// The number of the slot; 0 if the ask holds the lock alone.
    pub slot: u32,
}

impl HeldSlot {
    /// Returns the hold with the fence that the store has assigned to it.
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
        let hold = HeldSlot { fence, slot: ask.lock.slot() };
        is_new.then_some(Granted { ask: change.key, session: ask.session, hold })
    })
}
