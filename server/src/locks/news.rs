//! The news that the host tells to waiting calls.

use leasehold_core::locking::HeldSlot;

/// The last news of an ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskNews {
    /// The ask has had no news since the call began to attend.
    #[default]
    None,
    /// The ask holds its lock, or a slot of it.
    Granted(HeldSlot),
    /// The ask has ended: it left, or its session has ended.
    Over,
}

/// The last news of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionNews {
    /// True if the session has ended.
    pub has_ended: bool,
    /// The number of the session's grants that an operator has taken. The answer to a renewal says
    /// which ([`RenewOutcome::Renewed`](super::RenewOutcome::Renewed)).
    pub forced: u64,
}
