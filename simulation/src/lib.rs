//! A deterministic world around the engine.

pub mod calm;
pub mod check;
pub mod database;
pub mod event;
pub mod ghost;
pub mod names;
pub mod network;
mod outside;
pub mod player;
pub mod reconciler;
pub mod scheduler;
pub mod service;
pub mod settings;
pub mod touched;
pub mod trace;
pub mod verifier;
pub mod worker;
pub mod world;
