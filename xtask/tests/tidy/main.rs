//! The test suite `tidy`: rules for the files of the repository that the compiler does not check.
//! Each rule is a function that returns complaints about a text. For each rule, a test shows that
//! it catches a bad example.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod circles;
mod language;
mod layers;
mod markdown;
mod rust;
mod supply;
mod versions;

use std::path::PathBuf;
use std::process::Command;

/// The most lines that a file may have.
const FILE_LINES: usize = 1000;

/// The extensions of files for which [`FILE_LINES`] applies: people write and read them. Data and
/// lock files may be longer.
const WRITTEN: &[&str] =
    &["css", "js", "md", "mjs", "proto", "py", "pyi", "rb", "rbs", "rs", "sh", "sql", "toml", "ts", "tsx"];

/// Code that a generator wrote. Nobody reads it line by line.
const GENERATED: &str = "proto/src/generated/";

/// A text file of the repository, with its path relative to the project's root.
struct File {
    path: String,
    text: String,
}

/// Returns the project's root. The variable is read at run time, not at compile time, because
/// several clones may share a build directory.
fn root() -> PathBuf {
    let member = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests"));
    member.parent().expect("xtask lies in the root").to_owned()
}

/// Returns the paths of all files that git tracks or would add. A new file is included, so that it
/// follows the rules before it is committed.
fn paths() -> Vec<String> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    let output = Command::new("git").current_dir(root()).args(arguments).output().expect("git runs");
    assert!(output.status.success(), "`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let paths = listed.split_terminator('\0').filter(|path| root().join(path).is_file());
    paths.map(str::to_owned).collect()
}

/// Returns the files of the repository with one of these extensions.
fn files(extensions: &[&str]) -> Vec<File> {
    let read = |path: String| File { text: std::fs::read_to_string(root().join(&path)).expect("it is text"), path };
    let wanted = |path: &String| path.rsplit_once('.').is_some_and(|(_, own)| extensions.contains(&own));
    let written = |path: &String| wanted(path) && !path.starts_with(GENERATED);
    let files: Vec<_> = paths().into_iter().filter(written).map(read).collect();
    assert!(!files.is_empty(), "there are no {extensions:?}: a rule about nothing holds nothing");
    files
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} to tidy:\n{}", complaints.len(), complaints.join("\n"));
}

/// Returns a complaint if a file has more than [`FILE_LINES`] lines.
fn too_long(file: &File) -> Option<String> {
    let lines = file.text.lines().count();
    (lines > FILE_LINES).then(|| format!("{}: {lines} lines: split it ({FILE_LINES} at most)", file.path))
}

#[test]
fn files_are_short() {
    let complaints: Vec<_> = files(WRITTEN).iter().filter_map(too_long).collect();
    assert_none(&complaints);
}

#[test]
fn a_long_file_is_caught() {
    let file = |lines| File { path: "a.rs".into(), text: "\n".repeat(lines) };
    assert_eq!(too_long(&file(1000)), None);
    assert!(too_long(&file(1001)).unwrap().starts_with("a.rs: 1001 lines"));
}

#[test]
fn the_list_of_files_has_this_one() {
    assert!(paths().iter().any(|path| path == "xtask/tests/tidy/main.rs"));
}
