//! Where claims are kept: embedded in this process, or in a database that several servers share.

mod embedded;
mod error;
mod held;
mod journal;
mod keys;
mod manifest;
mod postgres;
mod unusable;
mod witness;

use std::collections::BTreeSet;

use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::claim::{CellId, Claim};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordRow, RecordScan};
use leasehold_core::store::Store;

pub use embedded::{EmbeddedStore, Occupancy, Row};
pub use error::StoreError;
pub use postgres::{PoolState, PostgresStore, PostgresWriter, Probe};
pub use unusable::{Trouble, Unusable};

type Result<T> = std::result::Result<T, StoreError>;

/// The store at hand, for reading. Clones share it.
#[derive(Clone)]
pub enum Reader {
    /// The embedded store: it and this process are one.
    Embedded(EmbeddedStore),
    /// The shared one.
    Postgres(PostgresStore),
}

impl Reader {
    /// A bucket's claim (B30).
    ///
    /// # Errors
    /// The row could not be read.
    pub async fn claim(&self, key: &BucketKey) -> Result<Option<Claim>> {
        match self {
            // From memory mostly, so on the thread at hand.
            Self::Embedded(store) => store.claim(key),
            Self::Postgres(store) => store.claim(key).await,
        }
    }

    /// Outstanding leases (B31).
    ///
    /// # Errors
    /// A row could not be read.
    pub async fn leases(&self, scan: LeaseScan) -> Result<Vec<LeaseRow>> {
        match self {
            Self::Embedded(store) => blocking(store, move |store| store.leases(&scan)).await,
            Self::Postgres(store) => store.leases(&scan).await,
        }
    }

    /// Claims by table and key (B32).
    ///
    /// # Errors
    /// A row could not be read.
    pub async fn records(&self, scan: RecordScan) -> Result<Vec<RecordRow>> {
        match self {
            Self::Embedded(store) => blocking(store, move |store| store.records(&scan)).await,
            Self::Postgres(store) => store.records(&scan).await,
        }
    }

    /// The cells that own any claim.
    ///
    /// # Errors
    /// A row could not be read.
    pub async fn owners(&self) -> Result<BTreeSet<CellId>> {
        match self {
            Self::Embedded(store) => store.owners(),
            Self::Postgres(store) => store.owners().await,
        }
    }

    /// The rules under which claims of configured bucket types were made.
    ///
    /// # Errors
    /// They could not be read.
    pub async fn bucket_types(&self) -> Result<Vec<BucketRule>> {
        match self {
            Self::Embedded(store) => store.bucket_types(),
            Self::Postgres(store) => store.bucket_types().await,
        }
    }

    /// Remembers them.
    ///
    /// # Errors
    /// They could not be written.
    pub async fn remember_bucket_types(&self, rules: &[BucketRule]) -> Result<()> {
        match self {
            Self::Embedded(store) => store.remember_bucket_types(rules),
            Self::Postgres(store) => store.remember_bucket_types(rules).await,
        }
    }

    /// How full the store is; a database, as it was when it was last asked.
    pub fn occupancy(&self) -> Occupancy {
        match self {
            Self::Embedded(store) => store.occupancy(),
            Self::Postgres(store) => store.last_occupancy(),
        }
    }

    /// The connections for reads, where there are any.
    pub fn pool(&self) -> Option<PoolState> {
        match self {
            Self::Embedded(_) => None,
            Self::Postgres(store) => Some(store.pool()),
        }
    }

    /// Whether a failing read says that the store will go on failing until a restart.
    pub fn is_lost_by(&self, error: &StoreError) -> bool {
        matches!(self, Self::Embedded(_)) && !matches!(error, StoreError::Away(_))
    }
}

/// Runs a list on a thread for blocking work.
async fn blocking<T: Send + 'static>(
    store: &EmbeddedStore,
    read: impl FnOnce(&EmbeddedStore) -> Result<T> + Send + 'static,
) -> Result<T> {
    let store = store.clone();
    let done = tokio::task::spawn_blocking(move || read(&store)).await;
    done.unwrap_or_else(|_| Err(StoreError::Away("the server is stopping".into())))
}
