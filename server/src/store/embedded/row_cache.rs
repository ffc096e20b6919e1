//! Rows that were read or written last, in memory. The committer reads the same few rows again and
//! again: an acquire and its release read the same lock and the same session. A read from fjall
//! walks through a list that has each version of each row.

use leasehold_core::rows::{RowChange, RowKind};
use rustc_hash::FxHashMap;

/// The number of rows after which a generation is complete. With the longest keys and values, two
/// generations of locks have 40 MB.
const GENERATION: usize = 4_096;

/// A bounded cache of one kind of row. It has at most two generations of rows: the newer one is
/// filled until it is complete, and then replaces the older one.
pub(super) struct RowCache<K: RowKind> {
    newer: FxHashMap<K::Key, K>,
    older: FxHashMap<K::Key, K>,
}

impl<K: RowKind> Default for RowCache<K> {
    fn default() -> Self {
        Self { newer: FxHashMap::default(), older: FxHashMap::default() }
    }
}

impl<K: RowKind> RowCache<K> {
    /// Returns a row; `None` if the cache does not have it, though the store may.
    pub(super) fn get(&mut self, key: &K::Key) -> Option<K> {
        if let Some(row) = self.newer.get(key) {
            return Some(row.clone());
        }
        let row = self.older.remove(key)?;
        self.put(key.clone(), row.clone());
        Some(row)
    }

    /// Adds a row as the store has it.
    pub(super) fn put(&mut self, key: K::Key, row: K) {
        if self.newer.len() >= GENERATION {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, row);
    }

    /// Follows a change that was committed.
    pub(super) fn committed(&mut self, change: &RowChange<K>) {
        self.older.remove(&change.key);
        match &change.after {
            Some(row) => self.put(change.key.clone(), row.clone()),
            None => _ = self.newer.remove(&change.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::lock::{AskId, LockPath};
    use leasehold_core::lock::{Turn, TurnKey};
    use uuid::Uuid;

    use super::*;

    fn key(number: usize) -> TurnKey {
        TurnKey { lock: LockPath::parse(&["a"], "k").unwrap(), number: number as u64 }
    }

    fn row(number: usize) -> Turn {
        Turn { ask: AskId(Uuid::from_u128(number as u128)) }
    }

    fn change(number: usize, after: Option<Turn>) -> RowChange<Turn> {
        RowChange { key: key(number), before: None, after }
    }

    #[test]
    fn the_rows_that_were_used_last_stay() {
        let mut cache = RowCache::<Turn>::default();
        for number in 0..3 * GENERATION {
            cache.put(key(number), row(number));
            assert_eq!(cache.get(&key(0)), Some(row(0)));
        }
        assert_eq!(cache.get(&key(1)), None);
        assert!(cache.newer.len() + cache.older.len() <= 2 * GENERATION);
    }

    #[test]
    fn a_change_replaces_the_row_of_either_generation() {
        let mut cache = RowCache::<Turn>::default();
        (0..=GENERATION).for_each(|number| cache.put(key(number), row(number)));
        let older = 7;
        assert!(cache.older.contains_key(&key(older)));
        cache.committed(&change(older, Some(row(8))));
        assert_eq!(cache.get(&key(older)), Some(row(8)));
        for number in [older, 9, GENERATION] {
            cache.committed(&change(number, None));
            assert_eq!(cache.get(&key(number)), None);
        }
    }
}
