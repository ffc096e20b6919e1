//! `cargo xtask python`: builds the Python package, installs it into a virtual environment, and tests it there.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::process::{as_a_person, root, run, target_directory};

/// The file that lists the tools which build, check and test the package.
const REQUIREMENTS: &str = "requirements-dev.txt";

/// The optimised build, which users get and the benchmark measures.
const RELEASE: Profile = Profile { name: "release", wheels: "wheels" };
/// The quick build for the tests.
const DEV: Profile = Profile { name: "dev", wheels: "wheels-dev" };

/// A build profile of cargo, and the directory that receives its wheel.
#[derive(Clone, Copy)]
struct Profile {
    name: &'static str,
    wheels: &'static str,
}

/// The checks of the installed wheel: a program of the environment, its working directory in `python`, its arguments.
/// stubtest runs in `tests`: in `python` it would import the sources, which lack the extension.
const CHECKS: &[(&str, &str, &[&str])] = &[
    ("ruff", ".", &["check", "."]),
    ("ruff", ".", &["format", "--check", "."]),
    ("mypy", ".", &[]),
    ("stubtest", "tests", &["leasehold._native"]),
    ("pytest", ".", &[]),
];

/// The virtual environment in which the package is tested, in the build directory.
pub struct Environment {
    package: PathBuf,
    home: PathBuf,
}

impl Environment {
    /// The environment in the project's build directory.
    pub fn of_project() -> Self {
        let home = target_directory().join("python");
        // The path is absolute since its programs run in other directories.
        let home = std::path::absolute(&home).unwrap_or(home);
        Self { package: root().join("python"), home }
    }

    /// The path of a program of the environment.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.join("venv/bin").join(name)
    }

    /// A command that runs a program of the environment in `python`.
    pub fn program(&self, name: &str) -> Command {
        let mut command = as_a_person(self.path(name));
        command.current_dir(&self.package);
        // Caches stay in the build directory.
        command.env("PIP_CACHE_DIR", self.home.join("pip")).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command.env("HYPOTHESIS_STORAGE_DIRECTORY", self.home.join("hypothesis"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Creates the environment if it is missing, and installs the requirements if they changed.
    ///
    /// # Errors
    /// Python is missing, or a package cannot be installed.
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

    /// Builds the optimised wheel and installs it.
    ///
    /// # Errors
    /// The wheel cannot be built or installed.
    pub async fn install_release(&self) -> Result<()> {
        self.install(RELEASE).await
    }

    /// Builds a wheel into an empty directory and installs it.
    async fn install(&self, profile: Profile) -> Result<()> {
        let wheels = self.wheels(profile);
        if wheels.exists() {
            std::fs::remove_dir_all(&wheels)?;
        }
        let mut maturin = self.program("maturin");
        maturin.args(["build", "--quiet", "--locked", "--profile", profile.name]);
        // A separate target directory: maturin sets variables that pyo3 compiles in, so builds in a shared directory would
        // invalidate each other.
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

/// Builds the optimised package and installs it.
///
/// # Errors
/// See [`Environment::prepare`] and [`Environment::install_release`].
pub async fn build() -> Result<()> {
    let environment = Environment::of_project();
    environment.prepare().await?;
    environment.install_release().await
}

/// Builds the package, quickly or optimised, and installs it.
///
/// # Errors
/// The package cannot be built.
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
