//! Converts errors of the database and of its client library into the store's failures. Only this
//! module looks at SQLSTATEs (https://www.postgresql.org/docs/15/errcodes-appendix.html), at kinds
//! of I/O errors, and at texts of libraries that offer nothing better. All other code matches
//! variants.

use std::error::Error as _;
use std::io;

use rustls::AlertDescription;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::store::error::StoreError;

/// The SQLSTATEs of a lost race: another transaction was first. The commands are then decided again
/// on the changed rows.
const LOST_RACES: [SqlState; 3] =
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION];

/// The SQLSTATEs that mean that the database, or a pooler in front of it, can't answer now because
/// it starts, stops or fails over. The list includes protocol violations, because nearly all errors
/// of pgbouncer itself have that code.
const UNREACHABLE: [SqlState; 6] = [
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::READ_ONLY_SQL_TRANSACTION,
    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    SqlState::PROTOCOL_VIOLATION,
];

/// The first two characters of all SQLSTATEs for connection failures.
const CONNECTION_CLASS: &str = "08";
/// The first two characters of the SQLSTATEs for a refused user or password.
const AUTHORIZATION_CLASS: &str = "28";
/// The first two characters of the SQLSTATEs for insufficient resources, such as a full disk, and
/// for errors of the system outside of PostgreSQL, such as a failing disk.
const RESOURCE_CLASSES: [&str; 2] = ["53", "58"];

/// The SQLSTATE of a transaction in another epoch than its server expects: see `at_epoch` of the tables.
const OTHER_EPOCH: &str = "LH001";

/// Converts an error of tokio-postgres into a failure of the store.
pub(super) fn failed(error: Error) -> StoreError {
    match error.as_db_error() {
        Some(database) => of_database(database),
        None if is_of_the_network(&error) => StoreError::Unreachable(text(&error)),
        None => StoreError::Failed(text(&error)),
    }
}

/// Converts the failure to open a further connection. A password may change in the database before it
/// changes in `postgres.password_file`, so that its refusal may be over soon.
pub(super) fn failed_to_connect(error: Error) -> StoreError {
    match error.as_db_error() {
        Some(database) if database.code().code().starts_with(AUTHORIZATION_CLASS) => {
            StoreError::Unreachable(message(database))
        }
        _ => failed(error),
    }
}

fn of_database(error: &DbError) -> StoreError {
    let (code, text) = (error.code(), message(error));
    match code {
        code if LOST_RACES.contains(code) => StoreError::Conflict(text),
        &SqlState::LOCK_NOT_AVAILABLE => StoreError::Locked(text),
        &SqlState::QUERY_CANCELED => StoreError::StatementTimeout(text),
        &SqlState::TOO_MANY_CONNECTIONS => StoreError::TooManyConnections(text),
        code if is_unreachable(code) || code.code() == OTHER_EPOCH => StoreError::Unreachable(text),
        code if RESOURCE_CLASSES.iter().any(|class| code.code().starts_with(class)) => StoreError::OutOfResources(text),
        _ => StoreError::Failed(text),
    }
}

/// Returns the message of a database error with its SQLSTATE. The DETAIL is left out, because it
/// may show a row.
fn message(error: &DbError) -> String {
    format!("{} ({})", error.message(), error.code().code())
}

/// True if a database with this SQLSTATE can't answer now.
pub(super) fn is_unreachable(code: &SqlState) -> bool {
    UNREACHABLE.contains(code) || code.code().starts_with(CONNECTION_CLASS)
}

/// True if the error shows that a connection could not be opened, or broke.
pub(super) fn is_of_the_network(error: &Error) -> bool {
    error.is_closed() || io_error(error).is_some()
}

/// The causes of an error, the direct cause first.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// Returns the first I/O error among the causes of an error; `None` if there is none.
fn io_error(error: &Error) -> Option<&io::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The kind of an error that the client library tokio-postgres reports itself, without an SQLSTATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientFailure {
    /// The database rejected the certificate of this server.
    CertificateRejected,
    /// The TLS handshake failed in another way, or the database does not encrypt.
    Tls,
    /// The host accepts no writes, but the connection asked for a host that does.
    ReadOnlyHost,
    /// The database asks for a password, and the URL has none.
    PasswordMissing,
    /// The connection could not be opened, or broke.
    Network,
    /// Any other failure of the client library.
    Other,
}

/// The text of an error of the kind `Kind::Tls`, which is private in tokio-postgres 0.7
/// (`src/error/mod.rs`).
const TLS_KIND: &str = "error performing TLS handshake";
/// The text of the cause that tokio-postgres 0.7 gives for a missing password
/// (`src/connect_raw.rs`).
const PASSWORD_MISSING: &str = "password missing";

impl ClientFailure {
    pub(super) fn of(error: &Error) -> Self {
        let io = io_error(error);
        // In TLS 1.3, a rejected client certificate is reported after the handshake, as an error of
        // the client's first read.
        match io.and_then(io::Error::get_ref).and_then(|cause| cause.downcast_ref()) {
            Some(rustls::Error::AlertReceived(alert)) if is_about_a_certificate(*alert) => Self::CertificateRejected,
            Some(_) => Self::Tls,
            None if error.to_string() == TLS_KIND => Self::Tls,
            // If no host fits `target_session_attrs`, tokio-postgres makes a `PermissionDenied`
            // error itself, without a code of the operating system (`src/connect.rs`).
            None if io
                .is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied && io.raw_os_error().is_none()) =>
            {
                Self::ReadOnlyHost
            }
            None if error.source().is_some_and(|cause| cause.to_string() == PASSWORD_MISSING) => Self::PasswordMissing,
            None if is_of_the_network(error) => Self::Network,
            None => Self::Other,
        }
    }
}

/// True if the TLS alert reports a problem with the client's certificate (RFC 8446, section 6.2).
fn is_about_a_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::UnknownCA
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateUnobtainable
            | Alert::CertificateRequired
            | Alert::BadCertificateStatusResponse
            | Alert::BadCertificateHashValue
            | Alert::AccessDenied
            | Alert::DecryptError
    )
}

/// The kind of an error of pgbouncer. Nearly all of them have the SQLSTATE 08P01 (pgbouncer 1.18,
/// `src/client.c`, `disconnect_client`), so the text is the only distinction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolerFailure {
    /// pgbouncer has no database with the name in the URL.
    UnknownDatabase,
    /// pgbouncer's limit of connections is reached.
    TooManyConnections,
    /// The user or the password is wrong.
    AuthenticationFailed,
    /// Any other failure. This includes failures of an earlier connection that pgbouncer repeats
    /// and that may be over.
    Unreachable,
}

impl PoolerFailure {
    pub(super) fn of(message: &str) -> Self {
        let is_repeated = message.starts_with("server login has been failing");
        let says = |words: &[&str]| !is_repeated && words.iter().any(|words| message.contains(words));
        if says(&["no such database"]) {
            Self::UnknownDatabase
        } else if says(&["no more connections allowed"]) {
            Self::TooManyConnections
        } else if says(&["SASL authentication failed", "password authentication failed", "no such user"]) {
            Self::AuthenticationFailed
        } else {
            Self::Unreachable
        }
    }
}

/// Returns the text of an error and of all its causes. The text never contains a value of a row.
pub(super) fn text(error: &Error) -> String {
    if let Some(database) = error.as_db_error() {
        return message(database);
    }
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {}", cause_text(cause)))
}

/// Returns the text of a cause. If the database is killed, its TLS stream ends without
/// `close_notify`; rustls' text for that is written for programmers, so operators get another text.
fn cause_text(cause: &(dyn std::error::Error + 'static)) -> String {
    let io: Option<&io::Error> = cause.downcast_ref();
    match io {
        Some(io) if io.kind() == io::ErrorKind::UnexpectedEof => "the database closed the connection".into(),
        _ => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    /// Returns the client's and the server's end of a TLS connection before its handshake.
    fn ends() -> (ClientConnection, ServerConnection) {
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["db".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let server = server.unwrap().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
        let client = ClientConnection::new(Arc::new(client), "db".try_into().unwrap()).unwrap();
        (client, ServerConnection::new(Arc::new(server)).unwrap())
    }

    #[test]
    fn the_end_of_an_encrypted_connection_has_a_text_for_operators() {
        let (mut client, mut server) = ends();
        while client.is_handshaking() || server.is_handshaking() {
            let (mut sent, mut answered) = (Vec::new(), Vec::new());
            client.write_tls(&mut sent).unwrap();
            server.read_tls(&mut sent.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            server.write_tls(&mut answered).unwrap();
            client.read_tls(&mut answered.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        assert_eq!(client.read_tls(&mut [].as_slice()).unwrap(), 0);
        client.process_new_packets().unwrap();
        let error = client.reader().read(&mut [0]).unwrap_err();
        assert_eq!(cause_text(&error), "the database closed the connection");
    }
}
