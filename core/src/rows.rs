//! The kinds of row that a store keeps. Each kind is declared here, once, and everything that has
//! to do with all kinds follows from the declaration:
//!
//! | type | contents, per kind |
//! |---|---|
//! | [`Keys`] | the keys of the rows that commands read |
//! | [`Changes`] | the rows that one command writes |
//! | [`Workspace`] | the rows loaded for a group of commands, as the commands have left them |
//! | [`NetChanges`] | each row that the group changed, before and after |
//! | [`Tables`] | all rows of the reference store |
//! | [`State`] | all rows in the order of keys, for invariants and dumps |
//! | [`AnyRow`] | one row of any kind, for dumps |
//!
//! **A new kind** takes a type with its rules in a file of its own. Here it takes an `impl RowKind`
//! and a line in `row_family!`, and in each store the rows' encoding. A command then reads it with
//! [`Transaction::row`](crate::transaction::Transaction::row) or, in order, with
//! [`Transaction::first`](crate::transaction::Transaction::first).
//!
//! All of it is generic, so a read costs one hash look-up: no row is boxed, and no call is dynamic.

mod family;
mod kind;
mod loaded;
mod table;

use std::collections::BTreeMap;
use std::convert::Infallible;

use crate::bucket::BucketKey;
use crate::cell::CellId;
use crate::claim::{Claim, SourceId, SourceType};
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState, Replay};
use crate::time::Timestamp;

pub use kind::{Key, NotLoaded, OrderedRead, RowChange, RowKind, WrittenRow};
pub use loaded::Loaded;
pub use table::Table;

crate::row_family! {
    /// A bucket's claim.
    claims: Claim,
    /// A lease, outstanding or settled.
    leases: Lease,
    /// The answer to a begin with an idempotency key.
    replays: Replay,
}

impl RowKind for Claim {
    const NAME: &'static str = "claims";
    type Key = BucketKey;
    /// Records are listed by table and row (B32).
    type Position = (CellId, SourceType, SourceId, BucketKey);

    fn position(key: &BucketKey, claim: &Self) -> Option<Self::Position> {
        let source = &claim.record().source;
        Some((claim.owner, source.source_type, source.id.clone(), key.clone()))
    }
}

/// A lease's place in one of the two lists of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseOrder {
    /// An outstanding lease: its cell, then the time of its begin (B31).
    Outstanding(CellId, Timestamp, LeaseId),
    /// A settled lease: the time of its settle, so that the oldest are forgotten first.
    Settled(Timestamp, LeaseId),
}

impl RowKind for Lease {
    const NAME: &'static str = "leases";
    type Key = LeaseId;
    type Position = LeaseOrder;

    fn position(id: &LeaseId, lease: &Self) -> Option<LeaseOrder> {
        Some(match lease.state {
            LeaseState::Outstanding(_) => LeaseOrder::Outstanding(lease.cell, lease.created_at, *id),
            LeaseState::Settled(_) => LeaseOrder::Settled(lease.updated_at, *id),
        })
    }
}

impl RowKind for Replay {
    const NAME: &'static str = "replays";
    type Key = IdempotencyKey;
    type Position = Infallible;

    fn position(_: &IdempotencyKey, _: &Self) -> Option<Infallible> {
        None
    }
}

impl Keys {
    /// Returns true if no row is to be loaded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl NetChanges {
    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl State {
    /// Adds a row.
    pub fn insert(&mut self, row: AnyRow) {
        self.insert_row(row);
    }
}

impl Workspace {
    /// An empty workspace above the newest fence given out.
    pub fn new(fence: Fence) -> Self {
        Self { fence, ..Self::default() }
    }

    /// Takes in a row as the store has it, or its absence. A row that is here already stays: a
    /// command may have changed it.
    pub fn load<K: Kind>(&mut self, key: K::Key, row: Option<K>) {
        K::loaded_mut(self).load(key, row);
    }

    /// Takes in a store's answer to an ordered read: at most `read.limit` rows, in order.
    pub fn load_first<K: Kind>(&mut self, read: &OrderedRead<K>, rows: Vec<(K::Key, K)>) {
        K::loaded_mut(self).load_first(read, rows);
    }

    /// A row as the commands so far have left it.
    ///
    /// # Errors
    /// The row was not loaded.
    pub fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, NotLoaded> {
        K::loaded(self).row(key)
    }

    /// The keys of the first rows of a range as the commands so far have left them, in order.
    ///
    /// # Errors
    /// The store may have rows of the range that were not loaded: see [`Loaded::first`].
    pub fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, NotLoaded> {
        K::loaded(self).first(read)
    }

    /// The newest fence given out.
    pub fn fence(&self) -> Fence {
        self.new_fence.unwrap_or(self.fence)
    }

    /// Keeps the keys of rows that are not loaded yet.
    pub fn retain_missing(&self, keys: &mut Keys) {
        self.drop_loaded(keys);
    }

    /// Returns true if a command has written one of these rows.
    pub fn has_written(&self, keys: &Keys) -> bool {
        self.is_any_written(keys)
    }

    /// Writes a command's changes.
    pub fn write(&mut self, changes: Changes) {
        self.new_fence = changes.fence.or(self.new_fence);
        self.write_rows(changes);
    }

    /// The net effect of all commands, to be written to the store.
    pub fn into_changes(self) -> NetChanges {
        self.net()
    }
}

impl Tables {
    /// The row with this key.
    pub fn row<K: Kind>(&self, key: &K::Key) -> Option<&K> {
        K::table(self).row(key)
    }

    /// The first rows of a range, in order.
    pub fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Vec<(K::Key, K)> {
        K::table(self).first(read)
    }

    /// The newest fence given out.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Loads rows, present or absent, into a workspace.
    pub fn load(&self, keys: Keys, into: &mut Workspace) {
        self.load_rows(keys, into);
    }

    /// Writes a command's changes.
    pub fn write(&mut self, changes: Changes) {
        self.fence = changes.fence.unwrap_or(self.fence);
        self.write_rows(changes);
    }

    /// Writes a group's net effect.
    pub fn save(&mut self, changes: &NetChanges) {
        self.fence = changes.fence.unwrap_or(self.fence);
        self.save_rows(changes);
    }

    /// Every row.
    pub fn state(&self) -> State {
        self.sorted()
    }
}
