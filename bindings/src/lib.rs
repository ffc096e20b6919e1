//! The engine's face for other languages. A language package converts values and maps codes to its own exceptions; it
//! holds no rule.
//!
//! - *Calls*: a [`Call`] goes in, an [`Answer`] or a [`DetailedError`] comes out, all of them plain serde values.
//! - *Sessions*: the engine's machines, driven by the language's own I/O: [`reconcile::Reconciliation`], whose steps and
//!   events are serde values, and [`Verification`], whose rows and records come in as columns, since they are many.
//! - *A service* in memory: [`Service`], for tests and studies without a server.

mod call;
mod error;
mod service;
mod verification;
#[cfg(feature = "wire")]
pub mod wire;

pub use call::{Answer, Call, Claim, SourceKey, call};
pub use error::{Detail, DetailedError, reason};
pub use leasehold_core::batch::{ClaimRequest, MAX_SOURCE_ID_BYTES, UpdateRequest};
pub use leasehold_core::bucket::BucketType;
pub use leasehold_core::catalogue::Catalogue;
pub use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
pub use leasehold_core::lease::{LeaseId, Outcome};
pub use leasehold_core::reconcile;
pub use leasehold_core::rejection::{List, Reason};
pub use leasehold_core::time::Timestamp;
pub use leasehold_core::verify;
pub use service::{Begun, Held, LeasePage, OutstandingLease, RecordPage, RecordsQuery, Service, Status};
pub use verification::{Refused, Updated, Verification};
