//! The rows of one kind in the reference store: a hash map. An ordered read scans and sorts the
//! whole map, which is slow and simple, so the code is easy to trust.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

use rustc_hash::FxHashMap;

use super::kind::{OrderedRead, RowChange, RowKind, WrittenRow};
use super::loaded::Loaded;
use crate::order::sorted_by;

/// All rows of one kind, by key.
#[derive(Clone, Debug)]
pub struct Table<K: RowKind>(FxHashMap<K::Key, K>);

impl<K: RowKind> Default for Table<K> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: RowKind> Table<K> {
    /// Returns the row with this key, `None` if there is no such row.
    pub fn row(&self, key: &K::Key) -> Option<&K> {
        self.0.get(key)
    }

    /// Returns all rows in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K::Key, &K)> {
        self.0.iter()
    }

    /// Writes a row, or deletes the row if `row` is `None`. Returns the row that the key had
    /// before.
    pub fn write(&mut self, key: K::Key, row: Option<K>) -> Option<K> {
        match row {
            Some(row) => self.0.insert(key, row),
            None => self.0.remove(&key),
        }
    }

    /// Writes the rows that one command has changed.
    pub fn write_all(&mut self, rows: Vec<WrittenRow<K>>) {
        rows.into_iter().for_each(|(key, row)| _ = self.write(key, row));
    }

    /// Writes the rows that a group of commands has changed.
    pub fn save_all(&mut self, rows: &[RowChange<K>]) {
        rows.iter().for_each(|row| _ = self.write(row.key.clone(), row.after.clone()));
    }

    /// Loads the rows with these keys into a workspace, or the fact that a row is absent.
    pub fn load(&self, keys: Vec<K::Key>, into: &mut Loaded<K>) {
        for key in keys {
            let row = self.row(&key).cloned();
            into.load(key, row);
        }
    }

    /// Returns the first rows of a range with their keys, in order.
    pub fn first(&self, read: &OrderedRead<K>) -> Vec<(K::Key, K)> {
        let range = (read.from.as_ref(), read.to.as_ref());
        let place = |(key, row)| K::position(key, row).filter(|at| range.contains(at)).map(|at| (at, key, row));
        let mut rows = sorted_by(self.0.iter().filter_map(place).collect(), |a, b| a.0.cmp(&b.0));
        rows.truncate(read.limit);
        rows.into_iter().map(|(_, key, row)| (key.clone(), row.clone())).collect()
    }

    /// Returns all rows in the order of keys.
    pub fn sorted(&self) -> BTreeMap<K::Key, K> {
        // One insert after the other: a collect sorts first, with code of its own for each kind.
        let mut rows = BTreeMap::new();
        self.0.iter().for_each(|(key, row)| _ = rows.insert(key.clone(), row.clone()));
        rows
    }
}
