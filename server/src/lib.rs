//! The claims service, as a library that the `leasehold` binary runs.
//!
//! Each layer knows only those below it:
//!
//! | layer | its part |
//! |---|---|
//! | [`serve`] | composes a server, runs its maintenance, and stops it in order |
//! | [`grpc`] | converts requests and answers; every gRPC code is here |
//! | [`committer`] | decides commands in groups, and writes each group at once |
//! | [`locks`] | remembers which sessions renew and who waits for a lock, in memory |
//! | [`store`] | the ports of a store, and the two stores behind them |
//! | [`config`], [`active_config`], `awake`, [`identity`], [`peer`], [`shares`], [`budget`], [`waiting_calls`], [`descriptors`], [`metrics`], [`audit`], [`logging`], [`line_queue`] | used by the layers above |
//!
//! [`transport`] accepts connections, with TLS if configured, and hands their requests to `grpc`.
//! [`transfer`] implements `leasehold export` and `leasehold import`, [`doctor`] `leasehold doctor`.

pub mod active_config;
pub mod audit;
mod awake;
pub mod budget;
pub mod committer;
pub mod config;
pub mod descriptors;
pub mod doctor;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod grpc;
pub mod identity;
pub mod line_queue;
pub mod locks;
pub mod logging;
pub mod metrics;
pub mod peer;
pub mod queues;
pub mod reloads;
pub mod serve;
pub mod shares;
pub mod store;
pub mod subject;
pub mod traces;
pub mod transfer;
pub mod transport;
pub mod waiting_calls;
