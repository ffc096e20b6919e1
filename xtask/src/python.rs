//! `cargo xtask python`: the Python package in an environment of its own, and its tests there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::check::{as_a_person, target_directory};
use crate::process::run;

/// What builds, checks and tests the package.
const REQUIREMENTS: &str = "requirements-dev.txt";

/// What holds the package to its promises: a program of the environment, where it runs, and its arguments. All of them
/// look at the installed wheel: none runs where the sources of the package, which lack the extension, would be found.
const CHECKS: &[(&str, &str, &[&str])] = &[
    ("ruff", ".", &["check", "."]),
    ("ruff", ".", &["format", "--check", "."]),
    ("mypy", ".", &[]),
    ("stubtest", "tests", &["leasehold._native"]),
    ("pytest", ".", &[]),
];

/// Where the package is built and tested, in the build's directory.
pub(crate) struct Environment {
    package: PathBuf,
    home: PathBuf,
}

impl Environment {
    /// The one of this checkout.
    pub(crate) fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let home = target_directory(&root).join("python");
        // Programs are called in other directories.
        let home = std::path::absolute(&home).unwrap_or(home);
        Self { package: root.join("python"), home }
    }

    /// Where a program of the environment is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.join("venv/bin").join(name)
    }

    /// A program of the environment, as it is called in `python`.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = as_a_person(self.path(name));
        command.current_dir(&self.package);
        // What these keep for the next time stays in the build's directory, too.
        command.env("PIP_CACHE_DIR", self.home.join("pip")).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command.env("HYPOTHESIS_STORAGE_DIRECTORY", self.home.join("hypothesis"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("LEASEHOLD_WHEELS", self.wheels());
        command
    }

    /// Makes the environment where it is missing, and brings what it needs up to date.
    ///
    /// # Errors
    /// Python or a package can't be had.
    pub(crate) async fn prepare(&self) -> Result<()> {
        if !self.home.join("venv/bin/pip").exists() {
            run(as_a_person("python3").args(["-m", "venv", "--clear"]).arg(self.home.join("venv"))).await?;
        }
        let wanted = std::fs::read(self.package.join(REQUIREMENTS)).context("cannot read the requirements")?;
        let installed = self.home.join("venv").join(REQUIREMENTS);
        if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        run(self.program("pip").args(["install", "--quiet", "--requirement", REQUIREMENTS])).await?;
        std::fs::write(&installed, wanted).context("cannot note what was installed")
    }

    /// Builds the wheel, the only one in its directory, and installs it.
    ///
    /// # Errors
    /// It can't be built or installed.
    pub(crate) async fn install(&self, profile: &str) -> Result<()> {
        if self.wheels().exists() {
            std::fs::remove_dir_all(self.wheels())?;
        }
        let mut maturin = self.program("maturin");
        maturin.args(["build", "--quiet", "--locked", "--profile", profile]);
        // A directory of its own: what Python's extensions are linked with differs, and would be built anew each time.
        maturin.arg("--target-dir").arg(self.home.join("build")).arg("--out").arg(self.wheels());
        maturin.arg("--interpreter").arg(self.home.join("venv/bin/python"));
        run(&mut maturin).await?;
        let wheels = std::fs::read_dir(self.wheels())?.collect::<Result<Vec<_>, _>>()?;
        let [wheel] = wheels.as_slice() else { anyhow::bail!("maturin has built {} wheels, not one", wheels.len()) };
        run(self.program("pip").args(["uninstall", "--quiet", "--yes", "leasehold"])).await?;
        run(self.program("pip").args(["install", "--quiet"]).arg(wheel.path())).await
    }

    fn wheels(&self) -> PathBuf {
        self.home.join("wheels")
    }
}

/// Builds the package and installs it.
///
/// # Errors
/// See [`Environment::prepare`] and [`Environment::install`].
pub(crate) async fn build() -> Result<()> {
    let environment = Environment::new();
    environment.prepare().await?;
    environment.install("dev").await
}

/// Checks and tests the package that was installed.
///
/// # Errors
/// A check failed, after all of them ran.
pub(crate) async fn test() -> Result<()> {
    let environment = Environment::new();
    let mut failed = Vec::new();
    for (program, directory, arguments) in CHECKS {
        let mut command = environment.program(program);
        command.args(*arguments).current_dir(environment.package.join(directory));
        if run(&mut command).await.is_err() {
            failed.push(format!("{program} {}", arguments.join(" ")));
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
