//! The claims service and its command line.

pub mod audit;
pub mod committer;
pub mod config;
pub mod grpc;
pub mod identity;
pub mod logging;
pub mod metrics;
pub mod serve;
pub mod store;
pub mod transfer;
pub mod transport;
