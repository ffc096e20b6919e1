//! The simulation: a run that is watched, the explorer, and what there is to choose from. Counts and times since the
//! start are `number`; `types.d.ts` has the shapes of objects.

pub mod choices;
pub mod explorer;
mod json;
pub mod run;

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");
