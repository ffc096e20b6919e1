//! Reads of the first rows of a long range. An engine may walk the whole range to count its rows, as etcd does, however
//! few are asked for. So such a read begins with a narrow part of the range, and goes on with wider ones until it
//! has enough rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::engine::KeyRange;
use super::keys::beyond;

/// The least number of bytes by which the first part of a range is told from the others.
const MIN_DEPTH: usize = 24;
/// The number of lists, at most.
const LISTS: usize = 32;

/// The number of bytes that the keys of one read's last part had in common, for each list. The next read begins
/// there.
#[derive(Debug)]
pub(super) struct Depths([AtomicUsize; LISTS]);

impl Default for Depths {
    fn default() -> Self {
        Self([const { AtomicUsize::new(usize::MAX) }; LISTS])
    }
}

impl Depths {
    /// Returns the depth at which the next read of a list begins. `letter` is that of the list.
    pub(super) fn of(&self, letter: u8) -> &AtomicUsize {
        let [first, ..] = &self.0;
        self.0.get(usize::from(letter) % LISTS).unwrap_or(first)
    }
}

/// The parts of a range, each wider than the one before.
#[derive(Debug)]
pub(super) struct Widening<'a> {
    range: &'a KeyRange,
    // The first key of the next part.
    from: Bytes,
    // The first key of the range, with zeros to the end of the narrowest part.
    padded: Vec<u8>,
    // The number of bytes that the keys of the next part have in common.
    depth: usize,
    known: &'a AtomicUsize,
    parts: usize,
}

impl<'a> Widening<'a> {
    /// Returns the parts of a range. The first part has the depth `known`, which is adjusted at the end.
    pub(super) fn of(range: &'a KeyRange, known: &'a AtomicUsize) -> Self {
        let mut padded = range.from.to_vec();
        padded.resize(padded.len().max(MIN_DEPTH), 0);
        let depth = known.load(Ordering::Relaxed).min(padded.len());
        Self { range, from: range.from.clone(), padded, depth, known, parts: 0 }
    }

    /// Returns the next part, `None` after the last one.
    pub(super) fn next_part(&mut self) -> Option<KeyRange> {
        while self.from < self.range.to {
            let end = match self.padded.get(..self.depth) {
                None | Some([]) => self.range.to.clone(),
                Some(common) => beyond(common).min(self.range.to.clone()),
            };
            self.depth = self.depth.saturating_sub(1);
            if self.from < end {
                self.parts += 1;
                return Some(KeyRange { from: std::mem::replace(&mut self.from, end.clone()), to: end });
            }
        }
        None
    }

    /// Notes that the parts so far had enough rows. The next read begins with the last one of them, or with a narrower
    /// one if the first was enough.
    pub(super) fn end(self) {
        let narrower = match self.parts {
            0 => return,
            1 => 2,
            _ => 1,
        };
        self.known.store(self.depth.saturating_add(narrower), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_parts_are_the_range(from in "[a-c]{0,4}", to in "[a-d]{1,4}", depth in 0_usize..30) {
            let range = KeyRange { from: from.into(), to: to.into() };
            let known = AtomicUsize::new(depth);
            let mut widening = Widening::of(&range, &known);
            let mut next = range.from.clone();
            while let Some(part) = widening.next_part() {
                prop_assert!(part.from == next && part.from < part.to);
                next = part.to;
            }
            prop_assert!(range.from >= range.to || next == range.to);
        }
    }

    #[test]
    fn a_read_begins_where_the_last_one_ended() {
        let range = KeyRange { from: Bytes::from_static(b"s/000123"), to: Bytes::from_static(b"s0") };
        let known = AtomicUsize::new(8);
        let mut widening = Widening::of(&range, &known);
        let ends: Vec<_> = std::iter::from_fn(|| widening.next_part()).take(3).map(|part| part.to).collect();
        assert_eq!(ends, ["s/000124", "s/00013", "s/0002"]);
        widening.end();
        assert_eq!(known.load(Ordering::Relaxed), 6);
        let mut again = Widening::of(&range, &known);
        assert_eq!(again.next_part().map(|part| part.to), Some(Bytes::from_static(b"s/0002")));
        again.end();
        assert_eq!(known.load(Ordering::Relaxed), 7);
    }
}
