//! `cargo xtask web-test`: compiles the test suites of the engine, the simulation, the model and
//! the vectors to WebAssembly, and runs them in Node.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use super::build_directory;
use super::toolchain::{TARGET, Toolchain};
use xtask::process::{self, as_a_person, root, run};
use xtask::python::MESSAGES_VARIABLE;

/// The builds of test suites as WebAssembly. All of them enable the same features of the engine, so
/// that it is compiled once.
const BUILDS: &[Build] = &[
    Build {
        directories: &["core", "simulation", "tests/model"],
        arguments: &[
            "--package",
            "leasehold-core",
            "--package",
            "leasehold-simulation",
            "--package",
            "leasehold-model",
            "--tests",
            "--features",
            "leasehold-core/conformance,leasehold-core/confusables",
        ],
        only: None,
    },
    // Only one suite of `tests` is built, because the others start processes, which WebAssembly
    // can't do.
    Build {
        directories: &["tests"],
        arguments: &["--package", "leasehold-tests", "--test", "vectors", "--features", "leasehold-core/confusables"],
        only: Some("vectors"),
    },
];

/// The arguments of cargo that select all native test suites, with the features of `cargo xtask
/// test`, so that an earlier test run has compiled them.
const NATIVE: &[&str] = &["--workspace", "--tests", "--features", crate::check::FEATURES];

/// The compiler flag with which the crate getrandom always returns an error, so that code which
/// asks for randomness fails.
const NO_RANDOMNESS: &str = r#"--cfg=getrandom_backend="unsupported""#;

/// One build of test suites as WebAssembly.
struct Build {
    /// The directories of the suites' packages, relative to the project's root.
    directories: &'static [&'static str],
    /// The arguments of cargo that select the suites.
    arguments: &'static [&'static str],
    /// The name of the one suite that is built; `None` if all are built.
    only: Option<&'static str>,
}

/// One line of cargo's messages about a build.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    profile: Option<Profile>,
    target: Option<Target>,
    manifest_path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    /// False if the manifest says that the target has no tests. `cargo build --all-targets` compiles
    /// a suite for it all the same, `cargo test` does not.
    test: Option<bool>,
}

/// The settings with which cargo compiled an executable.
#[derive(Deserialize)]
struct Profile {
    /// True if the executable is a test suite.
    test: bool,
}

/// A test suite as an executable: a file of tests, or the unit tests of a library.
struct Suite {
    name: String,
    program: PathBuf,
}

/// Compiles every suite to WebAssembly. If `is_run` is true, runs the suites, and checks that they
/// have the same tests as the native ones.
///
/// # Errors
/// A suite does not compile, a test fails, or a test or suite is missing on one side.
pub(crate) async fn test(is_run: bool) -> Result<()> {
    let toolchain = Toolchain::find().await?;
    let mut compiled = Vec::new();
    for build in BUILDS {
        compiled.extend(compile(&toolchain, build).await?);
    }
    if is_run { test_all(&compiled).await } else { Ok(()) }
}

async fn compile(toolchain: &Toolchain, build: &Build) -> Result<Vec<Suite>> {
    let mut cargo = cargo(toolchain.cargo(), build.arguments);
    cargo.args(["--config", &format!("target.{TARGET}.rustflags = ['{NO_RANDOMNESS}']")]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(build_directory());
    toolchain.configure_tests(&mut cargo);
    suites(&messages(&mut cargo).await?, build)
}

async fn test_all(compiled: &[Suite]) -> Result<()> {
    let mut native = Vec::new();
    let messages = native_messages().await?;
    for build in BUILDS {
        native.extend(suites(&messages, build)?);
    }
    let names = |suites: &[Suite]| suites.iter().map(|suite| suite.name.clone()).collect::<Vec<_>>();
    let (native_names, names) = (names(&native), names(compiled));
    ensure!(native_names == names, "the native suites are {native_names:?}, the compiled ones {names:?}");
    for (native, compiled) in native.iter().zip(compiled) {
        let tests = listed(native).await?;
        let bytes = std::fs::read(&compiled.program)?;
        let missing = tests.iter().find(|test| !contains(&bytes, test.as_bytes()));
        ensure!(missing.is_none(), "`{}` is not in the suite `{}`", missing.map_or("", |test| test), native.name);
        run(as_a_person("node").arg("wasm/tests/run_suite.mjs").arg(&compiled.program).current_dir(root()))
            .await
            .with_context(|| format!("the suite `{}` fails as WebAssembly", compiled.name))?;
        println!("{}: {} tests passed", compiled.name, tests.len());
    }
    Ok(())
}

fn cargo(program: &str, suites: &[&str]) -> Command {
    let mut cargo = as_a_person(program);
    cargo.args(["test", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]).args(suites);
    cargo.current_dir(root());
    cargo
}

/// Returns cargo's messages about the native suites. `cargo xtask test` has compiled them, and must
/// not wait for the lock of another build.
async fn native_messages() -> Result<Vec<u8>> {
    match std::env::var_os(MESSAGES_VARIABLE) {
        Some(path) => std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display())),
        None => messages(&mut cargo("cargo", NATIVE)).await,
    }
}

/// Runs cargo, and returns its messages.
async fn messages(cargo: &mut Command) -> Result<Vec<u8>> {
    let output = process::output(cargo).await?;
    ensure!(output.status.success(), "the suites can't be built");
    Ok(output.stdout)
}

/// Returns the suites of the packages of `build` that cargo's messages name, sorted by name.
fn suites(messages: &[u8], build: &Build) -> Result<Vec<Suite>> {
    let messages = messages.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let mut suites: Vec<_> = messages.filter_map(|message| suite(message, build)).collect();
    suites.sort_by(|one, other| one.name.cmp(&other.name));
    ensure!(!suites.is_empty(), "there is no suite");
    Ok(suites)
}

fn suite(message: Message, build: &Build) -> Option<Suite> {
    let manifest = message.manifest_path?;
    let is_ours = |directory: &&str| manifest.ends_with(Path::new(directory).join("Cargo.toml"));
    let target = message.target?;
    let has_tests = message.profile?.test && target.test != Some(false);
    let suite = Suite { name: target.name, program: message.executable? };
    let is_wanted = has_tests && build.only.is_none_or(|only| only == suite.name);
    (is_wanted && build.directories.iter().any(is_ours)).then_some(suite)
}

/// Returns the names of the tests of a natively compiled suite.
async fn listed(suite: &Suite) -> Result<Vec<String>> {
    let output = Command::new(&suite.program).args(["--list", "--format", "terse"]).output().await?;
    let text = String::from_utf8(output.stdout)?;
    let tests: Vec<_> = text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    ensure!(!tests.is_empty(), "the suite `{}` has no test", suite.name);
    Ok(tests)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn suites_are_read_from_messages() {
        let read_of = |manifest: &str, executable: &str, is_test: bool| {
            let text = format!(
                r#"{{"manifest_path":"{manifest}","executable":{executable},"profile":{{"test":{is_test}}},
                     "target":{{"name":"view","kind":["test"]}}}}"#
            );
            BUILDS.iter().map(|build| suite(serde_json::from_str(&text).unwrap(), build).is_some()).collect::<Vec<_>>()
        };
        let read = |manifest: &str, executable: &str| read_of(manifest, executable, true);
        let program = r#""/x/view.wasm""#;
        assert_eq!(read("/x/simulation/Cargo.toml", program), [true, false]);
        assert_eq!(read("/x/simulation/Cargo.toml", "null"), [false, false]);
        assert_eq!(read_of("/x/simulation/Cargo.toml", program, false), [false, false], "an example is no suite");
        assert_eq!(read("/x/server/Cargo.toml", program), [false, false]);
        assert_eq!(read("/x/tests/Cargo.toml", program), [false, false], "only the vectors run as WebAssembly");
    }

    #[test]
    fn a_part_is_found_wherever_it_stands() {
        assert!(contains(b"a test", b"test") && contains(b"test", b"test") && !contains(b"a test", b"tests"));
    }
}
