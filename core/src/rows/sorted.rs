//! The rows of one kind in the order of their keys, borrowed from a state or a store.

use std::collections::BTreeMap;

use super::kind::RowKind;
use crate::order::sorted_by;

/// Rows of one kind, in the order of their keys.
pub struct SortedRows<'a, K: RowKind>(Vec<(&'a K::Key, &'a K)>);

impl<'a, K: RowKind> SortedRows<'a, K> {
    /// Sorts rows by their keys, which are distinct.
    pub fn new(rows: impl Iterator<Item = (&'a K::Key, &'a K)>) -> Self {
        Self(sorted_by(rows.collect(), |a, b| a.0.cmp(b.0)))
    }

    /// Returns the row with this key, `None` if there is no such row.
    pub fn get(&self, key: &K::Key) -> Option<&'a K> {
        let at = self.0.binary_search_by(|(found, _)| (*found).cmp(key)).ok()?;
        self.0.get(at).map(|(_, row)| *row)
    }

    /// Returns the rows with their keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a K::Key, &'a K)> + '_ {
        self.0.iter().copied()
    }
}

impl<'a, K: RowKind> From<&'a BTreeMap<K::Key, K>> for SortedRows<'a, K> {
    fn from(rows: &'a BTreeMap<K::Key, K>) -> Self {
        Self(rows.iter().collect())
    }
}
