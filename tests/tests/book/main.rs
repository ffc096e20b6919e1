//! Tests of the documents: their commands print the output that they show, their code runs, and
//! their diagrams equal those of the engine.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod commands;
mod diagrams;
mod etcd;
mod postgresql;
#[allow(unreachable_pub, reason = "the guide shows code of a library")]
mod rust_guide;
