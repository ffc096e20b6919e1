//! Plays the golden vectors on the engine alone, and tests the player of vectors itself.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Once;

use leasehold_tests::vectors::{CoreHost, Played, VectorFile, golden_files};

const UPDATE: &str = "UPDATE_VECTORS";

/// The promises that golden vectors must prove, by their numbers in
/// `docs/src/reference/promises.md`. Other tests prove B26 and B33.
const ROWS: [&str; 30] = [
    "B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11", "B12", "B13", "B14", "B15", "B20",
    "B21", "B22", "B23", "B24", "B25", "B30", "B31", "B32", "R01", "V01", "V04", "V05", "V06", "V11",
];

/// Returns the name and text of every file of golden vectors. With `UPDATE_VECTORS=1` the first
/// call rewrites all files before any test reads one.
fn files() -> Vec<(String, String)> {
    static REWRITTEN: Once = Once::new();
    if std::env::var_os(UPDATE).is_some() {
        REWRITTEN.call_once(|| golden_files().unwrap().iter().for_each(|(name, text)| rewrite(name, text)));
    }
    golden_files().unwrap()
}

fn rewrite(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name);
    std::fs::write(path, play(name, text).text).unwrap();
}

fn play(name: &str, text: &str) -> Played {
    VectorFile::parse(name, text).unwrap().play(|| Ok(CoreHost::default())).unwrap()
}

#[test]
fn the_core_matches_every_golden_vector() {
    for (name, text) in files() {
        let texts: Vec<_> = play(&name, &text).mismatches.iter().map(ToString::to_string).collect();
        assert!(texts.is_empty(), "{} steps went otherwise:\n\n{}", texts.len(), texts.join("\n"));
    }
}

/// A file that is played without a mismatch must be reproduced byte for byte. `UPDATE_VECTORS=1`
/// then changes only the steps with another output.
#[test]
fn a_file_without_mismatches_is_written_back_unchanged() {
    for (name, text) in files() {
        let played = play(&name, &text);
        assert!(played.scenarios > 0, "{name} has no scenario");
        if played.mismatches.is_empty() {
            assert_eq!(played.text, text, "{name}");
        }
    }
}

#[test]
fn every_behaviour_row_has_a_vector() {
    let files: Vec<_> = files().iter().map(|(name, text)| VectorFile::parse(name, text).unwrap()).collect();
    let headings: Vec<_> = files.iter().flat_map(VectorFile::headings).collect();
    let missing: Vec<_> = ROWS
        .iter()
        .filter(|row| !headings.iter().any(|heading| heading.split(' ').any(|word| word == **row)))
        .collect();
    assert!(missing.is_empty(), "no vector proves {missing:?}");
    for heading in headings {
        let row = heading.split(' ').nth(1).unwrap_or_default();
        assert!(ROWS.contains(&row), "`{heading}` names no row");
    }
}

/// The player must report a wrong reply, a wrong state and a missing state as mismatches.
#[test]
fn a_wrong_expectation_is_caught() {
    let begin = "## B08 a claim\n\nbegin 1 create USERNAMES \"Alice\" USER:7 USERS:7\n----\n";
    let reply = "begun L1 fence=1\n";
    let state = "cell 1: L1\n  USERNAMES \"Alice\" LEASE_CREATING USER:7 from USERS:7 under L1\n";
    let right = format!("{begin}{reply}{state}");
    let mismatches = |text: &str| {
        let played = play("inline.txt", text);
        assert_eq!(played.text, right);
        played.mismatches.len()
    };
    assert_eq!(mismatches(&right), 0);
    assert_eq!(mismatches(&right.replace("fence=1", "fence=2")), 1);
    assert_eq!(mismatches(&right.replace("under L1", "under L2")), 1);
    assert_eq!(mismatches(&format!("{begin}{reply}")), 1);
    assert_eq!(mismatches(begin), 1);
}

#[test]
fn a_malformed_vector_file_is_refused() {
    for text in ["## B01 x\n\nbegin 1\nbegun\n", "begin 1\n----\n"] {
        assert!(VectorFile::parse("inline.txt", text).is_err(), "{text}");
    }
    let unplayable = VectorFile::parse("inline.txt", "## B01 x\n\ncommit 1 L1\n----\n").unwrap();
    assert!(unplayable.play(|| Ok(CoreHost::default())).is_err());
}
