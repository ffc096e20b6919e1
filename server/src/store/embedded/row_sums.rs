//! Sums at the end of a large row, by which one changed byte of a large block is found.
//!
//! A block of a table has whole rows, so a row of an update with hundreds of claims makes a block
//! that is too long for a search over all its bytes. Such a row ends with a sum of each KiB of its
//! value, the value's length, and a mark. The decoder of rows reads no further than the value, so a
//! program that knows no sums reads the row too.

use super::correction::ALL_VALUES_BYTES;
use super::pieces::{self, PieceSums};
use super::search::Search;

/// The bytes from which on a value has sums. Blocks of shorter rows are searched whole.
const LARGE_BYTES: usize = 2048;
const MARK: [u8; 8] = *b"\xffKiBsum\xff";
const LENGTH_BYTES: usize = 4;

/// Returns the value with its sums, if it is large.
pub(super) fn with_sums(mut value: Vec<u8>) -> Vec<u8> {
    let Some(length) = u32::try_from(value.len()).ok().filter(|_| value.len() > LARGE_BYTES) else { return value };
    let mut sums = PieceSums::default();
    sums.add(&[], &value);
    value.extend(sums.finish_all());
    value.extend(length.to_le_bytes());
    value.extend(MARK);
    value
}

/// The places of a value with sums in a block.
struct SummedValue {
    value: std::ops::Range<usize>,
    end_of_sums: usize,
}

/// Finds the values with sums by their marks, of which one byte may have changed.
fn summed_values(block: &[u8]) -> Vec<SummedValue> {
    let is_mark = |window: &[u8]| window.iter().zip(MARK).filter(|(found, right)| *found == right).count() >= 7;
    let marks = block.windows(MARK.len()).enumerate().filter(|(_, window)| is_mark(window));
    marks.filter_map(|(at, _)| summed_value(block, at)).collect()
}

fn summed_value(block: &[u8], mark: usize) -> Option<SummedValue> {
    let end_of_sums = mark.checked_sub(LENGTH_BYTES)?;
    let length = usize::try_from(u32::from_le_bytes(*block.get(end_of_sums..)?.first_chunk()?)).ok()?;
    let end = end_of_sums.checked_sub(pieces::sums_bytes(length))?;
    Some(SummedValue { value: end.checked_sub(length)?..end, end_of_sums })
}

/// Changes the one byte with which `is_right` accepts a block, and returns its place. The result is
/// `None` if the block has no sums, or too many bytes beside them; the inner one if there is no such
/// byte.
pub(super) fn correct(
    block: &mut [u8],
    search: &mut Search,
    is_right: impl Fn(&[u8]) -> bool,
) -> Option<Option<usize>> {
    let values = summed_values(block);
    for SummedValue { value, .. } in &values {
        let places: Vec<usize> = value.clone().collect();
        if let Some(at) = pieces::correct_summed(block, &places, value.end, &is_right) {
            return Some(Some(at));
        }
    }
    let is_summed = |at: &usize| values.iter().any(|row| (row.value.start..row.end_of_sums).contains(at));
    let others: Vec<usize> = (0..block.len()).filter(|at| !is_summed(at)).collect();
    (!values.is_empty() && others.len() <= ALL_VALUES_BYTES).then(|| correct_one_of(block, &others, search, is_right))
}

fn correct_one_of(
    block: &mut [u8],
    places: &[usize],
    search: &mut Search,
    is_right: impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    for (number, at) in places.iter().enumerate() {
        let byte = *block.get(*at)?;
        if !search.goes_on(number, places.len()) {
            return None;
        }
        for mask in 1..=u8::MAX {
            *block.get_mut(*at)? = byte ^ mask;
            if is_right(block) {
                return Some(*at);
            }
        }
        *block.get_mut(*at)? = byte;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at what it does not expect")]

    use xxhash_rust::xxh3::xxh3_128;

    use super::*;

    /// Bytes as of a block: keys and lengths, a small row, and large rows. The second value is the end
    /// of the first large row.
    fn block() -> (Vec<u8>, usize) {
        let mut block: Vec<u8> = (0..150_u8).collect();
        let mut end = 0;
        for (row, length) in [3_000_usize, 2_049, 40_000].into_iter().enumerate() {
            let value: Vec<u8> = (0..length).map(|at| (at * at / 7 + row) as u8).collect();
            block.extend(with_sums(value));
            end = if row == 0 { block.len() } else { end };
            block.extend(b"key and lengths");
        }
        (block, end)
    }

    /// Each kind of place: other rows, values, sums, lengths and marks.
    #[test]
    fn s12_a_changed_byte_of_a_block_with_a_large_row_is_corrected() {
        let (block, end) = block();
        let sum = xxh3_128(&block);
        let places = (0..block.len()).step_by(997).chain(end - 8 - 4 - 12..end + 4);
        for (at, mask) in places.zip([0x41, 0xff, 1, 0x80].into_iter().cycle()) {
            let mut changed = block.clone();
            changed[at] ^= mask;
            let corrected = correct(&mut changed, &mut Search::of_start(), |block| xxh3_128(block) == sum);
            assert!(corrected == Some(Some(at)) && changed == block, "byte {at}: {corrected:?}");
        }
    }

    #[test]
    fn s12_blocks_without_sums_and_two_changed_bytes_stay() {
        let (block, end) = block();
        let sum = xxh3_128(&block);
        let is_right = |block: &[u8]| xxh3_128(block) == sum;
        for other in [1, 20_000] {
            let mut changed = block.clone();
            changed[end - 500] ^= 1;
            changed[end - 500 + other] ^= 1;
            let damaged = changed.clone();
            assert_eq!(correct(&mut changed, &mut Search::of_start(), is_right), Some(None));
            assert!(changed == damaged);
        }
        let small = with_sums(vec![7; LARGE_BYTES]);
        assert_eq!(small.len(), LARGE_BYTES);
        assert_eq!(correct(&mut small.clone(), &mut Search::of_start(), |_| false), None);
    }
}
