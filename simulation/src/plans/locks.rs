//! Small worlds of locks for the explorer.

use super::{plan, settings};
use crate::event::Event;
use crate::explorer::{Allowance, Plan};
use crate::lock_client::WorkPhase;
use crate::script::Script;
use crate::settings::{InvalidSettings, LockSettings, Mode, Rule, WorldSettings};

/// The terms of sessions in these worlds: the fewest ticks with which each rule matters.
const TERMS: LockSettings =
    LockSettings { count: 1, lanes: 0, duration_seconds: 1, grace_seconds: 3, tick_millis: 1000 };

fn world(cells: u8) -> WorldSettings {
    WorldSettings { locks: Some(TERMS), ..settings(cells, Mode::BeforeCommit) }
}

/// Returns a plan in which the clients of these cells work under one lock.
fn works(cells: &[u8], allowance: Allowance) -> Plan {
    let settings = world(cells.iter().copied().max().unwrap_or(1));
    let works = cells.iter().map(|cell| (*cell, 0)).collect();
    Plan { works, wait_seconds: 60, ..plan(settings, Vec::new(), allowance) }
}

/// Returns a plan in which one client works under a lock. Each of these can happen once: a lost
/// message, a time-out and a crash of the client. Its session can expire.
pub fn one_holder() -> Plan {
    let allowance = Allowance { drops: 1, time_outs: 1, crashes: 1, ticks: 5, ..Allowance::default() };
    works(&[1], allowance)
}

/// Returns a plan in which two clients with open sessions want one lock. One client can crash, and
/// sessions can expire.
///
/// # Errors
/// Never in practice: a test explores the plan.
pub fn one_lock() -> Result<Plan, InvalidSettings> {
    let allowance = Allowance { crashes: 1, ticks: 5, ..Allowance::default() };
    let mut script = Script::new(WorldSettings { step_micros: 0, ..world(2) })?;
    for cell in [1, 2] {
        script.event(Event::Work { cell, lock: 0 }).run_client_until(cell, WorkPhase::Acquire);
    }
    Ok(Plan { before: script.into_trace().events, works: Vec::new(), ..works(&[1, 2], allowance) })
}

/// Returns a plan of a world that breaks without `rule`, a rule of sessions and locks.
///
/// # Errors
/// Never in practice: a test explores every plan.
pub(super) fn about(rule: Rule) -> Result<Plan, InvalidSettings> {
    let none = Allowance::default();
    Ok(match rule {
        Rule::ObservedSilence => works(&[1], Allowance { jumps: 1, ticks: 1, ..none }),
        Rule::Grace => works(&[1], Allowance { ticks: 5, ..none }),
        Rule::WholeDuration => {
            let allowance = Allowance { waits: 1, renewals: 1, stops: 1, ticks: 2, ..none };
            Plan { wait_seconds: 3, ..works(&[1], allowance) }
        }
        // The first client holds the lock and has looked at its clock: its next step is a write.
        _ => {
            let mut script = Script::new(WorldSettings { step_micros: 0, ..world(2) })?;
            script.event(Event::Work { cell: 1, lock: 0 }).run_client_until(1, WorkPhase::WriteResource);
            let plan = works(&[2], Allowance { ticks: 5, ..none });
            Plan { before: script.into_trace().events, ..plan }
        }
    })
}
