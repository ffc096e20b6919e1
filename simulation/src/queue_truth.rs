//! The true history of a queue, which no participant knows: the requests that fronts have submitted,
//! and the batches that workers have taken. The checks compare it with the service's rows.

use leasehold_core::lease::Fence;
use smallvec::SmallVec;

use crate::queue_message::{BatchOutcome, WorkKind};

/// The true history of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestTruth {
    /// The number of the cell whose front submits the request.
    pub cell: u8,
    /// The lane of the request.
    pub lane: u8,
    /// The kind of the request.
    pub kind: WorkKind,
    /// The place of the request among all that the service has added, `None` before.
    pub added: Option<u32>,
    /// True if a worker has written the request's work to the resource.
    pub is_written: bool,
    /// The number of workers that have died of the request.
    pub deaths: u32,
}

/// The true history of a worker's hold of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldTruth {
    /// The fence of the hold.
    pub fence: Fence,
    /// The lane of the hold.
    pub lane: u8,
    /// The number of the worker's cell.
    pub cell: u8,
    /// The numbers of the requests that were taken.
    pub requests: SmallVec<[u32; 4]>,
    /// The settle by which the worker ended the hold, `None` if it has not settled.
    pub settled: Option<BatchOutcome>,
}

/// The true history of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueTruth {
    requests: Vec<RequestTruth>,
    holds: Vec<HoldTruth>,
    added: u32,
}

impl QueueTruth {
    /// Notes a request that a front is going to submit, and returns its number, from 1.
    pub fn submit(&mut self, cell: u8, lane: u8, kind: WorkKind) -> u32 {
        self.requests.push(RequestTruth { cell, lane, kind, added: None, is_written: false, deaths: 0 });
        self.requests.len() as u32
    }

    /// Returns the requests with their numbers.
    pub fn requests(&self) -> impl Iterator<Item = (u32, &RequestTruth)> {
        (1..).zip(&self.requests)
    }

    /// Returns the request with this number, `None` if there is none.
    pub fn request(&self, number: u32) -> Option<&RequestTruth> {
        self.requests.get((number as usize).checked_sub(1)?)
    }

    fn request_mut(&mut self, number: u32) -> Option<&mut RequestTruth> {
        self.requests.get_mut((number as usize).checked_sub(1)?)
    }

    /// Returns the holds in the order of their takes.
    pub fn holds(&self) -> &[HoldTruth] {
        &self.holds
    }

    /// Returns the hold with this fence, `None` if there is none.
    pub fn hold(&self, fence: Fence) -> Option<&HoldTruth> {
        self.holds.iter().rfind(|hold| hold.fence == fence)
    }

    /// Notes that the service has added a request to its lane. Returns false if it had before.
    pub fn add(&mut self, number: u32) -> bool {
        let added = self.added + 1;
        let Some(request) = self.request_mut(number).filter(|request| request.added.is_none()) else { return false };
        request.added = Some(added);
        self.added = added;
        true
    }

    /// Notes that a worker has taken requests, unless the hold is known.
    pub fn take(&mut self, hold: HoldTruth) {
        if self.hold(hold.fence).is_none() {
            self.holds.push(hold);
        }
    }

    /// Notes that the worker with this fence has settled.
    pub fn settle(&mut self, fence: Fence, outcome: BatchOutcome) {
        let hold = self.holds.iter_mut().rfind(|hold| hold.fence == fence);
        hold.into_iter().for_each(|hold| hold.settled = Some(outcome));
    }

    /// Notes that the worker with this fence has written its work to the resource.
    pub fn write(&mut self, fence: Fence) {
        let requests = self.hold(fence).map(|hold| hold.requests.clone()).unwrap_or_default();
        for number in requests {
            self.request_mut(number).into_iter().for_each(|request| request.is_written = true);
        }
    }

    /// Notes that the worker with this fence has died of its poison.
    pub fn die(&mut self, fence: Fence) {
        let requests = self.hold(fence).map(|hold| hold.requests.clone()).unwrap_or_default();
        for number in requests {
            let poison = self.request_mut(number).filter(|request| request.kind == WorkKind::Poison);
            poison.into_iter().for_each(|request| request.deaths += 1);
        }
    }
}
