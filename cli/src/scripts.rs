//! Texts that the program prints for other programs: completions for shells, and SQL.

use std::io::{self, Write};

use clap::Args;
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

/// The tables whose changes are captured, and the queue that gets them.
#[derive(Args, Clone, Debug)]
pub struct CaptureArgs {
    /// The tables, as SQL names them: users, app.users, or '"Users"'
    #[arg(value_name = "TABLE", required = true)]
    tables: Vec<String>,

    /// The queue that gets the changes
    #[arg(long, value_name = "QUEUE", default_value = "changes")]
    queue: String,

    /// Also hand on the old and new values of these columns, whose names are not quoted, separated by commas; without them, only primary keys
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    columns: Vec<String>,

    /// Give each table a lane of its own, for several workers. Changes of two tables have no order then
    #[arg(long)]
    by_table: bool,
}

impl CaptureArgs {
    /// Returns SQL that captures the changes of the tables. `installation` is the SQL of the function
    /// `leasehold_capture`.
    pub fn script(&self, installation: &str) -> String {
        let columns: Vec<_> = self.columns.iter().map(|column| sql_literal(column)).collect();
        let (queue, columns) = (sql_literal(&self.queue), columns.join(", "));
        let key = if self.by_table { "NULL" } else { "'changes'" };
        let call = |table: &String| {
            format!("SELECT leasehold_capture({}, {queue}, ARRAY[{columns}]::text[], {key});\n", sql_literal(table))
        };
        format!("{installation}\n{}", self.tables.iter().map(call).collect::<String>())
    }
}

/// Returns a text as a constant of PostgreSQL, whatever its setting `standard_conforming_strings`.
fn sql_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q06_names_of_tables_and_columns_are_text_in_the_sql() {
        let args = CaptureArgs {
            tables: vec!["users".into(), "'); DROP TABLE users; --".into(), "a\\".into()],
            queue: "changes".into(),
            columns: vec!["name".into(), "it's".into()],
            by_table: false,
        };
        let script = args.script("-- first");
        let lines: Vec<_> = script.lines().collect();
        assert_eq!(
            lines,
            [
                "-- first",
                "SELECT leasehold_capture('users', 'changes', ARRAY['name', 'it''s']::text[], 'changes');",
                "SELECT leasehold_capture('''); DROP TABLE users; --', 'changes', ARRAY['name', 'it''s']::text[], 'changes');",
                "SELECT leasehold_capture(E'a\\\\', 'changes', ARRAY['name', 'it''s']::text[], 'changes');",
            ]
        );
        let by_table = CaptureArgs { columns: Vec::new(), by_table: true, ..args };
        assert!(by_table.script("").ends_with(", 'changes', ARRAY[]::text[], NULL);\n"));
    }
}
