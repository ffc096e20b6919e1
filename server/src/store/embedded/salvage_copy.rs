//! A copy of a store whose journals have damaged entries, for a salvage.
//!
//! The copy has the journals without these entries, and links to the tables. So a salvage changes
//! nothing in the store, whose journals may still be corrected by hand or restored from a backup.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Result;
use std::path::{Path, PathBuf};

use super::directories::create_private;
use super::journal::{self, Last};

/// The name of the copy in the data directory.
const COPY: &str = "salvage-copy";

/// The readable entries of the journals of a store, and a count of the others.
#[derive(Default)]
pub(super) struct Remains {
    // The readable entries of each journal, by the name of its file.
    journals: BTreeMap<OsString, Vec<u8>>,
    // The newest entry that is left.
    last: Last,
    // The number of entries that are missing between others.
    missing: u64,
    // The number of places at which entries can't be read.
    places: u64,
}

impl Remains {
    /// Reads the journals of a database folder.
    ///
    /// # Errors
    /// A file can't be read.
    pub(super) fn read(database: &Path) -> Result<Self> {
        let mut remains = Self::default();
        for path in journal::journals(database)?.into_values() {
            let bytes = std::fs::read(&path)?;
            let name = path.file_name().unwrap_or_default().to_owned();
            let readable = remains.readable(&bytes);
            remains.journals.insert(name, readable);
        }
        Ok(remains)
    }

    /// Returns the entries of a journal that can be read.
    fn readable(&mut self, mut rest: &[u8]) -> Vec<u8> {
        let mut readable = Vec::with_capacity(rest.len());
        loop {
            if let Some((batch, after)) = journal::batch(rest)
                && let Some(missing) = self.last.pass(&batch)
            {
                let (entry, _) = rest.split_at(rest.len() - after.len());
                readable.extend(entry);
                self.missing += missing;
                rest = after;
                continue;
            }
            self.places += u64::from(rest.iter().any(|byte| *byte != 0));
            match journal::next_batch(rest, &self.last).and_then(|at| rest.get(at..)) {
                Some(next) => rest = next,
                None => return readable,
            }
        }
    }

    /// Returns the number of entries that are missing: between others, and after the last one.
    /// `acknowledged` is the number of the last entry that was written, if it is known, and `in_tables`
    /// that of the last one of which a table has rows.
    pub(super) fn lost(&self, acknowledged: Option<u64>, in_tables: u64) -> u64 {
        let last = self.last.sequence().unwrap_or(in_tables);
        let after = acknowledged.map_or(0, |acknowledged| acknowledged.saturating_sub(last));
        // An entry at one of the ends may be missing too, of which no number tells.
        (self.missing + after).max(self.places).max(1)
    }
}

/// A copy of a store, which is removed in the end.
pub(super) struct SalvageCopy {
    dir: PathBuf,
    // No server starts meanwhile.
    _lock: File,
}

impl SalvageCopy {
    /// Makes a copy of the store in the data directory `dir`, whose lock file is locked.
    ///
    /// # Errors
    /// A file can't be read or written.
    pub(super) fn make(dir: &Path, remains: &Remains, lock: File) -> Result<Self> {
        let copy = Self { dir: dir.join(COPY), _lock: lock };
        copy.remove()?;
        let to = copy.dir.join("fjall");
        copy_files(&dir.join("fjall"), &to)?;
        if remains.journals.is_empty() {
            // Without a journal, fjall would make a new database.
            std::fs::write(to.join("0.jnl"), "")?;
        }
        for (name, bytes) in &remains.journals {
            std::fs::write(to.join(name), bytes)?;
        }
        Ok(copy)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn remove(&self) -> Result<()> {
        if self.dir.is_dir() { std::fs::remove_dir_all(&self.dir) } else { Ok(()) }
    }
}

impl Drop for SalvageCopy {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("remove `{}` by hand: {error}", self.dir.display());
        }
    }
}

/// Copies the files of a folder, but for journals. Tables are linked, because they never change.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    create_private(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_files(&path, &to)?;
        } else if path.extension().is_none_or(|extension| extension != "jnl") {
            let is_table = from.file_name().is_some_and(|name| name == "tables");
            if !is_table || std::fs::hard_link(&path, &to).is_err() {
                std::fs::copy(&path, &to)?;
            }
        }
    }
    Ok(())
}
