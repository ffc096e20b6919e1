//! The guard: SQL for the user's own PostgreSQL database, so that a transaction under a passed fence
//! can't commit (K18).
//!
//! A lock alone can't stop a holder that was paused and comes back after its lock has passed on. The
//! guard compares fences where the data is, in the transaction that writes it.

/// The SQL that installs the guard: the tables `leasehold_guards` and `leasehold_guard_slots`, the
/// functions `leasehold_guard(resource, fence, remaining)` and
/// `leasehold_guard(resource, fence, remaining, slot)`, and deferred triggers. It may be run again,
/// also over the former version without slots.
///
/// ```
/// assert!(leasehold_core::guard::SQL.contains("FUNCTION leasehold_guard("));
/// ```
pub const SQL: &str = include_str!("guard.sql");

/// The SQLSTATE of a transaction whose fence is older than the newest one of its resource.
pub const FENCE_PASSED: &str = "LH001";

/// The SQLSTATE of a transaction that has outlived the session of its lock.
pub const SESSION_LOST: &str = "LH002";
