//! The output of an export: a regular file, which the export replaces when it is complete, or a
//! pipe or device.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::TransferError;

/// Opens the file at `path`, calls `write` with it, and returns the result of `write`.
///
/// A regular file is replaced only when the new one is complete, so that a failed export never
/// destroys an earlier one. A symlink is followed. A pipe or a device is written to directly.
///
/// # Errors
/// The path can't be written to, or `write` failed.
pub(super) fn write_to<T, E: From<io::Error>>(path: &Path, write: impl FnOnce(&File) -> Result<T, E>) -> Result<T, E> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => replace(&path.canonicalize()?, write),
        Ok(_) => write(&OpenOptions::new().write(true).open(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => replace(path, write),
        Err(error) => Err(error.into()),
    }
}

/// Checks that an output does not lie in the data directory that is exported: it could replace a file
/// of the store.
///
/// # Errors
/// The output lies there.
pub(super) fn check_place(data: &Path, output: &Path) -> Result<(), TransferError> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (data.canonicalize(), output.canonicalize().or_else(|_| folder.canonicalize())) {
        (Ok(data), Ok(place)) if place.starts_with(&data) => Err(TransferError::OutputInData(output.to_owned())),
        // A path that can't be read is told when it is opened.
        _ => Ok(()),
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
    fn an_export_never_replaces_a_file_of_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir_all(data.join("fjall")).unwrap();
        std::os::unix::fs::symlink(data.join("acknowledged"), dir.path().join("link")).unwrap();
        std::fs::write(data.join("acknowledged"), "").unwrap();
        for inside in ["data/acknowledged", "data/fjall/new", "data/../data/new", "link"] {
            let refused = check_place(&data, &dir.path().join(inside));
            assert!(matches!(refused, Err(TransferError::OutputInData(_))), "{inside}");
        }
        for outside in ["new", "data2", "missing/new"] {
            assert!(check_place(&data, &dir.path().join(outside)).is_ok(), "{outside}");
        }
    }

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
