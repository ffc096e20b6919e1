//! `cargo xtask package` and `cargo xtask deny`: the steps of a release.

use std::path::PathBuf;
use std::process::{Command as Blocking, Stdio};

use anyhow::{Context, Result, ensure};
use xtask::needs;
use xtask::package;
use xtask::process::{as_a_person, root, run, target_directory};

/// Builds the program, and writes the packages into `target/package`.
///
/// # Errors
/// The program does not build, or a package cannot be written.
pub(crate) async fn package() -> Result<()> {
    let program = build_program().await?;
    for path in package::write(&program, &target_directory().join("package"))? {
        println!("{}", path.display());
    }
    Ok(())
}

/// Builds the program of a release and returns its path. It is linked statically with musl, so it
/// runs on every Linux of this architecture.
///
/// # Errors
/// The target cannot be added to the Rust toolchain, or the program does not build.
pub(crate) async fn build_program() -> Result<PathBuf> {
    needs::install(needs::FOR_PACKAGE)?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    add_target(&target).await?;
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "--locked", "--release", "--package", "leasehold-server", "--bin", "leasehold"]);
    run(cargo.args(["--target", &target]).current_dir(root())).await?;
    Ok(target_directory().join(target).join("release/leasehold"))
}

/// Adds a compilation target to the Rust toolchain, unless the toolchain has it.
async fn add_target(target: &str) -> Result<()> {
    let mut rustc = Blocking::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]).current_dir(root()).stderr(Stdio::null());
    let output = rustc.output().context("cannot start `rustc`")?;
    ensure!(output.status.success(), "this Rust does not know the target `{target}`");
    if PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).is_dir() {
        return Ok(());
    }
    run(as_a_person("rustup").args(["target", "add", target]).current_dir(root()))
        .await
        .with_context(|| format!("cannot add `{target}` to the Rust toolchain: install it, then try again"))
}

/// Checks the rules of `deny.toml` on licences, sources and bans. With `advisories`, also looks for
/// known faults in dependencies, whose list is downloaded.
///
/// # Errors
/// A rule is broken, or cargo-deny cannot be installed.
pub(crate) async fn deny(advisories: bool) -> Result<()> {
    needs::install_deny()?;
    let mut cargo = as_a_person("cargo");
    cargo.args(["deny", "--locked", "--all-features", "check", "licenses", "sources", "bans"]);
    if advisories {
        cargo.arg("advisories");
    }
    run(cargo.current_dir(root())).await
}
