//! The rows `queue-vs-pgqueuer`, `queue-vs-pg-boss`, `queue-vs-graphile` and `queue-vs-procrastinate`: the requests
//! that are submitted, taken and completed one by one in a second. The peers are other job queues on the same
//! PostgreSQL.
//!
//! Their programs are in `peers/python` and `peers/node`. The comments there tell their settings, and which others
//! were slower.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use xtask::needs;
use xtask::process::{as_a_person, run, target_directory};
use xtask::python::Environment;

use super::postgres;
use super::queues;
use super::row::{Better, Heading, Row};
use super::script::output;
use super::{Context, LoadArguments};

const PGQUEUER: Heading =
    Heading { name: "queue-vs-pgqueuer", unit: "requests/s", better: Better::Higher, target: 2.0 };
const PG_BOSS: Heading = Heading { name: "queue-vs-pg-boss", target: 3.0, ..PGQUEUER };
const GRAPHILE: Heading = Heading { name: "queue-vs-graphile", target: 3.0, ..PGQUEUER };
const PROCRASTINATE: Heading = Heading { name: "queue-vs-procrastinate", target: 10.0, ..PGQUEUER };

/// The list of the Python peers' packages.
const REQUIREMENTS: &str = "requirements.txt";
/// The list of the Node peers' packages, with their hashes.
const LOCK: &str = "package-lock.json";

/// Measures Leasehold beside pgqueuer.
///
/// # Errors
/// One of the contenders cannot be installed or measured.
pub(crate) async fn vs_pgqueuer(context: &Context) -> Result<Row> {
    beside(PGQUEUER, &python("pgqueuer_bench.py").await?, 2, &context.load).await
}

/// Measures Leasehold beside pg-boss.
///
/// # Errors
/// See [`vs_pgqueuer`].
pub(crate) async fn vs_pg_boss(context: &Context) -> Result<Row> {
    beside(PG_BOSS, &node("pg-boss.mjs").await?, 2, &context.load).await
}

/// Measures Leasehold beside graphile-worker.
///
/// # Errors
/// See [`vs_pgqueuer`].
pub(crate) async fn vs_graphile(context: &Context) -> Result<Row> {
    beside(GRAPHILE, &node("graphile-worker.mjs").await?, 2, &context.load).await
}

/// Measures Leasehold beside procrastinate. Each of its workers takes one job after the other, and four processes
/// of such workers take more than two.
///
/// # Errors
/// See [`vs_pgqueuer`].
pub(crate) async fn vs_procrastinate(context: &Context) -> Result<Row> {
    beside(PROCRASTINATE, &python("procrastinate_bench.py").await?, 4, &context.load).await
}

/// The program of a peer.
struct Program {
    interpreter: PathBuf,
    directory: PathBuf,
    script: &'static str,
}

/// The JSON output of a peer's program.
#[derive(Deserialize)]
struct Measured {
    /// The requests that were completed in a second.
    rate: f64,
}

/// Measures Leasehold beside a peer, whose clients are spread over so many processes.
async fn beside(heading: Heading, program: &Program, processes: u32, load: &LoadArguments) -> Result<Row> {
    queues::beside::<1>(heading, load, async |database| {
        let url = postgres::cluster().await?.url(database);
        program.rate(&url, processes, load).await
    })
    .await
}

impl Program {
    async fn rate(&self, url: &str, processes: u32, load: &LoadArguments) -> Result<f64> {
        let numbers = [
            ("--clients", load.clients),
            ("--processes", processes),
            ("--warm-up-seconds", load.warm_up_seconds),
            ("--seconds", load.seconds),
        ];
        let numbers = numbers.map(|(name, number)| format!("{name}={number}"));
        let url = format!("--url={url}");
        let mut arguments = vec![self.script, url.as_str()];
        arguments.extend(numbers.iter().map(String::as_str));
        measured(&output(&self.directory, &self.interpreter, &arguments).await?)
    }
}

fn measured(text: &str) -> Result<f64> {
    let measured: Measured = serde_json::from_str(text).context("the script says something else")?;
    anyhow::ensure!(measured.rate > 0.0, "the peer has completed nothing");
    Ok(measured.rate)
}

/// Returns the directory of the peers' sources.
fn sources(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(language)
}

/// Returns a Python peer, whose packages are in an environment of the build directory.
async fn python(script: &'static str) -> Result<Program> {
    needs::install(needs::FOR_VENV)?;
    let directory = sources("python");
    let environment = Environment::new("bench-peers/python", directory.clone(), REQUIREMENTS);
    environment.prepare().await?;
    Ok(Program { interpreter: environment.path("python"), directory, script })
}

/// Returns a Node peer. Its program is copied beside its packages, because Node looks for them there.
async fn node(script: &'static str) -> Result<Program> {
    needs::install(needs::FOR_NPM)?;
    let directory = std::path::absolute(target_directory().join("bench-peers/node"))?;
    copy(&sources("node"), &directory)?;
    install(&directory).await?;
    // One of the packages is the Node that the peers ask for, which is newer than Debian's.
    Ok(Program { interpreter: directory.join("node_modules/.bin/node"), directory, script })
}

/// Copies the files of a directory into another one.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let context = || format!("cannot copy `{}` to `{}`", from.display(), to.display());
    std::fs::create_dir_all(to).with_context(context)?;
    for entry in std::fs::read_dir(from).with_context(context)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).with_context(context)?;
        }
    }
    Ok(())
}

/// Installs the packages of the lock file, if it has changed since the last time.
async fn install(directory: &Path) -> Result<()> {
    let wanted = std::fs::read(directory.join(LOCK)).context("cannot read the list of packages")?;
    let installed = directory.join("node_modules").join(LOCK);
    if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut npm = as_a_person("npm");
    npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(directory);
    run(&mut npm).await?;
    std::fs::write(&installed, wanted).context("cannot note what was installed")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_peer_that_completes_nothing_is_no_measurement() {
        assert_eq!(measured("{\"rate\": 412.5}\n").unwrap(), 412.5);
        assert!(measured("{\"rate\": 0}").is_err());
        assert!(measured("Traceback").is_err());
    }

    #[test]
    fn the_packages_of_the_peers_have_exact_versions() {
        let requirements = std::fs::read_to_string(sources("python").join(REQUIREMENTS)).unwrap();
        let packages: Vec<_> = requirements.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(packages.len() > 10 && packages.iter().all(|line| line.contains("==")), "{packages:?}");
        let package: serde_json::Value =
            serde_json::from_slice(&std::fs::read(sources("node").join("package.json")).unwrap()).unwrap();
        for list in ["dependencies", "optionalDependencies"] {
            for (name, version) in package.get(list).and_then(serde_json::Value::as_object).unwrap() {
                assert!(version.as_str().unwrap().starts_with(|first: char| first.is_ascii_digit()), "{name}");
            }
        }
    }

    #[test]
    fn a_copy_has_the_files_of_the_directory() {
        let to = tempfile::tempdir().unwrap();
        copy(&sources("node"), to.path()).unwrap();
        assert!(to.path().join("pg-boss.mjs").is_file() && to.path().join(LOCK).is_file());
    }
}
