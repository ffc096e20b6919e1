//! Completions for shells.

use std::io::{self, Write};

use clap_complete::Shell;

use crate::error::CliError;

/// Writes the completions of a command for a shell to standard output.
///
/// # Errors
/// The output cannot be written. A reader that closes it early is no error.
pub fn write_completions(shell: Shell, command: &mut clap::Command) -> Result<(), CliError> {
    // `generate` panics if it cannot write (clap_complete, `Generator::generate`); a buffer takes everything.
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "leasehold", &mut script);
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&script).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
