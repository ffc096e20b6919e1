//! Claims as objects, with source ids as bytes.

use leasehold_bindings::{BucketType, Claim, ClaimRequest, Source, SourceId, SourceType, Subject};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// `Claim` in TypeScript.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimObject {
    bucket_type: BucketType,
    bucket_value: String,
    subject: Option<Subject>,
    source: Option<SourceObject>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceObject {
    source_type: SourceType,
    id: ByteBuf,
}

impl From<ClaimObject> for Claim {
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

/// A source id as JavaScript has it.
pub(crate) fn source_bytes(id: &SourceId) -> ByteBuf {
    ByteBuf::from(id.as_bytes())
}
