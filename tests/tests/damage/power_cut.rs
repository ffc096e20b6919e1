//! A test that a power cut after the first start loses no entry of a directory.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold_tests::server::binary;
use tempfile::TempDir;

/// Starts a server for the first time under `strace`, and returns the paths that it synced.
fn synced_by_the_first_start(data: &Path, trace: &Path) -> BTreeSet<PathBuf> {
    let mut command = Command::new("strace");
    // With `-D`, the test's child process is the server itself, and strace runs as a separate
    // process. strace ends when the server ends.
    command.args(["-D", "-f", "-y", "-e", "trace=fsync", "-o"]).arg(trace).arg(binary().unwrap());
    command.args(["serve", "--create", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("listening on")));
    server.kill().unwrap();
    server.wait().unwrap();
    // strace holds the pipe open too. So at the end of the pipe strace has ended and its file is
    // complete.
    lines.for_each(drop);
    // A line has the form `PID fsync(3</a/path>) = 0`.
    let trace = std::fs::read_to_string(trace).unwrap();
    let path = |line: &str| Some(PathBuf::from(line.split_once("fsync(")?.1.split_once('<')?.1.split_once(">)")?.0));
    trace.lines().filter_map(path).collect()
}

/// Returns a directory and all directories in it.
fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let inner = entries.filter(|path| path.is_dir()).flat_map(|path| directories(&path));
    [dir.to_owned()].into_iter().chain(inner).collect()
}

#[test]
fn a_first_start_syncs_every_directory_that_has_new_entries() {
    let root = TempDir::new().unwrap();
    let data = root.path().join("new/data");
    let synced = synced_by_the_first_start(&data, &root.path().join("trace"));
    let directories = directories(root.path());
    assert!(directories.len() >= 18, "the keyspaces have directories: {directories:?}");
    for directory in directories {
        assert!(synced.contains(&directory), "`{}` is not synced: {synced:?}", directory.display());
    }
}
