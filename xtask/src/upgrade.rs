//! The tests of an upgrade: they start a server of the former version beside the present one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use xtask::process::{as_a_person, root, run, target_directory};

use crate::check::{self, SERVER_VARIABLE};

/// A former version, which is compiled from the history.
struct Former {
    /// The commit of the version.
    commit: &'static str,
    /// The name of its directory among those of all targets, which its commit is added to.
    directory: &'static str,
    /// The environment variable with the path of its `leasehold`.
    variable: &'static str,
    /// The words of nextest for the tests that need it, and their feature.
    tests: &'static [&'static str],
    feature: &'static str,
}

const FORMERS: [Former; 3] = [
    // The last commit with the first form of the tables and stored rows.
    Former {
        commit: "e5d57011c08b",
        directory: "former",
        variable: "LEASEHOLD_FORMER_BINARY",
        tests: &["--test", "upgrade"],
        feature: "former-version",
    },
    // The first commit whose servers share sessions and locks. Its tables know no reaped locks.
    Former {
        commit: "a836488a",
        directory: "former-locks",
        variable: "LEASEHOLD_FORMER_LOCKS_BINARY",
        tests: &["--test", "lock_upgrade"],
        feature: "former-locks",
    },
    // The last commit whose servers know no epochs.
    Former {
        commit: "10403909",
        directory: "former-epochs",
        variable: "LEASEHOLD_FORMER_EPOCHS_BINARY",
        tests: &["--test", "postgres", "beside_a_server_without_epochs"],
        feature: "former-epochs",
    },
];

/// Compiles the former versions and the present one, and runs the tests of two versions on one store.
/// Returns true if all passed.
///
/// # Errors
/// A version can't be compiled, or a former one is not in the history of the clone.
pub(crate) async fn test() -> Result<(bool, BTreeMap<String, u64>)> {
    let present = check::server_under_test().await?;
    let mut has_passed = true;
    for former in &FORMERS {
        has_passed &= test_beside(former, &present).await?;
    }
    Ok((has_passed, BTreeMap::new()))
}

async fn test_beside(former: &Former, present: &Path) -> Result<bool> {
    let Former { commit, directory, variable, tests, feature } = former;
    let binary = build_former(commit, &target_directory().join(format!("{directory}-{commit}"))).await?;
    let mut cargo = as_a_person("cargo");
    cargo.args(["nextest", "run", "-p", "leasehold-tests", "--features", feature]).args(*tests);
    cargo.env(SERVER_VARIABLE, present).env(variable, binary);
    let status = cargo.current_dir(root()).stdin(Stdio::null()).kill_on_drop(true).status().await;
    Ok(status.context("cannot start `cargo`")?.success())
}

/// Compiles the server of a former version in a working tree of its own, and returns its path.
async fn build_former(commit: &str, directory: &Path) -> Result<PathBuf> {
    let (tree, target) = (directory.join("tree"), directory.join("target"));
    if !tree.join("Cargo.toml").exists() {
        // git still lists a working tree whose directory was removed by hand.
        run(as_a_person("git").args(["worktree", "prune"]).current_dir(root())).await?;
        let mut git = as_a_person("git");
        git.args(["worktree", "add", "--detach", "--quiet"]).arg(&tree).arg(commit);
        let added = run(git.current_dir(root())).await;
        added.with_context(|| format!("commit {commit} is not in this clone: fetch its whole history"))?;
    }
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "-p", "leasehold-server", "--bin", "leasehold", "--target-dir"]).arg(&target);
    run(cargo.current_dir(&tree)).await?;
    let binary = target.join("debug/leasehold");
    ensure!(binary.exists(), "the former version has no `{}`", binary.display());
    Ok(binary)
}
