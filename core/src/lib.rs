//! Leasehold's claims engine: every rule of the protocol, and nothing else.
//!
//! **The words.** A *bucket* is a type and a value that must be unique across all cells ([`bucket`]). A *claim* ties a
//! bucket to the one *cell* that owns it, and records its *subject* (who holds it) and its *source* (the table row it
//! comes from) ([`claim`]). An *update* is a batch of creates and destroys ([`batch`]) under one *lease* ([`lease`]):
//! begun, then committed or rolled back.
//!
//! **The kinds of function.**
//! - *Parsing* turns a request from outside into a command, or refuses it before anything is read:
//!   [`rules::Rules::begin`], [`rules::Rules::settle`], [`query::LeaseQuery::parse`], [`query::RecordQuery::parse`].
//! - *Commands* take a [`transaction::Transaction`], the command and `now`: [`update::begin`], [`update::settle`],
//!   [`update::forget`]. A refusal is a value, a [`rejection::Rejection`]; an `Err` is a failing store.
//! - *Queries* say what to scan and make pages of the rows: [`query`].
//! - *Machines* say what their host is to do next and are fed what came of it: [`reconcile`] settles what a cell left
//!   outstanding, [`verify`] corrects claims that differ from its rows.
//!
//! **The order of calls.** A cell begins an update, commits its own database transaction with the lease's id in it, then
//! commits the lease; where its transaction fails it rolls the lease back. Commit and rollback may be repeated; what they
//! answer stays true for as long as settled leases are remembered.
//!
//! **The host's part.** A host loads the rows that a command's keys name, runs it, writes the changes atomically, and
//! lets the reply go only when they are durable: [`transaction`] has the loop, [`store`] the whole interface,
//! [`memory`] the reference and `conformance` (a feature) the suite that every store passes.
//!
//! **Time, ids and keys always come in as arguments.** Nothing here reads a clock, draws a random number, starts a
//! thread or touches a file. `now` may stand still or step back: order is kept by fences, never by time.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod batch;
pub mod bucket;
mod canonical;
pub mod catalogue;
pub mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod invariant;
pub mod lease;
pub mod memory;
mod order;
#[cfg(test)]
mod properties;
pub mod query;
pub mod reconcile;
pub mod rejection;
pub mod rules;
pub mod store;
pub mod table;
pub mod time;
pub mod transaction;
pub mod update;
pub mod verify;
