//! The output of verbs on standard output: plain aligned tables for people, proto3 JSON for
//! machines.

use std::io::{self, Write};

use comfy_table::{ColumnConstraint, Table, Width, presets};
use prost::{Message, Name};
use prost_types::Timestamp;
use serde_json::Value;

use crate::contract::object_of;
use crate::error::CliError;

const GAP_COLUMNS: u16 = 2;

/// Writes one line to standard output.
pub(crate) fn line(text: &str) -> Result<(), CliError> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}

/// Writes a message as one line of proto3 JSON.
pub(crate) fn json_line<M: Message + Name>(message: &M) -> Result<(), CliError> {
    line(&Value::Object(object_of(message)?).to_string())
}

/// Writes pairs of a title and a value, each on a line of its own. Pairs with an empty value are
/// left out.
pub(crate) fn fields(fields: &[(&str, String)]) -> Result<(), CliError> {
    let rows = fields.iter().filter(|(_, value)| !value.is_empty());
    let mut table = plain();
    table.add_rows(rows.map(|(title, value)| [title, value.as_str()]));
    pad(&mut table, &[]);
    line(&table.trim_fmt())
}

/// A table that is written page by page, so that a long table needs little memory. The columns of
/// each page are at least as wide as those of the pages before.
pub(crate) struct Pages {
    header: Vec<&'static str>,
    widths: Vec<u16>,
}

impl Pages {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), widths: Vec::new() }
    }

    /// Writes one more page of the table. The header is written above the first page that has rows.
    pub(crate) fn write(&mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Result<(), CliError> {
        match self.render(rows) {
            text if text.is_empty() => Ok(()),
            text => line(&text),
        }
    }

    fn render(&mut self, rows: impl IntoIterator<Item = Vec<String>>) -> String {
        let mut table = plain();
        table.add_rows(rows);
        if table.is_empty() {
            return String::new();
        }
        let header = std::mem::take(&mut self.header);
        if !header.is_empty() {
            table.set_header(header);
        }
        pad(&mut table, &self.widths);
        let wider = |(at, width): (usize, u16)| width.max(self.widths.get(at).copied().unwrap_or(0));
        self.widths = table.column_max_content_widths().into_iter().enumerate().map(wider).collect();
        table.trim_fmt()
    }
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn pad(table: &mut Table, widths: &[u16]) {
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP_COLUMNS));
        if let Some(width) = widths.get(at) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + GAP_COLUMNS)));
        }
    }
}

/// Returns a time in the form of RFC 3339, which `--created-after` takes; empty if there is no
/// time.
pub(crate) fn show_time(time: Option<&Timestamp>) -> String {
    time.and_then(|time| jiff::Timestamp::new(time.seconds, time.nanos).ok())
        .map(|time| time.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: [&str; 2]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn later_pages_keep_the_columns_of_the_first() {
        let mut pages = Pages::new(&["NAME", "CELL"]);
        assert_eq!(pages.render([]), "");
        assert_eq!(pages.render([row(["organization", "1"])]), "NAME          CELL\norganization  1");
        assert_eq!(pages.render([row(["a", "2"])]), "a             2");
        assert_eq!(pages.render([row(["a-longer-organization", "3"])]), "a-longer-organization  3");
    }

    #[test]
    fn times_are_rfc_3339() {
        let time = Timestamp { seconds: 1_700_000_000, nanos: 123_456_000 };
        assert_eq!(show_time(Some(&time)), "2023-11-14T22:13:20.123456Z");
        assert_eq!(show_time(None), "");
    }
}
