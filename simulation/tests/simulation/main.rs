//! The simulation's tests: one program, so that the library is linked once.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod correction;
mod explorer;
mod locks;
mod parallel;
mod queues;
mod random;
mod rules;
mod scenarios;
mod timeline;
mod trace;
mod undelivered;
mod view;
