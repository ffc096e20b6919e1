//! The `Explorer` class: an exhaustive search of a small world for a violation.

use leasehold_simulation::explorer::{self, InvalidPlan};
use serde::Serialize;
use wasm_bindgen::prelude::wasm_bindgen;

use super::json;
use crate::error::Exception;

#[wasm_bindgen]
extern "C" {
    /// A plan: a small world to explore, and the events that may happen in it.
    #[wasm_bindgen(typescript_type = "Plan")]
    pub type Plan;

    /// The progress of an explorer's search.
    #[wasm_bindgen(typescript_type = "Progress")]
    pub type Progress;

    /// A violation that an explorer has found, with one of the shortest traces that lead to it.
    #[wasm_bindgen(typescript_type = "Found")]
    pub type Found;
}

/// A breadth-first search through every order of events in a small world. The first violation found
/// comes with one of the shortest traces that lead to it.
#[wasm_bindgen]
pub struct Explorer(explorer::Explorer);

#[wasm_bindgen]
impl Explorer {
    /// Prepares the search of a plan. Throws if the plan describes no valid world.
    #[wasm_bindgen(constructor)]
    pub fn new(plan: Plan) -> Result<Explorer, Exception> {
        Ok(Self(explorer::Explorer::new(json::from_js(&plan)?)?))
    }

    /// Explores at most `states` more states. Returns true if states remain and no violation was
    /// found. JavaScript is blocked during the call, so a page must pass a small number, or call
    /// from a worker. A call may explore at most 1,000,000.
    pub fn explore(&mut self, states: u32) -> bool {
        self.0.explore(states.into())
    }

    /// Returns the progress of the search.
    pub fn progress(&self) -> Result<Progress, Exception> {
        json::to_js(&self.0.progress())
    }

    /// Returns the violation with its trace, or `undefined` if the search has found none so far.
    pub fn found(&self) -> Result<Option<Found>, Exception> {
        let Some(found) = self.0.counterexample() else { return Ok(None) };
        let (violation, trace) = (found.violation.to_string(), json::to_text(&found.trace)?);
        json::to_js(&FoundObject { violation, trace }).map(Some)
    }
}

/// The JavaScript object `Found` of `types.d.ts`.
#[derive(Serialize)]
struct FoundObject {
    violation: String,
    trace: String,
}

impl From<InvalidPlan> for Exception {
    fn from(error: InvalidPlan) -> Self {
        Self::invalid_argument(error)
    }
}
