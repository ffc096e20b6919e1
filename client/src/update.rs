//! Updates: a batch of creates and destroys, begun for a scope or in two steps.

use leasehold_proto::gitlab::cells::topology_service::claims::v1::BeginUpdateRequest;

use crate::claim::{Claim, Lease};
use crate::client::Client;
use crate::error::{Error, UpdateError};
use crate::scope::{HeldLease, Scope};
use crate::stub::{check_idempotency_key, new_idempotency_key};

impl Client {
    /// Returns an empty update of a cell.
    pub fn update(&self, cell_id: i64) -> Update {
        Update { client: self.clone(), cell_id, creates: Vec::new(), destroys: Vec::new(), key: new_idempotency_key() }
    }
}

/// A batch of creates and destroys under one lease: all of them take effect, or none does (B01). Made by
/// [`Client::update`].
///
/// A bucket in both lists is replaced: the cell keeps it without a gap while its subject, source or spelling change (B06).
#[derive(Clone, Debug)]
#[must_use = "an update does nothing before `run` or `begin`"]
pub struct Update {
    client: Client,
    cell_id: i64,
    creates: Vec<Claim>,
    destroys: Vec<Claim>,
    key: String,
}

impl Update {
    /// Adds a claim to create.
    pub fn create(self, claim: Claim) -> Self {
        self.creates([claim])
    }

    /// Adds claims to create.
    pub fn creates(mut self, claims: impl IntoIterator<Item = Claim>) -> Self {
        self.creates.extend(claims);
        self
    }

    /// Adds a claim to destroy.
    pub fn destroy(self, claim: Claim) -> Self {
        self.destroys([claim])
    }

    /// Adds claims to destroy.
    pub fn destroys(mut self, claims: impl IntoIterator<Item = Claim>) -> Self {
        self.destroys.extend(claims);
        self
    }

    /// Sets the idempotency key: a UUID drawn at random if not set. A begin repeated under the same key gets the same
    /// lease for as long as the server remembers it (B09).
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// Begins the lease, runs `work`, and settles the lease: commits it if `work` returns `Ok`, and rolls it back if
    /// `work` returns `Err`.
    ///
    /// The work runs the caller's own transaction. It must save [`HeldLease::uuid`] in that transaction, and should
    /// report the COMMIT by [`HeldLease::local_commit`]: a failed COMMIT may have been executed all the same, and the
    /// lease is then left to reconciliation (R02).
    ///
    /// If the returned future is dropped, a background task settles the lease: a begin without an answer and an
    /// unfinished work are rolled back, and a commit that was sent is repeated.
    ///
    /// # Errors
    /// The lease was not begun, the work failed, or the lease could not be committed.
    pub async fn run<T, E>(self, work: impl AsyncFnOnce(HeldLease) -> Result<T, E>) -> Result<T, UpdateError<E>> {
        let (client, message, key) = self.into_begin().map_err(UpdateError::Begin)?;
        let mut scope = Scope::new(client, message, key);
        let lease = scope.begin().await.map_err(UpdateError::Begin)?;
        let result = work(lease).await;
        let settled = scope.settle(result.is_ok()).await;
        match (result, settled) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(error)) => Err(UpdateError::Commit(error)),
            (Err(error), settled) => Err(UpdateError::Work { error, unsettled: settled.err() }),
        }
    }

    /// Begins the lease and leaves it outstanding: the caller settles it by [`Client::commit`] or [`Client::rollback`].
    ///
    /// # Errors
    /// The server refused the update, with the offending claims; or no answer came. In the latter case the lease may be
    /// outstanding: begin again under the key of the error.
    pub async fn begin(self) -> Result<Lease, Error> {
        let (client, message, key) = self.into_begin()?;
        client.begin(&message, &key).await
    }

    fn into_begin(self) -> Result<(Client, BeginUpdateRequest, String), Error> {
        check_idempotency_key(&self.key)?;
        let message = BeginUpdateRequest {
            create_records: self.creates.iter().map(Into::into).collect(),
            destroy_records: self.destroys.iter().map(Into::into).collect(),
            cell_id: self.cell_id,
        };
        Ok((self.client, message, self.key))
    }
}
