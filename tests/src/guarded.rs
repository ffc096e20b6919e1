//! Child processes that never outlive the test.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A shell script that runs a program until the script's standard input is closed. The kernel
/// closes the test's end of that pipe however the test ends, so the program never outlives the
/// test.
const RUN_UNTIL_STDIN_CLOSES: &str = r#""$@" <&- & pid=$!; cat >/dev/null; kill -INT $pid; wait $pid"#;

/// A child process that cannot outlive the test. Dropping it stops the process.
#[derive(Debug)]
pub(crate) struct Guarded(Child);

impl Guarded {
    /// Runs a command line, and writes the program's output to the file `log`.
    pub(crate) fn start(words: &[String], log: &Path) -> Result<Self> {
        let log = std::fs::File::create(log).context("the log cannot be created")?;
        let mut command = Command::new("sh");
        command.args(["-c", RUN_UNTIL_STDIN_CLOSES, "sh"]).args(words);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        Ok(Self(command.spawn().with_context(|| format!("`{}` cannot be run", words.join(" ")))?))
    }

    /// Returns the process id of the child whose program has this name.
    pub(crate) fn pid_of(&self, program: &str) -> Result<i32> {
        let pid = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let is_program = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == program)
        };
        let found = children.split_whitespace().find(is_program);
        Ok(found.with_context(|| format!("`{program}` does not run"))?.parse()?)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // An error of `wait` is ignored: closing the pipe has stopped the program already.
        let _ = self.0.wait();
    }
}
