//! Messages of the contract as JSON, and the two spellings of a claim: bucket, and typed claim.

use std::sync::OnceLock;

use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Bucket, Metadata};
use leasehold_proto::gitlab::cells::topology_service::types::v1::Claim;
use leasehold_proto::{DescriptorError, DescriptorPool, JsonError, from_json, show_json};
use prost::{Message, Name};
use serde_json::{Map, Value, json};

use super::error::ClientError;
use super::words::show_bucket;

fn pool() -> Result<&'static DescriptorPool, DescriptorError> {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    match POOL.get() {
        Some(pool) => Ok(pool),
        None => leasehold_proto::descriptor_pool().map(|pool| POOL.get_or_init(|| pool)),
    }
}

/// What a record can hold that proto3 JSON has no form for, for the end of `--help`.
pub(super) const JSON_HELP: &str = "\
With --json, what proto3 JSON has no form for is shown all the same: user data of a type \
that this program does not know as {\"@type\": ..., \"value\": <base64>}, a time before \
year 1 or after year 9999 as {\"seconds\": ..., \"nanos\": ...}.";

/// A message in proto3 JSON, as an object that may be added to.
pub(super) fn object_of<M: Message + Name>(message: &M) -> Result<Map<String, Value>, ClientError> {
    let json = show_json(pool()?, &M::full_name(), message)?;
    Ok(serde_json::from_value(json).map_err(JsonError::from)?)
}

/// A message out of proto3 JSON.
pub(super) fn message_from<M: Message + Name + Default>(json: &[u8]) -> Result<M, ClientError> {
    Ok(from_json(pool()?, &M::full_name(), json)?)
}

/// The typed claim that names the same thing as a bucket: field number N is bucket type N.
pub(super) fn claim_of(bucket: &Bucket) -> Result<Claim, ClientError> {
    let no_claim = |why: &str| ClientError::Usage(format!("`{}` cannot be classified: {why}", show_bucket(bucket)));
    let descriptor = pool()?.get_message_by_name(&Claim::full_name());
    let field = u32::try_from(bucket.r#type).ok().and_then(|number| descriptor?.get_field(number));
    let field = field.ok_or_else(|| no_claim("the contract has no claim of that type"))?;
    let object = json!({ field.json_name(): bucket.value });
    message_from(object.to_string().as_bytes()).map_err(|_| no_claim("its value must be a whole number"))
}

/// The bucket that names the same thing as a typed claim.
pub(super) fn bucket_of(claim: &Claim) -> Option<Bucket> {
    let (field, value) = object_of(claim).ok()?.into_iter().next()?;
    let number = pool().ok()?.get_message_by_name(&Claim::full_name())?.get_field_by_json_name(&field)?.number();
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Some(Bucket { r#type: i32::try_from(number).ok()?, value })
}

/// What a record claims, in whichever spelling.
pub(super) fn claimed(metadata: &Metadata) -> Option<Bucket> {
    metadata.bucket.clone().or_else(|| bucket_of(metadata.claim.as_ref()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_type_has_its_claim_and_back() {
        for number in (1..=18).filter(|&number| number != 14) {
            let bucket = Bucket { r#type: number, value: "7".to_owned() };
            assert_eq!(bucket_of(&claim_of(&bucket).unwrap()), Some(bucket));
        }
    }

    #[test]
    fn what_is_no_claim_is_a_usage_error() {
        for (number, value) in [(14, "x"), (99, "x"), (-1, "x"), (6, "seven")] {
            let error = claim_of(&Bucket { r#type: number, value: value.to_owned() }).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }
}
