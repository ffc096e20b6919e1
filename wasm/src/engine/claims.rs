//! Conversion between claims of the engine and `Claim` objects of JavaScript.

use leasehold_bindings::{BucketType, ClaimInput, ClaimRequest, Source, SourceId, SourceType, Subject};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The JavaScript object `Claim` of `types.d.ts`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimObject {
    bucket_type: BucketType,
    bucket_value: String,
    subject: Option<Subject>,
    source: Option<SourceObject>,
}

/// The JavaScript object `Source` of `types.d.ts`. The id is a `ByteBuf`, which serde converts to a
/// `Uint8Array`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceObject {
    source_type: SourceType,
    id: ByteBuf,
}

impl From<ClaimObject> for ClaimInput {
    fn from(claim: ClaimObject) -> Self {
        let source =
            |source: SourceObject| Source { source_type: source.source_type, id: SourceId::from_bytes(&source.id) };
        Self {
            bucket_type: claim.bucket_type.0,
            bucket_value: claim.bucket_value,
            subject: claim.subject,
            source: claim.source.map(source),
        }
    }
}

impl From<&ClaimRequest> for ClaimObject {
    fn from(claim: &ClaimRequest) -> Self {
        let source = |source: &Source| SourceObject { source_type: source.source_type, id: source_bytes(&source.id) };
        Self {
            bucket_type: claim.bucket_type,
            bucket_value: claim.value.to_string(),
            subject: claim.subject,
            source: claim.source.as_ref().map(source),
        }
    }
}

/// Returns the bytes of a source id as a `ByteBuf`, which serde converts to a `Uint8Array`.
pub(crate) fn source_bytes(id: &SourceId) -> ByteBuf {
    ByteBuf::from(id.as_bytes())
}
