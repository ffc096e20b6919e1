//! Measurements that are made by other programs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncReadExt;

use xtask::process::Group;
use xtask::process::as_a_person;

/// Runs a program in a directory, relative to the project's root, and returns its standard output.
///
/// # Errors
/// The program cannot be started, or fails.
pub(crate) async fn output(
    directory: impl AsRef<Path>,
    program: impl AsRef<OsStr>,
    arguments: &[&str],
) -> Result<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
    let mut command = as_a_person(&program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut group = Group::start(&mut command)?;
    let mut output = String::new();
    let mut pipe = group.take_stdout().context("standard output is not piped")?;
    pipe.read_to_string(&mut output).await?;
    ensure!(group.wait().await?.success(), "`{} {}` failed", program.as_ref().display(), arguments.join(" "));
    Ok(output)
}
