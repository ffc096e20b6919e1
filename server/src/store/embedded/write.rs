//! Commits groups of commands. The changes of a group are one batch, and therefore one append to
//! the journal.

use leasehold_core::bucket::BucketKey;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, Record};
use leasehold_core::command::Fences;
use leasehold_core::lease::{Fence, Lease, LeaseState};
use leasehold_core::rows::{Keys, NetChanges, RowChange, Workspace};
use rustc_hash::FxHashMap;

use super::rows::{
    WriteBatch, encode_idempotency_key, encode_outstanding, encode_replay, encode_resting, encode_settled, resting,
};
use super::{EmbeddedStore, FENCE, FORMAT, Inner, Result, keys};
use crate::store::port::{Failure, GroupError, GroupStore, ImportTarget};
use crate::store::stored;

/// The families of rows of which a batch has new or changed rows.
#[derive(Clone, Copy)]
struct Written {
    // Sessions and locks.
    locks: bool,
    queues: bool,
}

impl Inner {
    fn put_claim(&self, batch: &mut WriteBatch, change: &RowChange<Claim>) -> Result<()> {
        let (before, after) = (change.before.as_ref().and_then(resting), change.after.as_ref().and_then(resting));
        if before == after {
            return Ok(());
        }
        let source = |(owner, record): (CellId, &Record)| {
            keys::source_claim(owner, record.source.source_type, &record.source.id, &change.key)
        };
        let (old, new) = (before.map(source), after.map(source));
        if old != new {
            old.into_iter().for_each(|key| self.sources.remove(batch, key));
            new.into_iter().for_each(|key| self.sources.insert(batch, key, ""));
        }
        let key = keys::claim(&change.key);
        match after {
            Some((owner, record)) => self.claims.insert(batch, key, encode_resting(owner, record)?),
            None => self.claims.remove(batch, key),
        }
        Ok(())
    }

    fn put_lease(
        &self,
        batch: &mut WriteBatch,
        change: &RowChange<Lease>,
        claims: &FxHashMap<&BucketKey, &Claim>,
    ) -> Result<()> {
        let key = keys::lease(change.key);
        if let Some(before) = &change.before {
            match before.state {
                LeaseState::Outstanding(_) => self.outstanding.remove(batch, key),
                LeaseState::Settled(_) => {
                    self.settled.remove(batch, key);
                    self.settled_order.remove(batch, keys::settled(before.updated_at, change.key));
                }
            }
        }
        match &change.after {
            Some(lease) if lease.outcome().is_some() => {
                self.settled.insert(batch, key, encode_settled(lease)?);
                self.settled_order.insert(batch, keys::settled(lease.updated_at, change.key), "");
            }
            Some(lease) => self.outstanding.insert(batch, key, encode_outstanding(lease, claims)?),
            None => {}
        }
        Ok(())
    }

    /// Raises the version of the stored rows if a row of the batch needs it. The batch that writes the row also writes the
    /// version, so no program finds a row of a version that it does not know.
    fn put_format(&self, batch: &mut WriteBatch, changes: &NetChanges, written: Written) -> Result<()> {
        let leases = changes.leases.iter().filter_map(|change| change.after.as_ref()).map(stored::version_of);
        let locks = changes.locks.iter().filter_map(|change| change.after.as_ref()).map(stored::version_of_lock);
        let asks = changes.asks.iter().filter_map(|change| change.after.as_ref()).map(stored::version_of_ask);
        let versions = leases.chain(locks).chain(asks).chain(written.locks.then_some(stored::LOCK_VERSION));
        let versions = versions.chain(written.queues.then_some(stored::QUEUE_VERSION));
        // A store without rows of later versions must not pay for a read of its version.
        if let Some(needed) = versions.max().filter(|needed| *needed > stored::FIRST_VERSION)
            && self.format()? < needed
        {
            self.meta.insert(batch, FORMAT, needed.to_be_bytes());
        }
        Ok(())
    }

    /// Returns the batch that writes a group's changes.
    fn batch_of(&self, changes: &NetChanges) -> Result<WriteBatch> {
        // The pattern names each kind of row, so that the compiler finds a kind that is not written.
        // `Locks::put` writes sessions, locks, asks and turns, `Queues::put` all kinds of queues.
        let NetChanges {
            claims: changed_claims,
            leases,
            replays,
            fence,
            sessions: _,
            locks: _,
            asks: _,
            turns: _,
            queues: _,
            lanes: _,
            requests: _,
            bodies: _,
        } = changes;
        let mut batch = self.batch();
        let after = changed_claims.iter().filter_map(|change| Some((&change.key, change.after.as_ref()?)));
        let claims: FxHashMap<_, _> = after.collect();
        changed_claims.iter().try_for_each(|change| self.put_claim(&mut batch, change))?;
        leases.iter().try_for_each(|change| self.put_lease(&mut batch, change, &claims))?;
        let locks = self.locks.put(&mut batch, changes)?;
        let written = Written { locks, queues: self.queues.put(&mut batch, changes)? };
        self.put_format(&mut batch, changes, written)?;
        for change in replays {
            let key = encode_idempotency_key(&change.key)?;
            match &change.after {
                Some(replay) => self.replays.insert(&mut batch, key, encode_replay(replay)?),
                None => self.replays.remove(&mut batch, key),
            }
        }
        if let Some(fence) = fence {
            self.meta.insert(&mut batch, FENCE, fence.0.to_be_bytes());
        }
        Ok(batch)
    }
}

impl EmbeddedStore {
    /// Loads the rows with these keys into the workspace.
    ///
    /// # Errors
    /// A row could not be read.
    pub fn load(&self, keys: Keys, into: &mut Workspace) -> Result<()> {
        self.inner.locks.load(&keys, into)?;
        self.inner.queues.load(&self.inner.database, &keys, into)?;
        let Keys { claims, leases, replays, .. } = keys;
        let held = self.inner.held();
        for id in leases {
            into.load(id, self.inner.lease(&held, id)?);
        }
        for key in claims {
            let claim = self.inner.claim(&held, &key)?;
            into.load(key, claim);
        }
        for key in replays {
            let replay = self.inner.replay(&key)?;
            into.load(key, replay);
        }
        Ok(())
    }

    /// Commits the changes of a group, all or none, and returns when they are durable.
    ///
    /// # Errors
    /// The disk failed. The changes may be in the journal or not; only the next opening of the
    /// store can tell.
    pub fn save(&self, changes: &NetChanges) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.inner.commit(self.inner.batch_of(changes)?)?;
        let settled =
            changes.leases.iter().filter_map(|change| change.after.as_ref()).filter(|lease| lease.outcome().is_some());
        settled.for_each(|lease| self.inner.settled_position.settled(lease.updated_at));
        // The memory is changed only after the commit, so that readers see only durable changes. A
        // read between the commit and this line sees the state before the commit.
        self.inner.locks.committed(changes);
        self.inner.queues.committed(changes);
        let mut held = self.inner.held_mut();
        changes.leases.iter().for_each(|change| held.put_lease(change.key, change.after.as_ref()));
        changes.claims.iter().for_each(|change| held.put_claim(&change.key, change.after.as_ref()));
        Ok(())
    }
}

impl GroupStore for EmbeddedStore {
    fn begin(&mut self) -> std::result::Result<Workspace, GroupError> {
        let fence = self.inner.fence().map_err(|error| GroupError::uncommitted(Failure::Row, error))?;
        Ok(Workspace::new(fence))
    }

    fn load(&mut self, keys: Keys, into: &mut Workspace) -> std::result::Result<(), GroupError> {
        Self::load(self, keys, into).map_err(|error| GroupError::uncommitted(Failure::Row, error))
    }

    fn commit(&mut self, changes: &NetChanges) -> std::result::Result<Fences, GroupError> {
        let fatal = |error| GroupError { failure: Failure::Fatal, may_be_committed: true, error };
        self.save(changes).map(|()| Fences::default()).map_err(fatal)
    }
}

impl ImportTarget for EmbeddedStore {
    fn load(&mut self, keys: Keys, into: &mut Workspace) -> Result<()> {
        Self::load(self, keys, into)
    }

    fn save(&mut self, rows: &NetChanges) -> Result<()> {
        Self::save(self, rows)
    }

    fn complete(self, newest: Fence, rules: &[BucketRule]) -> Result<()> {
        Self::save(&self, &NetChanges { fence: Some(newest), ..NetChanges::default() })?;
        self.remember_bucket_types(rules)
    }
}
