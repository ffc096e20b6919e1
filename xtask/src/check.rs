//! Lints and tests, step by step, with a headed section for each and a summary.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use xtask::process::{Group, as_a_person, root};

/// One run of cargo, or of another program.
struct Step {
    name: &'static str,
    program: &'static str,
    /// From the project's root.
    directory: &'static str,
    arguments: &'static [&'static str],
}

impl Step {
    const fn cargo(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { name, program: "cargo", directory: ".", arguments }
    }
}

const LINT: &[Step] = &[
    Step::cargo("format", &["fmt", "--all", "--check"]),
    Step::cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
];

const TEST: &[Step] = &[
    Step::cargo("test", &["test", "--workspace", "--no-fail-fast"]),
    // After the tests: its server is the one that they have built.
    Step { name: "gem", program: "rake", directory: "ruby", arguments: &["spec"] },
    // Likewise after the tests.
    Step::cargo("python package", &["xtask", "python-test"]),
    Step::cargo("web", &["xtask", "web"]),
    Step::cargo("tests as WebAssembly", &["xtask", "web-test"]),
    Step { name: "npm package", program: "npm", directory: "wasm", arguments: &["test"] },
    Step { name: "page", program: "npm", directory: "wasm/visualiser", arguments: &["test"] },
    // With the page that was built before; last, since it is not the server of the other tests.
    Step::cargo("server with the page", &["build", "--workspace", "--bins", "--features", "leasehold-server/page"]),
    Step { name: "page in a browser", program: "npm", directory: "wasm/visualiser", arguments: &["run", "e2e"] },
];

const FIX: &[Step] = &[
    Step::cargo("clippy", &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"]),
    // Last, since clippy's changes may need it.
    Step::cargo("format", &["fmt", "--all"]),
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
    println!("\n== {}: {} {} ==", step.name, step.program, step.arguments.join(" "));
    let start = Instant::now();
    let directory = root().join(step.directory);
    let mut group =
        Group::start(as_a_person(step.program).args(step.arguments).current_dir(directory).stdin(Stdio::null()))?;
    let passed = group.wait().await?.success();
    let outcome = Outcome { name: step.name, passed, elapsed: start.elapsed() };
    println!("-- {}", line(&outcome));
    Ok(outcome)
}

fn line(outcome: &Outcome) -> String {
    let verdict = if outcome.passed { "passed" } else { "FAILED" };
    format!("{}: {verdict} in {:.1} s", outcome.name, outcome.elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const PASSES: Step = Step::cargo("passes", &["--version"]);
    const FAILS: Step = Step::cargo("fails", &["no-such-subcommand"]);

    #[tokio::test]
    async fn a_failed_step_fails_the_whole_but_hides_no_other() {
        let error = run_all(&[FAILS, PASSES, FAILS]).await.unwrap_err();
        assert_eq!(error.to_string(), "failed: fails, fails");
        run_all(&[PASSES]).await.unwrap();
    }
}
