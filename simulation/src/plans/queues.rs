//! Small worlds of a queue for the explorer.

use super::{plan, settings};
use crate::event::Event;
use crate::explorer::{Allowance, Plan};
use crate::lock_client::WorkPhase;
use crate::process::Process;
use crate::queue_message::WorkKind;
use crate::script::Script;
use crate::settings::{InvalidSettings, LockSettings, Mode, Rule, WorldSettings};

/// The terms of sessions in these worlds: a session expires at the third tick without a renewal.
const TERMS: LockSettings =
    LockSettings { count: 0, lanes: 1, duration_seconds: 1, grace_seconds: 1, tick_millis: 1000 };
const TICKS_TO_EXPIRE: u32 = 3;
const BLUE: u8 = 0;

fn world(cells: u8) -> WorldSettings {
    WorldSettings { locks: Some(TERMS), step_micros: 0, ..settings(cells, Mode::BeforeCommit) }
}

fn submit(cell: u8, kind: WorkKind) -> Event {
    Event::Submit { cell, lane: BLUE, kind }
}

/// Returns a plan that begins after the events of a script.
fn after(script: Script, starts: Vec<Event>, allowance: Allowance) -> Plan {
    let trace = script.into_trace();
    Plan { before: trace.events, starts, wait_seconds: 60, ..plan(trace.settings, Vec::new(), allowance) }
}

/// Returns a script in which one front has submitted these requests.
fn submitted(cells: u8, kinds: &[WorkKind]) -> Result<Script, InvalidSettings> {
    let mut script = Script::new(world(cells))?;
    for kind in kinds {
        script.event(submit(1, *kind)).run(1, Process::Front);
    }
    Ok(script)
}

/// Returns a plan in which one front submits a create, and one worker works on it. Each of these can
/// happen once: a lost message, a duplicate and a time-out.
///
/// # Errors
/// Never in practice: a test explores the plan.
pub fn one_create() -> Result<Plan, InvalidSettings> {
    let allowance = Allowance { drops: 1, duplicates: 1, time_outs: 1, ..Allowance::default() };
    let starts = vec![submit(1, WorkKind::Create), Event::Serve { cell: 1 }];
    Ok(after(submitted(1, &[])?, starts, allowance))
}

/// Returns a plan in which two workers serve a lane with a create and an update. One worker can crash
/// at any step, and sessions can expire.
///
/// # Errors
/// Never in practice: a test explores the plan.
pub fn two_workers() -> Result<Plan, InvalidSettings> {
    let allowance = Allowance { crashes: 1, ticks: TICKS_TO_EXPIRE as u8, ..Allowance::default() };
    let mut script = submitted(2, &[WorkKind::Create, WorkKind::Update])?;
    for cell in [1, 2] {
        script.event(Event::Serve { cell }).run_client_until(cell, WorkPhase::Take);
    }
    Ok(after(script, Vec::new(), allowance))
}

/// Returns a plan of a world that breaks without `rule`, a rule of queues.
///
/// # Errors
/// Never in practice: a test explores every plan.
pub(super) fn about(rule: Rule) -> Result<Plan, InvalidSettings> {
    use WorkKind::{Create, Poison, Update};
    let none = Allowance::default();
    let serve = |cell| Event::Serve { cell };
    Ok(match rule {
        Rule::OneWorker | Rule::SharedLane => after(submitted(2, &[Create, Update])?, vec![serve(1), serve(2)], none),
        // The poison has ended one worker, and its lane is taken back.
        Rule::EarlyCount => {
            let mut script = submitted(1, &[Poison])?;
            script.event(serve(1)).run(1, Process::Client);
            (0..TICKS_TO_EXPIRE).for_each(|_| _ = script.event(Event::Tick));
            (0..2).for_each(|_| _ = script.event(Event::Decide));
            after(script, vec![serve(1); 2], Allowance { ticks: 5, ..none })
        }
        // The first worker has done its work and not settled it. A second update has come. The session
        // of the worker expires, and another worker takes both.
        Rule::SettleFence => {
            let mut script = submitted(2, &[Update])?;
            script.event(serve(1)).run_client_until(1, WorkPhase::Settle);
            script.event(submit(2, Update)).run(2, Process::Front);
            after(script, vec![serve(2)], Allowance { ticks: 4, ..none })
        }
        Rule::RequestIds => {
            let lost = Allowance { drops: 1, time_outs: 1, ..none };
            after(submitted(1, &[])?, vec![submit(1, Update)], lost)
        }
        _ => {
            let lost = Allowance { drops: 1, time_outs: 1, ..none };
            after(submitted(1, &[Create])?, vec![serve(1)], lost)
        }
    })
}
