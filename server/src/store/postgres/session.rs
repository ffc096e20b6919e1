//! The connection of a writer, as a state machine with four states.
//!
//! | state | event | next state |
//! |---|---|---|
//! | `Down` | a connection is made | `Idle` |
//! | `Idle` | a group begins its transaction and reads its rows | `Open` |
//! | `Open` | a read fails, and ROLLBACK succeeds | `Idle` |
//! | `Open` | a read or a ROLLBACK gets no answer | `Down` |
//! | `Open` | COMMIT is answered, even with an error | `Idle` |
//! | `Idle` | a group of one statement is answered, even with an error | `Idle` |
//! | `Idle`, `Open` | a commit gets no answer | `Unknown` |
//! | `Unknown` | the group is abandoned, so its transaction has ended | `Idle` |
//! | `Idle` | the database closes the connection | `Down` |
//!
//! INVARIANT: in the state `Unknown`, a retry must keep the number of its group, because the group
//! is abandoned by this number.

use crate::store::error::StoreError;

/// The state of a writer's connection. `C` is the type of the connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Session<C> {
    /// The writer has no connection.
    #[default]
    Down,
    /// The connection is open and has no transaction.
    Idle(C),
    /// The connection has the open transaction of the current group.
    Open(C),
    /// The connection was lost during a commit. The group may have been committed, or may still be
    /// committed later.
    Unknown,
}

/// The result of a step that was sent to the database: a read, a ROLLBACK or a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The database executed the step.
    Done,
    /// The database, or this program, reported an error for the step.
    Failed,
    /// No answer to the step arrived, or the error means that the database is away.
    Lost,
}

impl End {
    pub(super) fn of<T>(result: &Result<T, StoreError>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) if error.is_away() => Self::Lost,
            Err(_) => Self::Failed,
        }
    }
}

impl<C> Session<C> {
    /// Returns the state after a read in the transaction of a group. A failed read must be followed
    /// by a ROLLBACK.
    pub(super) fn after_read(connection: C, end: End) -> Self {
        match end {
            End::Done | End::Failed => Self::Open(connection),
            End::Lost => Self::Down,
        }
    }

    /// Returns the state after a ROLLBACK.
    pub(super) fn after_rollback(connection: C, end: End) -> Self {
        match end {
            End::Done => Self::Idle(connection),
            End::Failed | End::Lost => Self::Down,
        }
    }

    /// Returns the state after the statement that commits a group. If an earlier statement failed,
    /// COMMIT rolls the transaction back (https://www.postgresql.org/docs/15/protocol-flow.html).
    /// So no transaction is open after any answer.
    pub(super) fn after_commit(connection: C, end: End) -> Self {
        match end {
            End::Done | End::Failed => Self::Idle(connection),
            End::Lost => Self::Unknown,
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_follow_the_table() {
        use Session::{Down, Idle, Open, Unknown};
        for (end, read, rollback, commit) in [
            (End::Done, Open(()), Idle(()), Idle(())),
            (End::Failed, Open(()), Down, Idle(())),
            (End::Lost, Down, Down, Unknown),
        ] {
            assert_eq!(Session::after_read((), end), read, "{end:?}");
            assert_eq!(Session::after_rollback((), end), rollback, "{end:?}");
            assert_eq!(Session::after_commit((), end), commit, "{end:?}");
        }
    }

    #[test]
    fn an_outage_is_a_lost_answer_and_an_error_is_none() {
        let end = |error| End::of::<()>(&Err(error));
        assert_eq!(End::of(&Ok(())), End::Done);
        assert_eq!(end(StoreError::Unreachable(String::new())), End::Lost);
        assert_eq!(end(StoreError::StatementTimeout(String::new())), End::Lost);
        assert_eq!(end(StoreError::Conflict(String::new())), End::Failed);
        assert_eq!(end(StoreError::Locked(String::new())), End::Failed);
    }
}
