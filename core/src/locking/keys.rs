//! The rows that a group of lock commands reads.

use rustc_hash::FxHashMap;

use super::LockCommand;
use super::acquire::Acquire;
use super::end::End;
use super::reads::{asks_of, queue_of};
use crate::division::MAX_SLOTS;
use crate::lock::{Ask, AskId, AskState, Grant, Lock, LockPath, LockState, Turn, TurnKey};
use crate::rows::{Keys, Workspace};

/// Counts of the changes that a group's commands make to one lock.
#[derive(Default)]
struct Touches {
    // The number of asks that the group adds to the lock's queue.
    adds: usize,
    // The number of grants that end, and of asks that leave the queue.
    ends: usize,
    // True if a command of the group takes the lock from its holder, which may be an ask that the
    // same group served.
    is_forced: bool,
}

impl Touches {
    /// Returns the most asks that the group may serve because they share the lock: as many as slots are
    /// free or become free. If the lock may become free, another kind of asks may divide it anew.
    fn most_sharing(&self, lock: Option<&Lock>) -> usize {
        let all = MAX_SLOTS as usize;
        let room = match lock.map(|lock| lock.state) {
            Some(LockState::Divided(division)) if self.ends < division.taken() as usize => {
                (division.share.slots() as usize).saturating_sub(division.taken() as usize)
            }
            _ => all,
        };
        self.ends + room
    }
}

/// The reads of a group of lock commands, gathered command by command.
///
/// The first turns of a lock's queue must be loaded, as many as the group can serve. Each end of a
/// grant serves at most one ask that wants the lock alone, and an ask that the group adds may itself be
/// ended by the group. So it suffices to read one turn more than the number of adds, of ends, and of the
/// first asks that may be served because they share the lock.
#[derive(Default)]
pub(crate) struct LockReads {
    locks: FxHashMap<LockPath, Touches>,
}

impl LockReads {
    /// Adds to `keys` the keys of the rows that a command reads, as far as they are known.
    pub(crate) fn add(&mut self, command: &LockCommand, workspace: &Workspace, keys: &mut Keys) {
        match command {
            LockCommand::Open(open) => keys.sessions.push(open.session),
            LockCommand::Renew(renew) => keys.sessions.push(renew.session),
            LockCommand::ForgetSession(forget) => keys.sessions.push(forget.session),
            LockCommand::ForgetLock(forget) => keys.locks.push(forget.lock.clone()),
            LockCommand::Acquire(acquire) => self.add_acquire(acquire, workspace, keys),
            LockCommand::AcquireAll(all) => {
                all.acquires().iter().for_each(|acquire| self.add_acquire(acquire, workspace, keys));
            }
            LockCommand::Release(release) => {
                keys.sessions.push(release.session);
                self.touch(&release.lock, workspace, keys).ends += 1;
            }
            LockCommand::Leave(leave) => {
                keys.sessions.push(leave.session);
                self.end_ask(leave.ask, workspace, keys);
            }
            LockCommand::Reap(reap) => {
                keys.sessions.push(reap.session);
                keys.asks.push(reap.ask);
                // The group itself may end the cleanup that it begins.
                self.touch(&reap.lock, workspace, keys).ends += 1;
            }
            LockCommand::Resolve(resolve) => self.touch(&resolve.lock, workspace, keys).ends += 1,
            LockCommand::Elapse(elapse) => self.touch(&elapse.lock, workspace, keys).ends += 1,
            LockCommand::Force(force) => {
                let touches = self.touch(&force.lock, workspace, keys);
                (touches.ends, touches.is_forced) = (touches.ends + 1, true);
                keys.sessions.extend(grant_of(&force.lock, workspace).map(|grant| grant.session));
            }
            LockCommand::End(End { session, .. }) => {
                keys.sessions.push(*session);
                keys.asks_of_session.push(asks_of(*session));
                let asks = workspace.first(&asks_of(*session)).unwrap_or_default();
                asks.into_iter().for_each(|ask| self.end_ask(ask, workspace, keys));
            }
        }
    }

    fn add_acquire(&mut self, acquire: &Acquire, workspace: &Workspace, keys: &mut Keys) {
        keys.sessions.push(acquire.session);
        keys.asks.push(acquire.ask);
        self.touch(&acquire.lock, workspace, keys).adds += 1;
    }

    /// Adds the reads of the locks' queues. Must be called after [`add`](Self::add) was called for
    /// every command of the group.
    pub(crate) fn finish(self, workspace: &Workspace, keys: &mut Keys) {
        for (path, touches) in self.locks {
            let lock = workspace.row::<Lock>(&path).ok().flatten();
            let waiting = lock.map_or(0, |lock| lock.waiting);
            // The queue is not read if the group can't serve it: the group only adds one ask, or it
            // adds none while nobody waits. If the lock has room, the one ask may leave before others.
            let is_full = waiting == 0 || lock.is_none_or(|lock| !lock.has_room());
            if is_full && (touches.adds, touches.ends) == (1, 0) || touches.adds == 0 && waiting == 0 {
                continue;
            }
            let ask_of = |turn: &TurnKey| workspace.row::<Turn>(turn).ok().flatten().map(|turn| turn.ask);
            let (needed, most) = (touches.adds + touches.ends + 1, touches.most_sharing(lock));
            let mut read = queue_of(&path, needed);
            let mut turns = workspace.first(&read).unwrap_or_default();
            // Each round may load more asks that share the lock, behind which one more must be known.
            loop {
                let asks = turns.iter().filter_map(ask_of).filter_map(|id| workspace.row::<Ask>(&id).ok().flatten());
                let sharing = asks.filter(|ask| ask.share.is_some()).count().min(most);
                if needed + sharing <= read.limit {
                    break;
                }
                read.limit = needed + sharing;
                match workspace.first(&read) {
                    Ok(more) => turns = more,
                    Err(_) => break,
                }
            }
            for id in turns.iter().filter_map(ask_of) {
                keys.asks.push(id);
                let ask = workspace.row::<Ask>(&id).ok().flatten();
                keys.sessions.extend(ask.filter(|_| touches.is_forced).map(|ask| ask.session));
            }
            keys.turns_of_lock.push(read);
        }
    }

    fn touch(&mut self, path: &LockPath, workspace: &Workspace, keys: &mut Keys) -> &mut Touches {
        keys.locks.push(path.clone());
        keys.asks.extend(grant_of(path, workspace).map(|grant| grant.ask));
        let base = path.base();
        if base != *path {
            keys.locks.push(base.clone());
        }
        self.locks.entry(base).or_default()
    }

    fn end_ask(&mut self, id: AskId, workspace: &Workspace, keys: &mut Keys) {
        keys.asks.push(id);
        let Some(ask) = workspace.row::<Ask>(&id).ok().flatten() else { return };
        self.touch(&ask.lock, workspace, keys).ends += 1;
        if let AskState::Waiting(number) = ask.state {
            keys.turns.push(TurnKey { lock: ask.lock.clone(), number });
        }
    }
}

fn grant_of<'a>(path: &LockPath, workspace: &'a Workspace) -> Option<&'a Grant> {
    workspace.row::<Lock>(path).ok().flatten()?.grant()
}
