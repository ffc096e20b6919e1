//! The wall clock of a node's PostgreSQL, which libfaketime sets wrong.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// The library of libfaketime, in a directory of the machine's architecture.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// A program of Python that runs a module with the first argument, and gives the variables in the others to the programs
/// that the module starts. Python itself is without them: with libfaketime, each of its sleeps fails (`EINVAL`). It sees
/// the starts of processes by the clock that they have, as on a machine whose clock is wrong: Patroni compares them with
/// what PostgreSQL has written.
pub(super) const LAUNCHER: &str = "import os, psutil, runpy, sys
os.environ.update(word.split('=', 1) for word in sys.argv[3:])
ahead, created = int(os.environ.get('FAKETIME', '0')), psutil.Process.create_time
psutil.Process.create_time = lambda process: created(process) + ahead
module = sys.argv.pop(1)
del sys.argv[2:]
runpy.run_module(module, run_name='__main__', alter_sys=True)";

/// A wrong wall clock. The monotonic clock stays right.
#[derive(Debug)]
pub(super) struct FalseClock {
    library: PathBuf,
    /// The seconds that the clock is ahead of this machine's, or behind if below 0.
    ahead_seconds: i64,
}

impl FalseClock {
    pub(super) fn new(ahead_seconds: i64) -> Result<Self> {
        Ok(Self { library: faketime_library()?, ahead_seconds })
    }

    /// Returns the variables of a program with this clock.
    pub(super) fn settings(&self) -> [String; 4] {
        let (library, ahead) = (self.library.display(), self.ahead_seconds);
        [
            format!("LD_PRELOAD={library}"),
            format!("FAKETIME={ahead:+}"),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
            "FAKETIME_SKIP_CMDS=python3".into(),
        ]
    }
}

/// Returns the path of libfaketime, which gives a program another wall clock.
///
/// # Errors
/// It is not installed.
pub fn faketime_library() -> Result<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib")?.map(|entry| Ok(entry?.path().join(FAKETIME)));
    let libraries: Vec<_> = libraries.collect::<Result<_>>()?;
    libraries.into_iter().find(|path| path.exists()).context("install the package `faketime`")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::process::Command;

    use super::*;
    use crate::cluster::PYTHON;

    /// A module that sleeps, and prints its time, that of a program that it starts, that of its own start, and its
    /// arguments.
    const MODULE: &str = "import psutil, subprocess, sys, time
time.sleep(0.01)
started = int(subprocess.run(['date', '+%s'], check=True, capture_output=True).stdout)
print(int(time.time()), started, int(psutil.Process().create_time()), *sys.argv[1:])";
    /// The part of psutil that the launcher changes: Patroni brings psutil along, which is not installed here.
    const PSUTIL: &str = "import time
class Process:
    def create_time(self):
        return time.time()";

    #[test]
    fn a_module_sleeps_and_its_programs_have_the_false_clock() {
        let directory = std::env::temp_dir().join(format!("false-clock-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("sleeper.py"), MODULE).unwrap();
        std::fs::write(directory.join("psutil.py"), PSUTIL).unwrap();
        let mut python = Command::new(PYTHON);
        python.args(["-c", LAUNCHER, "sleeper", "its.yml"]).args(FalseClock::new(-300).unwrap().settings());
        let output = python.env("PYTHONPATH", &directory).output().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{errors}");
        let [own, started, seen, argument] = text.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        let ahead = |time: &str| time.parse::<i64>().unwrap() - own.parse::<i64>().unwrap();
        assert!([started, seen].into_iter().all(|time| (-310..=-290).contains(&ahead(time))), "{text}");
        assert_eq!(argument, "its.yml");
    }
}
