//! What there is to choose from: scenarios, rules, and the engine's tables.

use leasehold_simulation::settings::{self, Mode};
use leasehold_simulation::{plans, scenarios, view};
use serde::Serialize;
use wasm_bindgen::prelude::wasm_bindgen;

use super::explorer::Plan;
use super::json;
use crate::error::Thrown;

#[wasm_bindgen]
extern "C" {
    /// Schedules to watch.
    #[wasm_bindgen(typescript_type = "Scenario[]")]
    pub type Scenarios;

    /// A rule that can be switched off.
    #[wasm_bindgen(typescript_type = "Rule")]
    pub type Rule;

    /// Rules with what they say.
    #[wasm_bindgen(typescript_type = "RuleInfo[]")]
    pub type Rules;

    /// The engine's tables.
    #[wasm_bindgen(typescript_type = "TransitionTables")]
    pub type TransitionTables;
}

/// Every scenario, in the order in which they are best watched.
#[wasm_bindgen(js_name = scenarios)]
pub fn all_scenarios() -> Result<Scenarios, Thrown> {
    json::write(&scenarios::all()?)
}

/// Every rule that can be switched off.
#[wasm_bindgen]
pub fn rules() -> Result<Rules, Thrown> {
    let rules = settings::Rule::ALL.map(|rule| RuleObject { rule, summary: rule.summary() });
    json::write(&rules)
}

/// The small world that breaks without a rule, with the rule switched off: explore it.
#[wasm_bindgen(js_name = ruleWorld)]
pub fn rule_world(rule: Rule) -> Result<Plan, Thrown> {
    let rule = json::read(&rule)?;
    let plan = plans::without(rule, plans::about(rule, Mode::BeforeCommit)?);
    json::write(&plan)
}

/// The engine's tables of what can happen to claims and leases.
#[wasm_bindgen(js_name = transitionTables)]
pub fn transition_tables() -> Result<TransitionTables, Thrown> {
    json::write(&view::Tables::new())
}

/// `RuleInfo` in TypeScript.
#[derive(Serialize)]
struct RuleObject {
    rule: settings::Rule,
    summary: &'static str,
}
