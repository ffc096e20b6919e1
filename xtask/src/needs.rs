//! The programs and libraries that commands of `cargo xtask` need, and their installation on Debian
//! and Ubuntu.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A program or library that a command of `cargo xtask` needs, and the Debian package that contains
/// it.
#[derive(Clone, Copy)]
pub struct Need {
    sign: Sign,
    package: &'static str,
}

/// The sign by which a need counts as met.
#[derive(Clone, Copy)]
enum Sign {
    /// A program with this name is on the `PATH`.
    Program(&'static str),
    /// A program with this name is on the `PATH` or in the directory. A `*` in the directory stands
    /// for any one directory.
    ProgramOrFile(&'static str, &'static str),
    /// A file with this name is in the directory. A `*` in the directory stands for any one
    /// directory.
    File(&'static str, &'static str),
    /// Ruby finds a gem with this name.
    Gem(&'static str),
    /// Python finds a module with this name.
    Module(&'static str),
}

impl Need {
    const fn on_path(program: &'static str, package: &'static str) -> Self {
        Self { sign: Sign::Program(program), package }
    }

    const fn also_in(directory: &'static str, program: &'static str, package: &'static str) -> Self {
        Self { sign: Sign::ProgramOrFile(program, directory), package }
    }

    const fn file_in(directory: &'static str, name: &'static str, package: &'static str) -> Self {
        Self { sign: Sign::File(name, directory), package }
    }

    const fn gem(name: &'static str, package: &'static str) -> Self {
        Self { sign: Sign::Gem(name), package }
    }

    const fn module(name: &'static str, package: &'static str) -> Self {
        Self { sign: Sign::Module(name), package }
    }

    fn is_met(&self) -> bool {
        match self.sign {
            Sign::Program(program) => is_present(program),
            Sign::ProgramOrFile(program, directory) => is_present(program) || lies_in(directory, program),
            Sign::File(name, directory) => lies_in(directory, name),
            Sign::Gem(name) => succeeds_quietly(Command::new("ruby").args(["-e", "gem ARGV.fetch(0)", name])),
            Sign::Module(name) => succeeds_quietly(Command::new("python3").args(["-c", &format!("import {name}")])),
        }
    }
}

/// The needs of `cargo xtask test`, in addition to those of the language packages.
pub const FOR_TESTS: &[Need] = &[
    Need::on_path("cc", "build-essential"),
    Need::on_path("faketime", "faketime"),
    Need::on_path("git", "git"),
    Need::on_path("mount", "mount"),
    Need::on_path("openssl", "openssl"),
    Need::also_in("/usr/sbin", "pgbouncer", "pgbouncer"),
    Need::also_in("/usr/lib/postgresql/*/bin", "postgres", "postgresql"),
    Need::on_path("promtool", "prometheus"),
    Need::on_path("setpriv", "util-linux"),
    Need::on_path("strace", "strace"),
    Need::on_path("systemd-analyze", "systemd"),
    Need::on_path("unshare", "util-linux"),
];

/// The needs for compiling the Ruby extension, which clippy does too.
pub const FOR_EXTENSION: &[Need] = &[
    Need::on_path("cc", "build-essential"),
    Need::on_path("ruby", "ruby"),
    Need::also_in("/usr/include/*", "ruby.h", "ruby-dev"),
    Need::also_in("/usr/lib/*/lib", "libclang.so", "libclang-dev"),
];

/// The needs of the gem's specs.
pub const FOR_GEM: &[Need] = &[
    Need::on_path("grpc_tools_ruby_protoc", "ruby-grpc-tools"),
    // The `.proto` files import `descriptor.proto`. The package `ruby-grpc-tools` only recommends
    // `libprotobuf-dev`, and [`install`] installs no recommended packages.
    Need::file_in("/usr/include/google/protobuf", "descriptor.proto", "libprotobuf-dev"),
    Need::on_path("rake", "rake"),
    Need::on_path("rspec", "ruby-rspec"),
    Need::on_path("yard", "yard"),
    Need::gem("activejob", "ruby-activejob"),
    Need::gem("activerecord", "ruby-activerecord"),
    Need::gem("googleapis-common-protos-types", "ruby-googleapis-common-protos-types"),
    Need::gem("grpc", "ruby-grpc"),
    Need::gem("pg", "ruby-pg"),
    Need::gem("puma", "puma"),
    Need::gem("rails", "ruby-rails"),
    Need::gem("railties", "ruby-railties"),
    Need::gem("sidekiq", "ruby-sidekiq"),
];

/// The needs of `cargo xtask package`.
pub const FOR_PACKAGE: &[Need] = &[
    Need::on_path("cc", "build-essential"),
    Need::on_path("dpkg-deb", "dpkg"),
    Need::on_path("git", "git"),
    Need::on_path("musl-gcc", "musl-tools"),
];

/// The needs of a chroot with another release of Debian.
pub const FOR_CHROOT: &[Need] =
    &[Need::also_in("/usr/sbin", "debootstrap", "debootstrap"), Need::on_path("unshare", "util-linux")];

/// The needs for compiling the Python extension, which clippy does too. No Python headers are
/// needed, because pyo3 asks the interpreter.
pub const FOR_PYTHON: &[Need] = &[Need::on_path("cc", "build-essential"), Need::on_path("python3", "python3")];

/// The needs of the Python package's virtual environment.
pub const FOR_VENV: &[Need] = &[Need::module("ensurepip", "python3-venv")];

/// The needs of the npm package and its tests.
pub const FOR_NPM: &[Need] =
    &[Need::on_path("node", "nodejs"), Need::on_path("npm", "npm"), Need::on_path("openssl", "openssl")];

/// The needs of the page's tests, which start the browser at the path of Debian's package.
pub const FOR_PAGE: &[Need] = &[Need::file_in("/usr/bin", "chromium", "chromium")];

/// The needs of a build for WebAssembly with Debian's toolchain: a compiler, the sources of its
/// standard library, and a linker. They are looked for as files, because on the `PATH` rustup's
/// programs come first.
pub const FOR_WASM: &[Need] = &[
    Need::file_in("/usr/bin", "cargo", "cargo-web"),
    Need::file_in("/usr/bin", "rustc", "rustc-web"),
    Need::file_in("/usr/bin", "rust-lld", "rust-web-llvm"),
    Need::file_in("/usr/lib/rustlib/src/rust/library", "Cargo.lock", "rust-web-src"),
    Need::file_in("/usr/lib/llvm-*/bin", "wasm-ld", "lld-22"),
];

/// The needs of a cluster of PostgreSQL under Patroni.
pub const FOR_CLUSTER: &[Need] = &[
    Need::on_path("etcd", "etcd-server"),
    Need::on_path("faketime", "faketime"),
    Need::also_in("/usr/sbin", "haproxy", "haproxy"),
    Need::also_in("/usr/sbin", "ip", "iproute2"),
    Need::also_in("/usr/lib/postgresql/*/bin", "postgres", "postgresql"),
    Need::on_path("psql", "postgresql-client"),
    // Patroni is installed by Debian's Python: that of the `PATH` may lie where the user `postgres` can't read it.
    Need::file_in("/usr/lib/*/ensurepip", "__init__.py", "python3-venv"),
    Need::on_path("setpriv", "util-linux"),
];

/// The needs of the rows of `cargo xtask bench` with etcd as their peer.
pub const FOR_ETCD: &[Need] = &[Need::on_path("etcd", "etcd-server"), Need::on_path("etcdctl", "etcd-client")];

/// The needs of the rows of `cargo xtask bench` with ZooKeeper as their peer.
pub const FOR_ZOOKEEPER: &[Need] =
    &[Need::on_path("java", "default-jre-headless"), Need::file_in("/usr/share/java", "zookeeper.jar", "zookeeper")];

/// The needs of the rows of `cargo xtask bench` on PostgreSQL.
pub const FOR_POSTGRES: &[Need] =
    &[Need::also_in("/usr/lib/postgresql/*/bin", "pgbench", "postgresql"), Need::on_path("setpriv", "util-linux")];

/// Components of the Rust toolchain, each with the subcommand of cargo that works if the component
/// is installed.
const COMPONENTS: &[(&str, &str)] = &[("rustfmt", "fmt"), ("clippy", "clippy")];

/// The versions of cargo-nextest, the newest of which is installed if it is missing. Cargo takes two
/// numbers only as a requirement, with a caret.
const NEXTEST: &str = "^0.9";

/// The versions of cargo-deny, the newest of which is installed if it is missing.
const DENY: &str = "^0.20";

/// Compiles and installs the test runner cargo-nextest if it is missing.
///
/// # Errors
/// cargo-nextest can't be compiled.
pub fn install_nextest() -> Result<()> {
    if succeeds_quietly(Command::new("cargo").args(["nextest", "--version"])) {
        return Ok(());
    }
    eprintln!("installing cargo-nextest, which takes some minutes once");
    run(&mut installation("cargo-nextest", NEXTEST))
        .context("cannot install `cargo-nextest`: install it, then try again")
}

/// Compiles and installs cargo-deny, which checks the rules of `deny.toml`, if it is missing.
///
/// # Errors
/// cargo-deny can't be compiled.
pub fn install_deny() -> Result<()> {
    if succeeds_quietly(Command::new("cargo").args(["deny", "--version"])) {
        return Ok(());
    }
    eprintln!("installing cargo-deny, which takes some minutes once");
    run(&mut installation("cargo-deny", DENY)).context("cannot install `cargo-deny`: install it, then try again")
}

/// Returns the command that compiles and installs a program from crates.io, in one of these versions.
fn installation(program: &str, version: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "--locked", program, "--version", version]);
    cargo
}

/// Installs the packages of the needs that are not met. If all needs are met, it installs no
/// package.
///
/// # Errors
/// `apt-get` is absent or fails. The message names the packages.
pub fn install(needs: &[Need]) -> Result<()> {
    let packages = missing(needs);
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    ensure!(is_present("apt-get"), "`apt-get` is absent: install what Debian calls `{names}`, then try again");
    eprintln!("installing {names}");
    apt_get(&["update"]).with_context(|| format!("cannot install `{names}`: install it, then try again"))?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat())
        .with_context(|| format!("cannot install `{names}`: install it, then try again"))
}

/// Adds the components of the Rust toolchain that are missing.
///
/// # Errors
/// `rustup` is absent or fails.
pub fn install_components() -> Result<()> {
    for (component, subcommand) in COMPONENTS {
        if !succeeds_quietly(Command::new("cargo").args([subcommand, "--version"])) {
            run(Command::new("rustup").args(["component", "add", component])).with_context(|| {
                format!("cannot add `{component}` to the Rust toolchain: install it, then try again")
            })?;
        }
    }
    Ok(())
}

/// Returns the Debian packages for these needs.
pub fn packages(needs: &[Need]) -> Vec<&'static str> {
    needs.iter().map(|need| need.package).collect()
}

fn missing(needs: &[Need]) -> Vec<&'static str> {
    let packages: BTreeSet<_> = needs.iter().filter(|need| !need.is_met()).map(|need| need.package).collect();
    packages.into_iter().collect()
}

fn lies_in(directory: &str, program: &str) -> bool {
    let Some((parent, rest)) = directory.split_once('*') else { return Path::new(directory).join(program).exists() };
    let children = std::fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    children.map(|child| child.path().join(rest.trim_start_matches('/')).join(program)).any(|path| path.exists())
}

fn is_present(program: &str) -> bool {
    which::which(program).is_ok()
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    // A system that has just started often installs its own updates: their lock is waited for.
    let mut words = vec!["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"];
    if !nix::unistd::geteuid().is_root() {
        ensure!(is_present("sudo"), "`sudo` is absent: run this as root");
        words.insert(0, "sudo");
    }
    words.extend(arguments);
    let Some((program, rest)) = words.split_first() else { return Ok(()) };
    // apt's output goes to standard error, because standard output is for results: with `--json` it
    // must have nothing else.
    run(Command::new(program).args(rest).stdout(std::io::stderr()))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", command.get_program().display()))?;
    if !status.success() {
        bail!("`{}` failed: {status}", command.get_program().display());
    }
    Ok(())
}

fn succeeds_quietly(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: Need = Need::on_path("cargo", "cargo");
    const ABSENT: Need = Need::on_path("leasehold-no-such-program", "leasehold-no-such-package");
    const ABSENT_TOO: Need = Need::also_in("/usr/*/bin", "leasehold-no-such-program", "leasehold-no-such-package");

    #[test]
    fn only_what_is_missing_is_asked_for() {
        assert_eq!(missing(&[PRESENT, ABSENT, ABSENT_TOO]), ["leasehold-no-such-package"]);
        assert_eq!(missing(&[Need::gem("leasehold-no-such-gem", "leasehold-no-such-gem")]), ["leasehold-no-such-gem"]);
        let module = |name| missing(&[Need::module(name, "a-package")]).len();
        assert_eq!([module("sys"), module("leasehold_no_such_module")], [0, 1]);
        assert!(missing(&[PRESENT]).is_empty());
    }

    #[test]
    fn cargo_takes_the_versions_of_the_programs_that_it_installs() {
        for (program, version) in [("cargo-nextest", NEXTEST), ("cargo-deny", DENY)] {
            // With `--list`, cargo checks its arguments and installs nothing.
            assert!(succeeds_quietly(installation(program, version).arg("--list")), "{program} {version}");
        }
    }

    #[test]
    fn a_program_is_found_beside_the_path() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        assert!(lies_in(directory, "Cargo.toml"));
        assert!(lies_in(&format!("{directory}/*"), "Cargo.toml"));
        assert!(lies_in(&format!("{directory}/*/src"), "needs.rs"));
        assert!(!lies_in(&format!("{directory}/*/src"), "no-such-program"));
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = run(&mut Command::new("false")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.starts_with("`false` failed")));
    }
}
