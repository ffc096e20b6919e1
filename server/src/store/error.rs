//! The failures of a store, one variant for each reaction that a caller may have.

use std::path::PathBuf;

use super::preflight::{PreflightError, Problem};

/// A failure of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the data directory open.
    #[error("the data directory `{}` is in use by another process: stop it, or choose another directory with `--data`", .0.display())]
    InUse(PathBuf),
    /// The data directory was written in another format.
    #[error("the data directory `{}` has format {found}, this version reads format {known}: use the version that wrote it to `export`, and `import` the result", .dir.display())]
    Format {
        /// The directory.
        dir: PathBuf,
        /// The format found.
        found: u64,
        /// The format that this version reads.
        known: u64,
    },
    /// The data read is not the data that was written.
    #[error("the data is damaged: {0}: restore the data directory from a copy")]
    Damaged(String),
    /// The file whose lock keeps two servers from one directory is missing.
    #[error("the lock file `{}` is missing, so another server may use the directory: make sure that none runs, then create an empty file there", .0.display())]
    LockFileMissing(PathBuf),
    /// An import did not finish.
    #[error("an import into `{}` did not finish: remove the directory and import again", .0.display())]
    ImportIncomplete(PathBuf),
    /// The disk, the library or the database failed in another way.
    #[error("the store failed: {0}")]
    Failed(String),
    /// Another transaction changed the loaded rows; nothing was written.
    #[error("another transaction changed the same rows: {0}")]
    Conflict(String),
    /// Rows are locked for longer than a server locks them; nothing was written.
    #[error("the rows are locked by another session of the database: end its transaction; {0}")]
    Locked(String),
    /// A group was decided on assumed rows, and an assumption was wrong; nothing was written.
    #[error("a row was not as it was assumed: {0}")]
    Misspeculated(String),
    /// The database can't be reached. The last write may or may not be kept.
    #[error("the database can't be reached: {0}")]
    Unreachable(String),
    /// The database canceled a statement that took too long.
    #[error("the database can't be reached: {0}")]
    StatementTimeout(String),
    /// The database, or a pooler in front of it, accepts no further connection.
    #[error("the database can't be reached: {0}")]
    TooManyConnections(String),
    /// The database can't be the store.
    #[error(transparent)]
    Preflight(Box<PreflightError>),
}

impl StoreError {
    /// True if the store may be back later, without a change by a person.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::StatementTimeout(_) | Self::TooManyConnections(_))
    }

    /// True if the settings are wrong.
    pub fn is_of_settings(&self) -> bool {
        matches!(self, Self::Preflight(error) if matches!(error.problem, Problem::Settings(_)))
    }

    /// The next step for the operator, if the message does not name it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Preflight(error) => error.hint(),
            _ => None,
        }
    }
}
