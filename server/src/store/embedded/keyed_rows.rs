//! Rows that have a keyspace for each kind, and one for the kind's order if it is read from disk. The byte
//! order of two keys is the order of their parts.

use std::ops::Bound;

use fjall::{Slice, Snapshot};
use leasehold_core::rows::{OrderedRead, RowChange, RowKind};
use leasehold_core::time::Timestamp;

use super::Result;
use super::row_cache::RowCache;
use super::rows::{Keyspace, WriteBatch};

/// The byte between and after the parts of a name. No part contains it, because names have no control
/// characters.
pub(super) const END: u8 = 0;

/// A kind of row whose rows have a keyspace of their own.
pub(super) trait KeyedRow: RowKind {
    /// Returns the key of a row.
    fn key(key: &Self::Key) -> Vec<u8>;

    /// Returns the key of a row in the keyspace that has the kind's order.
    fn position_key(position: &Self::Position) -> Vec<u8>;

    /// Returns the value of a row in the keyspace that has the kind's order: the part of the row's key that its
    /// position lacks.
    fn position_value(_: &Self::Position, _: &Self::Key) -> Vec<u8> {
        Vec::new()
    }

    /// Reads the key of a row, `None` if the bytes are not such a key.
    fn read_key(bytes: &[u8]) -> Option<Self::Key>;

    /// Reads the key of a row from a key of [`position_key`](Self::position_key) and a value of
    /// [`position_value`](Self::position_value), `None` if the bytes are none.
    fn read_position(bytes: &[u8], value: &[u8]) -> Option<Self::Key>;

    /// Returns the value of a row.
    ///
    /// # Errors
    /// The row can't be encoded.
    fn value(&self) -> Result<Vec<u8>>;

    /// Reads a row of `rows` from its value.
    ///
    /// # Errors
    /// The bytes are not such a value.
    fn read(rows: &Keyspace, bytes: &[u8]) -> Result<Self>;
}

/// Returns the bytes of a time. Their order is that of times.
pub(super) fn time(at: Timestamp) -> [u8; 8] {
    at.as_micros().to_be_bytes()
}

/// Returns the bytes behind a time; `None` if there is none.
pub(super) fn without_time(bytes: &[u8]) -> Option<&[u8]> {
    bytes.split_first_chunk::<8>().map(|(_, rest)| rest)
}

/// Reads the row with this key, `None` if there is no such row.
///
/// # Errors
/// The row could not be read.
pub(super) fn get<K: KeyedRow>(rows: &Keyspace, key: &K::Key) -> Result<Option<K>> {
    rows.get(K::key(key))?.map(|bytes| K::read(rows, &bytes)).transpose()
}

/// Returns true if `position` lies in a range that ends at `to`.
pub(super) fn ends_after<T: Ord>(to: &Bound<T>, position: &T) -> bool {
    match to {
        Bound::Included(to) => position <= to,
        Bound::Excluded(to) => position < to,
        Bound::Unbounded => true,
    }
}

/// Reads the first rows of a range in the kind's order, which the keyspace `order` has.
///
/// # Errors
/// A row could not be read.
pub(super) fn first<K: KeyedRow>(
    (rows, order): (&Keyspace, &Keyspace),
    snapshot: &Snapshot,
    read: &OrderedRead<K>,
) -> Result<Vec<(K::Key, K)>> {
    let places = places((rows, order), snapshot, read.from.as_ref().map(K::position_key), read);
    places.map(|row| row.map(|(_, row)| row)).collect()
}

/// Reads the first rows of a range as [`first`] does, each with its key in `order`. `from` is the start of the range,
/// or a later place before which the range has no row.
pub(super) fn places<'a, K: KeyedRow>(
    (rows, order): (&'a Keyspace, &'a Keyspace),
    snapshot: &'a Snapshot,
    from: Bound<Vec<u8>>,
    read: &OrderedRead<K>,
) -> impl Iterator<Item = Result<(Slice, (K::Key, K))>> {
    let (to, limit) = (read.to.as_ref().map(K::position_key), read.limit);
    let range = order.range(snapshot, (from, Bound::Unbounded));
    let range = range.take_while(move |row| row.as_ref().map_or(true, |(at, _)| ends_after(&to, &at.to_vec())));
    let row = move |place: Result<(Slice, Slice)>| {
        let (at, value) = place?;
        let key = K::read_position(&at, &value).ok_or_else(|| order.damaged())?;
        Ok((at, listed((rows, order), snapshot, key)?))
    };
    range.take(limit).map(row)
}

/// Reads the row that the keyspace `order` lists.
///
/// # Errors
/// The row is missing, or could not be read.
pub(super) fn listed<K: KeyedRow>(
    (rows, order): (&Keyspace, &Keyspace),
    snapshot: &Snapshot,
    key: K::Key,
) -> Result<(K::Key, K)> {
    let bytes = rows.get_in(snapshot, K::key(&key))?.ok_or_else(|| order.damaged())?;
    Ok((key, K::read(rows, &bytes)?))
}

/// Reads the rows of a kind, in the order of keys.
pub(super) fn all<K: KeyedRow>(rows: &Keyspace, snapshot: &Snapshot) -> impl Iterator<Item = Result<(K::Key, K)>> {
    rows.range::<&[u8]>(snapshot, ..).map(|row| {
        let (key, value) = row?;
        Ok((K::read_key(&key).ok_or_else(|| rows.damaged())?, K::read(rows, &value)?))
    })
}

/// Adds the change of a row to the batch, and that of its place in the kind's order.
///
/// # Errors
/// The row can't be encoded.
pub(super) fn put<K: KeyedRow>(
    batch: &mut WriteBatch,
    rows: &Keyspace,
    order: Option<&Keyspace>,
    change: &RowChange<K>,
) -> Result<()> {
    let position = |row: &Option<K>| row.as_ref().and_then(|row| K::position(&change.key, row));
    let (old, new) = (position(&change.before), position(&change.after));
    if let Some(order) = order.filter(|_| old != new) {
        old.iter().for_each(|at| order.remove(batch, K::position_key(at)));
        new.iter().for_each(|at| order.insert(batch, K::position_key(at), K::position_value(at, &change.key)));
    }
    match &change.after {
        Some(row) => rows.insert(batch, K::key(&change.key), row.value()?),
        None => rows.remove(batch, K::key(&change.key)),
    }
    Ok(())
}

/// Reads the row with this key from the cache, or else from the store.
///
/// # Errors
/// The row could not be read.
pub(super) fn get_cached<K: KeyedRow>(cache: &mut RowCache<K>, rows: &Keyspace, key: &K::Key) -> Result<Option<K>> {
    if let Some(row) = cache.get(key) {
        return Ok(Some(row));
    }
    let row = get::<K>(rows, key)?;
    row.iter().for_each(|row| cache.put(key.clone(), row.clone()));
    Ok(row)
}
