//! `cargo xtask python`: builds the Python package, installs it into a virtual environment, and tests it there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::package;
use crate::process::{as_a_person, root, run, target_directory};

/// The file that lists the tools with which the Python package is built, checked and tested.
const REQUIREMENTS: &str = "requirements-dev.txt";

/// The variable that names a file with cargo's messages about a build of the workspace. If it is
/// set, the wheel for the tests contains the extension of that build.
pub const MESSAGES_VARIABLE: &str = "LEASEHOLD_BUILD_MESSAGES";

/// The program that maturin runs as cargo if [`MESSAGES_VARIABLE`] is set, relative to `python`.
const BUILT_CARGO: &str = "tools/built_cargo.sh";

/// The directory of the packages that users get, whose wheel the benchmarks measure.
const RELEASE: &str = "wheels";
/// The directory of the quick build's wheel, which the tests take.
const DEV: &str = "wheels-dev";

/// The arguments of maturin if pip runs it. By default, such a wheel has no tag for other machines than this one, because
/// pip installs it here. With `pypi`, maturin looks for the oldest glibc with which the extension runs.
const RELEASE_ARGUMENTS: &str = "--quiet --compatibility pypi";

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

/// The checks of the packages of a release.
const RELEASE_CHECKS: &[(&str, &str, &[&str])] = &[("pytest", ".", &["-m", "release"])];

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

    /// Builds the packages of a release and installs the wheel.
    ///
    /// # Errors
    /// A package cannot be built or installed.
    pub async fn install_release(&self) -> Result<()> {
        self.build_release().await?;
        self.install(RELEASE).await
    }

    /// Writes the source package of a release. pip builds the optimised wheel from it, as it does for users.
    async fn build_release(&self) -> Result<()> {
        let wheels = self.empty(RELEASE)?;
        package::write_python_notice(&self.package)?;
        run(self.program("maturin").args(["sdist", "--out"]).arg(&wheels)).await?;
        let source = self.unpack(&only_file(&wheels, "gz")?).await?;
        let mut pip = self.program("pip");
        pip.args(["wheel", "--quiet", "--no-deps", "--wheel-dir"]).arg(&wheels).arg(source);
        run(pip.env("MATURIN_PEP517_ARGS", RELEASE_ARGUMENTS).env("CARGO_TARGET_DIR", self.build_directory())).await
    }

    /// Unpacks a source package, and returns the directory with its files.
    async fn unpack(&self, archive: &Path) -> Result<PathBuf> {
        // The path is the same each time, since cargo compiles the sources again at each new one.
        let sources = self.empty("source")?;
        // All files of the archive are of 1980: cargo would take a changed one for compiled.
        run(as_a_person("tar").args(["--extract", "--touch", "--directory"]).arg(&sources).arg("--file").arg(archive))
            .await?;
        Ok(sources.join(format!("leasehold-{}", package::VERSION)))
    }

    /// Builds a wheel quickly.
    async fn build_dev(&self) -> Result<()> {
        let mut maturin = self.program("maturin");
        maturin.args(["build", "--quiet", "--locked", "--profile", "dev"]);
        maturin.arg("--target-dir").arg(self.build_directory()).arg("--out").arg(self.empty(DEV)?);
        maturin.arg("--interpreter").arg(self.home.join("venv/bin/python"));
        if std::env::var_os(MESSAGES_VARIABLE).is_some() {
            maturin.env("CARGO", std::path::absolute(self.package.join(BUILT_CARGO))?);
        }
        run(&mut maturin).await
    }

    /// Installs the wheel in a directory of the environment.
    async fn install(&self, wheels: &str) -> Result<()> {
        let wheel = only_file(&self.home.join(wheels), "whl")?;
        run(self.program("pip").args(["uninstall", "--quiet", "--yes", "leasehold"])).await?;
        run(self.program("pip").args(["install", "--quiet"]).arg(wheel)).await
    }

    /// Runs all checks on the packages in a directory of the environment.
    async fn check(&self, checks: &[(&str, &str, &[&str])], wheels: &str) -> Result<()> {
        let mut failed = Vec::new();
        for (program, directory, arguments) in checks {
            let mut command = self.program(program);
            command.args(*arguments).current_dir(self.package.join(directory));
            command.env("LEASEHOLD_WHEELS", self.home.join(wheels));
            if run(&mut command).await.is_err() {
                failed.push(format!("{program} {}", arguments.join(" ")));
            }
        }
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }

    /// Returns the target directory of this package. maturin sets variables that pyo3 compiles in, so builds in a shared
    /// directory would invalidate each other.
    fn build_directory(&self) -> PathBuf {
        self.home.join("build")
    }

    /// Empties a directory of the environment, and returns its path.
    fn empty(&self, name: &str) -> Result<PathBuf> {
        let directory = self.home.join(name);
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::create_dir_all(&directory)?;
        Ok(directory)
    }
}

/// Returns the path of the only file in a directory whose name has this ending.
fn only_file(directory: &Path, ending: &str) -> Result<PathBuf> {
    let paths = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let found: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    let [file] = found.as_slice() else { anyhow::bail!("{} files end in `.{ending}`, not one", found.len()) };
    Ok(file.clone())
}

/// Builds the packages of a release, and installs the wheel.
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
    if is_release {
        return environment.install_release().await;
    }
    environment.build_dev().await?;
    environment.install(DEV).await
}

/// Builds the packages of a release, and installs none.
///
/// # Errors
/// A package cannot be built.
pub async fn build_release() -> Result<()> {
    let environment = Environment::of_project();
    environment.prepare().await?;
    environment.build_release().await
}

/// Tries the packages that [`build_release`] has built, in fresh environments.
///
/// # Errors
/// A check failed.
pub async fn test_release() -> Result<()> {
    Environment::of_project().check(RELEASE_CHECKS, RELEASE).await
}

/// Checks and tests the installed Python package, which [`build_for_tests`] must have built with
/// the same `is_release`.
///
/// # Errors
/// A check failed. All checks have run.
pub async fn test(is_release: bool) -> Result<()> {
    Environment::of_project().check(CHECKS, if is_release { RELEASE } else { DEV }).await
}
