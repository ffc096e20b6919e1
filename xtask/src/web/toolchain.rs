//! A compiler with a standard library for WebAssembly.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Command;

use xtask::needs;
use xtask::process::Group;

/// What is compiled for.
pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// How long rustup may take; without the network it may never end.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where Debian puts its compiler, beside rustup's.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";

/// Whose compiler it is.
#[derive(Debug)]
pub(super) enum Toolchain {
    /// The one that builds everything else: it has the target.
    Own,
    /// Debian's, which builds the standard library from Debian's sources of it.
    Debian,
}

impl Toolchain {
    /// The toolchain's own target; where it is missing, as rustup adds it; where that fails, Debian's compiler.
    ///
    /// # Errors
    /// None of them can be had.
    pub(super) async fn find() -> Result<Self> {
        if has_target().await? || add_target().await && has_target().await? {
            return Ok(Self::Own);
        }
        eprintln!(
            "this Rust has no {TARGET}, and rustup adds none: its standard library is built from Debian's sources"
        );
        needs::install(needs::FOR_WASM)?;
        Ok(Self::Debian)
    }

    /// The cargo to call.
    pub(super) fn cargo(&self) -> &'static str {
        match self {
            Self::Own => "cargo",
            Self::Debian => DEBIAN_CARGO,
        }
    }

    /// Has a call of cargo use the toolchain.
    pub(super) fn configure(&self, cargo: &mut Command) {
        self.build_std(cargo, "-Zbuild-std=std,panic_abort");
        if let Self::Debian = self {
            // Where it is built anyway, a third less of it: its sorts are small ones.
            cargo.arg("-Zbuild-std-features=optimize_for_size");
        }
    }

    /// The same for a call that builds tests, which stand on a library of their own.
    pub(super) fn configure_tests(&self, cargo: &mut Command) {
        self.build_std(cargo, "-Zbuild-std=std,panic_abort,test");
    }

    fn build_std(&self, cargo: &mut Command, crates: &str) {
        if let Self::Debian = self {
            // Sources of a release are built by its own compiler, so what `-Z` guards against can't happen.
            cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").arg(crates);
        }
    }
}

async fn has_target() -> Result<bool> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().await.context("cannot start `rustc`")?;
    let sysroot = String::from_utf8(output.stdout).context("`rustc` names no directory")?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib").exists())
}

/// Whether rustup has added the target. Cargo as rustup starts it names its toolchain to rustup.
async fn add_target() -> bool {
    let added = async {
        let mut rustup = Command::new("rustup");
        Group::start(rustup.args(["target", "add", TARGET]).stdin(Stdio::null()))?.wait().await
    };
    tokio::time::timeout(PATIENCE, added).await.is_ok_and(|added| added.is_ok_and(|status| status.success()))
}
