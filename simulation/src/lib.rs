//! A deterministic world around the engine.

pub mod calm;
pub mod check;
pub mod database;
pub mod event;
pub mod explorer;
mod fingerprint;
pub mod ghost;
pub mod names;
pub mod network;
mod outside;
pub mod plans;
pub mod player;
pub mod possible;
pub mod reconciler;
pub mod scenarios;
pub mod scheduler;
pub mod script;
pub mod service;
pub mod settings;
pub mod touched;
pub mod trace;
pub mod verifier;
pub mod view;
pub mod worker;
pub mod world;
