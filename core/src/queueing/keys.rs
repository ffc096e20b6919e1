//! The rows that a group of commands reads, and the workspace that they are loaded into.

use rustc_hash::FxHashMap;

use super::pause::PauseScope;
use super::reads::{taken_of, waiting_of};
use super::{QueueCommand, QueueTransaction, rows};
use crate::lease::Fence;
use crate::queue::{Lane, LanePath, MAX_BATCH_REQUESTS, Request, RequestId};
use crate::rows::{Changes, Keys, Kind, NetChanges, OrderedRead, Workspace};
use crate::transaction::{BrokenState, Transaction};

/// The keys of the rows of both families that commands of queues read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueKeys {
    /// The keys of the rows of sessions.
    pub sessions: Keys,
    /// The keys of the rows of queues.
    pub queue: rows::Keys,
}

/// The rows of both families that are loaded for a group of commands, as the commands so far have left
/// them.
#[derive(Debug, Default)]
pub struct QueueWorkspace {
    /// The rows of sessions, and the newest fence given out.
    pub sessions: Workspace,
    /// The rows of queues.
    pub queue: rows::Workspace,
}

impl QueueWorkspace {
    /// Returns an empty workspace. `fence` is the newest fence that the store has given out.
    pub fn new(fence: Fence) -> Self {
        Self { sessions: Workspace::new(fence), ..Self::default() }
    }

    /// Returns the keys of the rows that `commands` read and that are not loaded yet. A host loads these
    /// rows and calls this method again until no key is missing.
    pub fn missing<'a>(&self, commands: impl IntoIterator<Item = &'a QueueCommand>) -> QueueKeys {
        let mut keys = self.keys(commands);
        self.sessions.retain_missing(&mut keys.sessions);
        self.queue.retain_missing(&mut keys.queue);
        keys
    }

    /// Returns the keys of the rows that `commands` read, as far as they are known.
    fn keys<'a>(&self, commands: impl IntoIterator<Item = &'a QueueCommand>) -> QueueKeys {
        let (mut keys, mut reads) = (QueueKeys::default(), QueueReads::default());
        commands.into_iter().for_each(|command| reads.add(command, self, &mut keys));
        reads.finish(&mut keys);
        keys
    }

    /// Returns true if an earlier command of the group has written a row that `command` reads. A host of a
    /// shared store then runs the command in the next group.
    pub fn has_changed(&self, command: &QueueCommand) -> bool {
        let keys = self.keys([command]);
        self.sessions.has_written(&keys.sessions) || self.queue.has_written(&keys.queue)
    }

    /// Returns the net effect of all commands on the rows of both families, for the store to write.
    pub fn into_changes(self) -> (NetChanges, rows::NetChanges) {
        (self.sessions.into_changes(), self.queue.into_changes())
    }

    fn lane(&self, path: &LanePath) -> Option<&Lane> {
        self.queue.row::<Lane>(path).ok().flatten()
    }

    fn request(&self, id: RequestId) -> Option<&Request> {
        self.queue.row::<Request>(&id).ok().flatten()
    }
}

impl QueueKeys {
    /// Returns true if these keys name no row to load.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.queue.is_empty()
    }
}

impl Transaction for QueueWorkspace {
    type Error = BrokenState;

    fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, BrokenState> {
        Transaction::row(&self.sessions, key)
    }

    fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, BrokenState> {
        Transaction::first(&self.sessions, read)
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        self.sessions.last_fence()
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        Transaction::write(&mut self.sessions, changes)
    }
}

impl QueueTransaction for QueueWorkspace {
    fn queue_row<K: rows::Kind>(&self, key: &K::Key) -> Result<Option<&K>, BrokenState> {
        Ok(self.queue.row(key)?)
    }

    fn queue_first<K: rows::Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, BrokenState> {
        Ok(self.queue.first(read)?)
    }

    fn write_queue(&mut self, changes: Changes, queue: rows::Changes) -> Result<(), BrokenState> {
        self.sessions.write(changes);
        self.queue.write(queue);
        Ok(())
    }
}

/// Counts of the changes that a group's commands make to one lane.
#[derive(Default)]
struct Touches {
    // The number of takes, each of which takes up to `MAX_BATCH_REQUESTS` requests.
    takes: usize,
    // The number of holds that the group may end. After each, the first request that waits must be known.
    ends: usize,
    // The number of requests that the group may withdraw.
    withdraws: usize,
}

/// The reads of a group of commands, gathered command by command.
#[derive(Default)]
struct QueueReads {
    lanes: FxHashMap<LanePath, Touches>,
    // The number of requests to withdraw whose lane is not known: the group itself may submit them.
    withdraws: usize,
}

impl QueueReads {
    fn add(&mut self, command: &QueueCommand, workspace: &QueueWorkspace, keys: &mut QueueKeys) {
        match command {
            QueueCommand::Submit(submit) => {
                for new in submit.requests() {
                    keys.queue.requests.push(new.request);
                    self.touch(&new.lane);
                }
            }
            QueueCommand::Take(take) => {
                keys.sessions.sessions.push(take.worker.session);
                self.touch(&take.lane).takes += 1;
            }
            QueueCommand::NoteProgress(note) => {
                keys.sessions.sessions.push(note.worker.session);
                self.touch(&note.lane);
            }
            QueueCommand::SettleWork(settle) => {
                keys.sessions.sessions.push(settle.worker.session);
                self.touch(&settle.lane).ends += 1;
            }
            QueueCommand::Reclaim(reclaim) => {
                let hold = workspace.lane(&reclaim.lane).and_then(Lane::hold);
                keys.sessions.sessions.extend(hold.map(|hold| hold.session));
                self.touch(&reclaim.lane).ends += 1;
            }
            QueueCommand::Withdraw(withdraw) => {
                // The net effect of a group has a deleted row only if it was loaded.
                keys.queue.bodies.push(withdraw.request);
                match self.touch_request(withdraw.request, workspace, keys) {
                    Some(touches) => touches.withdraws += 1,
                    None => self.withdraws += 1,
                }
            }
            QueueCommand::Resubmit(resubmit) => _ = self.touch_request(resubmit.request, workspace, keys),
            QueueCommand::ForgetRequest(forget) => {
                keys.queue.bodies.push(forget.request);
                self.touch_request(forget.request, workspace, keys);
            }
            QueueCommand::Pause(pause) => match &pause.scope {
                PauseScope::Queue(queue) => keys.queue.queues.push(queue.clone()),
                PauseScope::Lane(lane) => _ = self.touch(lane),
            },
            QueueCommand::LimitQueue(limit) => keys.queue.queues.push(limit.queue.clone()),
            QueueCommand::ForgetLane(forget) => _ = self.touch(&forget.lane),
        }
    }

    fn touch(&mut self, path: &LanePath) -> &mut Touches {
        self.lanes.entry(path.clone()).or_default()
    }

    fn touch_request(
        &mut self,
        id: RequestId,
        workspace: &QueueWorkspace,
        keys: &mut QueueKeys,
    ) -> Option<&mut Touches> {
        keys.queue.requests.push(id);
        workspace.request(id).map(|request| self.touch(&request.lane))
    }

    /// Adds the rows of the lanes and the reads of their requests: the taken ones, and as many that wait as
    /// the group can take, and one more.
    fn finish(self, keys: &mut QueueKeys) {
        for (path, touches) in self.lanes {
            let withdraws = touches.withdraws + self.withdraws;
            if touches.takes + touches.ends > 0 {
                keys.queue.queues.push(path.queue().clone());
                keys.queue.requests_of_lane.push(taken_of(&path));
            }
            if touches.takes + touches.ends + withdraws > 0 {
                let most = touches.takes * MAX_BATCH_REQUESTS + withdraws + 1;
                keys.queue.requests_of_lane.push(waiting_of(&path, most));
            }
            keys.queue.lanes.push(path);
        }
    }
}
