//! A Rust toolchain that can compile to WebAssembly.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Command;

use xtask::needs;
use xtask::process::Group;

/// The compilation target for WebAssembly.
pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// The longest time that rustup may take to add the target. Without a network it may hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// The path of Debian's Rust compiler, which may be installed in addition to rustup's.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";

/// A Rust toolchain that compiles to WebAssembly.
#[derive(Debug)]
pub(super) enum Toolchain {
    /// The toolchain of native builds, which has the WebAssembly target.
    Own,
    /// Debian's toolchain, which builds the standard library from Debian's sources.
    Debian,
}

impl Toolchain {
    /// Returns the native toolchain if it has the WebAssembly target or rustup can add the target,
    /// else Debian's toolchain.
    ///
    /// # Errors
    /// Debian's packages cannot be installed.
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

    /// Returns the name or path of the toolchain's cargo.
    pub(super) fn cargo(&self) -> &'static str {
        match self {
            Self::Own => "cargo",
            Self::Debian => DEBIAN_CARGO,
        }
    }

    /// Adds the arguments and variables with which a call of cargo uses this toolchain.
    pub(super) fn configure(&self, cargo: &mut Command) {
        self.build_std(cargo, "-Zbuild-std=std,panic_abort");
        if let Self::Debian = self {
            // With this feature the standard library has smaller algorithms, mainly for sorting,
            // and is a third smaller.
            cargo.arg("-Zbuild-std-features=optimize_for_size");
        }
    }

    /// Adds the arguments and variables with which a call of cargo builds tests with this
    /// toolchain. Tests also need the crate `test`.
    pub(super) fn configure_tests(&self, cargo: &mut Command) {
        self.build_std(cargo, "-Zbuild-std=std,panic_abort,test");
    }

    fn build_std(&self, cargo: &mut Command, crates: &str) {
        if let Self::Debian = self {
            // RUSTC_BOOTSTRAP allows `-Z` with a stable compiler. The sources of the standard
            // library are from the same release as the compiler, so they always fit.
            cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").arg(crates);
        }
    }
}

async fn has_target() -> Result<bool> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().await.context("cannot start `rustc`")?;
    let sysroot = String::from_utf8(output.stdout).context("`rustc` names no directory")?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib").exists())
}

/// Makes rustup add the WebAssembly target. Returns true if that succeeded. If this program runs
/// under rustup, cargo has set the variable that names the toolchain.
async fn add_target() -> bool {
    let added = async {
        let mut rustup = Command::new("rustup");
        Group::start(rustup.args(["target", "add", TARGET]).stdin(Stdio::null()))?.wait().await
    };
    tokio::time::timeout(PATIENCE, added).await.is_ok_and(|added| added.is_ok_and(|status| status.success()))
}
