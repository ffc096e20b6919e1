//! What a process of a cell has around it while it takes a step.

use std::sync::Arc;

use leasehold_core::time::Timestamp;

use crate::database::Database;
use crate::event::Process;
use crate::ghost::Ghosts;
use crate::names::Names;
use crate::network::{MessageId, Network, Payload, Request};
use crate::settings::Settings;
use crate::touched::Touched;

/// A process's one call to the service: it waits for the answer before it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// How many calls it has made.
    pub made: u32,
    /// Whether it waits for the answer to the last one.
    pub is_waiting: bool,
}

/// What a process of a cell has around it.
pub struct Outside<'a> {
    /// The world's clock.
    pub now: u64,
    /// Its cell.
    pub cell: u8,
    /// Its cell's database.
    pub database: &'a mut Database,
    /// The database's clock.
    pub database_now: Timestamp,
    /// What is under way.
    pub network: &'a mut Network,
    /// What nobody knows.
    pub ghosts: &'a mut Ghosts,
    /// What has changed.
    pub touched: &'a mut Touched,
    /// The world's settings.
    pub settings: &'a Arc<Settings>,
    /// The names.
    pub names: &'a Arc<Names>,
}

impl Outside<'_> {
    /// Sends a request, for whose answer the process then waits.
    pub fn call(&mut self, process: Process, line: &mut Line, request: Request) {
        line.made += 1;
        line.is_waiting = true;
        let id = MessageId::request(self.cell, process, line.made);
        self.network.send(id, Payload::Request(request), self.now);
        self.touched.sent = Some(id);
    }
}
