//! A deterministic world around the engine: users, cells with their databases and processes, a network that delays,
//! loses, doubles and cuts off, clocks that drift, a service that restarts. One seed, or one list of events, is one
//! history, byte for byte, wherever it runs.
//!
//! **What is real.** The service is the engine over its reference store ([`service`]); a cell's reconciler and verifier
//! are hosts of the engine's own machines ([`reconciler`], [`verifier`]). No rule of the protocol is written here a
//! second time. What is the cells' own, a save's steps and the guards of a database, is here: [`worker`], [`database`].
//!
//! **Events.** A [`world::World`] changes by [`world::World::apply`] alone. Every effect is an [`event::Event`] of its
//! own, so that a crash can fall between any two; time passes, and messages arrive, only by events. What happens next
//! is decided by chance ([`scheduler`]), by a list ([`trace`]), by somebody who watches ([`player`], [`possible`]), or
//! it is everything in turn ([`explorer`]).
//!
//! **Checks.** After every event what it has touched is held to the engine's invariants and to those that span the
//! databases ([`check`]): no name belongs to rows of two cells, every committed row is claimed or will be, every
//! settled lease agrees with its local transaction, every answer is true, no correction by verification contradicts the
//! row that it is about. When all trouble ends everything comes to rest ([`calm`]).
//!
//! **Rules can be switched off** ([`settings::Rule`]), one by one, to see what each is there for. It is done around the
//! engine, which has no switch: the service is shown claims without their leases or owners, or forgets at once what is
//! settled; cells send no keys, databases have no guard, verifiers do not tell how old something is. [`plans`] has for
//! each rule a small world that breaks without it.
//!
//! **For a page:** [`scenarios`] to watch, [`player::Player`] to play them, [`view::View`] to draw what there is, and
//! [`timeline::Timeline`] what has happened, in [`words`].

pub mod calm;
pub mod check;
pub mod database;
pub mod event;
pub mod explorer;
mod fingerprint;
pub mod ghost;
pub mod names;
pub mod network;
mod numbers;
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
pub mod timeline;
pub mod touched;
pub mod trace;
pub mod verifier;
pub mod view;
pub mod words;
pub mod worker;
pub mod world;
mod written;
