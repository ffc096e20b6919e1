//! `Reconciliation`: what a cell does about leases that were never settled.

use js_sys::Reflect;
use leasehold_bindings::reconcile::{self, Step};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use super::value;
use crate::error::Thrown;

#[wasm_bindgen]
extern "C" {
    /// What a run goes by.
    #[wasm_bindgen(typescript_type = "ReconciliationSettings")]
    pub type ReconciliationSettings;

    /// What to do next.
    #[wasm_bindgen(typescript_type = "ReconciliationStep")]
    pub type ReconciliationStep;

    /// What came of a step.
    #[wasm_bindgen(typescript_type = "ReconciliationEvent")]
    pub type ReconciliationEvent;

    /// What a run did.
    #[wasm_bindgen(typescript_type = "ReconciliationSummary")]
    pub type ReconciliationSummary;
}

/// A run that settles what a cell left outstanding. It never calls out: take the step that it asks for, feed back the
/// event that came of it, until the step is `done`.
#[wasm_bindgen]
pub struct Reconciliation(reconcile::Reconciliation);

#[wasm_bindgen]
impl Reconciliation {
    /// A new run.
    #[wasm_bindgen(constructor)]
    pub fn new(settings: ReconciliationSettings) -> Result<Reconciliation, Thrown> {
        Ok(Self(reconcile::Reconciliation::new(value::read(settings.unchecked_into())?)))
    }

    /// What to do next: the same until it is answered.
    pub fn step(&self) -> Result<ReconciliationStep, Thrown> {
        let step = self.0.step();
        let object = value::write(&step)?;
        if let Step::ListRows { limit, .. } = step {
            // A count is a `number`, unlike the times beside it.
            Reflect::set(&object, &JsValue::from("limit"), &JsValue::from(limit))
                .map_err(|_| Thrown::invalid("frozen"))?;
        }
        Ok(object.unchecked_into())
    }

    /// Hands in what came of the step. Throws where it is no answer to that step; the run is as before then.
    pub fn feed(&mut self, event: ReconciliationEvent) -> Result<(), Thrown> {
        Ok(self.0.feed(value::read(event.unchecked_into())?)?)
    }

    /// What was done so far.
    pub fn summary(&self) -> Result<ReconciliationSummary, Thrown> {
        Ok(value::write_counts(self.0.summary())?.unchecked_into())
    }
}
