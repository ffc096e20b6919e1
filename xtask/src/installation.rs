//! Tries the packages of a release as people get them: the Debian package in a chroot of Debian 12,
//! the tarball's program and the image of the Containerfile in roots that have nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xtask::process::{as_a_person, run};
use xtask::{needs, package};

use crate::container;
use crate::debian::{Chroot, STABLE};

/// The script that installs, runs, removes and purges the Debian package.
const SCRIPT: &str = include_str!("installation.sh");

/// The Debian packages that the base image of the Containerfile's first stage has.
const BASE: &[&str] = &["ca-certificates"];

/// Packs `program`, then installs and runs each package. Returns the number of packages.
///
/// # Errors
/// A package cannot be made, or does not do what it promises.
pub(crate) async fn test(program: &Path) -> Result<BTreeMap<String, u64>> {
    needs::install(&[needs::FOR_PACKAGE, needs::FOR_CHROOT].concat())?;
    let chroot = Chroot::new("debian-stable", STABLE)?;
    chroot.prepare(BASE).await?;
    let directory = chroot.root().join("packages.d");
    package::write(program, &directory)?;
    let sums = std::fs::read(directory.join(package::CHECKSUMS))?;
    let packages = package::write(program, &directory)?;
    ensure!(sums == std::fs::read(directory.join(package::CHECKSUMS))?, "a second run packs other bytes");
    let debian = find(&packages, ".deb")?;
    try_debian(&chroot, &debian).await?;
    try_image(&chroot).await?;
    Ok(BTreeMap::from([("packages".to_owned(), packages.len() as u64)]))
}

fn find(packages: &[PathBuf], ending: &str) -> Result<PathBuf> {
    let has_ending = |path: &&PathBuf| path.to_string_lossy().ends_with(ending);
    packages.iter().find(has_ending).cloned().with_context(|| format!("no package ends in `{ending}`"))
}

async fn try_debian(chroot: &Chroot, package: &Path) -> Result<()> {
    let inside = Path::new("/").join(package.strip_prefix(chroot.root())?);
    run(chroot.command("sh").args(["-euc", SCRIPT, "installation"]).arg(inside)).await
}

/// Builds the image with the profile of a first try, which compiles fast, and runs its program.
async fn try_image(chroot: &Chroot) -> Result<()> {
    let image = container::build(chroot, &[("PROFILE", "trial")]).await?;
    let files = image.files()?;
    ensure!(files == [Path::new("usr/bin/leasehold")], "the image has other files: {files:?}");
    run(&mut image.command(&["--version"])?).await?;
    let data = "/var/lib/leasehold";
    run(&mut image.command(&["init", "--data", data])?).await?;
    ensure!(image.command.iter().any(|word| word == data), "the image serves from another directory");
    run(as_a_person("rm").args(["--recursive", "--force"]).arg(&image.root)).await
}
