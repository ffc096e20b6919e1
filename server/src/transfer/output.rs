//! The output of an export: a regular file, which the export replaces when it is complete, or a
//! pipe or device.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Opens the file at `path`, calls `write` with it, and returns the result of `write`.
///
/// A regular file is replaced only when the new one is complete, so that a failed export never
/// destroys an earlier one. A symlink is followed. A pipe or a device is written to directly.
///
/// # Errors
/// The path can't be written to, or `write` failed.
pub fn write_to<T, E: From<io::Error>>(path: &Path, write: impl FnOnce(&File) -> Result<T, E>) -> Result<T, E> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => replace(&path.canonicalize()?, write),
        Ok(_) => write(&OpenOptions::new().write(true).open(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => replace(path, write),
        Err(error) => Err(error.into()),
    }
}

fn replace<T, E: From<io::Error>>(path: &Path, write: impl FnOnce(&File) -> Result<T, E>) -> Result<T, E> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let file = create_private(part.as_ref())?;
    let written = write(&file).and_then(|written| Ok(file.sync_all().map(|()| written)?));
    let replaced = written.and_then(|written| Ok(std::fs::rename(&part, path).map(|()| written)?));
    if replaced.is_err() {
        // An error of the removal is ignored, because the error of the export must be reported.
        let _ = std::fs::remove_file(&part);
    }
    replaced
}

/// Creates an empty file that only its user may read, because an export contains names and emails.
/// An existing file is emptied.
fn create_private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_readable_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        for path in [path, dir.path().join("new")] {
            let file = create_private(&path).unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(file.metadata().unwrap().len(), 0);
        }
    }
}
