//! The state file of a server: the newest revision that the engine has acknowledged to it. A snapshot that
//! is restored brings back everything in the engine, also what would tell the copy from its original. So
//! this number is kept elsewhere.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::random_id;

/// The most bytes of a state file that are read.
const MAX_BYTES: u64 = 4_096;

/// The newest revision that was acknowledged, and the number of copies that were adopted before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Seen {
    /// The number of copies of the store that have been adopted. Revisions go back at each adoption.
    pub(super) adoptions: u64,
    /// The newest acknowledged revision.
    pub(super) revision: u64,
}

/// The state file of one store. The servers of a machine may share it.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// Returns the file of this store in a directory.
    pub(super) fn of(directory: &Path, store: Uuid) -> Self {
        Self { path: directory.join(format!("{store}.json")) }
    }

    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// The file can't be read. The text has its path.
    pub(super) fn read(&self) -> io::Result<Option<Seen>> {
        match self.read_text() {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| self.named(&io::Error::other(error))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.named(&error)),
        }
    }

    fn read_text(&self) -> io::Result<String> {
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(File::open(&self.path)?, MAX_BYTES), &mut text)?;
        Ok(text)
    }

    /// Raises the file durably to what was seen. What another server of the machine has written stays, if
    /// it is newer.
    ///
    /// # Errors
    /// The file can't be written. The text has its path.
    pub(super) fn raise(&self, seen: Seen) -> io::Result<()> {
        if self.read()?.is_some_and(|known| known >= seen) {
            return Ok(());
        }
        self.replace(seen).map_err(|error| self.named(&error))
    }

    fn replace(&self, seen: Seen) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        // The servers of two containers that share the directory may have one process id.
        let new = self.path.with_extension(format!("{}.new", random_id()));
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&seen)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        File::open(directory)?.sync_all()
    }

    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("the state file `{}` can't be used: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_state_file_is_only_raised() {
        let directory = tempfile::TempDir::new().unwrap();
        let file = StateFile::of(&directory.path().join("new/folder"), Uuid::nil());
        assert_eq!(file.read().unwrap(), None);
        let [first, second, adopted] =
            [(0, 7), (0, 9), (1, 3)].map(|(adoptions, revision)| Seen { adoptions, revision });
        for (seen, expected) in [(second, second), (first, second), (adopted, adopted), (second, adopted)] {
            file.raise(seen).unwrap();
            assert_eq!(file.read().unwrap(), Some(expected));
        }
        std::fs::write(&file.path, "torn").unwrap();
        assert!(file.read().unwrap_err().to_string().contains(".json`"));
        assert!(file.raise(first).is_err());
    }
}
