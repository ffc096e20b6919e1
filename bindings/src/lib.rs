//! The engine's interface for the Ruby, Python and WebAssembly packages. A language package
//! converts values and maps error codes to its own exceptions; it contains no rule of the protocol.
//!
//! - *Calls*: [`call`](fn@call) answers a [`Call`] with a [`CallOutput`] or a [`DetailedError`].
//!   All three are plain serde values.
//! - *Sessions*: the engine's state machines, whose I/O the language does. The steps and events of
//!   [`reconcile::Reconciliation`] are serde values. [`Verification`] receives rows and records in
//!   columns, because there are many of them.
//! - *Services* in memory, for tests and studies without a server: [`Service`] for claims, and
//!   [`LockService`] for sessions and locks.

mod call;
mod error;
mod locks;
mod service;
mod verification;
#[cfg(feature = "wire")]
pub mod wire;

pub use call::{Call, CallOutput, ClaimInput, SourceKey, call};
pub use error::{DetailedError, ErrorDetail, reason_by_code};
pub use leasehold_core::batch::{ClaimRequest, MAX_SOURCE_ID_BYTES, UpdateRequest};
pub use leasehold_core::bucket::BucketType;
pub use leasehold_core::catalogue::Catalogue;
pub use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
pub use leasehold_core::guard;
pub use leasehold_core::lease::{LeaseId, Outcome};
pub use leasehold_core::lock::LockPath;
pub use leasehold_core::outbox;
pub use leasehold_core::reconcile;
pub use leasehold_core::rejection::{List, Reason};
pub use leasehold_core::standing::{Deadlines, Standing};
pub use leasehold_core::time::Timestamp;
pub use leasehold_core::verify;
pub use locks::{Acquired, LockRecord, LockRecords, LockService, ReleaseRequest, Resolution, ShareMode};
pub use service::{
    Begun, ClaimRecord, LeasePage, OutstandingLease, RecordPage, RecordSelection, RecordStatus, Service,
};
pub use verification::{RefusedClaim, UpdateReply, Verification};
