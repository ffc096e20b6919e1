//! Texts that the program prints for other programs: completions for shells, and SQL.

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
    write_script(&script)
}

/// Writes a text for another program to standard output.
///
/// # Errors
/// The output cannot be written. A broken pipe, whose reader has ended, is no error.
pub fn write_script(text: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
