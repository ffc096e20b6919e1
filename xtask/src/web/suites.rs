//! `cargo xtask web-test`: the suites of the engine and of the simulation, compiled to WebAssembly and run in Node.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use super::build_directory;
use super::toolchain::{TARGET, Toolchain};
use xtask::process::{as_a_person, root, run};

/// Packages whose suites run, each with the features that it has alone.
const PACKAGES: &[Package] = &[
    Package { directory: "core", natively: CORE, compiled: CORE },
    Package { directory: "simulation", natively: SIMULATION, compiled: SIMULATION },
    Package { directory: "tests/model", natively: MODEL, compiled: MODEL },
    Package { directory: "tests", natively: VECTORS, compiled: VECTORS_ALONE },
];

const CORE: &[&str] = &["--package", "leasehold-core", "--lib", "--tests", "--features", "conformance"];

const SIMULATION: &[&str] = &["--package", "leasehold-simulation", "--lib", "--tests"];

const MODEL: &[&str] = &["--package", "leasehold-model", "--test", "model"];

/// As `cargo xtask test` has built them.
const VECTORS: &[&str] = &["--workspace", "--test", "vectors"];

/// The golden vectors, without the server; some of their values are beyond ASCII.
const VECTORS_ALONE: &[&str] =
    &["--package", "leasehold-tests", "--test", "vectors", "--features", "leasehold-core/unicode"];

/// Where something asks for randomness all the same, it is told that there is none.
const NO_RANDOMNESS: &str = r#"--cfg=getrandom_backend="unsupported""#;

/// A package with suites.
struct Package {
    /// From the project's root.
    directory: &'static str,
    /// How cargo is told of the suites.
    natively: &'static [&'static str],
    /// How it is told of them as WebAssembly.
    compiled: &'static [&'static str],
}

/// One line of what cargo says of a build.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
    manifest_path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// A suite: a file of tests, or those within a library.
struct Suite {
    name: String,
    program: PathBuf,
}

/// Runs every suite, and the same tests as natively.
///
/// # Errors
/// When a test fails, or is missing on one side.
pub(crate) async fn test() -> Result<()> {
    let toolchain = Toolchain::find().await?;
    for package in PACKAGES {
        test_package(&toolchain, package).await?;
    }
    Ok(())
}

async fn test_package(toolchain: &Toolchain, package: &Package) -> Result<()> {
    let native = suites(&mut cargo("cargo", package.natively), package).await?;
    let mut cargo = cargo(toolchain.cargo(), package.compiled);
    cargo.args(["--config", &format!("target.{TARGET}.rustflags = ['{NO_RANDOMNESS}']")]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(build_directory());
    toolchain.configure_tests(&mut cargo);
    let compiled = suites(&mut cargo, package).await?;
    let names = |suites: &[Suite]| suites.iter().map(|suite| suite.name.clone()).collect::<Vec<_>>();
    ensure!(names(&native) == names(&compiled), "natively there are other suites: {:?}", names(&native));
    for (native, compiled) in native.iter().zip(&compiled) {
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
    cargo.current_dir(root()).stdin(Stdio::null()).stderr(Stdio::inherit());
    cargo
}

/// A package's suites that a build makes, by name.
async fn suites(cargo: &mut Command, package: &Package) -> Result<Vec<Suite>> {
    let output = cargo.output().await.context("cannot start `cargo`")?;
    ensure!(output.status.success(), "the suites can't be built");
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let mut suites: Vec<_> = messages.filter_map(|message| suite(message, package)).collect();
    suites.sort_by(|one, other| one.name.cmp(&other.name));
    ensure!(!suites.is_empty(), "there is no suite");
    Ok(suites)
}

fn suite(message: Message, package: &Package) -> Option<Suite> {
    let is_ours = message.manifest_path?.ends_with(Path::new(package.directory).join("Cargo.toml"));
    is_ours.then_some(Suite { name: message.target?.name, program: message.executable? })
}

/// The tests of a suite, as its native build lists them.
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
        let read = |manifest: &str, executable: &str| {
            let text = format!(
                r#"{{"manifest_path":"{manifest}","executable":{executable},"target":{{"name":"view","kind":["test"]}}}}"#
            );
            suite(serde_json::from_str(&text).unwrap(), &PACKAGES[1]).map(|suite| suite.name)
        };
        assert_eq!(read("/x/simulation/Cargo.toml", r#""/x/view.wasm""#).as_deref(), Some("view"));
        assert_eq!(read("/x/simulation/Cargo.toml", "null"), None);
        assert_eq!(read("/x/core/Cargo.toml", r#""/x/view.wasm""#), None);
    }

    #[test]
    fn a_part_is_found_wherever_it_stands() {
        assert!(contains(b"a test", b"test") && contains(b"test", b"test") && !contains(b"a test", b"tests"));
    }
}
