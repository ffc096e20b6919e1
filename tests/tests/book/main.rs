//! The documents say the truth: their commands print the output that they show, their code runs, and their diagrams are
//! the engine's.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod commands;
mod diagrams;
mod postgresql;
