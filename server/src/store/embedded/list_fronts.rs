//! The first places of lists whose first rows come and go: the lanes that are ready, the requests of a lane.
//!
//! A row that leaves a list leaves a deleted key behind, until the store compacts its tables. A read of the first
//! rows would step over all of these, and cost more with each row that was ever taken (Q16). So it begins at the
//! list's front: a place before which the list has no row.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// The largest number of lists whose fronts are remembered. If there are more, all are forgotten at once, and each
/// is found again by a read from its beginning.
const MAX_LISTS: usize = 8_192;

/// The front of one list.
#[derive(Default)]
struct Front {
    // The list has no row before this key.
    first: Vec<u8>,
    // The number of reads that are under way.
    reads: u32,
    // The first key that was added since the oldest of these reads began.
    added: Option<Vec<u8>>,
}

/// The fronts of the lists of one keyspace. A list is the keys that begin with the same bytes.
#[derive(Default)]
pub(super) struct ListFronts(Mutex<FxHashMap<Vec<u8>, Front>>);

/// A read of the first rows of a list, which is under way. It must be [ended](Self::end).
pub(super) struct FrontRead<'a> {
    fronts: &'a ListFronts,
    list: Vec<u8>,
    /// The key from which the read begins.
    pub(super) from: Vec<u8>,
}

impl ListFronts {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Vec<u8>, Front>> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a read of a list from its beginning. The caller must take the read's snapshot afterwards.
    pub(super) fn begin(&self, list: Vec<u8>) -> FrontRead<'_> {
        let mut fronts = self.lock();
        if fronts.len() >= MAX_LISTS {
            fronts.retain(|_, front| front.reads > 0);
        }
        let front = fronts.entry(list.clone()).or_insert_with(|| Front { first: list.clone(), ..Front::default() });
        front.reads += 1;
        FrontRead { fronts: self, from: front.first.clone(), list }
    }

    /// Follows the addition of a key to a list. Must be called after the key can be read and before its writer is
    /// answered.
    pub(super) fn added(&self, list: &[u8], key: &[u8]) {
        if let Some(front) = self.lock().get_mut(list) {
            if key < &front.first[..] {
                front.first = key.to_vec();
            }
            if front.reads > 0 && front.added.as_ref().is_none_or(|added| key < &added[..]) {
                front.added = Some(key.to_vec());
            }
        }
    }
}

impl FrontRead<'_> {
    /// Ends the read. `first` is the first key that it has found, or the end of its range if it has found none; `None`
    /// if it failed.
    pub(super) fn end(self, first: Option<&[u8]>) {
        let mut fronts = self.fronts.lock();
        let Some(front) = fronts.get_mut(&self.list) else { return };
        if let Some(first) = first {
            let added = front.added.as_deref().filter(|added| *added < first);
            let first = added.unwrap_or(first);
            if first > &front.first[..] {
                front.first = first.to_vec();
            }
        }
        front.reads -= 1;
        if front.reads == 0 {
            front.added = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns the first key of a snapshot from a key on.
    fn first(keys: &BTreeSet<Vec<u8>>, from: &[u8]) -> Option<Vec<u8>> {
        keys.range(from.to_vec()..).next().cloned()
    }

    proptest! {
        /// Q16: whatever is added and removed while reads are under way, a read that begins after an addition
        /// finds it.
        #[test]
        fn q16_a_read_from_the_front_finds_the_first_row(steps in prop::collection::vec((0..4_u8, 0..9_u8), 1..60)) {
            let (fronts, mut keys, mut reads) = (ListFronts::default(), BTreeSet::new(), Vec::new());
            for (step, number) in steps {
                let key = vec![7, number];
                match step {
                    0 if keys.insert(key.clone()) => fronts.added(&[7], &key),
                    1 => _ = keys.remove(&key),
                    2 => {
                        let read = fronts.begin(vec![7]);
                        prop_assert_eq!(first(&keys, &read.from), keys.first().cloned());
                        let found = first(&keys, &read.from);
                        reads.push((read, found));
                    }
                    3 if !reads.is_empty() => {
                        let (read, found) = reads.swap_remove(usize::from(number) % reads.len());
                        read.end(Some(found.as_deref().unwrap_or(&[7, 9])));
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn the_number_of_lists_has_a_bound() {
        let fronts = ListFronts::default();
        for number in 0..3 * MAX_LISTS as u32 {
            fronts.begin(number.to_be_bytes().into()).end(Some(&[9; 8]));
        }
        assert!(fronts.lock().len() <= MAX_LISTS);
    }
}
