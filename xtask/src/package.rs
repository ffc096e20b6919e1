//! The packages of a release: a tarball, a Debian package, the bill of materials, and their
//! checksums. One commit gives the same bytes each time.

mod debian;
mod inventory;
mod licences;
mod sbom;
mod tarball;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{as_a_person, root};
pub use inventory::{Component, Inventory, PROGRAM};

/// The version of the project, which all of its packages have.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The file with the licences of the packages of others whose code a package has.
pub const NOTICE: &str = "THIRD-PARTY-LICENCES";

/// The file with the SHA-256 of every other package.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// The shells for which `leasehold completions` prints a script, each with the path at which Debian
/// installs the script.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/leasehold"),
    ("fish", "usr/share/fish/vendor_completions.d/leasehold.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_leasehold"),
];

/// The files that every package contains.
struct Content<'a> {
    program: &'a Path,
    /// The licences of the program's dependencies, with their texts.
    notice: String,
    /// The time of the commit in seconds since 1970, which all packed files have.
    time: String,
}

/// Writes the packages of `program` into the directory `into`, which is emptied first. Returns the
/// paths of the packages.
///
/// # Errors
/// A file cannot be written, or a program that packs is absent or fails.
pub fn write(program: &Path, into: &Path) -> Result<Vec<PathBuf>> {
    let inventory = Inventory::of(PROGRAM)?;
    let content = Content { program, notice: licences::notice(&inventory)?, time: commit_time()? };
    empty(into)?;
    let stage = into.join("stage");
    let bill = into.join(format!("leasehold-{VERSION}.cdx.json"));
    std::fs::write(&bill, sbom::document(&inventory, &content.time)?)?;
    let packages = vec![tarball::write(&content, &stage, into)?, debian::write(&content, &stage, into)?, bill];
    std::fs::remove_dir_all(stage)?;
    write_checksums(&packages, into)?;
    Ok(packages)
}

/// Writes the file [`NOTICE`] for Python's extension into the directory `into`.
///
/// # Errors
/// cargo fails, or the file cannot be written.
pub fn write_python_notice(into: &Path) -> Result<()> {
    let notice = licences::notice(&Inventory::of(inventory::PYTHON)?)?;
    std::fs::write(into.join(NOTICE), notice).with_context(|| format!("cannot write `{NOTICE}`"))
}

fn empty(directory: &Path) -> Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make `{}`", directory.display()))
}

fn write_checksums(packages: &[PathBuf], into: &Path) -> Result<()> {
    let names = packages.iter().filter_map(|path| path.file_name());
    let sums = output(Command::new("sha256sum").args(names).current_dir(into))?;
    std::fs::write(into.join(CHECKSUMS), sums).context("cannot write the checksums")
}

/// Returns the time of the checked out commit, in seconds since 1970.
fn commit_time() -> Result<String> {
    let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))?;
    Ok(time.trim().to_owned())
}

/// Runs a command of cargo in the project's root, and returns its output.
fn cargo(arguments: &[&str]) -> Result<String> {
    let mut cargo = as_a_person("cargo").into_std();
    output(cargo.args(arguments).current_dir(root()))
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot start `{name}`"))?;
    ensure!(output.status.success(), "`{name}` failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{name}` is no text"))
}

/// Writes a file that everybody may read, and the directories above it.
fn write_file(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    make_parent(path)?;
    std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))?;
    set_mode(path, 0o644)
}

/// Copies a file of the project to `path`, readable for everybody.
fn copy(file: &str, path: &Path) -> Result<()> {
    let bytes = std::fs::read(root().join(file)).with_context(|| format!("cannot read `{file}`"))?;
    write_file(path, bytes)
}

/// Copies every file that git tracks below the project's directory `from` into the directory `into`.
fn copy_directory(from: &str, into: &Path) -> Result<()> {
    for file in output(Command::new("git").args(["ls-files", from]).current_dir(root()))?.lines() {
        let relative = Path::new(file).strip_prefix(from).context("git lists another directory")?;
        copy(file, &into.join(relative))?;
    }
    Ok(())
}

impl Content<'_> {
    /// Copies the program to `path`, without the data of debuggers.
    fn install_program(&self, path: &Path) -> Result<()> {
        make_parent(path)?;
        output(Command::new("strip").args(["--strip-debug", "-o"]).arg(path).arg(self.program))?;
        set_mode(path, 0o755)
    }

    /// Returns the program's completions for a shell.
    fn completions(&self, shell: &str) -> Result<String> {
        output(Command::new(self.program).args(["completions", shell]))
    }
}

fn make_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all).context("cannot make a directory of the packages")
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).with_context(|| format!("cannot change `{}`", path.display()))
}
