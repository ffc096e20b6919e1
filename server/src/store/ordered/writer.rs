//! A writer of the store: loads the rows of a group of commands, and writes the group's changes in one
//! guarded transaction.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_core::claim::Claim;
use leasehold_core::command::Fences;
use leasehold_core::lease::{Fence, Lease, LeaseId, Replay};
use leasehold_core::rows::{Keys, NetChanges, RowChange, RowKind, Workspace};
use rustc_hash::FxHashMap;
use uuid::{Builder, Uuid};

use super::base::KnownBase;
use super::engine::{Entry, Guarded, KeyRead, MAX_OPERATIONS, MAX_TRANSACTION_BYTES, Moment, RowGuard, RowWrite};
use super::keys::Layout;
use super::{CLAIMS_ONLY, Inner, base, rows};
use crate::store::clock::system_time;
use crate::store::error::StoreError;
use crate::store::port::{Failure, GroupError, GroupStore};

type Result<T> = std::result::Result<T, StoreError>;

/// The value of a group's row if its changes were made.
const COMMITTED: &[u8] = b"committed";
/// The value of a group's row if its changes must not be made any more.
const ABANDONED: &[u8] = b"abandoned";

/// The most attempts to record a group as abandoned. Each goes to another member, and a repetition finds
/// what an earlier attempt has written.
const ABANDON_ATTEMPTS: usize = 3;

/// An upper bound of the bytes of one guard or change in a transaction, without its key and value.
const OPERATION_BYTES: usize = 32;

/// A writer, which has a thread of its own.
pub(super) struct OrderedWriter {
    inner: Arc<Inner>,
    // The base row as it was read last; `None` if it must be read again.
    base: Option<KnownBase>,
    // The group whose transaction got no answer; `None` if every outcome is known.
    unknown: Option<Bytes>,
    // The moment of a group's first load. What one member knows is good enough, because the group's
    // transaction is guarded. After a conflict, the members must agree: the one may be behind.
    first: Moment,
    group: LoadedGroup,
}

/// The rows that were loaded for the present group.
#[derive(Default)]
struct LoadedGroup {
    /// The revision at which all rows were loaded; `None` before the first load.
    revision: Option<u64>,
    /// The revision of each loaded row; `None` for an absent one.
    rows: FxHashMap<Bytes, Option<u64>>,
}

impl LoadedGroup {
    fn note(&mut self, key: Bytes, entry: Option<&Entry>) {
        self.rows.insert(key, entry.map(|entry| entry.revision));
    }

    /// Returns a guard for each loaded row.
    fn guards(self) -> Vec<RowGuard> {
        let guard = |(key, revision)| match revision {
            Some(revision) => RowGuard::Written { key, revision },
            None => RowGuard::Absent(key),
        };
        self.rows.into_iter().map(guard).collect()
    }
}

impl OrderedWriter {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, base: None, unknown: None, first: Moment::Known, group: LoadedGroup::default() }
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.inner.engine.handle().block_on(call)
    }

    /// Reads the base row, unless it is known.
    fn known_base(&mut self) -> Result<KnownBase> {
        if let Some(known) = &self.base {
            return Ok(known.clone());
        }
        let known = self.wait(base::read(&*self.inner.engine, &self.inner.layout))?;
        Ok(self.base.insert(known).clone())
    }

    /// Finds out if the group of unknown outcome was committed, and returns its revision. If it was not, it
    /// never will be. If there is no such group, only checks that the engine takes writes.
    fn resolve(&mut self) -> Result<Option<u64>> {
        let Some(group) = self.unknown.clone() else {
            return self.wait(self.inner.engine.prove(self.inner.layout.absent())).map(|_| None);
        };
        let mut outcome = self.wait(abandon(&self.inner, group.clone()));
        for _ in 1..ABANDON_ATTEMPTS {
            if !outcome.as_ref().is_err_and(StoreError::is_away) {
                break;
            }
            outcome = self.wait(abandon(&self.inner, group.clone()));
        }
        self.unknown = outcome.is_err().then_some(group);
        outcome
    }

    /// Reads the rows with these keys at the revision of the group, and notes them.
    fn read(&mut self, keys: Vec<Bytes>) -> Result<Vec<Option<Entry>>> {
        let mut found = Vec::with_capacity(keys.len());
        for part in keys.chunks(MAX_OPERATIONS) {
            let reads = part.iter().cloned().map(KeyRead::Row).collect();
            let at = self.group.revision.map_or(self.first, Moment::Revision);
            let loaded = self.wait(self.inner.engine.load(at, reads))?;
            self.group.revision = Some(loaded.revision);
            found.extend(loaded.entries.into_iter().map(|entries| entries.into_iter().next()));
        }
        keys.into_iter().zip(&found).for_each(|(key, entry)| self.group.note(key, entry.as_ref()));
        Ok(found)
    }

    fn load_rows(&mut self, keys: Keys, into: &mut Workspace) -> Result<()> {
        let Keys { claims, leases, replays, .. } = claims_only(keys)?;
        let layout = &self.inner.layout;
        let names = claims.iter().map(|key| layout.claim(key)).chain(leases.iter().map(|id| layout.lease(*id)));
        let names = names.chain(replays.iter().map(|key| layout.replay(key))).collect();
        let mut found = self.read(names)?.into_iter();
        for key in claims {
            let claim = found.next().flatten().as_ref().map(rows::claim).transpose()?;
            into.load(key, claim);
        }
        for id in leases {
            let lease = found.next().flatten().as_ref().map(rows::lease).transpose()?;
            into.load(id, lease);
        }
        for key in replays {
            let replay = found.next().flatten().as_ref().map(rows::replay).transpose()?;
            into.load(key, replay);
        }
        Ok(())
    }

    /// Writes the changes of the group, and returns the fences of its new leases.
    fn commit_group(&mut self, changes: &NetChanges) -> Result<Fences> {
        let loaded = std::mem::take(&mut self.group);
        if loaded.rows.is_empty() && changes.is_empty() {
            return Ok(Fences::default());
        }
        let known = self.known_base()?;
        let mut transaction = GroupTransaction::of(changes, &self.inner.layout, known.base.fence)?;
        transaction.guard(&known, loaded, &self.inner.layout);
        let group = (!changes.is_empty()).then(|| self.inner.layout.group(system_time(), random_id()));
        transaction.end(group.as_ref(), &self.inner.layout);
        transaction.check_size()?;
        let GroupTransaction { guards, writes, fences } = transaction;
        let revision = self.send(guards, writes, group)?;
        let fence = |(lease, stored)| (lease, rows::read_fence(stored, revision));
        Ok(Fences { leases: fences.into_iter().map(fence).collect(), ..Fences::default() })
    }

    /// Sends the transaction of a group, and returns its revision.
    fn send(&mut self, guards: Vec<RowGuard>, writes: Vec<RowWrite>, group: Option<Bytes>) -> Result<u64> {
        match self.wait(self.inner.write(guards, writes)) {
            Ok(Guarded { is_written: true, revision }) => {
                self.first = Moment::Known;
                Ok(revision)
            }
            Ok(Guarded { is_written: false, .. }) => {
                self.first = Moment::Newest;
                // The base row may be the one that has changed.
                self.base = None;
                Err(StoreError::Conflict("another transaction was first".into()))
            }
            Err(StoreError::Unreachable(cause)) => {
                self.unknown = group;
                // Usually one member has failed, and the next one answers at once.
                let lost = StoreError::Conflict(format!("the answer of a transaction was lost: {cause}"));
                self.resolve()?.ok_or(lost)
            }
            Err(error) => Err(error),
        }
    }

    fn group_error(&self, error: StoreError) -> GroupError {
        let failure = match error {
            StoreError::Conflict(_) => Failure::Conflict,
            StoreError::Unreachable(_) | StoreError::StatementTimeout(_) => Failure::Away,
            StoreError::OutOfResources(_) => Failure::Exhausted,
            _ => Failure::Row,
        };
        GroupError { failure, may_be_committed: self.unknown.is_some(), error }
    }
}

/// Returns the keys if all of them are of claims, leases and replays.
///
/// # Errors
/// A key is of a session, a lock or a queue.
fn claims_only(mut keys: Keys) -> Result<Keys> {
    let (claims, leases) = (std::mem::take(&mut keys.claims), std::mem::take(&mut keys.leases));
    let replays = std::mem::take(&mut keys.replays);
    match keys.is_empty() {
        true => Ok(Keys { claims, leases, replays, ..keys }),
        false => Err(StoreError::Failed(CLAIMS_ONLY.into())),
    }
}

fn random_id() -> Uuid {
    Builder::from_random_bytes(rand::random()).into_uuid()
}

/// Returns the revision of a group that was committed. If it was not, records it as abandoned, so that a
/// transaction of it that arrives later changes nothing.
async fn abandon(inner: &Inner, group: Bytes) -> Result<Option<u64>> {
    let write = RowWrite::Put { key: group.clone(), value: Bytes::from_static(ABANDONED) };
    let abandoned = inner.write(vec![RowGuard::Absent(group.clone())], vec![write]).await?;
    if abandoned.is_written {
        return Ok(None);
    }
    let loaded = inner.engine.load(Moment::Revision(abandoned.revision), vec![KeyRead::Row(group)]).await?;
    let found = loaded.entries.into_iter().flatten().next();
    Ok(found.filter(|entry| entry.value == COMMITTED).map(|entry| entry.revision))
}

/// The transaction of a group.
#[derive(Default)]
struct GroupTransaction {
    guards: Vec<RowGuard>,
    writes: Vec<RowWrite>,
    /// The new leases with their stored fences.
    fences: Vec<(LeaseId, u64)>,
}

impl GroupTransaction {
    /// Returns the changes of a group. `base` is the base of the fences of new leases.
    fn of(changes: &NetChanges, layout: &Layout, base: u64) -> Result<Self> {
        let mut transaction = Self::default();
        changes.claims.iter().try_for_each(|change| transaction.put_claim(change, layout))?;
        changes.leases.iter().try_for_each(|change| transaction.put_lease(change, layout, base))?;
        changes.replays.iter().try_for_each(|change| transaction.put_replay(change, layout, base))?;
        Ok(transaction)
    }

    fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        self.writes.push(match value {
            Some(value) => RowWrite::Put { key, value },
            None => RowWrite::Delete(key),
        });
    }

    /// Moves a row's place in a list: deletes the old one, and writes the new one with `value`.
    fn move_place(&mut self, old: Option<Bytes>, new: Option<Bytes>, value: Bytes) {
        if old == new {
            return;
        }
        old.into_iter().for_each(|key| self.put(key, None));
        new.into_iter().for_each(|key| self.put(key, Some(value.clone())));
    }

    fn put_claim(&mut self, change: &RowChange<Claim>, layout: &Layout) -> Result<()> {
        let place = |claim: &Option<Claim>| claim.as_ref().map(|claim| layout.source(&change.key, claim));
        self.move_place(place(&change.before), place(&change.after), Bytes::new());
        let value = change.after.as_ref().map(rows::encode_claim).transpose()?;
        self.put(layout.claim(&change.key), value);
        Ok(())
    }

    fn put_lease(&mut self, change: &RowChange<Lease>, layout: &Layout, base: u64) -> Result<()> {
        let place = |lease: &Option<Lease>| {
            let place = lease.as_ref().and_then(|lease| Lease::position(&change.key, lease));
            place.map(|place| layout.lease_place(place))
        };
        let outstanding = change.after.as_ref().filter(|lease| lease.outcome().is_none());
        let outstanding = outstanding.map(rows::OutstandingPlace::of);
        let value = outstanding.as_ref().map(rows::encode).transpose()?.unwrap_or_default();
        self.move_place(place(&change.before), place(&change.after), value);
        let key = layout.lease(change.key);
        if let (None, Some(lease)) = (&change.before, &change.after) {
            let place = lease.fence.0.saturating_sub(Fence::PLACEHOLDER.0);
            if place >= rows::FENCES_PER_REVISION {
                return Err(too_large());
            }
            self.fences.push((change.key, rows::stored_fence(lease.fence, base)));
        }
        let value = change.after.as_ref().map(|lease| rows::encode_lease(lease, base)).transpose()?;
        self.put(key, value);
        Ok(())
    }

    fn put_replay(&mut self, change: &RowChange<Replay>, layout: &Layout, base: u64) -> Result<()> {
        let value = change.after.as_ref().map(|replay| rows::encode_replay(replay, base)).transpose()?;
        self.put(layout.replay(&change.key), value);
        Ok(())
    }

    /// Adds the guards: all loaded rows and the base row are as they were, and no new lease exists.
    fn guard(&mut self, known: &KnownBase, loaded: LoadedGroup, layout: &Layout) {
        let new = self.fences.iter().map(|(lease, _)| layout.lease(*lease));
        let new: Vec<_> = new.filter(|key| !loaded.rows.contains_key(key)).collect();
        self.guards.extend(loaded.guards());
        self.guards.extend(new.into_iter().map(RowGuard::Absent));
        self.guards.push(known.guard(layout));
    }

    /// Adds the row of the group. A transaction that changes nothing deletes a row that is not there.
    fn end(&mut self, group: Option<&Bytes>, layout: &Layout) {
        match group {
            Some(group) => {
                self.guards.push(RowGuard::Absent(group.clone()));
                self.put(group.clone(), Some(Bytes::from_static(COMMITTED)));
            }
            None => self.put(layout.absent(), None),
        }
    }

    /// Checks that the engine takes the transaction.
    fn check_size(&self) -> Result<()> {
        let guards = self.guards.iter().map(|guard| match guard {
            RowGuard::Written { key, .. } | RowGuard::Absent(key) => key.len(),
            RowGuard::Unchanged { range, .. } => range.from.len() + range.to.len(),
        });
        let writes = self.writes.iter().map(|write| match write {
            RowWrite::Put { key, value } => key.len() + value.len(),
            RowWrite::Delete(key) => key.len(),
            RowWrite::DeleteRange(range) => range.from.len() + range.to.len(),
        });
        let bytes: usize = guards.chain(writes).map(|bytes| bytes + OPERATION_BYTES).sum();
        let operations = self.guards.len().max(self.writes.len());
        if operations > MAX_OPERATIONS || bytes > MAX_TRANSACTION_BYTES { Err(too_large()) } else { Ok(()) }
    }
}

/// Returns the error of a group that must be divided, or of an update that must.
fn too_large() -> StoreError {
    StoreError::Failed(format!(
        "the changes are more than one transaction takes, {MAX_OPERATIONS} rows or {MAX_TRANSACTION_BYTES} bytes: divide the update"
    ))
}

impl GroupStore for OrderedWriter {
    fn is_shared(&self) -> bool {
        true
    }

    fn skips_fences(&self) -> bool {
        true
    }

    fn begin(&mut self) -> std::result::Result<Workspace, GroupError> {
        self.group = LoadedGroup::default();
        if self.unknown.is_some() {
            self.resolve().map_err(|error| self.group_error(error))?;
        }
        // The fences follow from the revision of the transaction. Until then, the engine's own fences are
        // placeholders.
        Ok(Workspace::new(Fence::PLACEHOLDER))
    }

    fn load(&mut self, keys: Keys, into: &mut Workspace) -> std::result::Result<(), GroupError> {
        self.load_rows(keys, into).map_err(|error| self.group_error(error))
    }

    fn commit(&mut self, changes: &NetChanges) -> std::result::Result<Fences, GroupError> {
        self.commit_group(changes).map_err(|error| self.group_error(error))
    }

    fn accepts_writes(&mut self) -> bool {
        self.resolve().is_ok()
    }
}
