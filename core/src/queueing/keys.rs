//! The rows that a group of queue commands reads.

use rustc_hash::FxHashMap;

use super::QueueCommand;
use super::pause::PauseScope;
use super::reads::{taken_of, waiting_of};
use crate::queue::{Lane, LanePath, MAX_BATCH_REQUESTS, Request, RequestId};
use crate::rows::{Keys, Workspace};

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

/// The reads of a group of queue commands, gathered command by command.
#[derive(Default)]
pub(crate) struct QueueReads {
    lanes: FxHashMap<LanePath, Touches>,
    // The number of requests to withdraw whose lane is not known: the group itself may submit them.
    withdraws: usize,
}

impl QueueReads {
    /// Adds to `keys` the keys of the rows that a command reads, as far as they are known.
    pub(crate) fn add(&mut self, command: &QueueCommand, workspace: &Workspace, keys: &mut Keys) {
        match command {
            QueueCommand::Submit(submit) => {
                for new in submit.requests() {
                    keys.requests.push(new.request);
                    self.touch(&new.lane);
                }
            }
            QueueCommand::Take(take) => {
                keys.sessions.push(take.worker.session);
                self.touch(&take.lane).takes += 1;
            }
            QueueCommand::NoteProgress(note) => {
                keys.sessions.push(note.worker.session);
                self.touch(&note.lane);
            }
            QueueCommand::SettleWork(settle) => {
                keys.sessions.push(settle.worker.session);
                self.touch(&settle.lane).ends += 1;
            }
            QueueCommand::Reclaim(reclaim) => {
                let lane = workspace.row::<Lane>(&reclaim.lane).ok().flatten();
                let hold = lane.and_then(Lane::hold);
                keys.sessions.extend(hold.map(|hold| hold.session));
                self.touch(&reclaim.lane).ends += 1;
            }
            QueueCommand::Withdraw(withdraw) => {
                // The net effect of a group has a deleted row only if it was loaded.
                keys.bodies.push(withdraw.request);
                match self.touch_request(withdraw.request, workspace, keys) {
                    Some(touches) => touches.withdraws += 1,
                    None => self.withdraws += 1,
                }
            }
            QueueCommand::Resubmit(resubmit) => _ = self.touch_request(resubmit.request, workspace, keys),
            QueueCommand::ForgetRequest(forget) => {
                keys.bodies.push(forget.request);
                self.touch_request(forget.request, workspace, keys);
            }
            QueueCommand::Pause(pause) => match &pause.scope {
                PauseScope::Queue(queue) => keys.queues.push(queue.clone()),
                PauseScope::Lane(lane) => _ = self.touch(lane),
            },
            QueueCommand::LimitQueue(limit) => keys.queues.push(limit.queue.clone()),
            QueueCommand::ForgetLane(forget) => _ = self.touch(&forget.lane),
        }
    }

    fn touch(&mut self, path: &LanePath) -> &mut Touches {
        self.lanes.entry(path.clone()).or_default()
    }

    fn touch_request(&mut self, id: RequestId, workspace: &Workspace, keys: &mut Keys) -> Option<&mut Touches> {
        keys.requests.push(id);
        let request = workspace.row::<Request>(&id).ok().flatten()?;
        Some(self.touch(&request.lane))
    }

    /// Adds the rows of the lanes and the reads of their requests: the taken ones, and as many that wait as
    /// the group can take, and one more. Must be called after [`add`](Self::add) was called for every
    /// command of the group.
    pub(crate) fn finish(self, keys: &mut Keys) {
        for (path, touches) in self.lanes {
            let withdraws = touches.withdraws + self.withdraws;
            if touches.takes + touches.ends > 0 {
                keys.queues.push(path.queue().clone());
                keys.requests_of_lane.push(taken_of(&path));
            }
            if touches.takes + touches.ends + withdraws > 0 {
                let most = touches.takes * MAX_BATCH_REQUESTS + withdraws + 1;
                keys.requests_of_lane.push(waiting_of(&path, most));
            }
            keys.lanes.push(path);
        }
    }
}
