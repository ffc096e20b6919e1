//! The `Reconciliation` session: settles the leases that a cell left outstanding.

use js_sys::Reflect;
use leasehold_bindings::reconcile::{self, Step};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use super::value;
use crate::error::Exception;

#[wasm_bindgen]
extern "C" {
    /// The settings of a run of reconciliation.
    #[wasm_bindgen(typescript_type = "ReconciliationSettings")]
    pub type ReconciliationSettings;

    /// The step that the host of a run of reconciliation must take.
    #[wasm_bindgen(typescript_type = "ReconciliationStep")]
    pub type ReconciliationStep;

    /// The result of a step, which the host passes to `feed`.
    #[wasm_bindgen(typescript_type = "ReconciliationEvent")]
    pub type ReconciliationEvent;

    /// The counts of a run of reconciliation.
    #[wasm_bindgen(typescript_type = "ReconciliationSummary")]
    pub type ReconciliationSummary;
}

/// A run that settles the outstanding leases of one cell. The run makes no call itself: the host
/// takes the step that `step` returns, passes the result to `feed`, and repeats this until the step
/// is `done`.
#[wasm_bindgen]
pub struct Reconciliation(reconcile::Reconciliation);

#[wasm_bindgen]
impl Reconciliation {
    /// Creates a run of reconciliation.
    #[wasm_bindgen(constructor)]
    pub fn new(settings: ReconciliationSettings) -> Result<Reconciliation, Exception> {
        Ok(Self(reconcile::Reconciliation::new(value::from_js(settings.unchecked_into())?)))
    }

    /// Returns the step that the host must take. The step stays the same until `feed` has taken its
    /// result.
    pub fn step(&self) -> Result<ReconciliationStep, Exception> {
        let step = self.0.step();
        let object = value::to_js(&step)?;
        if let Step::ListRows { limit, .. } = step {
            // The serializer has made every 64-bit integer a `bigint`. The limit is a count, and
            // counts are `number` in JavaScript.
            Reflect::set(&object, &JsValue::from("limit"), &JsValue::from(limit))
                .map_err(|_| Exception::invalid_argument("the step object is frozen"))?;
        }
        Ok(object.unchecked_into())
    }

    /// Takes the result of the current step. Throws `OUT_OF_TURN` if the event belongs to another
    /// step; the run is then unchanged.
    pub fn feed(&mut self, event: ReconciliationEvent) -> Result<(), Exception> {
        Ok(self.0.feed(value::from_js(event.unchecked_into())?)?)
    }

    /// Returns the counts of this run of reconciliation so far.
    pub fn summary(&self) -> Result<ReconciliationSummary, Exception> {
        Ok(value::counts_to_js(self.0.summary())?.unchecked_into())
    }
}
