//! The part of the world that a cell's process can read and change during one of its steps.

use std::sync::Arc;

use leasehold_core::time::Timestamp;

use crate::database::Database;
use crate::effects::Effects;
use crate::ground_truth::GroundTruth;
use crate::names::Names;
use crate::network::{MessageId, Network, Payload, Request};
use crate::process::Process;
use crate::settings::WorldSettings;

/// The state of a process's calls to the service. A process makes one call at a time and waits for
/// the answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Calls {
    /// The number of calls that the process has made so far.
    pub made: u32,
    /// True if the process waits for the answer to its last call.
    pub is_waiting: bool,
}

/// The part of the world that a cell's process can read and change during one of its steps.
pub struct StepContext<'a> {
    /// The world's clock, in microseconds.
    pub now: u64,
    /// The number of the cell that the process belongs to.
    pub cell: u8,
    /// The database of the process's cell.
    pub database: &'a mut Database,
    /// The time by the database's clock.
    pub database_now: Timestamp,
    /// The messages in flight.
    pub network: &'a mut Network,
    /// The true history of every lease.
    pub ground_truth: &'a mut GroundTruth,
    /// The changes made by the present event.
    pub effects: &'a mut Effects,
    /// The world's settings.
    pub settings: &'a Arc<WorldSettings>,
    /// The names that cells can claim.
    pub names: &'a Arc<Names>,
}

impl StepContext<'_> {
    /// Sends a request of the process to the service. From now on the process waits for the answer.
    pub fn call(&mut self, process: Process, calls: &mut Calls, request: Request) {
        calls.made += 1;
        calls.is_waiting = true;
        let id = MessageId::request(self.cell, process, calls.made);
        self.network.send(id, Payload::Request(request), self.now);
        self.effects.sent.push(id);
    }
}
