//! What the database's errors mean to the commands at hand.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::store::StoreError;

/// Another transaction got there first: the same commands, decided again on what is there now, get their true answers.
const LOST_RACES: [SqlState; 3] =
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION];

/// The database, or what stands before it, can't answer just now: starting, stopping, failing over, full.
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
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
