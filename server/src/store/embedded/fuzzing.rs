//! The bodies of the fuzz targets of the files on disk: see [`crate::fuzzing`].

use leasehold_core::claim::Claim;
use leasehold_core::lease::{IdempotencyKey, Lease, Replay};
use leasehold_core::lock::{Ask, Lock, Turn};
use leasehold_core::queue::{Lane, Queue, Request, RequestBody};
use leasehold_core::session::Session;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use tempfile::TempDir;

use super::keyed_rows::KeyedRow;
use super::{Result, journal, keys, rows};
use crate::store::error::StoreError;
use crate::store::stored;

/// Decodes the bytes as a stored row of each kind, and encodes the row again. The second encoding
/// must decode to the same row.
pub fn stored_rows(bytes: &[u8]) {
    if let Some(claim) = read::<stored::RestingClaim<'_>, Claim>(bytes) {
        let written = rows::resting(&claim).map(|(owner, record)| rows::encode_resting(owner, record));
        assert_eq!(written.and_then(|bytes| read_back(&bytes, read::<stored::RestingClaim<'_>, Claim>)), Some(claim));
    }
    if let Some(lease) = read::<stored::Lease<'_>, Lease>(bytes) {
        assert_eq!(read_back(&rows::encode_settled(&lease), read::<stored::Lease<'_>, Lease>), Some(lease));
    }
    if let Some(replay) = read::<stored::Replay<'_>, Replay>(bytes) {
        assert_eq!(read_back(&rows::encode_replay(&replay), read::<stored::Replay<'_>, Replay>), Some(replay));
    }
    if let Some(key) = read::<stored::IdempotencyKey<'_>, IdempotencyKey>(bytes) {
        let written = rows::encode_idempotency_key(&key);
        assert_eq!(read_back(&written, read::<stored::IdempotencyKey<'_>, IdempotencyKey>), Some(key));
    }
    if let Some(key) = keys::read_claim(bytes) {
        assert_eq!(keys::read_claim(&keys::claim(&key)), Some(key));
    }
    outstanding(bytes);
    keyed_rows(bytes);
}

/// Decodes the bytes as a row of sessions, locks and queues of each kind, and as the keys of such rows, and
/// encodes them again.
fn keyed_rows(bytes: &[u8]) {
    fn again<K: KeyedRow, S: for<'a> Deserialize<'a> + Into<K>>(bytes: &[u8]) {
        let decoded = |bytes: &[u8]| postcard::from_bytes::<S>(bytes).ok().map(Into::into);
        if let Some(row) = decoded(bytes) {
            assert_eq!(row.value().ok().and_then(|written| decoded(&written)), Some(row));
        }
        if let Some(key) = K::read_key(bytes) {
            assert_eq!(K::key(&key), bytes);
        }
    }
    again::<Session, stored::Session>(bytes);
    again::<Lock, stored::Lock>(bytes);
    again::<Ask, stored::Ask>(bytes);
    again::<Turn, stored::Turn>(bytes);
    again::<Queue, stored::Queue>(bytes);
    again::<Lane, stored::Lane>(bytes);
    again::<Request, stored::Request>(bytes);
    again::<RequestBody, stored::RequestBody>(bytes);
}

/// Decodes an outstanding lease with its claims. If the lease lists each of its claims once,
/// encodes and decodes it again.
fn outstanding(bytes: &[u8]) {
    let Ok(row) = postcard::from_bytes::<stored::OutstandingLease<'_>>(bytes) else { return };
    let lease = Lease::from(row.lease);
    let claims: Vec<_> = row.claims.into_iter().map(|(key, claim)| (key.into(), Claim::from(claim))).collect();
    let by_key: FxHashMap<_, _> = claims.iter().map(|(key, claim)| (key, claim)).collect();
    let Ok(written) = rows::encode_outstanding(&lease, &by_key) else { return };
    let again = postcard::from_bytes::<stored::OutstandingLease<'_>>(&written);
    assert_eq!(again.map(|again| Lease::from(again.lease)), Ok(lease));
}

/// Decodes a stored row into the engine's type; `None` if the bytes are not such a row.
fn read<'a, S: Deserialize<'a>, T: From<S>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes::<S>(bytes).ok().map(T::from)
}

/// Decodes a row that was just encoded; `None` if either step failed.
fn read_back<'a, T>(written: &'a Result<Vec<u8>>, read: impl FnOnce(&'a [u8]) -> Option<T>) -> Option<T> {
    written.as_ref().ok().and_then(|bytes| read(bytes))
}

/// Splits the bytes into two journal files and recovers them. A second recovery must accept the
/// result and leave it unchanged.
pub fn journals(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (first, second) = bytes.split_at(bytes.len() * usize::from(*cut) / 256);
    let Ok(dir) = TempDir::new() else { return };
    let paths = [dir.path().join("0.jnl"), dir.path().join("1.jnl")];
    let written = [(&paths[0], first), (&paths[1], second)].map(|(path, bytes)| std::fs::write(path, bytes));
    if written.iter().any(std::io::Result::is_err) {
        return;
    }
    let kept = dir.path().join("kept");
    match journal::recover(dir.path(), &kept, Some(0), false) {
        Err(StoreError::JournalDamaged(_)) => return,
        recovered => assert!(recovered.is_ok(), "{recovered:?}"),
    }
    let content = || paths.each_ref().map(|path| std::fs::read(path).unwrap_or_default());
    let left = content();
    assert!(journal::recover(dir.path(), &kept, Some(0), false).is_ok());
    assert_eq!(content(), left);
}
