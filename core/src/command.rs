//! Any command and any reply, for hosts that queue commands and run them in groups.

use rustc_hash::FxHashMap;

use crate::lease::{Fence, Lease, LeaseId};
use crate::rows::{Keys, Workspace};
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::{Answer, Begin, Begun, Forget, Settle, begin, forget, settle};

/// The fences that a store gave to new leases when it saved them.
pub type Fences = FxHashMap<LeaseId, Fence>;

/// Any command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begins an update: see [`begin`].
    Begin(Begin),
    /// Commits or rolls back a lease: see [`settle`].
    Settle(Settle),
    /// Forgets a settled lease: see [`forget`].
    Forget(Forget),
}

/// Any command's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The reply to a begin.
    Begun(Begun),
    /// The reply to a settle: true if the settle changed the lease, false if it was settled that
    /// way before (B22).
    Settled(bool),
    /// The reply to a forget: true if the lease was forgotten.
    Forgotten(bool),
}

impl Reply {
    /// The reply with the fence that the store gave to its lease, if the store numbers leases
    /// itself.
    #[must_use]
    pub fn with_fences(self, fences: &Fences) -> Self {
        match self {
            Self::Begun(begun) => {
                let fence = fences.get(&begun.lease).copied().unwrap_or(begun.fence);
                Self::Begun(Begun { fence, ..begun })
            }
            reply => reply,
        }
    }
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The store failed, and nothing was changed. The inner error is a refusal.
    pub fn apply<T: Transaction>(&self, tx: &mut T, now: Timestamp) -> Answer<Reply, T::Error> {
        Ok(match self {
            Self::Begin(command) => begin(tx, command, now)?.map(Reply::Begun),
            Self::Settle(command) => settle(tx, command, now)?.map(Reply::Settled),
            Self::Forget(command) => Ok(Reply::Forgotten(forget(tx, command)?)),
        })
    }

    /// Adds the keys of the rows that the command reads, as far as they are known. A settle reads
    /// the claims that its lease lists and a forget its lease's replay, so both know all keys once
    /// the lease is loaded.
    fn add_keys(&self, workspace: &Workspace, keys: &mut Keys) {
        match self {
            Self::Begin(begin) => {
                keys.claims.extend(begin.batch.keys().cloned());
                keys.replays.extend(begin.idempotency.as_ref().map(|(key, _)| key.clone()));
                keys.leases.extend(begin.resumed.then_some(begin.lease));
            }
            Self::Settle(Settle { lease, .. }) => {
                keys.leases.push(*lease);
                let claims = loaded_lease(workspace, lease).map_or(&[][..], Lease::claims);
                keys.claims.extend(claims.iter().cloned());
            }
            Self::Forget(Forget { lease, .. }) => {
                keys.leases.push(*lease);
                let lease = loaded_lease(workspace, lease);
                keys.replays.extend(lease.and_then(|lease| lease.idempotency_key.clone()));
            }
        }
    }
}

fn loaded_lease<'a>(workspace: &'a Workspace, id: &LeaseId) -> Option<&'a Lease> {
    workspace.row(id).ok().flatten()
}

impl Workspace {
    /// The keys of the rows that `commands` read and that are not loaded yet.
    ///
    /// A host loads them and asks again until none is missing: two rounds at most, since a lease
    /// that is loaded in the first round names the rows of the second.
    pub fn missing<'a>(&self, commands: impl IntoIterator<Item = &'a Command>) -> Keys {
        let mut keys = Keys::default();
        commands.into_iter().for_each(|command| command.add_keys(self, &mut keys));
        self.retain_missing(&mut keys);
        keys
    }

    /// Returns true if a command before this one has written a row that this one reads.
    pub fn has_changed(&self, command: &Command) -> bool {
        let mut keys = Keys::default();
        command.add_keys(self, &mut keys);
        self.has_written(&keys)
    }
}
