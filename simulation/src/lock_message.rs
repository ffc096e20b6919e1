//! The requests about sessions and locks, and their answers.

use leasehold_core::lease::Fence;
use leasehold_core::lock::AskId;
use leasehold_core::rejection::Reason;
use leasehold_core::session::SessionId;

/// A request of a client about its session or a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockRequest {
    /// Open a session.
    Open(SessionId),
    /// Renew a session.
    Renew(SessionId),
    /// Close a session.
    Close(SessionId),
    /// Acquire a lock. The service answers when the lock is granted, so the call may wait for long.
    Acquire {
        /// The session that asks.
        session: SessionId,
        /// The id of the ask. A repeated acquire has the same id.
        ask: AskId,
        /// The number of the lock.
        lock: u8,
    },
    /// Release a lock.
    Release {
        /// The session that holds the lock.
        session: SessionId,
        /// The number of the lock.
        lock: u8,
        /// The fence of the grant to end.
        fence: Fence,
    },
    /// Leave the queue of a lock.
    Leave {
        /// The session that asks.
        session: SessionId,
        /// The ask that leaves.
        ask: AskId,
    },
}

/// The answer of the service to a request about sessions and locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockAnswer {
    /// The service has done what was requested, or had done it before.
    Done,
    /// The session has its whole duration again. An operator took its newest grant, of this fence.
    Renewed(Option<Fence>),
    /// The ask holds its lock under this fence.
    Holding(Fence),
    /// The service refuses the request.
    Refused(Reason),
}
