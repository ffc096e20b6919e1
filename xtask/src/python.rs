//! `cargo xtask python`: builds the Python package, installs it into a virtual environment, and tests it there.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::process::{as_a_person, root, run, target_directory};

/// The file that lists the tools with which the Python package is built, checked and tested.
const REQUIREMENTS: &str = "requirements-dev.txt";

/// The variable that names a file with cargo's messages about a build of the workspace. If it is
/// set, the wheel for the tests contains the extension of that build.
pub const MESSAGES_VARIABLE: &str = "LEASEHOLD_BUILD_MESSAGES";

/// The program that maturin runs as cargo if [`MESSAGES_VARIABLE`] is set, relative to `python`.
const BUILT_CARGO: &str = "tools/built_cargo.sh";

/// The profile of the optimised build, which users get and the benchmarks measure.
const RELEASE: Profile = Profile { name: "release", wheels: "wheels", takes_built: false };
/// The profile of the quick build for the tests.
const DEV: Profile = Profile { name: "dev", wheels: "wheels-dev", takes_built: true };

/// A build profile of cargo, and the name of the directory for its wheel.
#[derive(Clone, Copy)]
struct Profile {
    name: &'static str,
    wheels: &'static str,
    /// True if the wheel may contain the extension of the workspace's build.
    takes_built: bool,
}

/// The checks of the installed wheel: each is a program of the environment, its working directory
/// relative to `python`, and its arguments. stubtest runs in `tests`, because in `python` it would
/// import the sources, which do not have the extension.
const CHECKS: &[(&str, &str, &[&str])] = &[
    ("ruff", ".", &["check", "."]),
    ("ruff", ".", &["format", "--check", "."]),
    ("mypy", ".", &[]),
    ("stubtest", "tests", &["leasehold._native"]),
    ("pytest", ".", &[]),
];

/// A virtual environment of Python in the build directory, with the packages that a file lists: the
/// one in which the package is tested, or another.
pub struct Environment {
    /// The working directory of the environment's programs.
    package: PathBuf,
    home: PathBuf,
    /// The name of the file in `package` that lists the packages.
    requirements: &'static str,
    /// The Python that makes the environment.
    python: &'static str,
}

impl Environment {
    /// Returns the environment in the project's build directory.
    pub fn of_project() -> Self {
        Self::new("python", root().join("python"), REQUIREMENTS)
    }

    /// Returns the environment `name` of the build directory, with the packages that the file
    /// `requirements` in the directory `package` lists.
    pub fn new(name: &str, package: PathBuf, requirements: &'static str) -> Self {
        let home = target_directory().join(name);
        // The path is absolute, because the programs of the environment run in other directories.
        let home = std::path::absolute(&home).unwrap_or(home);
        Self { package, home, requirements, python: "python3" }
    }

    /// The same environment, made by the Python at this path.
    #[must_use]
    pub fn made_by(self, python: &'static str) -> Self {
        Self { python, ..self }
    }

    /// Returns the path of a program of the environment.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.join("venv/bin").join(name)
    }

    /// Returns a command that runs a program of the environment in its working directory.
    pub fn program(&self, name: &str) -> Command {
        let mut command = as_a_person(self.path(name));
        command.current_dir(&self.package);
        // The variables keep the programs' caches in the build directory.
        command.env("PIP_CACHE_DIR", self.home.join("pip")).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command.env("UV_CACHE_DIR", self.home.join("uv"));
        // A source package is built without the former way of pip, which warns of itself.
        command.env("PIP_USE_PEP517", "1");
        command.env("HYPOTHESIS_STORAGE_DIRECTORY", self.home.join("hypothesis"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Creates the environment if it is missing, and installs the listed packages if the list has
    /// changed.
    ///
    /// # Errors
    /// Python is missing, or a package cannot be installed.
    pub async fn prepare(&self) -> Result<()> {
        if !self.home.join("venv/bin/pip").exists() {
            run(as_a_person(self.python).args(["-m", "venv", "--clear"]).arg(self.home.join("venv"))).await?;
        }
        let wanted = std::fs::read(self.package.join(self.requirements)).context("cannot read the requirements")?;
        let installed = self.home.join("venv").join(self.requirements);
        if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        run(self.program("pip").args(["install", "--quiet", "--requirement", self.requirements])).await?;
        std::fs::write(&installed, wanted).context("cannot note what was installed")
    }

    /// Builds the optimised wheel and installs it.
    ///
    /// # Errors
    /// The wheel cannot be built or installed.
    pub async fn install_release(&self) -> Result<()> {
        self.install(RELEASE).await
    }

    /// Builds a wheel with this profile and installs it.
    async fn install(&self, profile: Profile) -> Result<()> {
        let wheels = self.wheels(profile);
        if wheels.exists() {
            std::fs::remove_dir_all(&wheels)?;
        }
        let mut maturin = self.program("maturin");
        maturin.args(["build", "--quiet", "--locked", "--profile", profile.name]);
        // The build has its own target directory. maturin sets variables that pyo3 compiles in, so
        // builds in a shared directory would invalidate each other.
        maturin.arg("--target-dir").arg(self.home.join("build")).arg("--out").arg(&wheels);
        maturin.arg("--interpreter").arg(self.home.join("venv/bin/python"));
        if profile.takes_built && std::env::var_os(MESSAGES_VARIABLE).is_some() {
            maturin.env("CARGO", std::path::absolute(self.package.join(BUILT_CARGO))?);
        }
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

/// Builds the optimised Python package and installs it.
///
/// # Errors
/// See [`Environment::prepare`] and [`Environment::install_release`].
pub async fn build() -> Result<()> {
    let environment = Environment::of_project();
    environment.prepare().await?;
    environment.install_release().await
}

/// Builds the Python package and installs it: optimised if `is_release` is true, else quickly.
///
/// # Errors
/// The package cannot be built or installed.
pub async fn build_for_tests(is_release: bool) -> Result<()> {
    let environment = Environment::of_project();
    environment.prepare().await?;
    environment.install(profile(is_release)).await
}

/// Checks and tests the installed Python package, which [`build_for_tests`] must have built with
/// the same `is_release`.
///
/// # Errors
/// A check failed. All checks have run.
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
