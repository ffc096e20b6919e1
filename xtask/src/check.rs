//! The lints and the tests, as steps of a pipeline.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::process::{as_a_person, root, run, target_directory};
use xtask::python::MESSAGES_VARIABLE;

use crate::pipeline::Phase::{Compile, Run};
use crate::pipeline::{self, Phase, Step};

/// The features with which all steps compile the workspace, so that it is compiled once.
/// `test-hooks` adds a method that panics, which the gem's specs call.
pub(crate) const FEATURES: &str = "leasehold-ruby/test-hooks";

/// The features of [`FEATURES`], and the page in the server's binary.
const FEATURES_AND_PAGE: &str = "leasehold-ruby/test-hooks,leasehold-server/page";

/// The step that compiles all native code.
const WORKSPACE: (&str, Phase) = ("workspace", Compile);
/// The step that compiles the npm package and the page.
const NPM_PACKAGE: (&str, Phase) = ("npm package", Compile);

const FORMAT: Step = Step::cargo("format", Run, &["fmt", "--all", "--check"]);

const CLIPPY: Step =
    Step::cargo("clippy", Compile, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);

const LINT: &[Step] = &[FORMAT, CLIPPY];

/// The steps of `cargo xtask test`, in the order in which they start. A step starts when the steps
/// that it depends on have passed and a lane is free. Native builds wait for each other's lock, so
/// a step without a native build is placed between two of them.
const TEST: &[Step] = &[
    FORMAT,
    CLIPPY,
    Step::xtask("npm package", Compile, &["web"]),
    Step::xtask("workspace", Compile, &["workspace-build"]).after(&[("clippy", Compile)]),
    Step::xtask("Python package", Compile, &["python-test", "--no-run"]).after(&[WORKSPACE]),
    Step::xtask("WebAssembly", Compile, &["web-test", "--no-run"]).after(&[WORKSPACE, NPM_PACKAGE]),
    Step::cargo("workspace", Run, &["nextest", "run", "--workspace", "--features", FEATURES, "--no-fail-fast"])
        .after(&[WORKSPACE]),
    Step::xtask("gem on Rails 7.2", Compile, &["rails-test", "--no-run"]),
    Step::program("gem", Run, "ruby", "rake", &["spec"]).after(&[WORKSPACE]),
    Step::xtask("gem on Rails 7.2", Run, &["rails-test"]).after(&[("gem on Rails 7.2", Compile), WORKSPACE]),
    Step::xtask("Python package", Run, &["python-test", "--no-build"]).after(&[("Python package", Compile)]),
    Step::xtask("WebAssembly", Run, &["web-test"]).after(&[("WebAssembly", Compile)]),
    Step::cargo("doctests", Run, &["test", "--workspace", "--features", FEATURES, "--doc"]).after(&[WORKSPACE]),
    Step::program("npm package", Run, "wasm", "npm", &["test"]).after(&[NPM_PACKAGE]),
    Step::program("page", Run, "wasm/visualiser", "npm", &["test"]).after(&[NPM_PACKAGE]),
    // This build replaces the server. So it comes after all steps that start the server without the
    // page, or that build with other features.
    Step::cargo("page in a browser", Compile, &["build", "--workspace", "--bins", "--features", FEATURES_AND_PAGE])
        .after(&[("workspace", Run), ("doctests", Run), NPM_PACKAGE]),
    // The variable is unset, because it names the server without the page.
    Step::program("page in a browser", Run, "wasm/visualiser", "env", &["-u", SERVER_VARIABLE, "npm", "run", "e2e"])
        .after(&[("page in a browser", Compile)]),
];

const FIX: &[Step] = &[
    Step::cargo(
        "clippy",
        Compile,
        &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"],
    ),
    // rustfmt runs last, because clippy's changes may need formatting.
    Step::cargo("format", Run, &["fmt", "--all"]).after(&[("clippy", Compile)]),
];

/// The variable that names the server's binary to the tests of every package.
pub(crate) const SERVER_VARIABLE: &str = "LEASEHOLD_BINARY";

/// The variable that names the gem's extension, compiled with the workspace, to the gem's Rakefile.
const EXTENSION_VARIABLE: &str = "LEASEHOLD_EXTENSION";

/// Returns the path of the copy of the server that the tests start. A later step builds another
/// server.
pub(crate) fn server() -> PathBuf {
    target_directory().join("xtask/leasehold")
}

/// Returns the path of the file for cargo's messages about the build of the workspace.
fn messages() -> PathBuf {
    target_directory().join("xtask/workspace.json")
}

/// Runs the lints and every test.
///
/// # Errors
/// A step failed. All steps that do not depend on it have run.
pub(crate) async fn test() -> Result<()> {
    let path = |path: &Path| std::path::absolute(path).context("the path of the build's directory is unknown");
    let extension = path(&target_directory().join("debug/libleasehold_ruby.so"))?;
    let variables =
        [(SERVER_VARIABLE, path(&server())?), (EXTENSION_VARIABLE, extension), (MESSAGES_VARIABLE, path(&messages())?)];
    pipeline::copy_self()?;
    pipeline::run(TEST, &variables).await
}

/// Compiles the whole workspace for the tests, writes cargo's messages to a file, and copies the
/// server.
///
/// # Errors
/// The workspace does not compile, or the messages or the server cannot be written.
pub(crate) async fn build_workspace() -> Result<()> {
    let copy = server();
    copy.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "--workspace", "--all-targets", "--features", FEATURES]).current_dir(root());
    let messages = File::create(messages()).context("cannot write cargo's messages")?;
    run(cargo.arg("--message-format=json-render-diagnostics").stdout(messages)).await?;
    // The old copy is removed first, because a server of an earlier run may still have it open.
    let _ = std::fs::remove_file(&copy);
    std::fs::copy(target_directory().join("debug/leasehold"), copy).context("cannot copy the server")?;
    Ok(())
}

/// Checks the format and the lints. Changes no file.
///
/// # Errors
/// A step failed. All steps have run.
pub(crate) async fn lint() -> Result<()> {
    pipeline::run(LINT, &[]).await
}

/// Lets clippy and rustfmt change the files.
///
/// # Errors
/// A step failed.
pub(crate) async fn fix() -> Result<()> {
    pipeline::run(FIX, &[]).await
}
