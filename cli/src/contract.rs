//! Messages of the wire contract as JSON, and the two forms of a claim: bucket, and typed claim.

use std::sync::OnceLock;

use leasehold_client::bucket_of_claim;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Bucket, Metadata};
use leasehold_proto::gitlab::cells::topology_service::types::v1::Claim;
use leasehold_proto::{DescriptorError, DescriptorPool, JsonError, from_json, show_json};
use prost::{Message, Name};
use serde_json::{Map, Value};

/// Returned if a message cannot be read from JSON, or written as JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The text is not the message's JSON, or the message has no JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The descriptors in the binary are damaged.
    #[error("cannot read the embedded descriptors: rebuild leasehold")]
    Descriptors(#[from] DescriptorError),
}

/// Explains, for the end of `--help`, how records are shown that proto3 JSON has no form for.
pub(crate) const JSON_HELP: &str = "\
With --json, values without a proto3 JSON form are shown too: user data of a type \
that this program does not know as {\"@type\": ..., \"value\": <base64>}, a time before \
year 1 or after year 9999 as {\"seconds\": ..., \"nanos\": ...}.";

fn pool() -> Result<&'static DescriptorPool, DescriptorError> {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    match POOL.get() {
        Some(pool) => Ok(pool),
        None => leasehold_proto::descriptor_pool().map(|pool| POOL.get_or_init(|| pool)),
    }
}

/// Returns a message's proto3 JSON as an object, to which members may be added.
pub(crate) fn object_of<M: Message + Name>(message: &M) -> Result<Map<String, Value>, ContractError> {
    let json = show_json(pool()?, &M::full_name(), message)?;
    Ok(serde_json::from_value(json).map_err(JsonError::from)?)
}

/// Reads a message from its proto3 JSON.
pub(crate) fn message_from<M: Message + Name + Default>(json: &[u8]) -> Result<M, ContractError> {
    Ok(from_json(pool()?, &M::full_name(), json)?)
}

/// Returns the bucket of a typed claim.
pub(crate) fn bucket_of(claim: &Claim) -> Option<Bucket> {
    bucket_of_claim(claim).map(|bucket| Bucket::from(&bucket))
}

/// Returns the bucket of a record, whichever form the record has.
pub(crate) fn claimed(metadata: &Metadata) -> Option<Bucket> {
    metadata.bucket.clone().or_else(|| bucket_of(metadata.claim.as_ref()?))
}
