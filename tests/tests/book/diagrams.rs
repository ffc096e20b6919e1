//! Compares the diagrams and tables of the book with the transition tables of the engine.

use leasehold_core::table::{CLAIM, LEASE, LOCK, RECONCILE, SESSION, mermaid};
use leasehold_tests::book::document;

/// Returns the text of the chapter `docs/src/concepts/NAME.md`.
fn concept(name: &str) -> String {
    document(&format!("docs/src/concepts/{name}.md")).unwrap()
}

#[test]
fn the_book_shows_the_state_diagrams_of_the_tables() {
    for (name, diagram) in [("claims", mermaid(&CLAIM)), ("leases", mermaid(&LEASE))] {
        let drawn = concept(name).contains(&format!("```mermaid\n{diagram}```"));
        assert!(drawn, "docs/src/concepts/{name}.md lacks this diagram:\n{diagram}");
    }
}

#[test]
fn the_design_of_locks_shows_the_state_diagrams_of_the_tables() {
    let page = document("docs/src/design/locks.md").unwrap();
    for diagram in [mermaid(&SESSION), mermaid(&LOCK)] {
        assert!(page.contains(&format!("```mermaid\n{diagram}```")), "docs/src/design/locks.md lacks:\n{diagram}");
    }
}

#[test]
fn r01_the_book_shows_the_reconciliation_table_of_the_engine() {
    let row = |ruling: &leasehold_core::table::Ruling| {
        format!("| {:?} | {:?} | {:?} |\n", ruling.local, ruling.remote, ruling.decision)
    };
    let rows: String = RECONCILE.iter().map(row).collect();
    assert!(concept("reconciliation").contains(&rows), "docs/src/concepts/reconciliation.md lacks these rows:\n{rows}");
}
