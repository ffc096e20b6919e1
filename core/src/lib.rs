//! Leasehold's claims engine: every rule of the protocol, and nothing else.
//!
//! **The words.** A *bucket* is a type and a value that must be unique across all cells
//! ([`bucket`]). A *cell* is a deployment with a database of its own ([`cell`]). A *claim* ties a
//! bucket to the one cell that owns it ([`claim`]). The claim's record names its *subject*, the
//! user or project that uses the value, and its *source*, the table row that the value comes from.
//! An *update* is a batch of creates and destroys ([`batch`]) under one *lease* ([`lease`]): begun,
//! then committed or rolled back. A *lock* has nothing to do with claims: one *session* at a time
//! holds it, under an *ask* ([`lock`], [`session`], [`locking`]). A *queue* hands requests from fronts
//! to workers, which have sessions as well ([`mod@queue`], [`queueing`]).
//!
//! **The kinds of function.**
//! - *Parsing* turns a request from outside into a command, or refuses the request before any row
//!   is read: [`rules::Rules::begin`], [`rules::Rules::settle`], [`query::LeaseQuery::parse`],
//!   [`query::RecordQuery::parse`].
//! - *Commands* take a [`transaction::Transaction`], the command and `now`: [`update::begin`],
//!   [`update::settle`], [`update::forget`]. A host that queues commands wraps them in
//!   [`command::Command`]. A refusal is a value, a [`rejection::Rejection`]. An `Err` is a failing
//!   store.
//! - *Queries* name the rows to scan and cut the scanned rows into pages: [`query`].
//! - *Machines* name the host's next step and take the result of the step: [`reconcile`] settles
//!   the leases that a cell left outstanding, [`verify`] corrects the claims that differ from the
//!   cell's rows, [`observer`] proposes the end of silent sessions.
//!
//! **The order of calls.** A cell begins an update and gets a lease. The cell writes the lease's id
//! to its own database, in the transaction that changes its models. After the COMMIT of this
//! transaction the cell commits the lease. If the transaction fails, the cell rolls the lease back.
//! Commit and rollback may be repeated: the answer stays true for as long as settled leases are
//! remembered.
//!
//! **The host's part.** A host loads the rows that its commands read, runs the commands and writes
//! the changes atomically. It sends the replies once the changes are durable. [`transaction`] shows
//! this as code, and [`store`] is the trait that stores implement. [`rows`] declares the kinds of
//! row. [`memory`] is the reference store, and `conformance` (a feature) is the suite that every
//! store passes.
//!
//! **Time, ids and keys always come in as arguments.** The engine reads no clock, draws no random
//! number, starts no thread and touches no file. `now` may repeat or go backwards: fences order
//! leases, times do not.
//!
//! **Codes** such as B12 or V07 in comments are the numbers of promises to users:
//! `docs/src/reference/promises.md` lists them.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod batch;
pub mod bucket;
mod canonical;
pub mod catalogue;
pub mod cell;
pub mod circle;
pub mod claim;
pub mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod division;
pub mod fingerprint;
mod form;
pub mod guard;
pub mod invariant;
#[cfg(feature = "unicode")]
pub mod invisible;
#[cfg(feature = "unicode")]
mod invisible_table;
pub mod lease;
pub mod lock;
pub mod locking;
pub mod memory;
mod normal_form;
pub mod observer;
mod order;
pub mod organization;
pub mod outbox;
#[cfg(test)]
mod properties;
mod punycode;
pub mod query;
pub mod queue;
pub mod queueing;
pub mod reconcile;
pub mod rejection;
pub mod rows;
pub mod rules;
pub mod session;
pub mod standing;
pub mod store;
pub mod table;
pub mod time;
pub mod transaction;
#[cfg(feature = "unicode")]
pub mod unicode_version;
pub mod update;
pub mod verify;
pub mod vouch;
