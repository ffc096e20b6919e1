//! The golden vectors, played on the core and on the running server, and the checks that keep them honest.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Once;

use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::vectors::{CoreHost, Host, Mismatch, ServerHost, VectorFile};

const UPDATE: &str = "UPDATE_VECTORS";

/// The rows of behaviours.md that vectors prove; B26 and B33 are proved elsewhere.
const ROWS: [&str; 29] = [
    "B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11", "B12", "B13", "B14", "B15", "B20",
    "B21", "B22", "B23", "B24", "B25", "B30", "B31", "B32", "R01", "V01", "V04", "V05", "V06",
];

/// The files, rewritten first where that is asked for: once, before any test reads one.
fn paths() -> Vec<PathBuf> {
    static REWRITTEN: Once = Once::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    if std::env::var_os(UPDATE).is_some() {
        REWRITTEN.call_once(|| paths.iter().for_each(|path| rewrite(path)));
    }
    paths
}

fn rewrite(path: &Path) {
    let played = VectorFile::read(path).unwrap().play(|| Ok(CoreHost::default())).unwrap();
    std::fs::write(path, played.text).unwrap();
}

/// Plays the files side by side: a server spends most of its time waiting for the disk.
fn play_all<H: Host>(open: impl Fn() -> anyhow::Result<H> + Sync) -> Vec<Mismatch> {
    let play = &|path: PathBuf| {
        let file = VectorFile::read(&path).unwrap();
        file.play(&open).unwrap_or_else(|error| panic!("{}: {error:#}", path.display())).mismatches
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = paths().into_iter().map(|path| scope.spawn(move || play(path))).collect();
        running.into_iter().flat_map(|file| file.join().unwrap()).collect()
    })
}

fn assert_none(mismatches: &[Mismatch]) {
    let texts: Vec<_> = mismatches.iter().map(ToString::to_string).collect();
    assert!(texts.is_empty(), "{} steps went otherwise:\n\n{}", texts.len(), texts.join("\n"));
}

#[test]
fn core_plays_every_vector() {
    assert_none(&play_all(|| Ok(CoreHost::default())));
}

#[test]
fn server_plays_every_vector() {
    assert_none(&play_all(ServerHost::start));
}

/// Enough for a server a file, and for those that are just going.
const CONNECTIONS: &[&str] = &["max_connections=400", "fsync=off"];

#[test]
fn server_on_postgres_plays_every_vector() {
    let cluster = Cluster::start(CONNECTIONS).unwrap();
    assert_none(&play_all(|| ServerHost::on(&cluster.url(&cluster.database()?))));
}

#[test]
fn server_on_postgres_behind_pgbouncer_plays_every_vector() {
    let cluster = Cluster::start(CONNECTIONS).unwrap();
    let bouncer = Bouncer::start(&cluster, 3).unwrap();
    assert_none(&play_all(|| ServerHost::on(&bouncer.url(&cluster.database()?))));
}

/// A playing writes a file back byte for byte, so that rewriting changes what differs and nothing else.
#[test]
fn playing_keeps_the_rest_of_a_file() {
    for path in paths() {
        let played = VectorFile::read(&path).unwrap().play(|| Ok(CoreHost::default())).unwrap();
        assert!(played.scenarios > 0, "{} has no scenario", path.display());
        if played.mismatches.is_empty() {
            assert_eq!(played.text, std::fs::read_to_string(&path).unwrap(), "{}", path.display());
        }
    }
}

#[test]
fn every_row_has_a_vector() {
    let files: Vec<_> = paths().iter().map(|path| VectorFile::read(path).unwrap()).collect();
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

/// Each expectation is looked at: a wrong reply, a wrong state and a state that is not told are all caught.
#[test]
fn a_wrong_expectation_is_caught() {
    let begin = "## B08 a claim\n\nbegin 1 create USERNAMES \"Alice\" USER:7 USERS:7\n----\n";
    let reply = "begun L1 fence=1\n";
    let state = "cell 1: L1\n  USERNAMES \"Alice\" LEASE_CREATING USER:7 from USERS:7 under L1\n";
    let right = format!("{begin}{reply}{state}");
    let mismatches = |text: &str| {
        let played = VectorFile::parse("inline.txt", text).unwrap().play(|| Ok(CoreHost::default())).unwrap();
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
fn a_broken_file_is_refused() {
    for text in ["## B01 x\n\nbegin 1\nbegun\n", "begin 1\n----\n"] {
        assert!(VectorFile::parse("inline.txt", text).is_err(), "{text}");
    }
    let unplayable = VectorFile::parse("inline.txt", "## B01 x\n\ncommit 1 L1\n----\n").unwrap();
    assert!(unplayable.play(|| Ok(CoreHost::default())).is_err());
}
