//! The rows of one kind in a workspace: loaded from a store, then changed by commands.

use std::cmp::Ordering;
use std::collections::{BTreeMap, hash_map};
use std::ops::Bound;

use rustc_hash::FxHashMap;

use super::kind::{NotLoaded, OrderedRead, RowChange, RowKind, WrittenRow, includes};

#[derive(Debug)]
struct LoadedRow<K> {
    current: Option<K>,
    // The row as the store has it, `Some(None)` if the store has no such row. `None` until a
    // command writes the row for the first time.
    before: Option<Option<K>>,
}

/// Rows of one kind, with the changes that commands have made to them.
#[derive(Debug)]
pub struct Loaded<K: RowKind> {
    rows: FxHashMap<K::Key, LoadedRow<K>>,
    // The keys of the rows that commands have written, in the order of first write.
    written: Vec<K::Key>,
    // Rows by position: `None` until the first ordered read, so that a kind that is only read by
    // key costs nothing more.
    order: Option<Order<K>>,
}

impl<K: RowKind> Default for Loaded<K> {
    fn default() -> Self {
        Self { rows: FxHashMap::default(), written: Vec::new(), order: None }
    }
}

impl<K: RowKind> Loaded<K> {
    /// Returns true if the row with this key was loaded, or was found to be absent.
    pub fn contains(&self, key: &K::Key) -> bool {
        self.rows.contains_key(key)
    }

    /// Returns the row with this key as the commands so far have left it, `None` if there is no
    /// such row.
    ///
    /// # Errors
    /// The host has not loaded the row.
    pub fn row(&self, key: &K::Key) -> Result<Option<&K>, NotLoaded> {
        let row = self.rows.get(key).ok_or(NotLoaded(K::NAME))?;
        Ok(row.current.as_ref())
    }

    /// Returns true if a command has written one of the rows with these keys.
    pub fn is_any_written(&self, keys: &[K::Key]) -> bool {
        keys.iter().any(|key| self.rows.get(key).is_some_and(|row| row.before.is_some()))
    }

    /// Adds a row as the store has it, `None` for an absent row. A row that was loaded before is
    /// kept: a command may have changed it.
    pub fn load(&mut self, key: K::Key, row: Option<K>) {
        if let hash_map::Entry::Vacant(vacant) = self.rows.entry(key) {
            if let Some(order) = &mut self.order {
                order.replace(vacant.key(), None, row.as_ref());
            }
            vacant.insert(LoadedRow { current: row, before: None });
        }
    }

    /// Adds a store's answer to an ordered read: at most `read.limit` rows, in order.
    pub fn load_first(&mut self, read: &OrderedRead<K>, rows: Vec<(K::Key, K)>) {
        let last = rows.last().filter(|_| rows.len() >= read.limit);
        let last = last.and_then(|(key, row)| K::position(key, row));
        // If the answer has as many rows as the limit allows, the range is loaded only up to the
        // last row of the answer.
        let end = last.map_or_else(|| read.to.clone(), Bound::Included);
        rows.into_iter().for_each(|(key, row)| self.load(key, Some(row)));
        let order = self.order.get_or_insert_with(|| Order::new(&self.rows));
        order.spans.push((read.from.clone(), end));
    }

    /// Returns the keys of the first rows of a range, in order, as the commands so far have left
    /// the rows.
    ///
    /// # Errors
    /// The store may have rows of the range that the host has not loaded. Each row that a command
    /// removes from the range moves a later row to the front. So a host loads as many more rows as
    /// its group of commands can remove.
    pub fn first(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, NotLoaded> {
        let order = self.order.as_ref().ok_or(NotLoaded(K::NAME))?;
        // `BTreeMap::range` panics if the start lies behind the end, so the loop checks the end row
        // by row.
        let range = order.keys.range((read.from.clone(), Bound::Unbounded));
        let found: Vec<_> = range.take_while(|(position, _)| read.ends_after(position)).take(read.limit).collect();
        let last = found.last().filter(|_| found.len() >= read.limit);
        let end = last.map_or_else(|| read.to.clone(), |(position, _)| Bound::Included((*position).clone()));
        if !order.is_loaded(&read.from, &end) {
            return Err(NotLoaded(K::NAME));
        }
        Ok(found.into_iter().map(|(_, key)| key.clone()).collect())
    }

    /// Writes a row, or deletes the row if `row` is `None`.
    pub fn write(&mut self, key: K::Key, row: Option<K>) {
        // The host has loaded most rows that a command writes. The exceptions are rows that no
        // store has yet: the lease of a begin, and the turn of an ask that waits.
        let loaded = self.rows.entry(key.clone()).or_insert(LoadedRow { current: None, before: None });
        if let Some(order) = &mut self.order {
            order.replace(&key, loaded.current.as_ref(), row.as_ref());
        }
        let before = std::mem::replace(&mut loaded.current, row);
        if loaded.before.is_none() {
            loaded.before = Some(before);
            self.written.push(key);
        }
    }

    /// Writes or deletes rows, in the given order.
    pub fn write_all(&mut self, rows: Vec<WrittenRow<K>>) {
        rows.into_iter().for_each(|(key, row)| self.write(key, row));
    }

    /// Returns the rows that differ from what the host loaded, in the order of first write.
    pub fn net(mut self) -> Vec<RowChange<K>> {
        let changes = self.written.into_iter().filter_map(|key| {
            let row = self.rows.remove(&key)?;
            let change = RowChange { key, before: row.before.flatten(), after: row.current };
            (change.before != change.after).then_some(change)
        });
        changes.collect()
    }
}

/// A range of positions in a kind's order: the start and the end.
type Span<K> = (Bound<<K as RowKind>::Position>, Bound<<K as RowKind>::Position>);

/// Rows by position, and the ranges of positions whose rows are all loaded.
#[derive(Debug)]
struct Order<K: RowKind> {
    keys: BTreeMap<K::Position, K::Key>,
    spans: Vec<Span<K>>,
}

impl<K: RowKind> Order<K> {
    fn new(rows: &FxHashMap<K::Key, LoadedRow<K>>) -> Self {
        let mut order = Self { keys: BTreeMap::new(), spans: Vec::new() };
        rows.iter().for_each(|(key, row)| order.replace(key, None, row.current.as_ref()));
        order
    }

    fn replace(&mut self, key: &K::Key, before: Option<&K>, after: Option<&K>) {
        if let Some(position) = before.and_then(|row| K::position(key, row)) {
            self.keys.remove(&position);
        }
        if let Some(position) = after.and_then(|row| K::position(key, row)) {
            self.keys.insert(position, key.clone());
        }
    }

    fn is_loaded(&self, from: &Bound<K::Position>, to: &Bound<K::Position>) -> bool {
        let mut spans = self.spans.iter();
        spans.any(|(start, end)| includes(start, from, Ordering::Less) && includes(end, to, Ordering::Greater))
    }
}
