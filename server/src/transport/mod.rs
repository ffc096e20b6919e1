//! Connections: TCP, TLS and HTTP, below every service.

mod http_server;
mod idle_timeout;
mod tls;

pub use http_server::Connections;
pub use tls::{Certificates, TlsError};
