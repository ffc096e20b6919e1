//! Sums of the pieces of a batch, by which one changed byte of a large batch is found.
//!
//! A search over all bytes of a batch takes a time that grows with the square of its length. So a
//! batch of more than [`LARGE_BYTES`] has one more row in `meta`: a sum of each KiB of the keys and
//! values before it, in the order in which the journal has them. The sum that differs tells the
//! piece, and only its bytes are searched. The other bytes of a batch are known but for few values.
//! The checksum of the whole batch decides, as in every correction.

use std::collections::BTreeSet;

use xxhash_rust::xxh3::xxh3_64;

use super::journal::{END, HEAD_BYTES, ITEM, NUMBER_AT, START, TAIL_BYTES, is_whole};
use super::search::Search;

/// The key of the sums in the keyspace `meta`.
pub(super) const PIECE_SUMS: &str = "piece_sums";

const PIECE_BYTES: usize = 1024;
/// The bytes from which on a batch has sums. A shorter one is searched whole.
const LARGE_BYTES: usize = 4096;
const SUM_BYTES: usize = 4;
/// The header of an item: a tag, the type, the compression, the keyspace in eight bytes, the length
/// of the key in two, those of the value and of the stored value in four each.
const ITEM_HEADER_BYTES: usize = 21;
const TYPE_AT: usize = 1;
const COMPRESSION_AT: usize = 2;
const KEYSPACE_AT: usize = 3;
const KEY_LENGTH_AT: usize = 11;
const VALUE_LENGTH_AT: usize = 13;
const STORED_LENGTH_AT: usize = 17;
/// More keyspaces than the store has.
const KEYSPACES: u8 = 32;
/// The types of items: a value, or the removal of one.
const TYPES: [u8; 2] = [0, 1];

/// The sums of the pieces of a batch that is being made.
#[derive(Default)]
pub(super) struct PieceSums {
    sums: Vec<u8>,
    // The bytes of the last piece, which is not complete.
    piece: Vec<u8>,
    bytes: usize,
}

impl PieceSums {
    /// Adds a row, or the removal of one.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.bytes += ITEM_HEADER_BYTES + key.len() + value.len();
        for mut rest in [key, value] {
            while !rest.is_empty() {
                let (part, later) = rest.split_at(rest.len().min(PIECE_BYTES - self.piece.len()));
                self.piece.extend(part);
                rest = later;
                if self.piece.len() == PIECE_BYTES {
                    self.end_piece();
                }
            }
        }
    }

    fn end_piece(&mut self) {
        self.sums.extend(sum(&self.piece));
        self.piece.clear();
    }

    /// Returns the value of the row [`PIECE_SUMS`]; `None` if the batch needs none.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        (self.bytes > LARGE_BYTES).then(|| self.finish_all())
    }

    /// Returns the sums of all pieces, however few they are.
    pub(super) fn finish_all(mut self) -> Vec<u8> {
        if !self.piece.is_empty() {
            self.end_piece();
        }
        self.sums
    }
}

/// Returns the length of the sums of so many bytes.
pub(super) fn sums_bytes(bytes: usize) -> usize {
    bytes.div_ceil(PIECE_BYTES).saturating_mul(SUM_BYTES)
}

fn sum(piece: &[u8]) -> [u8; SUM_BYTES] {
    let [a, b, c, d, ..] = xxh3_64(piece).to_le_bytes();
    [a, b, c, d]
}

/// The places of an item in a batch.
struct ItemPlaces {
    header: usize,
    key: usize,
    value: usize,
    end: usize,
}

/// The items at the beginning of some bytes, by their lengths.
struct BatchLayout {
    items: Vec<ItemPlaces>,
    /// The place after the last item that could be read.
    end: usize,
    /// True if the batch has as many items as it says, and its last part follows.
    is_complete: bool,
}

impl BatchLayout {
    fn of(bytes: &[u8]) -> Option<Self> {
        let count = u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?);
        let (mut items, mut end) = (Vec::new(), HEAD_BYTES);
        while items.len() < usize::try_from(count).unwrap_or(usize::MAX) {
            let Some(item) = item_at(bytes, end) else { return Some(Self { items, end, is_complete: false }) };
            end = item.end;
            items.push(item);
        }
        let has_tail = bytes.first() == Some(&START) && bytes.get(end) == Some(&END);
        Some(Self { items, end, is_complete: has_tail && bytes.len() >= end + TAIL_BYTES })
    }

    /// Returns the whole batch.
    fn batch<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a mut [u8]> {
        bytes.get_mut(..self.end + TAIL_BYTES)
    }
}

/// Returns the item at a place, if its header is one that the store may have written.
fn item_at(bytes: &[u8], at: usize) -> Option<ItemPlaces> {
    let header: &[u8; ITEM_HEADER_BYTES] = bytes.get(at..)?.first_chunk()?;
    let [tag, value_type, compression, ..] = *header;
    let keyspace = u64::from_le_bytes(*header.get(KEYSPACE_AT..)?.first_chunk()?);
    let has_keyspace = keyspace < u64::from(KEYSPACES);
    if tag != ITEM || !TYPES.contains(&value_type) || compression > 1 || !has_keyspace {
        return None;
    }
    let key_bytes = u16::from_le_bytes(*header.get(KEY_LENGTH_AT..)?.first_chunk()?);
    let value_bytes = u32::from_le_bytes(*header.get(STORED_LENGTH_AT..)?.first_chunk()?);
    let key = at + ITEM_HEADER_BYTES;
    let value = key + usize::from(key_bytes);
    let end = value.checked_add(usize::try_from(value_bytes).ok()?)?;
    (end <= bytes.len()).then_some(ItemPlaces { header: at, key, value, end })
}

/// Changes the one byte with which the batch at the beginning of the bytes is right again, and returns
/// its place; `None` if there is no such byte, or the search is at its bound.
pub(super) fn correct(bytes: &mut [u8], search: &mut Search) -> Option<usize> {
    let layout = BatchLayout::of(bytes)?;
    if !layout.is_complete {
        return correct_structure(bytes, &layout, search);
    }
    let batch = layout.batch(bytes)?;
    correct_content(batch, &layout).or_else(|| correct_known(batch, &layout, search))
}

/// Corrects a byte of a key or value, or of the sums themselves.
fn correct_content(batch: &mut [u8], layout: &BatchLayout) -> Option<usize> {
    let is_sums = |item: &ItemPlaces| batch.get(item.key..item.value) == Some(PIECE_SUMS.as_bytes());
    let sums = layout.items.iter().position(is_sums)?;
    let (before, sums) = (layout.items.get(..sums)?, layout.items.get(sums)?);
    let places: Vec<usize> = before.iter().flat_map(|item| item.key..item.end).collect();
    if sums.end - sums.value != sums_bytes(places.len()) {
        return None;
    }
    correct_summed(batch, &places, sums.value, &is_whole)
}

/// Corrects a byte at one of the places, or of their sums, which begin at `sums`. The sum that differs
/// tells the piece, and `is_right` decides.
pub(super) fn correct_summed(
    bytes: &mut [u8],
    places: &[usize],
    sums: usize,
    is_right: &impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    let sum_at = |index: usize| sums + index * SUM_BYTES;
    let bytes_of = |piece: &[usize]| -> Vec<u8> { piece.iter().filter_map(|at| bytes.get(*at).copied()).collect() };
    let is_wrong = |(index, piece): &(usize, &[usize])| {
        bytes.get(sum_at(*index)..).and_then(|sum| sum.first_chunk()) != Some(&sum(&bytes_of(piece)))
    };
    let mut wrong = places.chunks(PIECE_BYTES).enumerate().filter(is_wrong);
    let (Some((index, piece)), None) = (wrong.next(), wrong.next()) else { return None };
    let right = *bytes.get(sum_at(index)..)?.first_chunk()?;
    let found = bytes_of(piece);
    correct_piece(bytes, piece, found.clone(), right, is_right)
        .or_else(|| correct_sum(bytes, sum_at(index), sum(&found), is_right))
}

/// Corrects the byte of a piece with which its sum is right.
fn correct_piece(
    bytes: &mut [u8],
    places: &[usize],
    mut piece: Vec<u8>,
    right: [u8; SUM_BYTES],
    is_right: &impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    for (index, at) in places.iter().enumerate() {
        let byte = *piece.get(index)?;
        for mask in 1..=u8::MAX {
            *piece.get_mut(index)? = byte ^ mask;
            if sum(&piece) == right && try_byte(bytes, *at, byte ^ mask, is_right) {
                return Some(*at);
            }
        }
        *piece.get_mut(index)? = byte;
    }
    None
}

/// Corrects a sum of which one byte has changed.
fn correct_sum(
    bytes: &mut [u8],
    at: usize,
    right: [u8; SUM_BYTES],
    is_right: &impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    let found: [u8; SUM_BYTES] = *bytes.get(at..)?.first_chunk()?;
    let mut differing = found.iter().zip(right).enumerate().filter(|(_, (found, right))| *found != right);
    let (place, (_, byte)) = differing.next()?;
    try_byte(bytes, at + place, byte, is_right).then_some(at + place)
}

/// Corrects a byte of which few values are possible: of a header that is no length, or of the short
/// rows that no sum covers. A value that no batch of the store has is tried first, because each try
/// takes the checksum of the whole batch.
fn correct_known(batch: &mut [u8], layout: &BatchLayout, search: &mut Search) -> Option<usize> {
    let keyspaces: BTreeSet<u8> =
        layout.items.iter().filter_map(|item| batch.get(item.header + KEYSPACE_AT).copied()).collect();
    let (mut wrong, mut possible, mut rare) = (Vec::new(), Vec::new(), Vec::new());
    for item in &layout.items {
        let stored = batch.get(item.header + STORED_LENGTH_AT..item.key)?;
        wrong.extend((item.header + VALUE_LENGTH_AT..).zip(stored.iter().copied()));
        wrong.push((item.header + COMPRESSION_AT, 0));
        let types = if item.value < item.end { &mut wrong } else { &mut possible };
        types.extend(TYPES.map(|value_type| (item.header + TYPE_AT, value_type)));
        possible.extend(keyspaces.iter().map(|keyspace| (item.header + KEYSPACE_AT, *keyspace)));
        // The item may be the only one of its keyspace.
        let others = (0..KEYSPACES).filter(|keyspace| !keyspaces.contains(keyspace));
        rare.extend(others.map(|keyspace| (item.header + KEYSPACE_AT, keyspace)));
    }
    // The sums and the number of the batch are its last rows. The bytes of the sums are corrected
    // with the pieces.
    for item in layout.items.iter().rev().take(2) {
        let short = item.key..item.end.min(item.value + SUM_BYTES * 2);
        wrong.extend(short.flat_map(|at| (0..=u8::MAX).map(move |value| (at, value))));
    }
    wrong.extend(possible.into_iter().chain(rare));
    wrong.retain(|(at, value)| batch.get(*at).is_some_and(|byte| byte != value));
    let length = batch.len();
    for (number, (at, value)) in wrong.into_iter().enumerate() {
        if !search.goes_on(number, length) {
            return None;
        }
        if try_byte(batch, at, value, &is_whole) {
            return Some(at);
        }
    }
    None
}

/// Corrects a byte without which the items can't be told apart: of the head, or of the last headers
/// that could be read.
fn correct_structure(bytes: &mut [u8], layout: &BatchLayout, search: &mut Search) -> Option<usize> {
    let last = layout.items.iter().rev().take(3).map(|item| item.header);
    let headers = last.chain([layout.end]).flat_map(|header| header..header + ITEM_HEADER_BYTES);
    let places: Vec<usize> = (0..NUMBER_AT).chain(headers).filter(|at| *at < bytes.len()).collect();
    for (number, at) in places.into_iter().enumerate() {
        if !search.goes_on(number, layout.end) {
            return None;
        }
        let byte = *bytes.get(at)?;
        for value in (0..=u8::MAX).filter(|value| *value != byte) {
            *bytes.get_mut(at)? = value;
            let found = BatchLayout::of(bytes).filter(|layout| layout.is_complete);
            if found.and_then(|layout| layout.batch(bytes).map(|batch| is_whole(batch))) == Some(true) {
                return Some(at);
            }
        }
        *bytes.get_mut(at)? = byte;
    }
    None
}

/// Writes a byte if the bytes are right with it.
fn try_byte(bytes: &mut [u8], at: usize, value: u8, is_right: &impl Fn(&[u8]) -> bool) -> bool {
    let Some(byte) = bytes.get_mut(at) else { return false };
    let former = std::mem::replace(byte, value);
    let is_right = is_right(bytes);
    if !is_right && let Some(byte) = bytes.get_mut(at) {
        *byte = former;
    }
    is_right
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at what it does not expect")]

    use fjall::{CompressionType, Database, KeyspaceCreateOptions, PersistMode};
    use tempfile::TempDir;

    use super::super::journal;
    use super::super::rows::{Keyspace, WriteBatch};
    use super::*;

    const ROWS: usize = 80;

    /// Returns a journal with one batch of this many rows and removals, between two short ones. 80 rows
    /// have some 20 KB, and 400 rows 400 KB.
    fn journal(rows_of_batch: usize) -> Vec<u8> {
        let dir = TempDir::new().unwrap();
        let database = Database::builder(dir.path()).journal_compression(CompressionType::None).open().unwrap();
        let keyspace = |name| Keyspace { name, rows: database.keyspace(name, KeyspaceCreateOptions::default).unwrap() };
        let (rows, rare, meta) = (keyspace("rows"), keyspace("rare"), keyspace("meta"));
        for (sequence, count) in [(1, 1), (2, rows_of_batch), (3, 1)] {
            let mut batch = WriteBatch::new(database.batch().durability(Some(PersistMode::Buffer)));
            for number in 0..count {
                rows.insert(&mut batch, format!("row {number}"), vec![b'a' + (number % 20) as u8; number * 5]);
                rows.remove(&mut batch, format!("gone {number}"));
            }
            rare.insert(&mut batch, "alone", "");
            batch.end(&meta, sequence).commit().unwrap();
        }
        let mut bytes = std::fs::read(dir.path().join("0.jnl")).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        bytes.truncate(end);
        bytes
    }

    fn begin_of_large(bytes: &[u8]) -> usize {
        let is_batch = |at: &usize| BatchLayout::of(&bytes[*at..]).is_some_and(|layout| layout.is_complete);
        (1..bytes.len()).find(is_batch).unwrap()
    }

    /// Each kind of place: the head, headers, keys, values, the sums and their key, the number, the end.
    #[test]
    fn s12_a_changed_byte_of_a_large_batch_is_corrected() {
        let bytes = journal(ROWS);
        let begin = begin_of_large(&bytes);
        let layout = BatchLayout::of(&bytes[begin..]).unwrap();
        assert!(layout.items.len() > 2 * ROWS && layout.end > 16_000);
        let (sums, number) = (&layout.items[2 * ROWS + 1], &layout.items[2 * ROWS + 2]);
        let some_header = [0, 1, 101, 2 * ROWS, 2 * ROWS + 1].map(|index| layout.items[index].header);
        let headers = some_header.into_iter().flat_map(|header| header..header + ITEM_HEADER_BYTES);
        let mut places: Vec<usize> = (0..5).chain(headers).chain(sums.key..sums.value + 9).collect();
        places.extend((number.header..layout.end + TAIL_BYTES).chain((HEAD_BYTES..layout.end).step_by(499)));
        let masked = places.into_iter().zip([0x41, 0xff, 1, 0x80].into_iter().cycle());
        // The number of another keyspace, in the only item of its keyspace.
        let rare = layout.items[2 * ROWS].header + KEYSPACE_AT;
        for (place, mask) in masked.chain([(rare, 6)]) {
            let mut changed = bytes.clone();
            changed[begin + place] ^= mask;
            let corrected = journal::correct(&mut changed, Some(3), &mut Search::of_start());
            assert!(corrected == [begin + place] && changed == bytes, "byte {place}: {corrected:?}");
        }
    }

    /// The time hardly grows with the batch.
    #[test]
    fn s12_a_changed_byte_of_a_very_large_batch_is_corrected() {
        let bytes = journal(5 * ROWS);
        for place in (5_000..400_000).step_by(99_991) {
            let mut changed = bytes.clone();
            changed[place] ^= 0x55;
            assert_eq!(journal::correct(&mut changed, Some(3), &mut Search::of_start()), [place]);
            assert!(changed == bytes);
        }
    }

    /// Two changed bytes are more than the checksum can tell.
    #[test]
    fn s12_two_changed_bytes_of_a_large_batch_stay() {
        let bytes = journal(ROWS);
        for step in [1, 5_000] {
            let mut changed = bytes.clone();
            changed[8_000] ^= 1;
            changed[8_000 + step] ^= 1;
            let damaged = changed.clone();
            let mut search = Search::of_start();
            assert!(correct(&mut changed[begin_of_large(&bytes)..], &mut search).is_none());
            assert!(changed == damaged);
        }
    }
}
