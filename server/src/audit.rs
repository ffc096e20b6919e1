//! One line in the log, target `audit`, for every lease begun and settled. Never a claim's value.

use leasehold_core::lease::Outcome;
use leasehold_core::update::{Command, Reply};

use crate::identity::Caller;

/// Tells what a caller's command did, once it is durable; what had been done before is not told again. Where the command
/// was `tried` before and that try's outcome is unknown, it is told either way: twice is better than never.
pub fn tell(caller: Caller, command: &Command, reply: &Reply, tried: bool) {
    match (command, reply) {
        (Command::Begin(begin), Reply::Begun(begun)) => {
            let (cell, claims) = (begin.cell, begin.batch.entries().len());
            let (lease, fence, replayed) = (begun.lease, begun.fence.0, begun.replayed);
            tracing::info!(target: "audit", %caller, %cell, %lease, fence, claims, replayed, "lease begun");
        }
        (Command::Settle(settle), Reply::Settled(changed)) if *changed || tried => {
            let (cell, lease) = (settle.cell, settle.lease);
            let outcome = match settle.outcome {
                Outcome::Committed => "committed",
                Outcome::RolledBack => "rolled_back",
            };
            tracing::info!(target: "audit", %caller, %cell, %lease, outcome, "lease settled");
        }
        _ => {}
    }
}
