//! The rows of the table that the command prints.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// One measurement of Leasehold, with the peer's measurement and the target.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    name: &'static str,
    ours: f64,
    peer: f64,
    /// The factor by which Leasehold is better than the peer. If it is above 1, Leasehold is
    /// better.
    ratio: f64,
    /// The least ratio that the project aims for.
    target: f64,
    unit: &'static str,
}

/// The better direction of a measurement: a lower or a higher number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// The part of a row that is known before the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) target: f64,
}

impl Heading {
    /// Returns the row with the measurement of Leasehold and that of the peer.
    pub(crate) fn row(self, ours: f64, peer: f64) -> Row {
        let ratio = match self.better {
            Better::Higher => ours / peer,
            Better::Lower => peer / ours,
        };
        Row {
            name: self.name,
            ours: rounded(ours),
            peer: rounded(peer),
            ratio: rounded(ratio),
            target: self.target,
            unit: self.unit,
        }
    }
}

/// Returns the table as text for people.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["name", "ours", "peer", "ratio", "target", "unit"]);
    for row in rows {
        let numbers = [row.ours, row.peer, row.ratio, row.target].map(|number| number.to_string());
        table.add_row([row.name.to_owned()].into_iter().chain(numbers).chain([row.unit.to_owned()]));
    }
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Rounds numbers of at least 100 to integers, and smaller ones to two decimal places. More digits
/// would be noise.
fn rounded(number: f64) -> f64 {
    if number.abs() >= 100.0 { number.round() } else { (number * 100.0).round() / 100.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const RATE: Heading = Heading { name: "rate", unit: "saves/s", better: Better::Higher, target: 4.0 };

    #[test]
    fn the_json_has_exactly_the_published_members() {
        let json = serde_json::to_string(&RATE.row(8000.4, 2000.0)).unwrap();
        let expected = r#"{"name":"rate","ours":8000.0,"peer":2000.0,"ratio":4.0,"target":4.0,"unit":"saves/s"}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn a_ratio_above_one_is_ours_being_better() {
        let time = Heading { better: Better::Lower, ..RATE };
        assert_eq!(RATE.row(3.0, 2.0).ratio, 1.5);
        assert_eq!(time.row(2.0, 3.0).ratio, 1.5);
    }

    #[test]
    fn the_table_shows_every_member() {
        let text = table(&[RATE.row(8000.0, 1999.0)]).to_string();
        for shown in ["name", "ours", "peer", "ratio", "target", "unit", "rate", "8000", "1999", "4", "saves/s"] {
            assert!(text.contains(shown), "`{shown}` is not in\n{text}");
        }
    }
}
