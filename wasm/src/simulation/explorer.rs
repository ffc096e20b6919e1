//! `Explorer`: every order of a small world, in slices, so that a page stays alive.

use leasehold_simulation::explorer::{self, BadPlan};
use serde::Serialize;
use wasm_bindgen::prelude::wasm_bindgen;

use super::json;
use crate::error::Thrown;

#[wasm_bindgen]
extern "C" {
    /// A small world to explore.
    #[wasm_bindgen(typescript_type = "Plan")]
    pub type Plan;

    /// How far an exploration has come.
    #[wasm_bindgen(typescript_type = "Progress")]
    pub type Progress;

    /// A violation, and one of the shortest ways to it.
    #[wasm_bindgen(typescript_type = "Found")]
    pub type Found;
}

/// An exploration of every order of events in a small world, the shortest first.
#[wasm_bindgen]
pub struct Explorer(explorer::Explorer);

#[wasm_bindgen]
impl Explorer {
    /// Begins to explore. Throws where the plan makes no world.
    #[wasm_bindgen(constructor)]
    pub fn new(plan: Plan) -> Result<Explorer, Thrown> {
        Ok(Self(explorer::Explorer::new(json::read(&plan)?)?))
    }

    /// Goes on from so many states. True while there is more to do.
    pub fn explore(&mut self, states: u32) -> bool {
        self.0.explore(states.into())
    }

    /// How far it has come.
    pub fn progress(&self) -> Result<Progress, Thrown> {
        json::write(&self.0.progress())
    }

    /// The violation, once one is found.
    pub fn found(&self) -> Result<Option<Found>, Thrown> {
        let Some(found) = self.0.found() else { return Ok(None) };
        let (violation, trace) = (found.violation.to_string(), json::text(&found.trace)?);
        json::write(&FoundObject { violation, trace }).map(Some)
    }
}

/// `Found` in TypeScript.
#[derive(Serialize)]
struct FoundObject {
    violation: String,
    trace: String,
}

impl From<BadPlan> for Thrown {
    fn from(error: BadPlan) -> Self {
        Self::invalid(error)
    }
}
