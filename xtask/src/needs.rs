//! What a command needs of the machine, and its installation on Debian and Ubuntu.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A program that has to be on the `PATH`, and the Debian package that brings it.
pub(crate) struct Need {
    program: &'static str,
    package: &'static str,
}

/// For `cargo xtask test`.
pub(crate) const FOR_TESTS: &[Need] = &[
    Need { program: "cc", package: "build-essential" },
    Need { program: "git", package: "git" },
    Need { program: "mount", package: "mount" },
    Need { program: "unshare", package: "util-linux" },
];

/// For the rows of `cargo xtask bench` that have etcd as their peer.
pub(crate) const FOR_ETCD: &[Need] = &[Need { program: "etcd", package: "etcd-server" }];

/// Components of the Rust toolchain, with the command that shows that one is there.
const COMPONENTS: &[(&str, &str)] = &[("rustfmt", "fmt"), ("clippy", "clippy")];

/// Installs the packages of those programs that are missing; touches nothing when none is.
///
/// # Errors
/// When `apt-get` is absent or fails; the message names the packages.
pub(crate) fn install(needs: &[Need]) -> Result<()> {
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

/// Adds the toolchain's components that are missing.
///
/// # Errors
/// When `rustup` is absent or fails.
pub(crate) fn install_components() -> Result<()> {
    for (component, subcommand) in COMPONENTS {
        if !succeeds_quietly(Command::new("cargo").args([subcommand, "--version"])) {
            run(Command::new("rustup").args(["component", "add", component])).with_context(|| {
                format!("cannot add `{component}` to the Rust toolchain: install it, then try again")
            })?;
        }
    }
    Ok(())
}

fn missing(needs: &[Need]) -> Vec<&'static str> {
    needs.iter().filter(|need| !is_present(need.program)).map(|need| need.package).collect()
}

fn is_present(program: &str) -> bool {
    which::which(program).is_ok()
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut words = vec!["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    if !nix::unistd::geteuid().is_root() {
        ensure!(is_present("sudo"), "`sudo` is absent: run this as root");
        words.insert(0, "sudo");
    }
    words.extend(arguments);
    let Some((program, rest)) = words.split_first() else { return Ok(()) };
    // Standard output belongs to our own results, so that `--json` prints nothing else.
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

    const PRESENT: Need = Need { program: "cargo", package: "cargo" };
    const ABSENT: Need = Need { program: "leasehold-no-such-program", package: "leasehold-no-such-package" };

    #[test]
    fn only_what_is_missing_is_asked_for() {
        assert_eq!(missing(&[PRESENT, ABSENT]), ["leasehold-no-such-package"]);
        assert!(missing(&[PRESENT]).is_empty());
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = run(&mut Command::new("false")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.starts_with("`false` failed")));
    }
}
