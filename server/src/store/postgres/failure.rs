//! What the database's errors mean to the commands at hand.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::store::StoreError;

/// Another transaction got there first: the same commands, decided again on what is there now, get their true answers.
const LOST_RACES: [SqlState; 3] =
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION];

/// The database, or what stands before it, can't answer just now: starting, stopping, failing over, crowded.
const AWAY: [SqlState; 8] = [
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::TOO_MANY_CONNECTIONS,
    SqlState::READ_ONLY_SQL_TRANSACTION,
    SqlState::QUERY_CANCELED,
    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    SqlState::PROTOCOL_VIOLATION,
];

/// The class of connection failures, which pgbouncer uses for its own.
const CONNECTION_CLASS: &str = "08";

/// The error in our terms.
pub(super) fn failed(error: Error) -> StoreError {
    match error.as_db_error() {
        Some(database) => of_database(database),
        None if error.is_closed() || is_of_the_network(&error) => StoreError::Away(text(&error)),
        None => StoreError::Failed(text(&error)),
    }
}

fn of_database(error: &DbError) -> StoreError {
    let (code, text) = (error.code(), message(error));
    if LOST_RACES.contains(code) {
        StoreError::Changed(text)
    } else if *code == SqlState::LOCK_NOT_AVAILABLE {
        StoreError::Blocked(text)
    } else if is_away(code) {
        StoreError::Away(text)
    } else {
        StoreError::Failed(text)
    }
}

/// The message without its details, which may show values.
fn message(error: &DbError) -> String {
    format!("{} ({})", error.message(), error.code().code())
}

/// Whether a database that says so can't answer just now.
pub(super) fn is_away(code: &SqlState) -> bool {
    AWAY.contains(code) || code.code().starts_with(CONNECTION_CLASS)
}

/// Whether a statement took the time that it may take.
pub(super) fn is_cut_short(cause: &str) -> bool {
    cause.ends_with(&format!("({})", SqlState::QUERY_CANCELED.code()))
}

/// Whether a connection could not be made, or broke.
pub(super) fn is_of_the_network(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The error with its causes; a value from a row is never among them.
pub(super) fn text(error: &Error) -> String {
    if let Some(database) = error.as_db_error() {
        return message(database);
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {}", in_our_words(cause.to_string()));
        source = cause.source();
    }
    text
}

/// What TLS says of a database that is killed is for programmers, with a link to a library's documentation.
fn in_our_words(cause: String) -> String {
    if cause.contains("close_notify") { "the database closed the connection".into() } else { cause }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    /// The two ends of an encrypted connection.
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
    fn an_encrypted_connection_that_ends_without_a_word_is_told_in_ours() {
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
        assert_eq!(in_our_words(error.to_string()), "the database closed the connection");
    }
}
