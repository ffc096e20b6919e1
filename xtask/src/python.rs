//! `cargo xtask python`: the Python package in an environment of its own, and its tests there.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::process::{as_a_person, root, run, target_directory};

/// What builds, checks and tests the package.
const REQUIREMENTS: &str = "requirements-dev.txt";

/// How the wheel is built that people get. The benchmark measures that one.
const RELEASE: Profile = Profile { name: "release", wheels: "wheels" };
/// How the one is built that tests look at, unless they are told otherwise: quickly.
const DEV: Profile = Profile { name: "dev", wheels: "wheels-dev" };

/// A profile of cargo's, and the directory of the wheel that it makes.
#[derive(Clone, Copy)]
struct Profile {
    name: &'static str,
    wheels: &'static str,
}

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
pub struct Environment {
    package: PathBuf,
    home: PathBuf,
}

impl Environment {
    /// The environment in the project's build directory.
    pub fn of_project() -> Self {
        let home = target_directory().join("python");
        // Programs are called in other directories.
        let home = std::path::absolute(&home).unwrap_or(home);
        Self { package: root().join("python"), home }
    }

    /// Where a program of the environment is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.join("venv/bin").join(name)
    }

    /// A program of the environment, as it is called in `python`.
    pub fn program(&self, name: &str) -> Command {
        let mut command = as_a_person(self.path(name));
        command.current_dir(&self.package);
        // What these keep for the next time stays in the build's directory, too.
        command.env("PIP_CACHE_DIR", self.home.join("pip")).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command.env("HYPOTHESIS_STORAGE_DIRECTORY", self.home.join("hypothesis"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Makes the environment where it is missing, and brings what it needs up to date.
    ///
    /// # Errors
    /// Python or a package can't be had.
    pub async fn prepare(&self) -> Result<()> {
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

    /// Builds the wheel that people get, and installs it.
    ///
    /// # Errors
    /// It can't be built or installed.
    pub async fn install_release(&self) -> Result<()> {
        self.install(RELEASE).await
    }

    /// Builds a wheel, the only one in its directory, and installs it.
    async fn install(&self, profile: Profile) -> Result<()> {
        let wheels = self.wheels(profile);
        if wheels.exists() {
            std::fs::remove_dir_all(&wheels)?;
        }
        let mut maturin = self.program("maturin");
        maturin.args(["build", "--quiet", "--locked", "--profile", profile.name]);
        // A directory of its own: what Python's extensions are linked with differs, and would be built anew each time.
        maturin.arg("--target-dir").arg(self.home.join("build")).arg("--out").arg(&wheels);
        maturin.arg("--interpreter").arg(self.home.join("venv/bin/python"));
        run(&mut maturin).await?;
        let wheels = std::fs::read_dir(&wheels)?.collect::<Result<Vec<_>, _>>()?;
        let [wheel] = wheels.as_slice() else { anyhow::bail!("maturin has built {} wheels, not one", wheels.len()) };
        run(self.program("pip").args(["uninstall", "--quiet", "--yes", "leasehold"])).await?;
        run(self.program("pip").args(["install", "--quiet"]).arg(wheel.path())).await
    }

    fn wheels(&self, profile: Profile) -> PathBuf {
        self.home.join(profile.wheels)
    }
}

/// Builds the package as people get it, and installs it.
///
/// # Errors
/// See [`Environment::prepare`] and [`Environment::install_release`].
pub async fn build() -> Result<()> {
    let environment = Environment::of_project();
    environment.prepare().await?;
    environment.install_release().await
}

/// Builds the package, quickly or as people get it, and installs it.
///
/// # Errors
/// It can't be built.
pub async fn build_for_tests(is_release: bool) -> Result<()> {
    let environment = Environment::of_project();
    environment.prepare().await?;
    environment.install(profile(is_release)).await
}

/// Checks and tests the installed package, built before by [`build_for_tests`].
///
/// # Errors
/// A check failed, after all of them ran.
pub async fn test(is_release: bool) -> Result<()> {
    let environment = Environment::of_project();
    let mut failed = Vec::new();
    for (program, directory, arguments) in CHECKS {
        let mut command = environment.program(program);
        command.args(*arguments).current_dir(environment.package.join(directory));
        command.env("LEASEHOLD_WHEELS", environment.wheels(profile(is_release)));
        if run(&mut command).await.is_err() {
            failed.push(format!("{program} {}", arguments.join(" ")));
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

const fn profile(is_release: bool) -> Profile {
    if is_release { RELEASE } else { DEV }
}
