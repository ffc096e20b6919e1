//! Runs the fuzz targets of `fuzz/fuzz_targets` with libFuzzer, one a round.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use xtask::process::{as_a_person, root, run, target_directory};

/// The seconds for which a round fuzzes its target.
const SECONDS: u32 = 600;

/// The flags of cargo-fuzz for a compiler without nightly features: coverage by LLVM's own pass
/// (<https://clang.llvm.org/docs/SanitizerCoverage.html>). The code has no `unsafe`, so it needs no
/// address sanitizer.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Fuzzes one target, which the seed chooses in turn, for ten minutes. Returns true if no input made
/// it fail, and the number of inputs that it ran. Inputs that reach new code are kept in
/// `target/fuzz/corpus` for later rounds.
///
/// # Errors
/// The target can't be compiled or started.
pub(crate) async fn fuzz(seed: u64) -> Result<(bool, BTreeMap<String, u64>)> {
    let targets = targets()?;
    let at = usize::try_from(seed)? % targets.len();
    let target = targets.get(at).context("there are no targets")?;
    let binary = build(target).await?;
    let build_directory = target_directory().join("fuzz");
    let (found, committed) = (build_directory.join("corpus").join(target), root().join("fuzz/corpus").join(target));
    let artifacts = build_directory.join("artifacts").join(target);
    for directory in [&found, &artifacts] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make `{}`", directory.display()))?;
    }
    println!("fuzzing `{target}` for {SECONDS} s");
    let mut fuzzer = as_a_person(&binary);
    fuzzer.arg(format!("-max_total_time={SECONDS}")).arg(format!("-seed={}", seed & u64::from(u32::MAX)));
    fuzzer.args(["-timeout=20", "-rss_limit_mb=2048", "-max_len=16384", "-print_final_stats=1", "-verbosity=0"]);
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display())).args([found, committed]);
    let output = fuzzer.stdin(Stdio::null()).kill_on_drop(true).output().await.context("cannot start the fuzzer")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        println!("{text}\nthe input is in `{}`: add it to the corpus with its mend", artifacts.display());
    }
    Ok((output.status.success(), BTreeMap::from([(format!("inputs of {target}"), executed(&text)?)])))
}

/// Returns the names of the targets, in order.
fn targets() -> Result<Vec<String>> {
    let files = std::fs::read_dir(root().join("fuzz/fuzz_targets")).context("cannot list the targets")?;
    let names = files.map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<_> = names.collect::<Option<_>>().context("a target has an unusual name")?;
    names.sort();
    ensure!(!names.is_empty(), "`fuzz/fuzz_targets` is empty");
    Ok(names)
}

async fn build(target: &str) -> Result<PathBuf> {
    let host = host().await?;
    let directory = target_directory().join("fuzz");
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--bin", target]);
    // With `--target`, cargo compiles build scripts and procedural macros without `RUSTFLAGS`.
    cargo.args(["--target", &host]).current_dir(root());
    cargo.env("CARGO_TARGET_DIR", &directory).env("RUSTFLAGS", RUSTFLAGS);
    run(&mut cargo).await?;
    Ok(directory.join(host).join("release").join(target))
}

/// Returns the compiler's own target, such as `x86_64-unknown-linux-gnu`.
async fn host() -> Result<String> {
    let output = as_a_person("rustc").arg("-vV").output().await.context("cannot start `rustc`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` names no host")
}

/// Reads the number of inputs from the fuzzer's report.
fn executed(report: &str) -> Result<u64> {
    let number = report.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    match number.map(|number| number.trim().parse()) {
        Some(Ok(number)) => Ok(number),
        _ => bail!("the fuzzer reports no number of inputs:\n{report}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_number_of_inputs_is_read_from_the_report() {
        assert_eq!(executed("Done\nstat::number_of_executed_units: 1234\nstat::x: 5\n").unwrap(), 1234);
        assert!(executed("Done").is_err());
        assert!(targets().unwrap().contains(&"wire".to_owned()));
    }
}
