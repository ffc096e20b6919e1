//! Compares the diagrams and tables of the book with the transition tables of the engine.

use leasehold_core::division::MAX_SLOTS;
use leasehold_core::lock::{
    MAX_HELD_ASKS, MAX_KEY_BYTES, MAX_NAMESPACE_BYTES, MAX_VALUE_BYTES, MAX_WAIT_MICROS, MAX_WAITERS_PER_LOCK,
};
use leasehold_core::locking::acquire_all::MAX_LOCKS_TOGETHER;
use leasehold_core::queue::{
    MAX_ATTEMPTS, MAX_BODY_BYTES, MAX_DELAY_MICROS, MAX_PRIORITY, MAX_PROGRESS_BYTES, MAX_SUBMITTED_BYTES,
    MAX_SUBMITTED_REQUESTS, MAX_WAITING_PER_LANE,
};
use leasehold_core::session::{
    MAX_ASKS_PER_SESSION, MAX_DURATION_MICROS, MAX_GRACE_MICROS, MIN_DURATION_MICROS, MIN_GRACE_MICROS,
};
use leasehold_core::table::{CLAIM, LEASE, LOCK, RECONCILE, REQUEST, SESSION, SLOT, mermaid};
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
    for diagram in [mermaid(&SESSION), mermaid(&LOCK), mermaid(&SLOT)] {
        assert!(page.contains(&format!("```mermaid\n{diagram}```")), "docs/src/design/locks.md lacks:\n{diagram}");
    }
}

#[test]
fn the_design_of_queues_shows_the_state_diagram_and_the_limits_of_the_engine() {
    let page = document("docs/src/design/queue.md").unwrap();
    let diagram = mermaid(&REQUEST);
    assert!(page.contains(&format!("```mermaid\n{diagram}```")), "docs/src/design/queue.md lacks:\n{diagram}");
    for (name, figure) in [
        ("body_bytes", MAX_BODY_BYTES as u64),
        ("progress_bytes", MAX_PROGRESS_BYTES as u64),
        ("submitted_requests", MAX_SUBMITTED_REQUESTS as u64),
        ("submitted_bytes", MAX_SUBMITTED_BYTES as u64),
        ("waiting_per_lane", MAX_WAITING_PER_LANE.into()),
        ("max_attempts", MAX_ATTEMPTS.into()),
        ("delay_micros", MAX_DELAY_MICROS),
        ("priority", MAX_PRIORITY.into()),
    ] {
        let row = format!("| `{name}` | {figure} ");
        assert!(page.contains(&row), "docs/src/design/queue.md lacks `{row}`");
    }
}

#[test]
fn k21_the_book_has_the_limits_of_the_engine() {
    let page = concept("locks");
    for (name, figure) in [
        ("namespace_bytes", MAX_NAMESPACE_BYTES.to_string()),
        ("key_bytes", MAX_KEY_BYTES.to_string()),
        ("value_bytes", MAX_VALUE_BYTES.to_string()),
        ("waiters_per_lock", MAX_WAITERS_PER_LOCK.to_string()),
        ("asks_per_session", MAX_ASKS_PER_SESSION.to_string()),
        ("duration_micros", format!("{MIN_DURATION_MICROS} to {MAX_DURATION_MICROS}")),
        ("grace_micros", format!("{MIN_GRACE_MICROS} to {MAX_GRACE_MICROS}")),
        ("held_asks", MAX_HELD_ASKS.to_string()),
        ("locks_together", MAX_LOCKS_TOGETHER.to_string()),
        ("permits", MAX_SLOTS.to_string()),
        ("wait_micros", MAX_WAIT_MICROS.to_string()),
    ] {
        let row = format!("| `{name}` | {figure} ");
        assert!(page.contains(&row), "docs/src/concepts/locks.md lacks `{row}`");
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
