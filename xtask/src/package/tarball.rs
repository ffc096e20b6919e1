//! The tarball: the program, the files of `deploy`, the book's pages, and the licences.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{COMPLETIONS, Content, NOTICE, VERSION, copy, copy_directory, output, write_file};

/// The files of the project that the tarball has at its top.
const FILES: [&str; 4] = ["CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md"];

/// Writes the tarball into the directory `into`, and returns its path.
pub(super) fn write(content: &Content<'_>, stage: &Path, into: &Path) -> Result<PathBuf> {
    let name = format!("leasehold-{VERSION}-{}-linux", std::env::consts::ARCH);
    let directory = stage.join(&name);
    content.install_program(&directory.join("leasehold"))?;
    write_file(&directory.join(NOTICE), &content.notice)?;
    for file in FILES {
        copy(file, &directory.join(file))?;
    }
    for folder in ["deploy", "docs/src"] {
        copy_directory(folder, &directory.join(folder))?;
    }
    for (shell, path) in COMPLETIONS {
        let file = Path::new(path).file_name().unwrap_or_default();
        write_file(&directory.join("completions").join(shell).join(file), content.completions(shell)?)?;
    }
    pack(&name, stage, &content.time, &into.join(format!("{name}.tar.gz")))
}

/// Packs the directory `name` of `stage`. Neither the order of the files nor their owner or time
/// depends on the machine.
fn pack(name: &str, stage: &Path, time: &str, tarball: &Path) -> Result<PathBuf> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=root:0", "--group=root:0", "--mode=u=rwX,go=rX", "--format=gnu"]);
    tar.arg(format!("--mtime=@{time}")).args(["--use-compress-program", "gzip --no-name"]);
    output(tar.arg("--file").arg(std::path::absolute(tarball)?).arg(name).current_dir(stage))?;
    Ok(tarball.to_owned())
}
