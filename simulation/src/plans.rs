//! Small worlds that are worth exploring: the smallest in which everything can go wrong, and for each rule one that
//! shows what the rule is there for.

use crate::event::{Change, Drift, Event};
use crate::explorer::{Allowance, Plan, Wish};
use crate::script::Script;
use crate::settings::{BadSettings, Mode, Rule, RulesOff, Settings, Thresholds};

const ALICE: u8 = 0;
const BOB: u8 = 1;

/// Longer than a lease is left alone.
const STALE_SECONDS: u32 = 700;
/// Longer than what was changed is left alone by verification.
const OLD_SECONDS: u32 = 3700;
/// Longer than any of the schedules.
const DEPTH: u32 = 100;

fn settings(cells: u8, mode: Mode) -> Settings {
    Settings { cells, workers: 1, names: 2, modes: vec![mode], ..Settings::default() }
}

fn wish(cell: u8, change: Change) -> Wish {
    Wish { cell, worker: 0, change }
}

fn plan(settings: Settings, wishes: Vec<Wish>, allowance: Allowance) -> Plan {
    let (before, drifts) = (Vec::new(), Vec::new());
    Plan { settings, before, wishes, drifts, allowance, wait_seconds: STALE_SECONDS, depth: DEPTH }
}

/// One cell that saves one row, with one of each trouble but doubled messages, and time for reconciliation.
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

/// Two cells that want one name, with a crash, and time for reconciliation.
pub fn one_name(mode: Mode) -> Plan {
    let allowance = Allowance { crashes: 1, waits: 1, reconciliations: 1, ..Allowance::default() };
    plan(settings(2, mode), vec![wish(1, Change::Create(ALICE)), wish(2, Change::Create(ALICE))], allowance)
}

/// A row that was written past the claims and is renamed while verification claims its name, with a crash, and time for
/// reconciliation.
pub fn one_correction(mode: Mode) -> Plan {
    let allowance = Allowance { crashes: 1, waits: 1, reconciliations: 1, verifications: 1, ..Allowance::default() };
    let before = vec![Event::Drift { cell: 1, drift: Drift::Insert(ALICE) }, Event::Wait { seconds: OLD_SECONDS }];
    Plan { before, ..plan(settings(1, mode), vec![wish(1, Change::Rename { row: 1, name: BOB })], allowance) }
}

/// A world that breaks without a rule, and not with it. The rule is on: see [`without`].
///
/// # Errors
/// Never in practice: a test explores each of them.
pub fn about(rule: Rule, mode: Mode) -> Result<Plan, BadSettings> {
    let create = wish(1, Change::Create(ALICE));
    let rename = |name| wish(1, Change::Rename { row: 1, name });
    let lost = Allowance { drops: 1, time_outs: 1, ..Allowance::default() };
    let verified = Allowance { verifications: 1, ..Allowance::default() };
    Ok(match rule {
        Rule::LeaseExclusivity => {
            plan(settings(2, mode), vec![create, wish(2, Change::Create(ALICE))], Allowance::default())
        }
        // A copy of the row in the other cell, made past the claims, and deleted there.
        Rule::Ownership => Plan {
            drifts: vec![(2, Drift::Insert(ALICE))],
            ..plan(settings(2, mode), vec![create, wish(2, Change::Delete(1))], Allowance::default())
        },
        Rule::SettledLeaseMemory | Rule::ReplayKeys => plan(settings(1, mode), vec![create], lost),
        Rule::LocalFence => {
            let allowance = Allowance { waits: 1, reconciliations: 1, ..Allowance::default() };
            plan(settings(1, mode), vec![create], allowance)
        }
        // While an old row is compared with its claim, it gets another name, and its own back.
        Rule::SkipRecentRows => {
            let plan = plan(settings(1, mode), vec![rename(BOB), rename(ALICE)], verified);
            Plan { before: an_old_row(&plan.settings)?, ..plan }
        }
        // The replica still has the old name of a row whose new one is claimed.
        Rule::SkipRecentClaims => {
            let thresholds = Thresholds { replica_lag_seconds: 60, ..Thresholds::default() };
            let settings = Settings { thresholds, ..settings(1, mode) };
            Plan { before: an_old_row(&settings)?, ..plan(settings, vec![rename(BOB)], verified) }
        }
    })
}

/// A plan with a rule switched off.
#[must_use]
pub fn without(rule: Rule, mut plan: Plan) -> Plan {
    plan.settings.rules_off = RulesOff::default().with(rule);
    plan
}

/// What it takes to have a row that was saved long ago.
fn an_old_row(settings: &Settings) -> Result<Vec<Event>, BadSettings> {
    let mut script = Script::new(Settings { step_micros: 0, ..settings.clone() })?;
    script.save(1, 0, Change::Create(ALICE)).event(Event::Replicate { cell: 1 }).wait(OLD_SECONDS);
    Ok(script.into_trace().events)
}
