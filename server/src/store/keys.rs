//! The encoding of the keys of stores whose rows are in the order of bytes. The order of two keys is
//! the order of their parts. The keyspaces that are named here are those of the embedded store; a
//! store on an ordered engine has the same keys behind a letter.

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{SourceId, SourceType};
use leasehold_core::lease::LeaseId;
use leasehold_core::time::Timestamp;

/// A key contains a source id in groups of this many bytes, each followed by one more byte: see
/// `push_source_id`.
const GROUP_BYTES: usize = 8;

/// The smallest number that [`push_number`] does not encode as a single byte.
const FIRST_LONG: u8 = 0xf0;

/// Appends a bucket: its type, then its value.
pub(super) fn push_bucket(bytes: &mut Vec<u8>, key: &BucketKey) {
    push_number(bytes, key.bucket_type.0.unsigned_abs().into());
    bytes.extend_from_slice(key.canonical.as_bytes());
}

/// Reads a bucket; `None` if the bytes are none.
pub(super) fn read_bucket(bytes: &[u8]) -> Option<BucketKey> {
    let (number, value) = read_number(bytes)?;
    let canonical = std::str::from_utf8(value).ok()?.into();
    Some(BucketKey { bucket_type: BucketType(i32::try_from(number).ok()?), canonical })
}

/// Appends a number: one byte if the number is below [`FIRST_LONG`], else [`FIRST_LONG`] plus the
/// count of its bytes, and then the bytes. Encodings sort as numbers do, and no encoding is a
/// prefix of another.
pub(super) fn push_number(bytes: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        Ok(small) if small < FIRST_LONG => bytes.push(small),
        _ => {
            let used = number.to_be_bytes().into_iter().skip_while(|byte| *byte == 0);
            // INVARIANT: a `u64` has at most 8 bytes, so the sum fits in a byte: it is at most
            // 0xf8.
            bytes.push(FIRST_LONG + used.clone().count() as u8);
            bytes.extend(used);
        }
    }
}

/// Reads a number, and returns it with the bytes behind it; `None` if the bytes begin with none.
pub(super) fn read_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if *first < FIRST_LONG {
        return Some((u64::from(*first), rest));
    }
    let (number, rest) = rest.split_at_checked(usize::from(*first - FIRST_LONG))?;
    Some((number.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)), rest))
}

/// Reads the cell from a key of the keyspace `sources`, which begins with the cell; `None` if the
/// bytes are not such a key.
pub(super) fn read_cell(bytes: &[u8]) -> Option<CellId> {
    let (number, _) = read_number(bytes)?;
    i64::try_from(number).ok().map(CellId)
}

/// Reads the table from a key of the keyspace `sources`; `None` if the bytes are not such a key.
pub(super) fn read_table(bytes: &[u8]) -> Option<SourceType> {
    let (_, rest) = read_number(bytes)?;
    let (number, _) = read_number(rest)?;
    i32::try_from(number).ok().map(SourceType)
}

/// The first possible key after all keys of a cell in `sources`.
pub(super) fn beyond_cell(cell: CellId) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_number(&mut bytes, cell.0.unsigned_abs().saturating_add(1));
    bytes
}

/// The common prefix of all keys in `sources` for one table (source type) of a cell.
pub(super) fn table(cell: CellId, source_type: SourceType) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    push_number(&mut bytes, cell.0.unsigned_abs());
    push_number(&mut bytes, source_type.0.unsigned_abs().into());
    bytes
}

/// The common prefix of all keys in `sources` for one row (source) of a table.
pub(super) fn source(cell: CellId, source_type: SourceType, id: &SourceId) -> Vec<u8> {
    let mut bytes = table(cell, source_type);
    push_source_id(&mut bytes, id.as_bytes());
    bytes
}

/// The key in `sources` of one claim: its cell, source and bucket.
pub(super) fn source_claim(cell: CellId, source_type: SourceType, id: &SourceId, key: &BucketKey) -> Vec<u8> {
    let mut bytes = source(cell, source_type, id);
    push_bucket(&mut bytes, key);
    bytes
}

/// The first possible key in `sources` after all rows of the table with the prefix `table`.
pub(super) fn beyond_table(table: &[u8]) -> Vec<u8> {
    // In a key, the groups of a source id follow the prefix: eight bytes and a count, which is at
    // most `GROUP_BYTES + 1`. So 0xff in the place of the count sorts after every key.
    [table, &[0xff; GROUP_BYTES + 2]].concat()
}

/// The first possible key in `sources` after all claims of the row with the prefix `row`.
pub(super) fn beyond_source(mut row: Vec<u8>) -> Vec<u8> {
    // In a key, a bucket type follows the prefix. Its first byte is at most 0xf8, so 0xff sorts
    // after every key.
    row.push(0xff);
    row
}

/// Reads the source id and the bucket from a key of `sources`, given the bytes after the prefix of
/// the table; `None` if the bytes are not such a key.
pub(super) fn read_source_claim(mut bytes: &[u8]) -> Option<(SourceId, BucketKey)> {
    let mut id = Vec::new();
    loop {
        let (group, rest) = bytes.split_first_chunk::<{ GROUP_BYTES + 1 }>()?;
        let (count, data) = group.split_last()?;
        bytes = rest;
        let used = usize::from(*count).min(GROUP_BYTES);
        id.extend_from_slice(data.get(..used)?);
        if usize::from(*count) <= GROUP_BYTES {
            break;
        }
    }
    Some((SourceId::from_bytes(&id), read_bucket(bytes)?))
}

/// Reads the bucket from a key of `sources`; `None` if the bytes are not such a key.
pub(super) fn read_source(bytes: &[u8]) -> Option<BucketKey> {
    let (_cell, rest) = read_number(bytes)?;
    let (_table, rest) = read_number(rest)?;
    Some(read_source_claim(rest)?.1)
}

/// Appends a source id in groups of [`GROUP_BYTES`] bytes, the last padded with zeros. After each
/// group comes a byte: the number of bytes used in the group, or [`GROUP_BYTES`] + 1 if another
/// group follows. So encodings sort as ids do, and their end can be found.
fn push_source_id(bytes: &mut Vec<u8>, id: &[u8]) {
    let mut groups = id.chunks(GROUP_BYTES).peekable();
    while let Some(group) = groups.next() {
        bytes.extend_from_slice(group);
        bytes.extend(std::iter::repeat_n(0, GROUP_BYTES - group.len()));
        let count = if groups.peek().is_some() { GROUP_BYTES + 1 } else { group.len() };
        // INVARIANT: the count is at most `GROUP_BYTES + 1`, which fits in a byte.
        bytes.push(count as u8);
    }
}

/// The key of a lease in the keyspaces `outstanding` and `settled`: the bytes of its id.
pub(super) fn lease(id: LeaseId) -> [u8; 16] {
    id.0.into_bytes()
}

/// Reads the id of a lease from its key; `None` if the bytes are not such a key.
pub(super) fn read_lease(bytes: &[u8]) -> Option<LeaseId> {
    uuid::Uuid::from_slice(bytes).ok().map(LeaseId)
}

/// The key of a settled lease in the keyspace `settled_order`: the time of the settle, then the
/// lease's id.
pub(super) fn settled(at: Timestamp, id: LeaseId) -> Vec<u8> {
    [&at.as_micros().to_be_bytes()[..], &lease(id)].concat()
}

/// Reads the time of the settle and the id of the lease from a key of `settled_order`; `None` if the
/// bytes are not such a key.
pub(super) fn read_settled(bytes: &[u8]) -> Option<(Timestamp, LeaseId)> {
    let (micros, id) = bytes.split_first_chunk()?;
    Some((Timestamp::from_micros(u64::from_be_bytes(*micros)), read_lease(id)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(number: i32, value: &str) -> BucketKey {
        BucketKey { bucket_type: BucketType(number), canonical: value.into() }
    }

    proptest! {
        #[test]
        fn numbers_are_in_order_and_read_back(a: u64, b: u64, shift_a in 0..64, shift_b in 0..64, rest: Vec<u8>) {
            let (a, b) = (a >> shift_a, b >> shift_b);
            let encoded = |number| {
                let mut bytes = Vec::new();
                push_number(&mut bytes, number);
                bytes
            };
            prop_assert_eq!(encoded(a).cmp(&encoded(b)), a.cmp(&b));
            prop_assert_eq!(a != b && encoded(b).starts_with(&encoded(a)), false);
            let bytes = [encoded(a), rest.clone()].concat();
            prop_assert_eq!(read_number(&bytes), Some((a, rest.as_slice())));
        }

        #[test]
        fn b32_byte_order_is_key_order(
            a in proptest::collection::vec(any::<u8>(), 1..30), b in proptest::collection::vec(any::<u8>(), 1..30),
            x in 1..i32::MAX, y in 1..i32::MAX, v in "[a-c]{0,3}", w in "[a-c]{0,3}",
        ) {
            let encoded = |id: &[u8], number, value: &str| {
                source_claim(CellId(1), SourceType(2), &SourceId::from_bytes(id), &key(number, value))
            };
            let order = (a.clone(), x, v.clone()).cmp(&(b.clone(), y, w.clone()));
            prop_assert_eq!(encoded(&a, x, &v).cmp(&encoded(&b, y, &w)), order);
            let beyond = beyond_source(source(CellId(1), SourceType(2), &SourceId::from_bytes(&a)));
            prop_assert_eq!(beyond.cmp(&encoded(&b, y, &w)), if a < b { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater });
        }

        #[test]
        fn keys_read_back(id in proptest::collection::vec(any::<u8>(), 1..40), number in 1..i32::MAX, value in "\\PC{0,20}") {
            let id = SourceId::from_bytes(&id);
            let table = table(CellId(7), SourceType(3));
            let bytes = source_claim(CellId(7), SourceType(3), &id, &key(number, &value));
            prop_assert_eq!(read_source_claim(bytes.strip_prefix(table.as_slice()).unwrap()), Some((id, key(number, &value))));
        }

        #[test]
        fn a_cell_s_keys_lie_before_the_next_cell(a in 1..i64::MAX, b in 1..i64::MAX, shift in 0..63, table in 1..i32::MAX) {
            let (a, b) = (CellId(1.max(a >> shift)), CellId(1.max(b >> shift)));
            let row = |cell| source(cell, SourceType(table), &SourceId::from(u64::MAX));
            prop_assert_eq!(read_cell(&row(a)), Some(a));
            prop_assert_eq!(beyond_cell(a) <= row(b), a < b);
        }
    }
}
