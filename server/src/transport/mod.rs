//! The transport below every service: TCP connections, TLS, and HTTP.

mod http_server;
mod idle_timeout;
mod strangers;
mod tls;

pub use http_server::HttpServer;
pub use tls::{Certificates, TlsError, check_files, overdue_lists, read_certificates};
