//! The encoding of the keys of all keyspaces. The byte order of two keys is the order of their
//! parts, except in `claims`, whose keys begin with a hash.

use leasehold_core::bucket::BucketKey;
use xxhash_rust::xxh3::xxh3_64;

use crate::store::keys;
pub(super) use crate::store::keys::{
    beyond_cell, beyond_source, beyond_table, lease, read_cell, read_lease, read_settled, read_source,
    read_source_claim, read_table, settled, source, source_claim, table,
};

/// The number of bytes of the bucket's hash at the front of a claim's key.
const SPREAD_BYTES: usize = 4;

/// The key of a claim: [`SPREAD_BYTES`] bytes of the bucket's hash, then the bucket.
///
/// To compare keys, fjall first compares their first four bytes, which are stored in place
/// (byteview 0.10, `ByteView::prefix`). Only if these are equal, it follows a pointer to the rest.
/// The hash makes these bytes differ even for names that begin alike.
pub(super) fn claim(key: &BucketKey) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SPREAD_BYTES + 8 + key.canonical.len());
    bytes.extend_from_slice(&[0; SPREAD_BYTES]);
    keys::push_bucket(&mut bytes, key);
    if let Some((spread, bucket)) = bytes.split_first_chunk_mut::<SPREAD_BYTES>() {
        *spread = (xxh3_64(bucket) as u32).to_be_bytes();
    }
    bytes
}

/// Reads the bucket from the key of a claim; `None` if the bytes are not such a key.
pub(super) fn read_claim(bytes: &[u8]) -> Option<BucketKey> {
    keys::read_bucket(bytes.get(SPREAD_BYTES..)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::bucket::BucketType;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_of_claims_read_back(number in 1..i32::MAX, value in "\\PC{0,20}") {
            let key = BucketKey { bucket_type: BucketType(number), canonical: value.as_str().into() };
            prop_assert_eq!(read_claim(&claim(&key)), Some(key));
        }
    }
}
