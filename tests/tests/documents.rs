//! What the documents draw is what the code has.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use leasehold_core::table::{CLAIM, LEASE, mermaid};

#[test]
fn the_diagrams_are_drawn_from_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).unwrap();
    for diagram in [mermaid(&CLAIM), mermaid(&LEASE)] {
        assert!(text.contains(&format!("```mermaid\n{diagram}```")), "ARCHITECTURE.md lacks this diagram:\n{diagram}");
    }
}
