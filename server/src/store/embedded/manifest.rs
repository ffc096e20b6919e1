//! A check of the keyspaces' manifests before fjall opens them.
//!
//! The file `current` of a keyspace has the number `N` of the newest manifest, the file `vN`, and a
//! checksum of this file. lsm-tree writes the checksum but does not compare it (lsm-tree 3.1,
//! `src/version/recovery.rs`, `recover`). When lsm-tree opens a keyspace, it deletes every table
//! that the manifest does not list (`src/tree/mod.rs`, `orphaned_tables`). A changed manifest would
//! thus lose the rows of these tables without an error.

use std::io::ErrorKind;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::store::error::StoreError;

/// The number that stands for the checksum type XXH3 with 128 bits, the only type that fjall
/// writes.
const XXH3: u8 = 0;

/// Checks the newest manifest of every keyspace of the database folder. `finished` is true if a
/// write was acknowledged before. All keyspaces were complete by then, so each must have a
/// manifest.
///
/// # Errors
/// A manifest is missing or does not match its checksum, or a file can't be read.
pub(super) fn check(database: &Path, finished: bool) -> Result<(), StoreError> {
    let folder = database.join("keyspaces");
    let failed = |error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", folder.display()));
    let keyspaces = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound && !finished => return Ok(()),
        keyspaces => keyspaces.map_err(failed)?,
    };
    for entry in keyspaces {
        let keyspace = entry.map_err(failed)?.path();
        if keyspace.is_dir() {
            check_keyspace(&keyspace, finished)?;
        }
    }
    Ok(())
}

fn check_keyspace(keyspace: &Path, finished: bool) -> Result<(), StoreError> {
    let path = keyspace.join("current");
    let Some(current) = read(&path)? else {
        // If `current` is missing, the creation of the keyspace was cut short. fjall then deletes
        // the keyspace.
        return if finished { Err(damaged(&path)) } else { Ok(()) };
    };
    let (version, checksum) = parse(&current).ok_or_else(|| damaged(&path))?;
    let path = keyspace.join(format!("v{version}"));
    let whole = read(&path)?.is_some_and(|manifest| xxh3_128(&manifest) == checksum);
    if whole { Ok(()) } else { Err(damaged(&path)) }
}

/// Reads the number and checksum of the newest manifest from the bytes of the file `current`; `None`
/// if they are not such a file.
pub(super) fn parse(current: &[u8]) -> Option<(u64, u128)> {
    let (version, rest) = current.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    (rest == [XXH3]).then(|| (u64::from_le_bytes(*version), u128::from_le_bytes(*checksum)))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::Failed(format!("`{}`: {error}", path.display()))),
    }
}

fn damaged(path: &Path) -> StoreError {
    StoreError::Damaged(format!("`{}` is missing, or is not the file that was written", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

    use std::path::PathBuf;

    use fjall::{Database, KeyspaceCreateOptions};
    use tempfile::TempDir;

    use super::*;

    const KEYSPACES: [&str; 2] = ["one", "two"];

    /// Returns a database whose keyspaces have tables, and the paths of its files `current` and its
    /// manifests.
    fn database() -> (TempDir, Vec<PathBuf>) {
        let dir = TempDir::new().unwrap();
        let database = Database::builder(dir.path()).open().unwrap();
        for name in KEYSPACES {
            let keyspace = database.keyspace(name, KeyspaceCreateOptions::default).unwrap();
            for row in 0..3 {
                keyspace.insert(format!("row {row}"), "value").unwrap();
                keyspace.rotate_memtable_and_wait().unwrap();
            }
        }
        drop(database);
        let keyspaces = std::fs::read_dir(dir.path().join("keyspaces")).unwrap().map(|entry| entry.unwrap().path());
        let manifests = keyspaces.flat_map(|keyspace| {
            let current = keyspace.join("current");
            let (version, _) = parse(&std::fs::read(&current).unwrap()).unwrap();
            [current, keyspace.join(format!("v{version}"))]
        });
        let manifests = manifests.collect();
        (dir, manifests)
    }

    fn is_damaged(dir: &TempDir) -> bool {
        matches!(check(dir.path(), true), Err(StoreError::Damaged(_)))
    }

    #[test]
    fn a_flipped_bit_of_a_manifest_is_damage() {
        let (dir, manifests) = database();
        check(dir.path(), true).unwrap();
        // Besides [`KEYSPACES`], fjall adds a keyspace of its own.
        assert_eq!(manifests.len(), 2 * (KEYSPACES.len() + 1));
        for path in manifests {
            let whole = std::fs::read(&path).unwrap();
            for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let flipped = whole.iter().enumerate().map(|(byte, old)| old ^ (u8::from(byte == at) << bit));
                std::fs::write(&path, flipped.collect::<Vec<_>>()).unwrap();
                assert!(is_damaged(&dir), "bit {bit} of byte {at} of {}", path.display());
            }
            std::fs::write(&path, whole).unwrap();
        }
        check(dir.path(), true).unwrap();
    }

    #[test]
    fn a_manifest_of_another_length_is_damage() {
        let (dir, manifests) = database();
        for path in manifests {
            let whole = std::fs::read(&path).unwrap();
            for end in 0..whole.len() {
                std::fs::write(&path, whole.get(..end).unwrap()).unwrap();
                assert!(is_damaged(&dir), "{end} bytes of {}", path.display());
            }
            std::fs::write(&path, [whole.as_slice(), &[0]].concat()).unwrap();
            assert!(is_damaged(&dir), "{} is longer", path.display());
            std::fs::remove_file(&path).unwrap();
            assert!(is_damaged(&dir), "{} is missing", path.display());
            std::fs::write(&path, whole).unwrap();
        }
    }

    #[test]
    fn an_unfinished_keyspace_is_left_to_fjall() {
        let dir = TempDir::new().unwrap();
        check(dir.path(), false).unwrap();
        std::fs::create_dir_all(dir.path().join("keyspaces/9")).unwrap();
        check(dir.path(), false).unwrap();
        assert!(is_damaged(&dir));
    }
}
