//! The simulation for JavaScript: `Simulation` plays and replays one run, `Explorer` searches a
//! small world for a violation.
//!
//! Counts, and times since the start of a run, are `number`. The shapes of objects are declared in
//! `types.d.ts`.

pub mod explorer;
mod json;
pub mod reference;
pub mod run;

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");
