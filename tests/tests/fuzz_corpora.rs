//! Runs the bodies of the fuzz targets (`fuzz/fuzz_targets`) on their committed corpora, and on
//! random changes of these inputs. A crasher that a fuzzer found becomes a file of its corpus.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use leasehold_server::fuzzing::{TARGETS, Target};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Returns the number of changed inputs that one run plays for a target. It is small for targets
/// that sync journals to disk or open a store for each import.
fn rounds(target: &str) -> usize {
    match target {
        "import_lines" => 4,
        "journals" => 50,
        _ => 500,
    }
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fuzz")
}

/// Returns the inputs of a target's corpus, in the order of their names.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = std::fs::read_dir(fuzz().join("corpus").join(name)).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn play((name, body): Target, what: &str, bytes: &[u8]) {
    let played = std::panic::catch_unwind(|| body(bytes));
    assert!(played.is_ok(), "`{name}` failed for {what}: {}", bytes.escape_ascii());
}

#[test]
fn every_input_of_the_corpora_is_handled() {
    for target in TARGETS {
        let corpus = corpus(target.0);
        assert!(corpus.len() >= 3, "the corpus of `{}` has {} inputs", target.0, corpus.len());
        corpus.iter().for_each(|(path, bytes)| play(target, &path.display().to_string(), bytes));
    }
}

#[test]
fn changed_inputs_of_the_corpora_are_handled() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for target in TARGETS {
        let corpus = corpus(target.0);
        for round in 0..rounds(target.0) {
            let mut bytes = corpus[random.random_range(0..corpus.len())].1.clone();
            (0..random.random_range(1..4)).for_each(|_| change(&mut bytes, &mut random));
            play(target, &format!("round {round} of seed {seed}"), &bytes);
        }
    }
}

/// Changes a byte, removes a part or repeats a part.
fn change(bytes: &mut Vec<u8>, random: &mut StdRng) {
    let at = random.random_range(0..=bytes.len());
    let end = random.random_range(at..=bytes.len().min(at + 16));
    match random.random_range(0..3) {
        0 if at < bytes.len() => bytes[at] = random.random(),
        1 => drop(bytes.drain(at..end)),
        _ => {
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

#[test]
fn each_body_has_a_target_for_the_fuzzer() {
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    assert_eq!(std::fs::read_dir(fuzz().join("fuzz_targets")).unwrap().count(), TARGETS.len());
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        let source = std::fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("leasehold_server::fuzzing::{name}(bytes)")), "{name}");
    }
}
