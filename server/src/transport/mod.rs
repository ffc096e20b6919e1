//! The transport below every service: TCP connections, TLS, and HTTP.

mod http_server;
mod idle_timeout;
mod places;
mod strangers;
mod tls;

pub use http_server::{HttpServer, ProbeLimits};
pub use tls::{Certificates, TlsError, check_as_client, check_files, overdue_lists, read_certificates};
