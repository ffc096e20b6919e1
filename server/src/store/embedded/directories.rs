//! Creates and syncs directories so that they survive a power cut. The entry of a new file is on
//! disk only after its directory is synced, even if the file itself was synced (fsync(2)).

use std::fs::{DirBuilder, File};
use std::io::Result;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a directory that only this user may read, and its missing parents, and syncs their
/// entries. An existing directory keeps its mode.
pub(super) fn create_private(dir: &Path) -> Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let missing: Vec<_> = dir.ancestors().take_while(is_missing).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    missing.into_iter().try_for_each(sync_entry)
}

/// Syncs the entry of a file or directory in its parent.
pub(super) fn sync_entry(path: &Path) -> Result<()> {
    // A relative path with a single component is in the working directory.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync(parent.unwrap_or(Path::new(".")))
}

/// Syncs the entries of a directory.
pub(super) fn sync(dir: &Path) -> Result<()> {
    File::open(dir)?.sync_all()
}

/// Syncs the entries of a directory and of all directories in it.
pub(super) fn sync_tree(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync(dir)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn missing_parents_are_created_for_this_user_alone() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        create_private(&dir).unwrap();
        create_private(&dir).unwrap();
        for path in [&dir, &root.path().join("a")] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        sync_tree(root.path()).unwrap();
        sync_entry(Path::new("Cargo.toml")).unwrap();
    }
}
