//! The mark in a data directory that has the next start of a server check the store: the file
//! `check-rows`.
//!
//! A worker of fjall that meets a damaged block in a compaction ends, and fjall accepts no further
//! write. At the next start the compaction would meet the block again. fjall does not say why its
//! worker has ended, so the mark stands for other failures too, such as a full disk.
//!
//! The file has the names of the indexes that are being made anew, one a line. It is empty before.

use std::fs::File;
use std::io::{ErrorKind, Result, Write};
use std::path::Path;

use super::Inner;
use super::directories::sync;

/// The name of the file.
const FILE: &str = "check-rows";

/// Reads the names of the indexes in the mark; `None` if there is no mark.
///
/// # Errors
/// The file can't be read.
pub(super) fn read(dir: &Path) -> Result<Option<Vec<String>>> {
    match std::fs::read(dir.join(FILE)) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the mark with the names of indexes, and syncs it.
///
/// # Errors
/// The file can't be written.
pub(super) fn write(dir: &Path, indexes: &[&str]) -> Result<()> {
    let mut file = File::create(dir.join(FILE))?;
    file.write_all(indexes.join("\n").as_bytes())?;
    file.sync_all()?;
    sync(dir)
}

/// Removes the mark.
///
/// # Errors
/// The file can't be removed.
pub(super) fn remove(dir: &Path) -> Result<()> {
    std::fs::remove_file(dir.join(FILE)).and_then(|()| sync(dir))
}

impl Inner {
    /// Writes the mark if a worker of fjall has ended.
    pub(super) fn mark_if_poisoned(&self, error: &fjall::Error) {
        if !matches!(error, fjall::Error::Poisoned) {
            return;
        }
        match write(&self.dir, &[]) {
            Ok(()) => tracing::error!(file = FILE, "a worker of the store has ended: the next start checks every row"),
            // A full disk may be why the worker has ended.
            Err(error) => {
                tracing::error!(%error, file = FILE, "a worker of the store has ended; the mark can't be written")
            }
        }
    }
}
