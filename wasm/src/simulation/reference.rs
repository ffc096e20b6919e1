//! Constant data for JavaScript: the scenarios, the rules that can be switched off, and the
//! engine's transition tables.

use leasehold_simulation::settings::{self, Mode};
use leasehold_simulation::{plans, scenarios, view};
use serde::Serialize;
use wasm_bindgen::prelude::wasm_bindgen;

use super::explorer::Plan;
use super::json;
use crate::error::Exception;

#[wasm_bindgen]
extern "C" {
    /// A list of scenarios.
    #[wasm_bindgen(typescript_type = "Scenario[]")]
    pub type Scenarios;

    /// The name of a rule that can be switched off.
    #[wasm_bindgen(typescript_type = "Rule")]
    pub type RuleName;

    /// A list of the rules that can be switched off, each with its summary.
    #[wasm_bindgen(typescript_type = "RuleInfo[]")]
    pub type Rules;

    /// The engine's transition tables of claims and leases.
    #[wasm_bindgen(typescript_type = "TransitionTables")]
    pub type TransitionTables;
}

/// Returns every scenario, in the order in which a newcomer should watch them.
#[wasm_bindgen(js_name = scenarios)]
pub fn all_scenarios() -> Result<Scenarios, Exception> {
    json::to_js(&scenarios::all()?)
}

/// Returns every rule that can be switched off, with its summary.
#[wasm_bindgen]
pub fn rules() -> Result<Rules, Exception> {
    let rules = settings::Rule::ALL.map(|rule| RuleInfo { rule, summary: rule.summary() });
    json::to_js(&rules)
}

/// Returns a plan for an `Explorer`: a small world with this rule switched off, in which some order
/// of events violates a condition.
#[wasm_bindgen(js_name = ruleWorld)]
pub fn rule_world(rule: RuleName) -> Result<Plan, Exception> {
    let rule = json::from_js(&rule)?;
    let plan = plans::without(rule, plans::about(rule, Mode::BeforeCommit)?);
    json::to_js(&plan)
}

/// Returns the engine's transition tables of claims and leases.
#[wasm_bindgen(js_name = transitionTables)]
pub fn transition_tables() -> Result<TransitionTables, Exception> {
    json::to_js(&view::Tables::new())
}

/// The JavaScript object `RuleInfo` of `types.d.ts`.
#[derive(Serialize)]
struct RuleInfo {
    rule: settings::Rule,
    summary: &'static str,
}
