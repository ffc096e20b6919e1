//! Why a store could not do what was asked.

use std::path::PathBuf;

use tonic::Code;

use super::{Trouble, Unusable};

/// Why a store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the data directory open.
    #[error("the data directory `{}` is in use by another process: stop it, or choose another directory with `--data`", .0.display())]
    Locked(PathBuf),
    /// The data was written by another version.
    #[error("the data directory `{}` has format {found}, this version reads format {known}: use the version that wrote it to `export`, and `import` the result", .dir.display())]
    Format {
        /// The directory.
        dir: PathBuf,
        /// The format found.
        found: u64,
        /// The format that this version reads.
        known: u64,
    },
    /// What was read is not what was written.
    #[error("the data is damaged: {0}: restore the data directory from a copy")]
    Damaged(String),
    /// What keeps servers out of each other's data is gone.
    #[error("`{}` is missing, which keeps two servers from one directory: make sure that none runs on it, then put an empty file there", .0.display())]
    LockMissing(PathBuf),
    /// An import was cut short.
    #[error("an import into `{}` was cut short: remove the directory and import again", .0.display())]
    Incomplete(PathBuf),
    /// The disk or the store failed.
    #[error("the store failed: {0}")]
    Failed(String),
    /// Another server changed what had been loaded; nothing was written.
    #[error("another server changed the same rows: {0}")]
    Changed(String),
    /// Rows are locked for longer than any server locks them; nothing was written.
    #[error("the rows are locked by another session of the database, which is to end its transaction: {0}")]
    Blocked(String),
    /// A group was decided on presumptions that do not hold; nothing was written.
    #[error("the group was decided on a wrong presumption: {0}")]
    Mistaken(String),
    /// The database can't be reached just now. Whether what was being written is kept is open.
    #[error("the database can't be reached: {0}")]
    Away(String),
    /// The database can't be the store.
    #[error(transparent)]
    Unusable(Box<Unusable>),
}

impl StoreError {
    /// What it comes to in the terms of calls; none where only a person can mend it.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Away(_) => Some(Code::Unavailable),
            Self::Unusable(unusable) => unusable.code(),
            _ => None,
        }
    }

    /// Whether it is the settings that are wrong.
    pub fn is_of_settings(&self) -> bool {
        matches!(self, Self::Unusable(unusable) if matches!(unusable.trouble, Trouble::Settings(_)))
    }

    /// What to do, where the message does not say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unusable(unusable) => unusable.hint(),
            _ => None,
        }
    }
}
