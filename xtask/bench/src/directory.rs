//! The data directories of servers under measurement.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// Creates a directory below the build directory. Dropping the handle removes the new directory.
/// The system's temporary directory is not used, because it may be in memory, where a sync costs no
/// time.
///
/// # Errors
/// The directory cannot be created.
pub(crate) fn new() -> Result<TempDir> {
    let parent = build_directory()?.join("bench");
    std::fs::create_dir_all(&parent)
        .and_then(|()| TempDir::new_in(&parent))
        .with_context(|| format!("cannot create a directory in `{}`", parent.display()))
}

/// Returns the build directory of cargo. This program is in its folder `debug` or `release`, or in
/// a folder below.
fn build_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let is_profile = |path: &&Path| path.ends_with("debug") || path.ends_with("release");
    match program.ancestors().find(is_profile).and_then(Path::parent) {
        Some(build) => Ok(build.to_owned()),
        None => bail!("`{}` is not in a build directory: run `cargo xtask bench`", program.display()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_directory_goes_with_its_handle() {
        let directory = new().unwrap();
        let path = directory.path().to_owned();
        assert!(path.is_dir() && path.starts_with(build_directory().unwrap()));
        drop(directory);
        assert!(!path.exists());
    }
}
