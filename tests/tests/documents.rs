//! What the documents draw is what the code has.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use leasehold_core::table::{CLAIM, LEASE, RECONCILE, mermaid};

fn architecture() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md")).unwrap()
}

#[test]
fn the_diagrams_are_drawn_from_the_tables() {
    let text = architecture();
    for diagram in [mermaid(&CLAIM), mermaid(&LEASE)] {
        assert!(text.contains(&format!("```mermaid\n{diagram}```")), "ARCHITECTURE.md lacks this diagram:\n{diagram}");
    }
}

#[test]
fn r01_the_table_of_reconciliation_is_the_engines() {
    let row = |ruling: &leasehold_core::table::Ruling| {
        format!("| {:?} | {:?} | {:?} |\n", ruling.local, ruling.remote, ruling.decision)
    };
    let rows: String = RECONCILE.iter().map(row).collect();
    assert!(architecture().contains(&rows), "ARCHITECTURE.md lacks these rows:\n{rows}");
}
