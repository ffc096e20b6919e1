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

/// Arguments that add a small test suite to a build of programs. cargo enables the features of
/// development dependencies only in a build with tests (the Cargo Book, "Feature resolver version
/// 2"). Without the suite, cargo would compile the dependencies a second time, with fewer features.
pub(crate) const AS_WITH_TESTS: [&str; 2] = ["--test", "tidy"];

/// The step that compiles all native code.
const WORKSPACE: (&str, Phase) = ("workspace", Compile);
/// The step that compiles the test suites to WebAssembly.
const WEBASSEMBLY: (&str, Phase) = ("WebAssembly", Compile);
/// The step that builds the npm package and the page.
const NPM_PACKAGE: (&str, Phase) = ("npm package", Compile);

const FORMAT: Step = Step::cargo("format", Run, &["fmt", "--all", "--check"]);

const CLIPPY: Step =
    Step::cargo("clippy", Compile, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);

const LINT: &[Step] = &[FORMAT, CLIPPY];

/// The arguments of RSpec that run the spec which compiles the gem during its installation. Without
/// the project's options, RSpec does not load the extension, which is not compiled yet.
const INSTALL_GEM: &[&str] =
    &["--options", "/dev/null", "spec/leasehold/package_spec.rb", "--example", "compiles during installation"];

/// The steps of `cargo xtask test`, in the order in which they start. A step starts when the steps
/// that it depends on have passed and a lane is free.
///
/// Builds in one directory wait for each other's lock, which would occupy a lane. So one lane builds
/// native code while the other one builds WebAssembly and installs the gem, in directories of their
/// own. Later steps find all native code compiled. Then long runs come before short ones, so that
/// both lanes end at about the same time.
const TEST: &[Step] = &[
    FORMAT,
    CLIPPY,
    Step::xtask("WebAssembly", Compile, &["web-test", "--no-run"]),
    Step::xtask("workspace", Compile, &["workspace-build"]).after(&[("clippy", Compile)]),
    Step::xtask("wasm files", Compile, &["web", "--no-package"]).after(&[WEBASSEMBLY]),
    Step::xtask("gem on Rails 7.2", Compile, &["rails-test", "--no-run"]),
    Step::program("gem", Compile, "ruby", "rspec", INSTALL_GEM),
    Step::program("gem", Run, "ruby", "rake", &["spec"]).after(&[("gem", Compile), WORKSPACE]),
    Step::cargo("workspace", Run, &["nextest", "run", "--workspace", "--features", FEATURES, "--no-fail-fast"])
        .after(&[WORKSPACE]),
    Step::cargo("doctests", Run, &["test", "--workspace", "--features", FEATURES, "--doc"]).after(&[WORKSPACE]),
    Step::xtask("npm package", Compile, &["web", "--no-compile"]).after(&[("wasm files", Compile), WORKSPACE]),
    Step::xtask("Python package", Compile, &["python-test", "--no-run"]).after(&[WORKSPACE]),
    // Both steps prepare the same environment. A step that installs into it would disturb the other one.
    Step::xtask("Python release", Compile, &["python-release", "--no-run"]).after(&[("Python package", Compile)]),
    // This build comes after the steps above, because their calls of cargo would wait for this
    // build's lock.
    Step::xtask("page in a browser", Compile, &["page-test", "--no-run"]).after(&[NPM_PACKAGE, ("doctests", Run)]),
    Step::xtask("gem on Rails 7.2", Run, &["rails-test"]).after(&[("gem on Rails 7.2", Compile), WORKSPACE]),
    Step::xtask("Python package", Run, &["python-test", "--no-build"]).after(&[("Python package", Compile)]),
    Step::xtask("Python release", Run, &["python-release", "--no-build"]).after(&[("Python release", Compile)]),
    Step::xtask("page in a browser", Run, &["page-test", "--no-build"]).after(&[("page in a browser", Compile)]),
    Step::xtask("WebAssembly", Run, &["web-test"]).after(&[WEBASSEMBLY, WORKSPACE]),
    Step::program("npm package", Run, "wasm", "npm", &["test"]).after(&[NPM_PACKAGE]),
    Step::program("page", Run, "wasm/visualiser", "npm", &["test"]).after(&[NPM_PACKAGE]),
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

/// Returns the path of the server under test: that of `LEASEHOLD_BINARY`, or else one that is built now.
///
/// # Errors
/// The workspace does not compile.
pub(crate) async fn server_under_test() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(SERVER_VARIABLE) {
        return Ok(PathBuf::from(path));
    }
    build_workspace().await?;
    Ok(server())
}

/// Returns the path of the copy of the server that the tests start. Other builds replace the
/// original.
pub(crate) fn server() -> PathBuf {
    target_directory().join("xtask/leasehold")
}

/// Returns the path of the copy of the server that serves the page.
fn server_with_page() -> PathBuf {
    target_directory().join("xtask/leasehold-page")
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
    server().parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "--workspace", "--all-targets", "--features", FEATURES]).current_dir(root());
    let messages = File::create(messages()).context("cannot write cargo's messages")?;
    run(cargo.arg("--message-format=json-render-diagnostics").stdout(messages)).await?;
    copy_server(&server())
}

/// Copies the server that was built last.
fn copy_server(copy: &Path) -> Result<()> {
    copy.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    // The old copy is removed first, because a server of an earlier run may still have it open.
    let _ = std::fs::remove_file(copy);
    std::fs::copy(target_directory().join("debug/leasehold"), copy).context("cannot copy the server")?;
    Ok(())
}

/// Builds the server with the page, which `cargo xtask web` must have built.
///
/// # Errors
/// The server does not compile, or cannot be copied.
pub(crate) async fn build_server_with_page() -> Result<()> {
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "--workspace", "--bin", "leasehold", "--features", FEATURES_AND_PAGE]);
    run(cargo.args(AS_WITH_TESTS).current_dir(root())).await?;
    copy_server(&server_with_page())
}

/// Tests the page in a browser, both from files and from the server of [`build_server_with_page`].
///
/// # Errors
/// A test failed.
pub(crate) async fn test_page() -> Result<()> {
    let server = std::path::absolute(server_with_page()).context("the build directory is unknown")?;
    let mut npm = as_a_person("npm");
    npm.args(["run", "e2e"]).env(SERVER_VARIABLE, server).current_dir(root().join("wasm/visualiser"));
    run(&mut npm).await
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
