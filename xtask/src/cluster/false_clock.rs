//! The wall clock of a node's PostgreSQL, which libfaketime sets wrong.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// The library of libfaketime, in a directory of the machine's architecture.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// A program of Python that runs a module with the first argument, and gives the variables in the others to the programs
/// that the module starts. Python itself is without them: with libfaketime, each of its sleeps fails (`EINVAL`).
pub(super) const LAUNCHER: &str = "import os, runpy, sys
os.environ.update(word.split('=', 1) for word in sys.argv[3:])
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

    /// A module that sleeps, and prints its time, that of a program that it starts, and its arguments.
    const MODULE: &str = "import subprocess, sys, time
time.sleep(0.01)
started = int(subprocess.run(['date', '+%s'], check=True, capture_output=True).stdout)
print(int(time.time()), started, *sys.argv[1:])";

    #[test]
    fn a_module_sleeps_and_its_programs_have_the_false_clock() {
        let directory = std::env::temp_dir().join(format!("false-clock-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("sleeper.py"), MODULE).unwrap();
        let mut python = Command::new(PYTHON);
        python.args(["-c", LAUNCHER, "sleeper", "its.yml"]).args(FalseClock::new(-300).unwrap().settings());
        let output = python.env("PYTHONPATH", &directory).output().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{errors}");
        let [own, started, argument] = text.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        let ahead = started.parse::<i64>().unwrap() - own.parse::<i64>().unwrap();
        assert!((-310..=-290).contains(&ahead), "{text}");
        assert_eq!(argument, "its.yml");
    }
}
