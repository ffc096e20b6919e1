//! The server's answer to ListRecords as it comes off the wire. Ruby's objects for it cost many times what comparing them
//! does, so none is made.

use leasehold_bindings::DetailedError;
use leasehold_bindings::Timestamp;
use leasehold_bindings::verify::{RecordRef, Records};
use prost::Message;

/// `Record.Status.ACTIVE`.
const ACTIVE: i32 = 1;

/// Of `ListRecordsResponse`, and of what is in it, the fields that verification looks at.
#[derive(Clone, PartialEq, Message)]
struct ListRecordsResponse {
    #[prost(message, repeated, tag = "1")]
    records: Vec<Record>,
    #[prost(bool, tag = "2")]
    truncated: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(message, optional, tag = "2")]
    metadata: Option<Metadata>,
    #[prost(int32, tag = "4")]
    status: i32,
    #[prost(message, optional, tag = "7")]
    updated_at: Option<WireTime>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    bucket: Option<Bucket>,
    #[prost(message, optional, tag = "2")]
    subject: Option<Subject>,
    #[prost(message, optional, tag = "3")]
    source: Option<Source>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(int32, tag = "1")]
    bucket_type: i32,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Subject {
    #[prost(int32, tag = "1")]
    subject_type: i32,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Source {
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct WireTime {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// The records of an answer, and whether more remain.
///
/// # Errors
/// It is no answer to ListRecords.
pub(crate) fn records(answer: &[u8], now: Timestamp) -> Result<(Records, bool), DetailedError> {
    let answer = ListRecordsResponse::decode(answer).map_err(|error| DetailedError {
        code: "INVALID_ROWS",
        message: format!("the server's records can't be read: {error}"),
        details: Vec::new(),
    })?;
    let mut records = Records::new(now);
    for record in answer.records {
        let metadata = record.metadata.unwrap_or_default();
        let (bucket, subject) = (metadata.bucket.unwrap_or_default(), metadata.subject.unwrap_or_default());
        records.record(RecordRef {
            source_id: &metadata.source.unwrap_or_default().id,
            bucket_type: bucket.bucket_type,
            value: &bucket.value,
            subject_type: subject.subject_type,
            subject_id: subject.id,
            updated_at: record.updated_at.unwrap_or_default().into(),
            held: record.status != ACTIVE,
        });
    }
    Ok((records, answer.truncated))
}

impl From<WireTime> for Timestamp {
    fn from(time: WireTime) -> Self {
        let micros = time.seconds.saturating_mul(1_000_000).saturating_add(i64::from(time.nanos / 1000));
        Self::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}
