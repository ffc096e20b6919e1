//! A kind of row, and the two ways to read rows: by key, and the first of a range in the kind's
//! order.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Bound;

/// A type whose values are rows of a store.
pub trait RowKind: Clone + Debug + Eq + 'static {
    /// The kind's name in the plural, for error texts.
    const NAME: &'static str;
    /// The row's key. Each key has at most one row.
    type Key: Clone + Debug + Eq + Hash + Ord;
    /// The row's place in the one order in which rows of this kind are listed. Two rows never have
    /// the same position, so a position ends with the key. A kind with several lists has an enum
    /// here, with one variant per list. A kind that is read by key alone has
    /// [`Infallible`](std::convert::Infallible).
    type Position: Clone + Debug + Ord;

    /// The row's position, or `None` if the row is in no list.
    fn position(key: &Self::Key, row: &Self) -> Option<Self::Position>;
}

/// The type of a kind's keys.
pub type Key<K> = <K as RowKind>::Key;
/// A row that a command writes: the new value, or `None` to delete the row.
pub type WrittenRow<K> = (Key<K>, Option<K>);

/// A row of this kind was read that the host had not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLoaded(pub &'static str);

/// One row before and after a group of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange<K: RowKind> {
    /// The row's key.
    pub key: K::Key,
    /// The row as the host loaded it.
    pub before: Option<K>,
    /// The row to write, or `None` to delete it.
    pub after: Option<K>,
}

/// An ordered read: the first rows between two positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedRead<K: RowKind> {
    /// The position to start at.
    pub from: Bound<K::Position>,
    /// The position to end at.
    pub to: Bound<K::Position>,
    /// The largest number of rows.
    pub limit: usize,
}

impl<K: RowKind> OrderedRead<K> {
    /// Returns true if a position is not beyond the end.
    pub(super) fn ends_after(&self, position: &K::Position) -> bool {
        match &self.to {
            Bound::Included(to) => position <= to,
            Bound::Excluded(to) => position < to,
            Bound::Unbounded => true,
        }
    }
}

/// Returns true if `outer` bounds no less than `inner`: as a start with [`Ordering::Less`], as an
/// end with [`Ordering::Greater`].
pub(super) fn includes<P: Ord>(outer: &Bound<P>, inner: &Bound<P>, side: Ordering) -> bool {
    match (outer, inner) {
        (Bound::Unbounded, _) => true,
        (_, Bound::Unbounded) => false,
        (Bound::Excluded(outer), Bound::Included(inner)) => outer.cmp(inner) == side,
        (Bound::Included(outer) | Bound::Excluded(outer), Bound::Included(inner) | Bound::Excluded(inner)) => {
            outer.cmp(inner) != side.reverse()
        }
    }
}
