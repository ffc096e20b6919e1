//! What the engine asks of a host: rows by key, and one atomic write.
//!
//! Commands run over a [`Transaction`]. A host whose rows are far away loads them first into a [`Workspace`], runs any
//! number of commands over it, each seeing the effect of those before it, and writes what they changed in one go:
//!
//! ```text
//! loop { keys = workspace.missing(commands); if keys.is_empty() { break } load(keys) }
//! for each command: reply = command.apply(&mut workspace, now)
//! write(workspace.into_changes())      then, and only then, let the replies go
//! ```

use rustc_hash::FxHashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::batch::Fingerprint;
use crate::bucket::BucketKey;
use crate::claim::Claim;
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId};
use crate::update::Command;

/// What a begin with an idempotency key left behind, for as long as its lease is known (B09).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The lease that it got.
    pub lease: LeaseId,
    /// The lease's fence.
    pub fence: Fence,
    /// What the update looked like.
    pub fingerprint: Fingerprint,
}

/// The rows that a command writes: the value now, or none where the row goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Claims by key.
    pub claims: Vec<(BucketKey, Option<Claim>)>,
    /// Leases by id.
    pub leases: Vec<(LeaseId, Option<Lease>)>,
    /// Replays by key.
    pub replays: Vec<(IdempotencyKey, Option<Replay>)>,
    /// The newest fence given out.
    pub fence: Option<Fence>,
}

/// The state contradicts an invariant: the store lost or mixed up rows. Nothing may be decided on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenState {
    /// A lease lists a claim that is absent or not under it.
    #[error("lease {0} lists a claim that it does not hold")]
    LeaseListsForeignClaim(LeaseId),
    /// A host ran a command without loading a row that it reads.
    #[error("a row was read that had not been loaded")]
    NotLoaded,
}

/// Rows by key and one atomic write: all that a command needs of a store.
pub trait Transaction {
    /// A failing store. The command has then changed nothing, and its host answers "unavailable".
    type Error: From<BrokenState>;

    /// The claim of a bucket.
    ///
    /// # Errors
    /// The row could not be read; nothing is known of it.
    fn claim(&self, key: &BucketKey) -> Result<Option<&Claim>, Self::Error>;

    /// A lease by its id.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    fn lease(&self, id: LeaseId) -> Result<Option<&Lease>, Self::Error>;

    /// What an idempotency key was used for.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    fn replay(&self, key: &IdempotencyKey) -> Result<Option<&Replay>, Self::Error>;

    /// The newest fence given out, zero before the first.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    fn last_fence(&self) -> Result<Fence, Self::Error>;

    /// Writes a command's changes: all of them, or none.
    ///
    /// # Errors
    /// None of the changes took effect.
    fn write(&mut self, changes: Changes) -> Result<(), Self::Error>;
}

/// The rows that a command will read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Claims.
    pub claims: Vec<BucketKey>,
    /// Leases.
    pub leases: Vec<LeaseId>,
    /// Replays.
    pub replays: Vec<IdempotencyKey>,
}

impl Keys {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.leases.is_empty() && self.replays.is_empty()
    }
}

/// A row before and after a group of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange<K, V> {
    /// The row's key.
    pub key: K,
    /// The row as it was loaded.
    pub before: Option<V>,
    /// The row as it is to be written.
    pub after: Option<V>,
}

/// The net effect of a group of commands, in the order of first change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetChanges {
    /// Claims that are not what they were.
    pub claims: Vec<RowChange<BucketKey, Claim>>,
    /// Leases that are not what they were.
    pub leases: Vec<RowChange<LeaseId, Lease>>,
    /// Replays that are not what they were.
    pub replays: Vec<RowChange<IdempotencyKey, Replay>>,
    /// The newest fence, where any was given out.
    pub fence: Option<Fence>,
}

impl NetChanges {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.leases.is_empty() && self.replays.is_empty() && self.fence.is_none()
    }
}

#[derive(Debug)]
struct Row<V> {
    current: Option<V>,
    // The value as loaded, once it has been overwritten.
    before: Option<Option<V>>,
}

#[derive(Debug)]
struct Rows<K, V> {
    rows: FxHashMap<K, Row<V>>,
    changed: Vec<K>,
}

impl<K, V> Default for Rows<K, V> {
    fn default() -> Self {
        Self { rows: FxHashMap::default(), changed: Vec::new() }
    }
}

impl<K: Hash + Eq + Clone, V: PartialEq> Rows<K, V> {
    fn holds(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    fn read(&self, key: &K) -> Result<Option<&V>, BrokenState> {
        let row = self.rows.get(key).ok_or(BrokenState::NotLoaded)?;
        Ok(row.current.as_ref())
    }

    fn is_changed(&self, key: &K) -> bool {
        self.rows.get(key).is_some_and(|row| row.before.is_some())
    }

    fn load(&mut self, key: K, value: Option<V>) {
        self.rows.entry(key).or_insert(Row { current: value, before: None });
    }

    fn write(&mut self, key: K, value: Option<V>) {
        // The one row written unread is a fresh lease.
        let row = self.rows.entry(key.clone()).or_insert(Row { current: None, before: None });
        let before = std::mem::replace(&mut row.current, value);
        if row.before.is_none() {
            row.before = Some(before);
            self.changed.push(key);
        }
    }

    fn into_changes(mut self) -> Vec<RowChange<K, V>> {
        let changes = self.changed.into_iter().filter_map(|key| {
            let row = self.rows.remove(&key)?;
            let change = RowChange { key, before: row.before.flatten(), after: row.current };
            (change.before != change.after).then_some(change)
        });
        changes.collect()
    }
}

/// Rows loaded for a group of commands, and what the commands have made of them.
#[derive(Debug, Default)]
pub struct Workspace {
    claims: Rows<BucketKey, Claim>,
    leases: Rows<LeaseId, Lease>,
    replays: Rows<IdempotencyKey, Replay>,
    fence: Fence,
    fence_moved: bool,
}

impl Workspace {
    /// An empty workspace above the newest fence given out.
    pub fn new(fence: Fence) -> Self {
        Self { fence, ..Self::default() }
    }

    /// The rows that `commands` touch and that are not loaded yet. What a lease leads to is known only once the lease is
    /// loaded, so ask until nothing is missing: twice at the most.
    pub fn missing<'a>(&self, commands: impl IntoIterator<Item = &'a Command>) -> Keys {
        let mut keys = Keys::default();
        for command in commands {
            command.keys(self, &mut keys);
        }
        keys.claims.retain(|key| !self.claims.holds(key));
        keys.leases.retain(|id| !self.leases.holds(id));
        keys.replays.retain(|key| !self.replays.holds(key));
        keys
    }

    /// Takes in a claim as the store has it.
    pub fn load_claim(&mut self, key: BucketKey, claim: Option<Claim>) {
        self.claims.load(key, claim);
    }

    /// Takes in a lease as the store has it.
    pub fn load_lease(&mut self, id: LeaseId, lease: Option<Lease>) {
        self.leases.load(id, lease);
    }

    /// Takes in a replay as the store has it.
    pub fn load_replay(&mut self, key: IdempotencyKey, replay: Option<Replay>) {
        self.replays.load(key, replay);
    }

    /// Whether a row that the command touches has been changed here since it was loaded.
    pub fn has_changed(&self, command: &Command) -> bool {
        let mut keys = Keys::default();
        command.keys(self, &mut keys);
        keys.claims.iter().any(|key| self.claims.is_changed(key))
            || keys.leases.iter().any(|id| self.leases.is_changed(id))
            || keys.replays.iter().any(|key| self.replays.is_changed(key))
    }

    /// The lease, where it is loaded and known.
    pub(crate) fn loaded_lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.read(&id).ok().flatten()
    }

    /// What there is to write.
    pub fn into_changes(self) -> NetChanges {
        NetChanges {
            claims: self.claims.into_changes(),
            leases: self.leases.into_changes(),
            replays: self.replays.into_changes(),
            fence: self.fence_moved.then_some(self.fence),
        }
    }
}

impl Transaction for Workspace {
    type Error = BrokenState;

    fn claim(&self, key: &BucketKey) -> Result<Option<&Claim>, BrokenState> {
        self.claims.read(key)
    }

    fn lease(&self, id: LeaseId) -> Result<Option<&Lease>, BrokenState> {
        self.leases.read(&id)
    }

    fn replay(&self, key: &IdempotencyKey) -> Result<Option<&Replay>, BrokenState> {
        self.replays.read(key)
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        Ok(self.fence)
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        changes.claims.into_iter().for_each(|(key, claim)| self.claims.write(key, claim));
        changes.leases.into_iter().for_each(|(id, lease)| self.leases.write(id, lease));
        changes.replays.into_iter().for_each(|(key, replay)| self.replays.write(key, replay));
        if let Some(fence) = changes.fence {
            self.fence = fence;
            self.fence_moved = true;
        }
        Ok(())
    }
}
