//! A newer release of Debian beside the installed one: some of its packages unpacked in a
//! directory, or a whole installation as the root of a chroot. The packages come from the mirror
//! that this machine uses.

use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;
use xtask::process::{as_a_person, run, target_directory};

/// The name of the Debian release after the one on which the tests usually run.
pub(crate) const NEXT: &str = "trixie";

/// The name of the Debian release on which the Debian package is tried.
pub(crate) const STABLE: &str = "bookworm";

/// The file with the signing keys of all releases, from Debian's package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the address of the mirror from which this machine installs Debian's packages.
///
/// # Errors
/// `apt-get` is absent, or knows no mirror of Debian.
pub(crate) fn mirror() -> Result<String> {
    let targets = ["indextargets", "--format", "$(REPO_URI)", "Identifier: Packages", "Label: Debian"];
    let mut apt = Blocking::new("apt-get");
    let output = apt.args(targets).stdin(Stdio::null()).output().context("cannot start `apt-get`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().next() {
        Some(mirror) => Ok(mirror.to_owned()),
        None => bail!("apt knows no mirror of Debian: run `apt-get update` on a Debian system, then try again"),
    }
}

/// A directory in which packages of Debian's next release are unpacked, without installing them.
pub(crate) struct Unpacked {
    directory: PathBuf,
}

impl Unpacked {
    /// Returns the directory with this name in the build directory.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let directory =
            std::path::absolute(target_directory().join(name)).context("the build's directory is unknown")?;
        Ok(Self { directory })
    }

    /// Returns the root directory of the unpacked files.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// Downloads and unpacks the packages, unless exactly these packages were unpacked before.
    ///
    /// # Errors
    /// A package cannot be downloaded or unpacked.
    pub(crate) async fn prepare(&self, packages: &[&str]) -> Result<()> {
        let list = self.directory.join("packages");
        let wanted = packages.join("\n");
        if std::fs::read_to_string(&list).is_ok_and(|unpacked| unpacked == wanted) {
            return Ok(());
        }
        let _ = std::fs::remove_dir_all(&self.directory);
        let archives = self.directory.join("archives");
        for directory in ["archives", "cache/archives/partial", "lists/partial", "root"] {
            std::fs::create_dir_all(self.directory.join(directory))?;
        }
        let line = format!("deb [signed-by={KEYRING}] {} {NEXT} main\n", mirror()?);
        std::fs::write(self.directory.join("sources.list"), line)?;
        run(self.apt_get().arg("update")).await?;
        run(self.apt_get().arg("download").args(packages).current_dir(&archives)).await?;
        for archive in std::fs::read_dir(&archives)? {
            run(as_a_person("dpkg").arg("-x").arg(archive?.path()).arg(self.root())).await?;
        }
        std::fs::write(&list, wanted).context("cannot note what was unpacked")
    }

    /// Returns a command of `apt-get` with its own package lists and archives, so that those of
    /// this machine stay unchanged.
    fn apt_get(&self) -> Command {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let mut command = as_a_person("apt-get");
        command.arg("--quiet=2").args(["-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root"]);
        command.args(["-o", "Dir::Etc::SourceParts=/dev/null", "-o", "Debug::NoLocking=true"]);
        for (option, name) in [("Etc::SourceList", "sources.list"), ("State::Lists", "lists"), ("Cache", "cache")] {
            command.arg("-o").arg(format!("Dir::{option}={}", path(name)));
        }
        command
    }
}

/// A directory with an installation of a release of Debian, in which commands run by `chroot`.
pub(crate) struct Chroot {
    root: PathBuf,
    release: &'static str,
}

/// A shell script that mounts the kernel's file systems and the Rust toolchain below a root, then
/// runs a command there. It runs in a mount namespace, so the mounts end with the command. `$1` is
/// the root, `$2` and `$3` are the directories of cargo and rustup, the rest is the command.
const MOUNTS: &str = r#"
root=$1 cargo=$2 rustup=$3
shift 3
mkdir -p "$root/rust/cargo" "$root/rust/rustup"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
mount --bind "$cargo" "$root/rust/cargo"
mount --bind "$rustup" "$root/rust/rustup"
exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
  CARGO_HOME=/rust/cargo RUSTUP_HOME=/rust/rustup PATH=/rust/cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"#;

impl Chroot {
    /// Returns the directory with this name in the build directory, for an installation of `release`.
    ///
    /// # Errors
    /// This program does not run as root. Only root may call `chroot`.
    pub(crate) fn new(name: &str, release: &'static str) -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "only root may run commands in another root: run this as root");
        let root = std::path::absolute(target_directory().join(name)).context("the build's directory is unknown")?;
        Ok(Self { root, release })
    }

    /// Returns the directory that is the root of the commands.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Installs the release and these packages, unless exactly these packages were installed
    /// before.
    ///
    /// # Errors
    /// A package cannot be installed.
    pub(crate) async fn prepare(&self, packages: &[&str]) -> Result<()> {
        self.install_release().await?;
        let list = self.root.join("packages");
        let wanted = packages.join("\n");
        if std::fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        run(self.command("apt-get").arg("update")).await?;
        run(self.command("apt-get").args(["install", "--yes", "--no-install-recommends"]).args(packages)).await?;
        std::fs::write(&list, wanted).context("cannot note what was installed")
    }

    async fn install_release(&self) -> Result<()> {
        let finished = self.root.join("release-installed");
        if finished.exists() {
            return Ok(());
        }
        // An interrupted run may have left a part of the release.
        let _ = std::fs::remove_dir_all(&self.root);
        run(as_a_person("debootstrap").args(["--variant=minbase", self.release]).arg(&self.root).arg(mirror()?))
            .await?;
        std::fs::copy("/etc/resolv.conf", self.root.join("etc/resolv.conf")).context("cannot copy the name servers")?;
        // With this file, Debian's packages start no services when they are installed.
        let policy = self.root.join("usr/sbin/policy-rc.d");
        std::fs::write(&policy, "#!/bin/sh\nexit 101\n")?;
        run(as_a_person("chmod").arg("+x").arg(&policy)).await?;
        std::fs::write(finished, self.release).context("cannot note that the release is installed")
    }

    /// Returns a command that runs `program` with the directory as its root.
    pub(crate) fn command(&self, program: &str) -> Command {
        let home = std::env::home_dir().unwrap_or_default();
        let directory = |variable, name| std::env::var_os(variable).map_or_else(|| home.join(name), PathBuf::from);
        let mut command = as_a_person("unshare");
        command.args(["--mount", "sh", "-euc", MOUNTS, "mounts"]).arg(&self.root);
        command.arg(directory("CARGO_HOME", ".cargo")).arg(directory("RUSTUP_HOME", ".rustup")).arg(program);
        command
    }
}
