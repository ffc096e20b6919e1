//! The tests of an upgrade: they start a server of the former version beside the present one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use xtask::process::{as_a_person, root, run, target_directory};

use crate::check::{self, SERVER_VARIABLE};

/// The former version: the last commit with the first form of the tables and stored rows.
const FORMER: &str = "e5d57011c08b";

/// The environment variable with the path of the former version's `leasehold`.
const FORMER_VARIABLE: &str = "LEASEHOLD_FORMER_BINARY";

/// Compiles the former version and the present one, and runs the tests of both on one store.
/// Returns true if all passed.
///
/// # Errors
/// A version can't be compiled, or the former one is not in the history of the clone.
pub(crate) async fn test() -> Result<(bool, BTreeMap<String, u64>)> {
    let former = build_former(&target_directory().join("former")).await?;
    let present = match std::env::var_os(SERVER_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => {
            check::build_workspace().await?;
            check::server()
        }
    };
    let mut cargo = as_a_person("cargo");
    cargo.args(["nextest", "run", "-p", "leasehold-tests", "--features", "former-version", "--test", "upgrade"]);
    cargo.env(SERVER_VARIABLE, present).env(FORMER_VARIABLE, former);
    let status = cargo.current_dir(root()).stdin(Stdio::null()).kill_on_drop(true).status().await;
    Ok((status.context("cannot start `cargo`")?.success(), BTreeMap::new()))
}

/// Compiles the server of the former version in a working tree of its own, and returns its path.
async fn build_former(directory: &Path) -> Result<PathBuf> {
    let (tree, target) = (directory.join("tree"), directory.join("target"));
    if !tree.join("Cargo.toml").exists() {
        // git still lists a working tree whose directory was removed by hand.
        run(as_a_person("git").args(["worktree", "prune"]).current_dir(root())).await?;
        let mut git = as_a_person("git");
        git.args(["worktree", "add", "--detach", "--quiet"]).arg(&tree).arg(FORMER);
        let added = run(git.current_dir(root())).await;
        added.with_context(|| format!("commit {FORMER} is not in this clone: fetch its whole history"))?;
    }
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "-p", "leasehold-server", "--bin", "leasehold", "--target-dir"]).arg(&target);
    run(cargo.current_dir(&tree)).await?;
    let binary = target.join("debug/leasehold");
    ensure!(binary.exists(), "the former version has no `{}`", binary.display());
    Ok(binary)
}
