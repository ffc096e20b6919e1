//! Completions for shells.

use std::io::{self, Write};

use clap_complete::Shell;

use crate::error::CliError;

/// Writes the completions of a command for a shell to standard output.
///
/// # Errors
/// The output cannot be written. A broken pipe, whose reader has ended, is no error.
pub fn write_completions(shell: Shell, command: &mut clap::Command) -> Result<(), CliError> {
    // `generate` panics if it cannot write (clap_complete, `Generator::generate`). So the
    // completions are first written to a buffer in memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "leasehold", &mut script);
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&script).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
