//! The failures of a store. Failures to which callers react differently are different variants.

use std::path::PathBuf;

use super::preflight::{PreflightError, Problem};

/// A failure to open, read or write a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data directory holds no store, and none may be made.
    #[error("there is no store in `{}`: check the path; to make a new store there, run `leasehold init`, or start the server with `--create`", .0.display())]
    NoStore(PathBuf),
    /// Another process has the data directory open.
    #[error("the data directory `{}` is in use by another process: stop it, or choose another directory with `--data`", .0.display())]
    InUse(PathBuf),
    /// The data directory has a format that this version can't read.
    #[error("the data directory `{}` has format {found}, this version reads formats up to {known}: use the version that wrote it to `export`, and `import` the result", .dir.display())]
    Format {
        /// The data directory.
        dir: PathBuf,
        /// The number of the format that the directory has.
        found: u64,
        /// The number of the newest format that this version reads.
        known: u64,
    },
    /// The data that was read is not the data that was written.
    #[error(
        "the data is damaged: {0}: `leasehold export --salvage` reads the rest, or restore the data directory from a copy"
    )]
    Damaged(String),
    /// Entries of the journal are damaged or missing, so that the store can't be opened as it was.
    #[error("the data is damaged: {0}: `leasehold export --salvage` reads the rest")]
    JournalDamaged(String),
    /// Rows of which there is no copy are damaged, and the store can't go on without a loss.
    #[error("rows in `{}` are damaged, and the store has no copy of them: {faults}: `leasehold export --salvage` reads the others; `leasehold import` them into a new data directory, and have each cell verify its tables", .dir.display())]
    RowsDamaged {
        /// The data directory.
        dir: PathBuf,
        /// The keyspaces with the damaged rows.
        faults: String,
    },
    /// The data is damaged, and the search for the changed byte took too long for a start.
    #[error("the data is damaged: {damage}: the search for a changed byte ended after {seconds} s: `leasehold export --data {} --salvage` searches without a bound, and corrects the store", .dir.display())]
    SearchCut {
        /// The data directory.
        dir: PathBuf,
        /// The part of the data that can't be read.
        damage: String,
        /// The bound of the search.
        seconds: u64,
    },
    /// The files by which rows are found are damaged, so that no row can be salvaged.
    #[error("the data is damaged, and nothing can be salvaged: {0}: restore the data directory from a copy")]
    Unsalvageable(String),
    /// The lock file of the data directory is missing. Its lock keeps two servers from using the
    /// directory.
    #[error("the lock file `{}` is missing, so another server may use the directory: make sure that none runs, then create an empty file there", .0.display())]
    LockFileMissing(PathBuf),
    /// An import into the data directory did not finish.
    #[error("an import into `{}` did not finish: remove the directory and import again", .0.display())]
    ImportIncomplete(PathBuf),
    /// The disk, the storage library or the database failed in another way.
    #[error("the store failed: {0}")]
    Failed(String),
    /// Another transaction changed the rows that were loaded; the group's changes were not written.
    #[error("another transaction changed the same rows: {0}")]
    Conflict(String),
    /// Rows are locked for longer than a server locks them; the group's changes were not written.
    #[error("the rows are locked by another session of the database: end its transaction; {0}")]
    Locked(String),
    /// A group was decided on rows that were assumed and not read, and one was wrong; the group's
    /// changes were not written.
    #[error("a row was not as it was assumed: {0}")]
    Misspeculated(String),
    /// The database can't be reached. The write that was under way may have been committed or not.
    #[error("the database can't be reached: {0}")]
    Unreachable(String),
    /// The database canceled a statement that took too long.
    #[error("the database can't be reached: {0}")]
    StatementTimeout(String),
    /// The database, or a pooler in front of it, accepts no further connection.
    #[error("the database can't be reached: {0}")]
    TooManyConnections(String),
    /// The database lacks disk space, memory or another resource; the group's changes were not
    /// written.
    #[error("the database can't write: {0}: make room, or see its log")]
    OutOfResources(String),
    /// The database can't be used as the store, for example because the role lacks rights.
    #[error(transparent)]
    Preflight(Box<PreflightError>),
}

impl StoreError {
    /// True if the failure may end by itself, without a change by a person.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::StatementTimeout(_) | Self::TooManyConnections(_))
    }

    /// True if the failure is a wrong setting: of the store's place, or of its database.
    pub fn is_of_settings(&self) -> bool {
        match self {
            Self::NoStore(_) => true,
            Self::Preflight(error) => matches!(error.problem, Problem::Settings(_) | Problem::NoStore),
            _ => false,
        }
    }

    /// Returns what is damaged, without the remedy; `None` if the data is not damaged.
    pub(super) fn damage(&self) -> Option<&str> {
        match self {
            Self::Damaged(damage) | Self::JournalDamaged(damage) | Self::RowsDamaged { faults: damage, .. } => {
                Some(damage)
            }
            _ => None,
        }
    }

    /// The next step for the operator; `None` if the error's message names it, or if there is none.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Preflight(error) => error.hint(),
            _ => None,
        }
    }
}
