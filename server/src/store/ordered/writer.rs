//! A writer of the store: loads the rows of a group of commands, and writes the group's changes in one
//! guarded transaction.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_core::claim::Claim;
use leasehold_core::command::Fences;
use leasehold_core::lease::{Fence, Lease, LeaseId, Replay};
use leasehold_core::rows::{Keys, NetChanges, RowChange, RowKind, Workspace};
use rustc_hash::FxHashMap;

use super::base::KnownBase;
use super::engine::{Entry, Guarded, KeyRead, MAX_OPERATIONS, MAX_TRANSACTION_BYTES, Moment, RowGuard, RowWrite};
use super::keys::Layout;
use super::{CLAIMS_ONLY, Inner, base, random_id, rows};
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
    unknown: Option<SentGroup>,
    // The last group that was committed, whose row still stands.
    last: Option<CommittedGroup>,
    // True if nobody can find out any more if the present group was committed.
    is_lost: bool,
    // The moment of a group's first load. What one member knows is good enough, because the group's
    // transaction is guarded. After a conflict, the members must agree: the one may be behind.
    first: Moment,
    group: LoadedGroup,
}

/// A group whose transaction was sent.
#[derive(Clone, Debug)]
struct SentGroup {
    /// The key of the group's row.
    key: Bytes,
    /// The revision at which the group was decided.
    decided_at: u64,
}

/// A group whose transaction was made.
#[derive(Debug)]
struct CommittedGroup {
    sent: SentGroup,
    revision: u64,
}

/// The outcome of a group whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupOutcome {
    /// The group was committed at this revision.
    Committed(u64),
    /// The group was not committed, and never will be.
    Never,
    /// The group was sent so long ago that its row may have been deleted. It will not be committed any more.
    Forgotten,
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
        let (base, unknown, last, is_lost, group) = Default::default();
        Self { inner, base, unknown, last, is_lost, first: Moment::Known, group }
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

    /// Finds out the outcome of the group that got no answer. If there is no such group, only checks that the engine
    /// takes writes.
    fn resolve(&mut self) -> Result<Option<GroupOutcome>> {
        let Some(group) = self.unknown.clone() else {
            return self.wait(self.inner.proofs.prove(&*self.inner.engine, self.inner.layout.absent())).map(|_| None);
        };
        let mut outcome = self.wait(abandon(&self.inner, &group));
        for _ in 1..ABANDON_ATTEMPTS {
            if !outcome.as_ref().is_err_and(StoreError::is_away) {
                break;
            }
            outcome = self.wait(abandon(&self.inner, &group));
        }
        let outcome = outcome?;
        self.unknown = None;
        self.base = None;
        match outcome {
            GroupOutcome::Committed(revision) => self.last = Some(CommittedGroup { sent: group, revision }),
            GroupOutcome::Never => {}
            GroupOutcome::Forgotten => self.last = None,
        }
        Ok(Some(outcome))
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
        let keys = claims_only(keys)?;
        let found = self.read(self.inner.layout.rows(&keys))?;
        rows::put_into(into, found, keys)
    }

    /// Writes the changes of the group, and returns the fences of its new leases.
    fn commit_group(&mut self, changes: &NetChanges) -> Result<Fences> {
        let loaded = std::mem::take(&mut self.group);
        if loaded.rows.is_empty() && changes.is_empty() {
            return Ok(Fences::default());
        }
        let known = self.known_base()?;
        let decided_at = loaded.revision.unwrap_or(known.revision);
        self.forget_last(&known);
        if known.base.forgotten > decided_at {
            self.first = Moment::Newest;
            return Err(StoreError::Conflict("the rows were loaded at a member that is far behind".into()));
        }
        let mut transaction = GroupTransaction::of(changes, &self.inner.layout, known.base.fence)?;
        transaction.guard(&known, loaded, &self.inner.layout);
        let key = || self.inner.layout.group(decided_at, random_id());
        let group = (!changes.is_empty()).then(|| SentGroup { key: key(), decided_at });
        transaction.end(group.as_ref(), self.last.as_ref(), &self.inner.layout);
        transaction.check_size()?;
        let GroupTransaction { guards, writes, fences } = transaction;
        let revision = self.send(guards, writes, group)?;
        let fence = |(lease, stored)| (lease, rows::read_fence(stored, revision));
        Ok(Fences { leases: fences.into_iter().map(fence).collect(), ..Fences::default() })
    }

    /// Forgets the last group if its row may have been deleted.
    fn forget_last(&mut self, known: &KnownBase) {
        self.last.take_if(|last| last.sent.decided_at < known.base.forgotten);
    }

    /// Sends the transaction of a group, and returns its revision.
    fn send(&mut self, guards: Vec<RowGuard>, writes: Vec<RowWrite>, group: Option<SentGroup>) -> Result<u64> {
        match self.wait(self.inner.write(guards, writes)) {
            Ok(Guarded { is_written: true, revision }) => {
                self.first = Moment::Known;
                if let Some(sent) = group {
                    self.last = Some(CommittedGroup { sent, revision });
                }
                Ok(revision)
            }
            Ok(Guarded { is_written: false, revision }) => {
                self.first = Moment::Newest;
                self.look_again(revision)?;
                Err(StoreError::Conflict("another transaction was first".into()))
            }
            Err(StoreError::Unreachable(cause)) => {
                self.unknown = group;
                // Usually one member has failed, and the next one answers at once.
                match self.resolve()? {
                    Some(GroupOutcome::Committed(revision)) => Ok(revision),
                    Some(GroupOutcome::Forgotten) => {
                        self.is_lost = true;
                        Err(StoreError::Unreachable(cause))
                    }
                    Some(GroupOutcome::Never) | None => {
                        Err(StoreError::Conflict(format!("the answer of a transaction was lost: {cause}")))
                    }
                }
            }
            Err(error @ StoreError::OutOfResources(_)) => self.settle_refused(group, error),
            Err(error) => Err(error),
        }
    }

    /// After a guard has failed, reads the base row, which may be the one that has changed, and checks that the
    /// engine has the last group.
    fn look_again(&mut self, revision: u64) -> Result<()> {
        self.base = None;
        let keys = std::iter::once(self.inner.layout.base()).chain(self.last.iter().map(|last| last.sent.key.clone()));
        let reads = keys.map(KeyRead::Row).collect();
        let loaded = self.wait(self.inner.engine.load(Moment::Revision(revision), reads))?;
        let mut rows = loaded.entries.into_iter().map(|entries| entries.into_iter().next());
        let gone = || StoreError::Damaged("the base row of the store is gone".into());
        let known = KnownBase::of(&rows.next().flatten().ok_or_else(gone)?)?;
        self.forget_last(&known);
        self.base = Some(known);
        let found = rows.next().flatten().map(|entry| entry.revision);
        match self.last.as_ref().is_some_and(|last| found != Some(last.revision)) {
            true => Err(self.inner.proofs.go_back()),
            false => Ok(()),
        }
    }

    /// Finds out if a transaction was made although the engine has refused it for lack of room: etcd makes those that
    /// were under way, and refuses them all the same. The refusal is the last word, so that nothing comes later.
    fn settle_refused(&mut self, group: Option<SentGroup>, error: StoreError) -> Result<u64> {
        let Some(sent) = group else { return Err(error) };
        let inner = &self.inner;
        let found = self.wait(async {
            let revision = inner.proofs.prove(&*inner.engine, inner.layout.absent()).await?;
            find(inner, &sent, revision).await
        });
        match found {
            Ok(Some(GroupOutcome::Committed(revision))) => {
                self.last = Some(CommittedGroup { sent, revision });
                Ok(revision)
            }
            Ok(_) => Err(error),
            Err(away) => {
                self.unknown = Some(sent);
                Err(away)
            }
        }
    }

    fn group_error(&self, error: StoreError) -> GroupError {
        let failure = match error {
            StoreError::Conflict(_) => Failure::Conflict,
            StoreError::Unreachable(_) | StoreError::StatementTimeout(_) => Failure::Away,
            StoreError::OutOfResources(_) => Failure::Exhausted,
            _ => Failure::Row,
        };
        GroupError { failure, may_be_committed: self.unknown.is_some() || self.is_lost, error }
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

/// Finds out the outcome of a group. If it was not committed, records it as abandoned, so that a transaction of it
/// that arrives later changes nothing.
async fn abandon(inner: &Inner, group: &SentGroup) -> Result<GroupOutcome> {
    loop {
        let known = base::read(&*inner.engine, &inner.layout).await?;
        if known.base.forgotten > group.decided_at {
            return Ok(GroupOutcome::Forgotten);
        }
        let guards = vec![RowGuard::Absent(group.key.clone()), known.guard(&inner.layout)];
        let write = RowWrite::Put { key: group.key.clone(), value: Bytes::from_static(ABANDONED) };
        let abandoned = inner.write(guards, vec![write]).await?;
        if abandoned.is_written {
            return Ok(GroupOutcome::Never);
        }
        // If the group has no row, the base row has changed since it was read.
        if let Some(outcome) = find(inner, group, abandoned.revision).await? {
            return Ok(outcome);
        }
    }
}

/// Returns the outcome of a group as its row tells it at a revision; `None` if it has no row.
async fn find(inner: &Inner, group: &SentGroup, revision: u64) -> Result<Option<GroupOutcome>> {
    let read = KeyRead::Row(group.key.clone());
    let loaded = inner.engine.load(Moment::Revision(revision), vec![read]).await?;
    let outcome = |entry: Entry| match &*entry.value {
        COMMITTED => GroupOutcome::Committed(entry.revision),
        _ => GroupOutcome::Never,
    };
    Ok(loaded.entries.into_iter().flatten().next().map(outcome))
}

/// The transaction of a group.
#[derive(Default)]
pub(super) struct GroupTransaction {
    guards: Vec<RowGuard>,
    pub(super) writes: Vec<RowWrite>,
    /// The new leases with their stored fences.
    fences: Vec<(LeaseId, u64)>,
}

impl GroupTransaction {
    /// Returns the changes of a group. `base` is the base of the fences of new leases.
    pub(super) fn of(changes: &NetChanges, layout: &Layout, base: u64) -> Result<Self> {
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

    /// Adds the row of the group, in the place of that of the writer's last group. A transaction that changes nothing
    /// deletes a row that is not there.
    fn end(&mut self, group: Option<&SentGroup>, last: Option<&CommittedGroup>, layout: &Layout) {
        if let Some(CommittedGroup { sent: SentGroup { key, .. }, revision }) = last {
            self.guards.push(RowGuard::Written { key: key.clone(), revision: *revision });
        }
        let Some(group) = group else { return self.put(layout.absent(), None) };
        last.iter().for_each(|last| self.put(last.sent.key.clone(), None));
        self.guards.push(RowGuard::Absent(group.key.clone()));
        self.put(group.key.clone(), Some(Bytes::from_static(COMMITTED)));
    }

    /// Checks that the engine takes the transaction.
    fn check_size(&self) -> Result<()> {
        let guards = self.guards.iter().map(|guard| match guard {
            RowGuard::Written { key, .. } | RowGuard::Absent(key) => key.len(),
            RowGuard::Unchanged { range, .. } => range.from.len() + range.to.len(),
        });
        let guards = guards.map(|bytes| bytes + OPERATION_BYTES);
        let bytes: usize = guards.chain(self.writes.iter().map(bytes_of)).sum();
        let operations = self.guards.len().max(self.writes.len());
        if operations > MAX_OPERATIONS || bytes > MAX_TRANSACTION_BYTES { Err(too_large()) } else { Ok(()) }
    }
}

/// Returns an upper bound of the bytes of a change in a transaction.
pub(super) fn bytes_of(write: &RowWrite) -> usize {
    let bytes = match write {
        RowWrite::Put { key, value } => key.len() + value.len(),
        RowWrite::Delete(key) => key.len(),
        RowWrite::DeleteRange(range) => range.from.len() + range.to.len(),
    };
    bytes + OPERATION_BYTES
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
        self.is_lost = false;
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

    fn has_room(&mut self) -> bool {
        // A full engine still takes the small write, because it deletes a row.
        self.accepts_writes() && self.wait(self.inner.engine.status()).is_ok_and(|status| status.alarms == 0)
    }
}
