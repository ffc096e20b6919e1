//! The asynchronous Rust client of Leasehold: it claims names for a cell, and commits or rolls back
//! the cell's leases.
//!
//! An *update* is a list of claims to create and claims to destroy, under one *lease*.
//! [`Client::update`] begins the lease, runs the caller's own transaction, and commits the lease if
//! the transaction succeeded:
//!
//! ```no_run
//! use leasehold_client::{BucketType, Claim, Client, SourceType, SubjectType};
//!
//! # struct Transaction;
//! # impl Transaction {
//! #     async fn save_user(&self, lease: uuid::Uuid) -> std::io::Result<()> { Ok(()) }
//! #     async fn commit(self) -> std::io::Result<()> { Ok(()) }
//! # }
//! # async fn example(transaction: Transaction) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("http://127.0.0.1:7171").build()?;
//! let alice = Claim::new(BucketType::Usernames, "alice")
//!     .with_subject(SubjectType::User, 7)
//!     .with_source(SourceType::RailsTableUsers, 7_u64);
//!
//! client
//!     .update(1)
//!     .create(alice)
//!     .run(async |lease| {
//!         transaction.save_user(lease.uuid()).await?;
//!         lease.local_commit(transaction.commit()).await
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Refusals are values.** A call fails with an [`Error`]. [`Error::Refused`] means that the
//! server refused the call and changed nothing: its [`Refusal`] has the reason, the refused claims
//! and the delay after which a retry may succeed. [`Error::Unanswered`] means that no definite
//! answer came, so the call may have taken effect.
//!
//! ```no_run
//! # use leasehold_client::{Claim, Client, Error, RefusalKind};
//! # async fn example(client: Client, claim: Claim) -> Result<(), Error> {
//! match client.update(1).create(claim).begin().await {
//!     Ok(lease) => println!("begun {} with fence {}", lease.uuid, lease.fence),
//!     Err(Error::Refused(refusal)) if refusal.kind() == RefusalKind::Taken => {
//!         println!("taken: {:?}", refusal.claims());
//!     }
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Retries are safe.** Every attempt of a begin carries the same idempotency key, so a repeated
//! begin gets the lease of the first attempt (B09). A repeated commit or rollback succeeds and
//! changes nothing (B22). [`RetryPolicy`] lists the failures that are retried.
//!
//! **Two levels.** [`Client`] has typed values, deadlines and retries. [`Stub`] sends one message of
//! the wire contract once, over any transport; the command line, the tests and the benchmarks call
//! it directly.

mod batch;
mod claim;
mod client;
mod convert;
mod decommission;
mod endpoint;
mod error;
mod handshake;
mod keepalive;
mod lock;
mod lock_all;
mod orphan;
mod page;
mod refusal;
mod request;
mod retry;
mod scope;
mod stub;
mod stub_locks;
mod stub_queues;
mod takes;
mod update;

pub use batch::{Batch, Batches, TakeTerms, TakenRequest};
pub use claim::{
    Bucket, BucketType, Cell, Claim, Classification, FoundRecord, Lease, OutstandingLease, Record, RecordStatus,
    Source, SourceId, SourceType, Subject, SubjectType,
};
pub use client::{Client, ClientBuilder, DEFAULT_TIMEOUT};
pub use convert::{bucket_of_claim, claim_of_bucket};
pub use decommission::{CellData, DropError};
pub use endpoint::{Endpoint, EndpointError, PemFile, Tls, TlsIdentity};
pub use error::{ClassifyError, Error, OtherStore, Unanswered, UpdateError};
pub use handshake::{CertificateFault, Obstacle, ServerCertificateFault};
pub use keepalive::{Keepalive, KeptSession, News, SessionNews, SessionTerms, Standing};
pub use leasehold_core::query::MAX_LEASES_PER_PAGE;
pub use leasehold_core::rejection::{List, Reason};
pub use lock::{HeldLock, LockSession, WantedLock, WorkOutcome};
pub use orphan::Orphan;
pub use page::{Cursor, LeasePage, LeasePages, LeaseQuery, RecordPage, RecordPages, RecordQuery};
pub use refusal::{Refusal, RefusalKind, RejectedClaim};
pub use request::{NewRequest, RequestKind, SubmittedRequest};
pub use retry::RetryPolicy;
pub use scope::HeldLease;
pub use stub::{
    IDEMPOTENCY_KEY, KeyError, Stub, Transport, check_idempotency_key, fence, new_idempotency_key, server_time_micros,
    store_id,
};
pub use update::Update;
