//! The Debian package. Its control files and maintainer scripts are in `deploy/debian`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{COMPLETIONS, Content, VERSION, copy, copy_directory, output, set_mode, write_file};
use crate::process::root;

/// The maintainer scripts, which dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "postrm", "prerm"];

/// The directory of the package's documents.
const DOCUMENTS: &str = "usr/share/doc/leasehold";

/// Returns Debian's name of this machine's architecture.
fn architecture() -> Result<String> {
    Ok(output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

/// Writes the Debian package into the directory `into`, and returns its path.
pub(super) fn write(content: &Content<'_>, stage: &Path, into: &Path) -> Result<PathBuf> {
    let directory = stage.join("debian");
    install_files(content, &directory)?;
    let architecture = architecture()?;
    write_control(&directory, &architecture)?;
    let package = into.join(format!("leasehold_{VERSION}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.env("SOURCE_DATE_EPOCH", &content.time).args(["--root-owner-group", "-Zxz", "-z3", "--build"]);
    output(build.arg(&directory).arg(&package))?;
    Ok(package)
}

fn install_files(content: &Content<'_>, directory: &Path) -> Result<()> {
    let documents = directory.join(DOCUMENTS);
    content.install_program(&directory.join("usr/bin/leasehold"))?;
    copy("deploy/systemd/leasehold.service", &directory.join("usr/lib/systemd/system/leasehold.service"))?;
    copy("deploy/leasehold.toml", &directory.join("etc/leasehold/leasehold.toml"))?;
    for (shell, path) in COMPLETIONS {
        write_file(&directory.join(path), content.completions(shell)?)?;
    }
    let licence = std::fs::read_to_string(root().join("LICENSE")).context("cannot read `LICENSE`")?;
    write_file(&documents.join("copyright"), format!("{licence}\n{}", content.notice))?;
    copy("deploy/debian/README.Debian", &documents.join("README.Debian"))?;
    copy("CHANGELOG.md", &documents.join("changelog"))?;
    output(Command::new("gzip").args(["--no-name", "--best"]).arg(documents.join("changelog")))?;
    copy_directory("docs/src", &documents.join("book"))?;
    for folder in ["grafana", "kubernetes", "patroni", "prometheus"] {
        copy_directory(&format!("deploy/{folder}"), &documents.join("examples").join(folder))?;
    }
    Ok(())
}

/// Writes the files that dpkg reads.
fn write_control(directory: &Path, architecture: &str) -> Result<()> {
    let sums = md5sums(directory)?;
    let control = std::fs::read_to_string(root().join("deploy/debian/control")).context("no control file")?;
    let values =
        [("@VERSION@", VERSION), ("@ARCHITECTURE@", architecture), ("@SIZE@", &installed_kibibytes(directory)?)];
    let control = values.iter().fold(control, |text, (name, value)| text.replace(name, value));
    write_file(&directory.join("DEBIAN/control"), control)?;
    write_file(&directory.join("DEBIAN/conffiles"), "/etc/leasehold/leasehold.toml\n")?;
    write_file(&directory.join("DEBIAN/md5sums"), sums)?;
    for script in SCRIPTS {
        let path = directory.join("DEBIAN").join(script);
        copy(&format!("deploy/debian/{script}"), &path)?;
        set_mode(&path, 0o755)?;
    }
    set_mode(directory, 0o755)
}

/// Returns the lines of `md5sums`, with which `dpkg --verify` compares the installed files.
/// Configuration is not among them.
fn md5sums(directory: &Path) -> Result<String> {
    let script = "find usr -type f -print0 | LC_ALL=C sort --zero-terminated | xargs --null md5sum";
    output(Command::new("sh").args(["-euc", script]).current_dir(directory))
}

/// Returns the size of the installed files, in units of 1,024 bytes.
fn installed_kibibytes(directory: &Path) -> Result<String> {
    let sizes =
        output(Command::new("du").args(["--summarize", "--apparent-size", "--block-size=1024"]).arg(directory))?;
    Ok(sizes.split_whitespace().next().unwrap_or_default().to_owned())
}
