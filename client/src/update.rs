//! Updates: claims to create and to destroy under one lease. [`Update::run`] begins and settles the
//! lease; [`Update::begin`] only begins it.

use leasehold_proto::gitlab::cells::topology_service::claims::v1::BeginUpdateRequest;

use crate::claim::{Claim, Lease};
use crate::client::Client;
use crate::error::{Error, UpdateError};
use crate::scope::{HeldLease, Scope};
use crate::stub::{check_idempotency_key, new_idempotency_key};

impl Client {
    /// Returns an empty update for a cell, with a random idempotency key.
    pub fn update(&self, cell_id: i64) -> Update {
        Update {
            client: self.clone(),
            cell_id,
            creates: Vec::new(),
            destroys: Vec::new(),
            organization_id: 0,
            key: new_idempotency_key(),
        }
    }
}

/// A list of claims to create and claims to destroy under one lease. All of these changes take
/// effect, or none does (B01). Made by [`Client::update`].
///
/// A bucket that is both created and destroyed is replaced: the cell owns it without a gap while
/// its subject, source or spelling change (B06).
#[derive(Clone, Debug)]
#[must_use = "an update does nothing before `run` or `begin`"]
pub struct Update {
    client: Client,
    cell_id: i64,
    creates: Vec<Claim>,
    destroys: Vec<Claim>,
    organization_id: i64,
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

    /// Sets the organization that the update is for: none if not set, or 0. The server keeps the
    /// organization with the lease, and a repeated begin must have the same organization (B09).
    pub fn organization_id(self, organization_id: i64) -> Self {
        Self { organization_id, ..self }
    }

    /// Sets the idempotency key: a random UUID if not set. A begin that is repeated under the same
    /// key gets the same lease (B09). This holds while the server remembers the lease, unless the
    /// lease was rolled back.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// Begins the lease, runs `work`, then settles the lease and returns the result of `work`.
    ///
    /// If no local COMMIT was reported, the lease is committed if `work` returns `Ok`, and rolled
    /// back if it returns `Err`. If a reported COMMIT succeeded, the lease is committed, even if
    /// `work` then returns `Err`. If a reported COMMIT failed or was interrupted, the lease is left
    /// to reconciliation (R02).
    ///
    /// `work` runs the caller's own transaction. It must save [`HeldLease::uuid`] in that
    /// transaction. It should report the COMMIT with [`HeldLease::local_commit`], because a COMMIT
    /// that failed may have been executed all the same.
    ///
    /// If the returned future is dropped, a background task settles the lease: a begin without an
    /// answer is rolled back, a dropped `work` counts as one that returned `Err`, and a commit that
    /// was sent is repeated.
    ///
    /// # Errors
    /// The lease could not be begun, `work` failed, or the lease could not be committed after
    /// `work` succeeded.
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

    /// Begins the lease and returns it. The caller must then settle it with [`Client::commit`] or
    /// [`Client::rollback`].
    ///
    /// # Errors
    /// The server refused the update; the refusal lists the refused claims. Or no answer came: then
    /// the lease may be outstanding, and the caller should begin again under the key of the error.
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
            organization_id: self.organization_id,
        };
        Ok((self.client, message, self.key))
    }
}
