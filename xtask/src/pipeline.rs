//! A pipeline of steps that run in parallel, each when the steps that it depends on have passed,
//! and a table of their times.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use xtask::process::{Group, as_a_person, root, target_directory};

/// The largest number of steps that run at the same time. With more, builds slow down the tests,
/// whose deadlines are in seconds.
const LANES: usize = 2;

/// The time between two lines of output that name the running steps.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// The time after which a step counts as hung, and is killed. The longest takes two thirds of it on two
/// cores.
const STEP_LIMIT: Duration = Duration::from_secs(45 * 60);

/// The number of bytes at the end of a failed step's output that follow the table. Test runners name
/// their failures there, and who sees only the end of a run's output needs these.
const END_OF_OUTPUT: u64 = 12 * 1024;

/// The phase of a step, which is the column of the table for the step's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The step compiles or installs.
    Compile,
    /// The step runs tests or checks.
    Run,
}

/// The program that a step runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// A program with this name on the `PATH`.
    Named(&'static str),
    /// This program itself. `cargo xtask` would wait for the build lock of another step.
    Xtask,
}

/// A step of the pipeline: one run of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The name of the step's row in the table. A row has at most one step of each phase.
    pub(crate) row: &'static str,
    pub(crate) phase: Phase,
    pub(crate) program: Program,
    /// The working directory of the program, relative to the project's root.
    pub(crate) directory: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// The steps that must have passed before this step starts, by row and phase.
    pub(crate) after: &'static [(&'static str, Phase)],
}

impl Step {
    /// Returns a step that runs cargo in the project's root.
    pub(crate) const fn cargo(row: &'static str, phase: Phase, arguments: &'static [&'static str]) -> Self {
        Self::program(row, phase, ".", "cargo", arguments)
    }

    /// Returns a step that runs a command of `cargo xtask`.
    pub(crate) const fn xtask(row: &'static str, phase: Phase, arguments: &'static [&'static str]) -> Self {
        Self { row, phase, program: Program::Xtask, directory: ".", arguments, after: &[] }
    }

    /// Returns a step that runs a program on the `PATH`, in a directory of the project.
    pub(crate) const fn program(
        row: &'static str,
        phase: Phase,
        directory: &'static str,
        name: &'static str,
        arguments: &'static [&'static str],
    ) -> Self {
        Self { row, phase, program: Program::Named(name), directory, arguments, after: &[] }
    }

    /// Returns this step with other steps that must have passed before.
    pub(crate) const fn after(self, after: &'static [(&'static str, Phase)]) -> Self {
        Self { after, ..self }
    }

    fn key(&self) -> (&'static str, Phase) {
        (self.row, self.phase)
    }

    fn command(&self) -> String {
        let program = match self.program {
            Program::Named(name) => name,
            Program::Xtask => "cargo xtask",
        };
        format!("{program} {}", self.arguments.join(" "))
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    /// The step did not run, because a step that it depends on did not pass.
    NotRun,
}

/// The outcome of a step that has ended, or was not run.
struct Outcome {
    step: Step,
    verdict: Verdict,
    elapsed: Duration,
}

/// Runs all steps, and prints the output of each when it ends. Then prints the table, and the end of
/// each failed step's output again. `variables` are set in the environment of every step.
///
/// # Errors
/// A step failed, and all steps that do not depend on it have run; or a program could not be
/// started.
pub(crate) async fn run(steps: &[Step], variables: &[(&'static str, PathBuf)]) -> Result<()> {
    let mut pipeline = Pipeline::new(steps);
    while !pipeline.waiting.is_empty() || !pipeline.running.is_empty() {
        pipeline.skip();
        pipeline.start(variables)?;
        pipeline.await_one().await?;
    }
    print!("{}", table(steps, &pipeline.ended));
    for outcome in pipeline.ended.iter().filter(|outcome| outcome.verdict == Verdict::Failed) {
        println!("\n== {}: the end of its output ==\n{}", outcome.step.row, end_of(&log_path(&outcome.step))?);
    }
    let failed = pipeline.ended.iter().filter(|outcome| outcome.verdict != Verdict::Passed);
    let failed: Vec<_> = failed.map(|outcome| outcome.step.row).collect();
    println!("steps: {} passed, {} failed", pipeline.ended.len() - failed.len(), failed.len());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

struct Pipeline {
    waiting: Vec<Step>,
    running: JoinSet<Result<Outcome>>,
    /// The running steps, each with the time when it started.
    started: Vec<(Step, Instant)>,
    ended: Vec<Outcome>,
}

impl Pipeline {
    fn new(steps: &[Step]) -> Self {
        Self { waiting: steps.to_vec(), running: JoinSet::new(), started: Vec::new(), ended: Vec::new() }
    }

    /// Ends the waiting steps that depend on a step which did not pass.
    fn skip(&mut self) {
        let has_failed = |ended: &[Outcome], key: &(&str, Phase)| {
            ended.iter().any(|outcome| outcome.step.key() == *key && outcome.verdict != Verdict::Passed)
        };
        while let Some(index) =
            self.waiting.iter().position(|step| step.after.iter().any(|key| has_failed(&self.ended, key)))
        {
            let step = self.waiting.remove(index);
            self.ended.push(Outcome { step, verdict: Verdict::NotRun, elapsed: Duration::ZERO });
        }
    }

    /// Starts waiting steps that are ready, in their order, as long as a lane is free.
    fn start(&mut self, variables: &[(&'static str, PathBuf)]) -> Result<()> {
        while let Some(index) = self.next() {
            let step = self.waiting.remove(index);
            println!("-- {}: {}", step.row, step.command());
            self.started.push((step, Instant::now()));
            self.running.spawn(execute(step, command(&step, variables)?, log_file(&step)?, STEP_LIMIT));
        }
        Ok(())
    }

    /// Returns the index of the first waiting step that may start; `None` if all lanes are busy or
    /// no step is ready.
    fn next(&self) -> Option<usize> {
        let has_passed = |key: &(&str, Phase)| self.ended.iter().any(|outcome| outcome.step.key() == *key);
        let is_ready = |step: &Step| step.after.iter().all(has_passed);
        if self.started.len() < LANES { self.waiting.iter().position(is_ready) } else { None }
    }

    /// Waits until one running step ends, and prints its output.
    async fn await_one(&mut self) -> Result<()> {
        while !self.running.is_empty() {
            let Ok(ended) = tokio::time::timeout(HEARTBEAT, self.running.join_next()).await else {
                println!("-- running: {}", self.running_steps());
                continue;
            };
            let Some(ended) = ended else { break };
            let outcome = ended.context("a step was cut off")??;
            self.started.retain(|(step, _)| step.key() != outcome.step.key());
            print_outcome(&outcome)?;
            self.ended.push(outcome);
            break;
        }
        Ok(())
    }

    fn running_steps(&self) -> String {
        let words = self.started.iter().map(|(step, start)| format!("{} ({} s)", step.row, start.elapsed().as_secs()));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the path of the copy of this program that steps run. The original is replaced by a step
/// that compiles the workspace.
fn own_copy() -> PathBuf {
    target_directory().join("xtask/xtask")
}

/// Copies this program to the path that steps run.
///
/// # Errors
/// The copy cannot be written.
pub(crate) fn copy_self() -> Result<()> {
    let (original, copy) = (std::env::current_exe()?, own_copy());
    copy.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    // The old copy is removed first, because a process may still run it.
    let _ = std::fs::remove_file(&copy);
    std::fs::copy(original, copy).context("cannot copy this program")?;
    Ok(())
}

fn command(step: &Step, variables: &[(&'static str, PathBuf)]) -> Result<tokio::process::Command> {
    let mut command = match step.program {
        Program::Named(name) => as_a_person(name),
        Program::Xtask => as_a_person(std::path::absolute(own_copy()).context("the build directory is unknown")?),
    };
    command.args(step.arguments).current_dir(root().join(step.directory)).stdin(Stdio::null());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

/// Returns the path of the file for a step's output while the step runs.
fn log_path(step: &Step) -> PathBuf {
    let name = format!("{}-{:?}.log", step.row.replace(' ', "-"), step.phase).to_lowercase();
    target_directory().join("xtask").join(name)
}

fn log_file(step: &Step) -> Result<File> {
    let path = log_path(step);
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    File::create(&path).with_context(|| format!("cannot write `{}`", path.display()))
}

async fn execute(step: Step, mut command: tokio::process::Command, log: File, limit: Duration) -> Result<Outcome> {
    let start = Instant::now();
    command.stdout(log.try_clone()?).stderr(log.try_clone()?);
    let passed = ends_well(Group::start(&mut command)?, log, limit).await?;
    let verdict = if passed { Verdict::Passed } else { Verdict::Failed };
    Ok(Outcome { step, verdict, elapsed: start.elapsed() })
}

/// Returns true if the process succeeds. After `limit` it is killed, and the log says so.
async fn ends_well(mut process: Group, mut log: File, limit: Duration) -> Result<bool> {
    if let Ok(status) = tokio::time::timeout(limit, process.wait()).await {
        return Ok(status?.success());
    }
    process.kill().await?;
    writeln!(log, "error: no end after {} s, so the step was killed", limit.as_secs())?;
    Ok(false)
}

fn print_outcome(outcome: &Outcome) -> Result<()> {
    let Outcome { step, verdict, elapsed } = outcome;
    println!("\n== {}: {} ==", step.row, step.command());
    copy(&log_path(step))?;
    println!("-- {}: {} in {:.1} s", step.row, word(*verdict), elapsed.as_secs_f64());
    Ok(())
}

fn copy(path: &Path) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    std::io::copy(&mut file, &mut std::io::stdout().lock())?;
    Ok(())
}

/// Returns the last [`END_OF_OUTPUT`] bytes of a file, without the line that they begin within.
fn end_of(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let start = file.metadata()?.len().saturating_sub(END_OF_OUTPUT);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole_lines = if start == 0 { &*text } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    Ok(whole_lines.to_owned())
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::NotRun => "NOT RUN",
    }
}

/// Returns the table with a line for each row, in the order of `steps`: the seconds of the compile
/// step, the seconds of the run step, and the worse verdict.
fn table(steps: &[Step], ended: &[Outcome]) -> String {
    let mut rows: Vec<&str> = Vec::new();
    for step in steps {
        if !rows.contains(&step.row) {
            rows.push(step.row);
        }
    }
    let line = |row: &&str| {
        let of_row = || ended.iter().filter(|outcome| outcome.step.row == *row);
        let seconds = |phase| {
            let outcome = of_row().find(|outcome| outcome.step.phase == phase);
            outcome.map_or_else(String::new, |outcome| format!("{:.1}", outcome.elapsed.as_secs_f64()))
        };
        let worst = of_row().map(|outcome| outcome.verdict).find(|verdict| *verdict != Verdict::Passed);
        let verdict = word(worst.unwrap_or(Verdict::Passed));
        format!("{row:<22} {:>10} {:>10}  {verdict}\n", seconds(Phase::Compile), seconds(Phase::Run))
    };
    let lines: String = rows.iter().map(line).collect();
    format!("\n{:<22} {:>10} {:>10}\n{lines}", "step", "compile, s", "run, s")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const PASSES: Step = Step::cargo("passes", Phase::Run, &["--version"]);
    const FAILS: Step = Step::cargo("fails", Phase::Run, &["no-such-subcommand"]);
    const DEPENDS: Step = Step::cargo("depends", Phase::Run, &["--version"]).after(&[("fails", Phase::Run)]);

    #[tokio::test]
    async fn a_failed_step_fails_the_whole_and_skips_only_what_depends_on_it() {
        let error = run(&[FAILS, PASSES, DEPENDS], &[]).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("fails") && text.contains("depends") && !text.contains("passes"), "{text}");
        run(&[PASSES], &[]).await.unwrap();
    }

    #[tokio::test]
    async fn a_hung_step_is_killed_and_fails() {
        let hung = Step::program("hung", Phase::Run, ".", "sleep", &["1000"]);
        let limit = Duration::from_millis(10);
        let outcome = execute(hung, command(&hung, &[]).unwrap(), log_file(&hung).unwrap(), limit).await.unwrap();
        assert_eq!(outcome.verdict, Verdict::Failed);
        assert!(std::fs::read_to_string(log_path(&hung)).unwrap().ends_with("so the step was killed\n"));
    }

    #[test]
    fn the_end_of_an_output_has_whole_lines() {
        let path = log_path(&Step::cargo("long output", Phase::Run, &[]));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "one\ntwo\n").unwrap();
        assert_eq!(end_of(&path).unwrap(), "one\ntwo\n");
        let line = "x".repeat(99);
        std::fs::write(&path, format!("{line}\n").repeat(1000)).unwrap();
        let end = end_of(&path).unwrap();
        assert!(end.lines().all(|each| each == line), "{end}");
        assert_eq!(end.lines().count() as u64, END_OF_OUTPUT / 100);
    }

    #[test]
    fn a_step_waits_for_those_before_it_and_for_a_lane() {
        let next = |waiting: &[Step], started: &[Step]| {
            let started = started.iter().map(|step| (*step, Instant::now())).collect();
            Pipeline { started, ..Pipeline::new(waiting) }.next()
        };
        assert_eq!(next(&[DEPENDS, PASSES], &[]), Some(1));
        assert_eq!(next(&[PASSES], &[FAILS]), Some(0));
        assert_eq!(next(&[PASSES], &[FAILS, FAILS]), None);
        assert_eq!(next(&[DEPENDS], &[]), None);
    }

    #[test]
    fn the_table_has_a_line_for_each_row() {
        let compile = Step::cargo("passes", Phase::Compile, &[]);
        let outcome = |step, verdict| Outcome { step, verdict, elapsed: Duration::from_millis(1500) };
        let ended = [outcome(PASSES, Verdict::Failed), outcome(compile, Verdict::Passed)];
        let text = table(&[compile, PASSES], &ended);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("passes                        1.5        1.5  FAILED"), "{text}");
    }
}
