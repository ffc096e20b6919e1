//! Small worlds for the explorer. Faults can happen in seven of them. Each of the others breaks if
//! one rule is switched off.

mod locks;
mod queues;

use crate::event::{Change, Drift, Event};
use crate::explorer::{Allowance, Plan, Wish};
use crate::script::Script;
use crate::settings::{InvalidSettings, Mode, Rule, RulesOff, Thresholds, WorldSettings};

pub use locks::{one_holder, one_lock};
pub use queues::{one_create, two_workers};

const ALICE: u8 = 0;
const BOB: u8 = 1;

/// A time longer than the age at which a lease becomes stale.
const STALE_SECONDS: u32 = 700;
/// A time longer than the period for which verification skips a changed row.
const OLD_SECONDS: u32 = 3700;
/// A number of events above the length of any schedule of these plans, so that the depth limit cuts
/// off no schedule.
const DEPTH: u32 = 100;

fn settings(cells: u8, mode: Mode) -> WorldSettings {
    WorldSettings { cells, workers: 1, names: 2, modes: vec![mode], ..WorldSettings::default() }
}

fn wish(cell: u8, change: Change) -> Wish {
    Wish { cell, worker: 0, change }
}

fn plan(settings: WorldSettings, wishes: Vec<Wish>, allowance: Allowance) -> Plan {
    let (before, drifts, works, starts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    Plan { settings, before, wishes, drifts, works, starts, allowance, wait_seconds: STALE_SECONDS, depth: DEPTH }
}

/// Returns a plan in which one cell saves one row. Each of these can happen once: a lost message, a
/// time-out, a crash, a lost database connection, a wait, and a run of reconciliation.
pub fn one_save(mode: Mode) -> Plan {
    let allowance = Allowance {
        drops: 1,
        time_outs: 1,
        crashes: 1,
        disconnects: 1,
        waits: 1,
        reconciliations: 1,
        ..Allowance::default()
    };
    plan(settings(1, mode), vec![wish(1, Change::Create(ALICE))], allowance)
}

/// Returns a plan in which two cells save the same name. One process can crash, and reconciliation
/// can run.
pub fn one_name(mode: Mode) -> Plan {
    let allowance = Allowance { crashes: 1, waits: 1, reconciliations: 1, ..Allowance::default() };
    plan(settings(2, mode), vec![wish(1, Change::Create(ALICE)), wish(2, Change::Create(ALICE))], allowance)
}

/// Returns a plan in which plain SQL inserts a row, and a save renames the row while verification
/// claims its name. One process can crash, and reconciliation can run.
pub fn one_correction(mode: Mode) -> Plan {
    let allowance = Allowance { crashes: 1, waits: 1, reconciliations: 1, verifications: 1, ..Allowance::default() };
    let before = vec![Event::Drift { cell: 1, drift: Drift::Insert(ALICE) }, Event::Wait { seconds: OLD_SECONDS }];
    Plan { before, ..plan(settings(1, mode), vec![wish(1, Change::Rename { row: 1, name: BOB })], allowance) }
}

/// Returns a plan of a world that breaks without `rule` and is sound with it. In this plan the rule
/// is on; [`without`] switches it off.
///
/// # Errors
/// Never in practice: a test explores every plan.
pub fn about(rule: Rule, mode: Mode) -> Result<Plan, InvalidSettings> {
    let create = wish(1, Change::Create(ALICE));
    let rename = |name| wish(1, Change::Rename { row: 1, name });
    let lost = Allowance { drops: 1, time_outs: 1, ..Allowance::default() };
    let verified = Allowance { verifications: 1, ..Allowance::default() };
    Ok(match rule {
        Rule::LeaseExclusivity => {
            plan(settings(2, mode), vec![create, wish(2, Change::Create(ALICE))], Allowance::default())
        }
        // Plain SQL inserts a row with the same name in cell 2. A save of cell 2 then deletes this
        // row.
        Rule::Ownership => Plan {
            drifts: vec![(2, Drift::Insert(ALICE))],
            ..plan(settings(2, mode), vec![create, wish(2, Change::Delete(1))], Allowance::default())
        },
        Rule::SettledLeaseMemory | Rule::ReplayKeys => plan(settings(1, mode), vec![create], lost),
        Rule::CommitGuard => {
            let allowance = Allowance { waits: 1, reconciliations: 1, ..Allowance::default() };
            plan(settings(1, mode), vec![create], allowance)
        }
        // Verification compares an old row with its claim. In the meantime, saves rename the row
        // and rename it back.
        Rule::SkipRecentRows => {
            let plan = plan(settings(1, mode), vec![rename(BOB), rename(ALICE)], verified);
            Plan { before: an_old_row(&plan.settings)?, ..plan }
        }
        // The replica still shows the row's old name after a save has claimed the new one.
        Rule::SkipRecentClaims => {
            let thresholds = Thresholds { replica_lag_seconds: 60, ..Thresholds::default() };
            let settings = WorldSettings { thresholds, ..settings(1, mode) };
            Plan { before: an_old_row(&settings)?, ..plan(settings, vec![rename(BOB)], verified) }
        }
        Rule::ObservedSilence | Rule::Grace | Rule::WholeDuration | Rule::FenceCheck => locks::about(rule)?,
        Rule::OneWorker | Rule::SharedLane | Rule::EarlyCount => queues::about(rule)?,
        Rule::SettleFence | Rule::SettleMemory | Rule::RequestIds => queues::about(rule)?,
    })
}

/// Returns `plan` with `rule` switched off, so that the explorer can look for a violation.
#[must_use]
pub fn without(rule: Rule, mut plan: Plan) -> Plan {
    plan.settings.rules_off = RulesOff::default().with(rule);
    plan
}

/// Returns the events that create a row and then wait until verification no longer skips the row.
fn an_old_row(settings: &WorldSettings) -> Result<Vec<Event>, InvalidSettings> {
    let mut script = Script::new(WorldSettings { step_micros: 0, ..settings.clone() })?;
    script.save(1, 0, Change::Create(ALICE)).event(Event::Replicate { cell: 1 }).wait(OLD_SECONDS);
    Ok(script.into_trace().events)
}
