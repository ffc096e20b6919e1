//! `cargo xtask test --deep PART`: tests that find more when they run longer. They run in rounds,
//! each with a new seed. A log keeps every round, so that a run continues after the last round of
//! the same code, and the counts of all runs add up.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::task::JoinSet;
use xtask::process::{self, as_a_person, root, target_directory};

use crate::check::{self, FEATURES, SERVER_VARIABLE};
use crate::{bundlers, fuzz, installation, postgres_versions, rails, release, upgrade};

/// The start of the line on which a test prints its counts. The rest of the line is a JSON object
/// of numbers.
const COUNTS: &str = "counts: ";

/// A part of the deep tests
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Part {
    /// Random worlds with faults in the simulation: 100,000 a round
    Worlds,
    /// Random worlds of sessions and locks in the simulation: 20,000 a round
    Locks,
    /// Random long sequences of commands, the engine beside its independent model: 2,000 a round
    Sequences,
    /// A hundred clients on two servers of one PostgreSQL; servers are killed and the database crashes: a minute a round
    Linearizability,
    /// The same clients, while machines of PostgreSQL under Patroni lose power, cables and processes: eight faults a round
    Failovers,
    /// The same clients, while machines of etcd lose power, cables and processes: ten faults a round
    EtcdFailovers,
    /// The faults of `failovers`, and a server without one of its remedies: the clients must find each; one round
    Remedies,
    /// The time without an answer in three kinds of failovers, as a quiet client sees it: one round
    FailoverTimes,
    /// Queues on two servers of one PostgreSQL; workers and servers are killed and the database crashes: a minute a round
    Queues,
    /// A server under load, killed again and again: 60 kills a round
    Kills,
    /// Mixed load for an hour, with kills, full disks, jumps of the clock and callers who leave: one round
    Soak,
    /// Damaged files of the embedded store: some hundred a round
    Damage,
    /// A fuzz target, the next one each round: ten minutes a round
    Fuzz,
    /// The tests of the store on PostgreSQL 16, 17 and 18: one round
    Postgresql,
    /// The former version of the server and the present one on one store: one round
    Upgrade,
    /// All of the gem's specs on Debian's next release, with its Ruby and its Rails: one round
    Rails,
    /// The packages of a release, installed and run in a chroot of Debian 12: one round
    Package,
    /// The npm package in new programs, with four versions of Vite, other bundlers and three versions of Node: one round
    Bundlers,
}

impl Part {
    /// Returns the name of the part's test, and the environment variables that a round sets in
    /// addition to the seed; `None` if cargo does not run the part.
    const fn test(self) -> Option<(&'static str, &'static [(&'static str, &'static str)])> {
        Some(match self {
            Self::Worlds => ("random_worlds_with_faults_are_sound_and_become_quiescent", &[]),
            Self::Locks => ("k06_random_worlds_of_locks_are_sound_and_become_quiescent", &[]),
            Self::Sequences => ("random_long_sequences", &[]),
            Self::Linearizability => {
                ("b09_b13_b30_answers_under_faults_are_linearizable", &[("LEASEHOLD_LINEARIZABILITY_SECONDS", "60")])
            }
            Self::Failovers => {
                ("b09_b13_b30_answers_under_failovers_are_linearizable", &[("LEASEHOLD_FAILOVERS", "8")])
            }
            Self::EtcdFailovers => {
                ("b09_b13_b30_answers_under_failovers_of_etcd_are_linearizable", &[("LEASEHOLD_ETCD_FAULTS", "10")])
            }
            Self::Remedies => ("b09_b13_b30_each_remedy_that_is_taken_out_is_found", &[]),
            Self::FailoverTimes => ("b09_b13_answers_return_soon_after_a_failover", &[]),
            Self::Queues => (
                "q03_q07_q09_q10_q14_q17_under_kills_each_request_is_settled_once",
                &[("LEASEHOLD_QUEUE_KILLS_SECONDS", "60")],
            ),
            Self::Kills => ("acknowledged_updates_survive_sigkill", &[]),
            Self::Soak => ("a_soak_loses_no_acknowledged_save", &[("LEASEHOLD_SOAK_SECONDS", "3600")]),
            Self::Damage => ("corrupted_data_is_never_served", &[]),
            Self::Fuzz | Self::Postgresql | Self::Upgrade | Self::Rails | Self::Package | Self::Bundlers => {
                return None;
            }
        })
    }

    /// Returns true if a further round would find nothing more.
    const fn has_one_round(self) -> bool {
        matches!(
            self,
            Self::Remedies
                | Self::FailoverTimes
                | Self::Postgresql
                | Self::Upgrade
                | Self::Rails
                | Self::Package
                | Self::Bundlers
        )
    }

    /// Returns true if rounds can run at the same time: each has directories, ports and networks of its own.
    const fn allows_several(self) -> bool {
        self.test().is_some() && !self.has_one_round()
    }

    /// Returns the features with which cargo compiles the part's test.
    fn features(self) -> String {
        match self {
            Self::Remedies | Self::FailoverTimes => format!("{FEATURES},leasehold-tests/deep-failovers"),
            _ => FEATURES.to_owned(),
        }
    }

    /// Returns the command with which a person repeats the round with this seed.
    fn repetition(self, seed: u64) -> String {
        match self.test() {
            Some((test, variables)) => {
                let variables: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
                format!("SEED={seed} {variables}cargo nextest run --workspace --features {} {test}", self.features())
            }
            None => format!("cargo xtask test --deep {}", self.name()),
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// One round of a part, as a line of the log.
#[derive(Debug, Serialize, Deserialize)]
struct Round {
    part: String,
    /// The commit of the tested code, with a `+` if files differed from the commit.
    commit: String,
    seed: u64,
    seconds: f64,
    passed: bool,
    counts: BTreeMap<String, u64>,
}

/// Runs rounds of a part, `at_once` at the same time and each with the next seed, and starts no new one after `minutes` or
/// a failure. Prints the sums of counts over all rounds of the same code.
///
/// # Errors
/// A round failed, which the message repeats; or rounds of the part can't run at the same time.
pub(crate) async fn run(part: Part, minutes: u64, at_once: usize) -> Result<()> {
    ensure!(at_once == 1 || part.allows_several(), "rounds of `{}` can't run at the same time", part.name());
    let commit = commit().await?;
    let mut rounds = read(&part.name(), &commit)?;
    println!("{}", sums(part, &rounds));
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let last = rounds.iter().map(|round| round.seed).max().unwrap_or(0);
    let most = if part.has_one_round() { 1 } else { usize::MAX };
    let mut seeds = (last + 1..).take(most);
    let mut failed = None;
    let mut playing = JoinSet::new();
    loop {
        while failed.is_none() && playing.len() < at_once && Instant::now() < end {
            let Some(seed) = seeds.next() else { break };
            playing.spawn(play(part, commit.clone(), seed));
        }
        let Some(round) = playing.join_next().await else { break };
        let round = round.context("a round has panicked")??;
        append(&round)?;
        if !round.passed {
            failed = Some(round.seed);
        }
        rounds.push(round);
        println!("{}", sums(part, &rounds));
    }
    failed.map_or(Ok(()), |seed| bail!("seed {seed} failed: repeat it with `{}`", part.repetition(seed)))
}

async fn play(part: Part, commit: String, seed: u64) -> Result<Round> {
    let start = Instant::now();
    let (passed, counts) = match (part, part.test()) {
        (Part::Fuzz, _) => fuzz::fuzz(seed).await?,
        (Part::Postgresql, _) => postgres_versions::test().await?,
        (Part::Upgrade, _) => upgrade::test().await?,
        (Part::Package, _) => (true, installation::test(&program_of_release().await?).await?),
        (Part::Bundlers, _) => bundlers::test().await?,
        (_, Some((test, variables))) => run_test(part, test, variables, seed).await?,
        (_, None) => run_specs(seed).await?,
    };
    Ok(Round { part: part.name(), commit, seed, seconds: start.elapsed().as_secs_f64(), passed, counts })
}

/// Runs the test of a round. Returns true if it passed, and the counts that it printed.
async fn run_test(
    part: Part,
    test: &str,
    variables: &[(&str, &str)],
    seed: u64,
) -> Result<(bool, BTreeMap<String, u64>)> {
    let mut cargo = as_a_person("cargo");
    cargo.args(["nextest", "run", "--workspace", "--features", &part.features(), "--no-capture", test]);
    cargo.env("SEED", seed.to_string()).envs(variables.iter().copied());
    let output = process::output(cargo.current_dir(root())).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        println!("{text}");
    }
    Ok((output.status.success(), counts(&text)?))
}

/// Returns the path of the program to pack: that of `LEASEHOLD_BINARY`, or else a newly built
/// release.
async fn program_of_release() -> Result<PathBuf> {
    match std::env::var_os(SERVER_VARIABLE) {
        Some(path) => Ok(PathBuf::from(path)),
        None => release::build_program().await,
    }
}

/// Runs the gem's specs on Debian's next release. Returns true if all passed, and the number of
/// examples.
async fn run_specs(seed: u64) -> Result<(bool, BTreeMap<String, u64>)> {
    let server = check::server_under_test().await?;
    let summary = rails::test_in_chroot(&server, seed).await?;
    Ok((summary.passed(), BTreeMap::from([("examples".to_owned(), summary.example_count)])))
}

/// Reads the counts from a test's output. The result is empty if the output has no line with
/// counts.
///
/// # Errors
/// The line is not a JSON object of numbers.
pub(crate) fn counts(output: &str) -> Result<BTreeMap<String, u64>> {
    let line = output.lines().find_map(|line| line.trim_start().strip_prefix(COUNTS));
    line.map_or_else(|| Ok(BTreeMap::new()), |text| serde_json::from_str(text).context("counts are no JSON object"))
}

/// Returns the commit of the working directory, with a `+` if files differ from the commit.
async fn commit() -> Result<String> {
    let differs = !git(&["status", "--porcelain"]).await?.is_empty();
    Ok(git(&["rev-parse", "--short=12", "HEAD"]).await? + if differs { "+" } else { "" })
}

async fn git(arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root()).output().await.context("cannot start `git`")?;
    ensure!(output.status.success(), "`git {}` failed", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn log() -> PathBuf {
    target_directory().join("deep.jsonl")
}

/// Reads the rounds of a part at this commit from the log.
fn read(part: &str, commit: &str) -> Result<Vec<Round>> {
    let text = match std::fs::read_to_string(log()) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => bail!("cannot read `{}`: {error}", log().display()),
    };
    let rounds = text.lines().map(serde_json::from_str::<Round>).collect::<Result<Vec<_>, _>>();
    let rounds = rounds.with_context(|| format!("`{}` has a line that is no round: remove it", log().display()))?;
    Ok(rounds.into_iter().filter(|round| round.part == part && round.commit == commit).collect())
}

fn append(round: &Round) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(log())?;
    writeln!(file, "{}", serde_json::to_string(round)?).context("cannot write the log of rounds")
}

/// Returns a line with the number of rounds, their seeds, and the sums of their counts.
fn sums(part: Part, rounds: &[Round]) -> String {
    let Some(last) = rounds.last() else { return format!("{}: no round of this code yet", part.name()) };
    let mut counts = BTreeMap::<&str, u64>::new();
    for (name, count) in rounds.iter().flat_map(|round| &round.counts) {
        *counts.entry(name).or_default() += count;
    }
    let counts: String = counts.iter().map(|(name, count)| format!(", {count} {name}")).collect();
    let (failed, minutes) = (
        rounds.iter().filter(|round| !round.passed).count(),
        rounds.iter().map(|round| round.seconds).sum::<f64>() / 60.0,
    );
    format!(
        "{} at {}: {} rounds (seeds to {}), {failed} failed, {minutes:.1} min{counts}",
        part.name(),
        last.commit,
        rounds.len(),
        last.seed
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn counts_are_read_from_their_line_and_add_up() {
        let counts = counts("SEED=1\n  counts: {\"worlds\":3,\"leases\":5}\n").unwrap();
        assert_eq!(counts.get("worlds"), Some(&3));
        let round = |seed, passed| Round {
            part: "worlds".into(),
            commit: "abc".into(),
            seed,
            seconds: 30.0,
            passed,
            counts: counts.clone(),
        };
        let text = sums(Part::Worlds, &[round(1, true), round(2, false)]);
        assert_eq!(text, "worlds at abc: 2 rounds (seeds to 2), 1 failed, 1.0 min, 10 leases, 6 worlds");
        assert!(super::counts("counts: five").is_err());
    }

    #[test]
    fn a_part_names_one_test() {
        for part in Part::value_variants() {
            let Some((test, _)) = part.test() else { continue };
            let found = std::process::Command::new("git")
                .args(["grep", "-h", &format!("fn .*{test}()")])
                .current_dir(root())
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 1, "{part:?}");
        }
    }
}
