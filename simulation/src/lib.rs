//! A deterministic world around the engine: users, cells with databases and processes, a network
//! that delays, loses, duplicates and blocks messages, clocks that drift, and a service that
//! restarts. One seed, or one list of events, gives the same history on every platform, byte for
//! byte.
//!
//! **Real and simulated parts.** The service is the engine over its reference store ([`service`]).
//! A cell's reconciler and verifier drive the engine's own machines ([`reconciler`], [`verifier`]).
//! No rule of the protocol is implemented a second time in this crate. The steps of a save and the
//! guards of a cell's database belong to the cells, so this crate models them: [`worker`],
//! [`database`].
//!
//! **Events.** [`world::World::apply`] is the only way to change a [`world::World`]. Every effect
//! is its own [`event::Event`], so a crash can fall between any two effects. Time passes and
//! messages arrive only by events. Four sources choose the next event: a seeded random generator
//! ([`scheduler`]), a recorded list ([`trace`]), a person ([`player`], [`possible`]), or an
//! exhaustive search ([`explorer`]).
//!
//! **Begins without an idempotency key.** Every begin of a world has a key, unless the rule for keys
//! is off. Without a key, the service can find that a call was cancelled before its answer left
//! ([`event::Event::CancelCall`]), and rolls the lease back ([`event::Event::TakeBack`], B25).
//!
//! **Checks.** After every event, [`check`] tests everything that the event changed: against the
//! engine's invariants, and against five conditions that span the databases:
//!
//! - No name belongs to rows of two cells.
//! - Every committed row is claimed, or its claim is outstanding under a lease that will be
//!   committed.
//! - Every settled lease has the same outcome as its local transaction.
//! - Every answer about a settled lease is true.
//! - No correction by verification contradicts the row that it corrects.
//!
//! When all faults end, the world becomes quiescent ([`quiescence`]).
//!
//! **Assumptions.** The simulation relies on these conditions and does not test them:
//!
//! - A database ends its transactions well before `recent_within_seconds` has passed.
//! - A primary key is never given out twice.
//! - A lease reaches `commit_within_seconds` by the cell's clock before it reaches
//!   `stale_after_seconds` by the service's clock.
//! - A cell verifies its table once at a time (V10).
//!
//! **Rules that can be switched off.** Each [`settings::Rule`] can be switched off to show which
//! failure it prevents. The engine has no such switch, so its surroundings change instead. For
//! example, the service shows the engine claims without their leases or owners, or forgets settled
//! leases at once. Cells send no idempotency keys; databases have no guard; verifiers report no
//! ages. For each rule, [`plans`] has a small world that breaks without the rule.
//!
//! **For a page.** [`scenarios`] lists runs to watch, and [`player::Player`] plays them.
//! [`view::View`] shows the present state; [`timeline::Timeline`] lists past events with the texts
//! of [`event_text`].

pub mod check;
pub mod database;
pub mod effects;
pub mod event;
mod event_json;
pub mod event_text;
pub mod explorer;
mod fingerprint;
pub mod front;
pub mod ground_truth;
mod integer_fields;
pub mod lock_client;
pub mod lock_message;
pub mod lock_names;
mod message_text;
pub mod names;
pub mod network;
pub mod plans;
pub mod player;
pub mod possible;
pub mod process;
pub mod queue_message;
pub mod queue_names;
pub mod queue_truth;
pub mod quiescence;
pub mod reconciler;
pub mod resource;
pub mod scenarios;
pub mod scheduler;
pub mod script;
pub mod service;
pub mod settings;
mod step_context;
pub mod timeline;
pub mod trace;
pub mod undelivered;
mod variant_names;
pub mod verifier;
pub mod view;
pub mod violation;
pub mod worker;
pub mod world;
