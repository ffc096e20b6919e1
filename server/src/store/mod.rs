//! The stores: fjall embedded in this process ([`EmbeddedStore`]), and two that several servers share: a PostgreSQL
//! database ([`PostgresStore`]), and an ordered key-value engine such as etcd ([`OrderedStore`]). The committer and the
//! gRPC layer depend on the ports only; `serve` opens the stores.

mod blocking;
mod client_tls;
mod clock;
mod embedded;
mod error;
mod etcd;
mod form_scan;
mod identity;
mod keys;
mod ordered;
mod port;
mod postgres;
mod preflight;
mod remedies;
pub mod stored;

pub use blocking::BlockingStore;
pub use clock::{StoreClock, system_time};
#[cfg(feature = "fuzzing")]
pub(crate) use embedded::fuzzing;
pub use embedded::{CorrectedByte, DamagedStore, DeepCheck, EmbeddedStore, Repaired, Salvaged};
pub use error::StoreError;
pub use form_scan::{FormCheck, FormScan};
pub use identity::{Contents, Count, Creation, Identity, RESTORE_JUMP, RaisedFences};
pub use ordered::{OrderedImport, OrderedStore};
pub use port::{
    Backend, Failure, GroupError, GroupStore, ImportTarget, LockTimeout, NamePart, NamePlace, Occupancy, OtherServer,
    PoolState, Probe, Probed, SessionChange, SharedLocks, SharedMaintenance, StoreFuture, StoreMaintenance,
    StoreReader, Vouched, WaitingRows,
};
pub use postgres::{
    Examined, Migrated, OutboxBatch, OutboxConnection, OutboxDatabase, OutboxError, OutboxOperation, OutboxOutcome,
    OutboxPlace, OutboxRefusal, OutboxRow, OutboxSettle, OutboxSubmit, OutboxTurn, PostgresImport, PostgresStore,
};
pub use preflight::{PreflightError, Problem};
