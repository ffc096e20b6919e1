//! The claims service and its command line.

pub mod audit;
pub mod client;
pub mod committer;
pub mod config;
pub mod connection;
mod greeting;
pub mod grpc;
pub mod identity;
mod idle;
pub mod metrics;
#[cfg(feature = "page")]
mod page;
pub mod serve;
pub mod store;
mod tend;
pub mod tls;
pub mod trace;
pub mod transfer;
