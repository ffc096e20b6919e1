//! The server's memory of sessions and locks: which sessions renew, who waits for a grant, and which
//! grants nobody took up.
//!
//! All rules are in `leasehold_core::locking`, and all rows are in the store. [`LockHost`] learns
//! of both from the saved changes of the committer ([`LockHost::saved`]), before the callers are
//! answered. In a shared store it also learns from news of other servers ([`LockHost::learn`]). It proposes commands ([`LockHost::tick`]), which the engine may refuse. So
//! forgotten news cost time, never a lock.

mod attendance;
mod host;
mod news;
mod reapers;
mod sharing;
#[cfg(test)]
mod world;

pub use self::attendance::Attendance;
pub use self::host::{HostSize, LockHost, Proposal, RenewOutcome, SavedLocks, TAKE_UP, TICK};
pub use self::news::{AskNews, SessionNews};
pub use self::reapers::{Reaper, Reapers};
pub use self::sharing::Homes;
