//! Lints and tests: cargo, step by step, with a headed section for each and a summary.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::process::Command;

use crate::process::Group;
use leasehold_tests::nested_cargo::package_variables;

/// One run of cargo.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
}

const LINT: &[Step] = &[
    Step { name: "format", arguments: &["fmt", "--all", "--check"] },
    Step { name: "clippy", arguments: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"] },
];

const TEST: &[Step] = &[Step { name: "test", arguments: &["test", "--workspace", "--no-fail-fast"] }];

const FIX: &[Step] = &[
    Step {
        name: "clippy",
        arguments: &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"],
    },
    // Last, since clippy's changes may need it.
    Step { name: "format", arguments: &["fmt", "--all"] },
];

/// How a step went.
struct Outcome {
    name: &'static str,
    passed: bool,
    elapsed: Duration,
}

/// Runs the lints and every test.
///
/// # Errors
/// When a step failed, after all of them ran.
pub(crate) async fn test() -> Result<()> {
    run_all(LINT.iter().chain(TEST)).await
}

/// Checks format and lints.
///
/// # Errors
/// When a step failed, after all of them ran.
pub(crate) async fn lint() -> Result<()> {
    run_all(LINT).await
}

/// Lets clippy and rustfmt change the files.
///
/// # Errors
/// When a step failed, after all of them ran.
pub(crate) async fn fix() -> Result<()> {
    run_all(FIX).await
}

async fn run_all(steps: impl IntoIterator<Item = &Step>) -> Result<()> {
    let mut outcomes = Vec::new();
    for step in steps {
        outcomes.push(run(step).await?);
    }
    println!("\n== summary ==");
    outcomes.iter().for_each(|outcome| println!("{}", line(outcome)));
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.passed).map(|outcome| outcome.name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

async fn run(step: &Step) -> Result<Outcome> {
    println!("\n== {}: cargo {} ==", step.name, step.arguments.join(" "));
    let start = Instant::now();
    let mut cargo = Group::start(cargo().args(step.arguments).stdin(Stdio::null()))?;
    let passed = cargo.wait().await?.success();
    let outcome = Outcome { name: step.name, passed, elapsed: start.elapsed() };
    println!("-- {}", line(&outcome));
    Ok(outcome)
}

/// Cargo as a person calls it.
fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    for name in package_variables() {
        cargo.env_remove(name);
    }
    cargo
}

fn line(outcome: &Outcome) -> String {
    let verdict = if outcome.passed { "passed" } else { "FAILED" };
    format!("{}: {verdict} in {:.1} s", outcome.name, outcome.elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const PASSES: Step = Step { name: "passes", arguments: &["--version"] };
    const FAILS: Step = Step { name: "fails", arguments: &["no-such-subcommand"] };

    #[tokio::test]
    async fn a_failed_step_fails_the_whole_but_hides_no_other() {
        let error = run_all(&[FAILS, PASSES, FAILS]).await.unwrap_err();
        assert_eq!(error.to_string(), "failed: fails, fails");
        run_all(&[PASSES]).await.unwrap();
    }
}
