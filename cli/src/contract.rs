//! Conversions of wire messages to and from JSON, and of claims to buckets.

use std::sync::OnceLock;

use leasehold_client::bucket_of_claim;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Bucket, Metadata};
use leasehold_proto::gitlab::cells::topology_service::types::v1::Claim;
use leasehold_proto::{DescriptorError, DescriptorPool, JsonError, from_json, show_json};
use prost::{Message, Name};
use serde_json::{Map, Value};

/// The error for a message that cannot be read from JSON, or written as JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The text is not the JSON form of the message, or the message has no JSON form.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The protobuf descriptors in the program are damaged.
    #[error("cannot read the embedded descriptors: rebuild leasehold")]
    Descriptors(#[from] DescriptorError),
}

/// Text at the end of `--help`: the output for values that have no proto3 JSON form.
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

/// Returns the proto3 JSON of a message as an object, to which the caller may add members.
pub(crate) fn object_of<M: Message + Name>(message: &M) -> Result<Map<String, Value>, ContractError> {
    let json = show_json(pool()?, &M::full_name(), message)?;
    Ok(serde_json::from_value(json).map_err(JsonError::from)?)
}

/// Reads a message from its proto3 JSON.
pub(crate) fn message_from<M: Message + Name + Default>(json: &[u8]) -> Result<M, ContractError> {
    Ok(from_json(pool()?, &M::full_name(), json)?)
}

/// Returns the bucket of a typed claim; `None` if the claim is empty.
pub(crate) fn bucket_of(claim: &Claim) -> Option<Bucket> {
    bucket_of_claim(claim).map(|bucket| Bucket::from(&bucket))
}

/// Returns the bucket of a record's metadata, which has a bucket or a typed claim; `None` if it has
/// neither.
pub(crate) fn claimed(metadata: &Metadata) -> Option<Bucket> {
    metadata.bucket.clone().or_else(|| bucket_of(metadata.claim.as_ref()?))
}
