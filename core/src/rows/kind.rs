//! A kind of row, and the two ways to read rows of a kind: one row by its key, or the first rows of
//! a range in the kind's order.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Bound;

/// A type whose values are rows of a store.
pub trait RowKind: Clone + Debug + Eq + 'static {
    /// The kind's name in the plural, for error texts: `claims`, for example.
    const NAME: &'static str;
    /// The key of a row of this kind. Each key has at most one row.
    type Key: Clone + Debug + Eq + Hash + Ord;
    /// The position of a row in the order in which rows of this kind are listed. Two rows never
    /// have the same position, so a position ends with the key. A kind with several lists has an
    /// enum here, with one variant per list. A kind that is only read by key has
    /// [`Infallible`](std::convert::Infallible).
    type Position: Clone + Debug + Ord;

    /// Returns the position of a row in its list, `None` if the row is in no list.
    fn position(key: &Self::Key, row: &Self) -> Option<Self::Position>;
}

/// The key type of the row kind `K`.
pub type Key<K> = <K as RowKind>::Key;
/// A row that a command writes: its key and its new value, `None` to delete the row.
pub type WrittenRow<K> = (Key<K>, Option<K>);

/// The error of a command that reads a row which the host has not loaded. The value is the name of
/// the row's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLoaded(pub &'static str);

/// One row before and after a group of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange<K: RowKind> {
    /// The key of the changed row.
    pub key: K::Key,
    /// The row as the host loaded it, `None` if the store had no such row.
    pub before: Option<K>,
    /// The row to write, `None` to delete the row.
    pub after: Option<K>,
}

/// An ordered read: the first rows between two positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedRead<K: RowKind> {
    /// The position from which the read starts.
    pub from: Bound<K::Position>,
    /// The position at which the read ends.
    pub to: Bound<K::Position>,
    /// The largest number of rows that the read returns.
    pub limit: usize,
}

impl<K: RowKind> OrderedRead<K> {
    /// Returns true if `position` lies before the end of the range or, for an included end, at the
    /// end.
    pub(super) fn ends_after(&self, position: &K::Position) -> bool {
        match &self.to {
            Bound::Included(to) => position <= to,
            Bound::Excluded(to) => position < to,
            Bound::Unbounded => true,
        }
    }
}

/// Returns true if the bound `outer` of one range reaches at least as far as the bound `inner` of
/// another range. `side` is [`Ordering::Less`] if both bounds are starts, and [`Ordering::Greater`]
/// if both are ends.
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
