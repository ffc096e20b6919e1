//! The messages of etcd's gRPC interface that the driver uses, and the calls. The numbers are those of
//! `rpc.proto` and `kv.proto`, which etcd 3.4 to 3.6 have in common; unused fields are left out. So
//! nobody who builds the server needs protoc.

use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::{Message, Oneof};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The largest answer that is read. A load has at most 8,192 rows.
const MAX_ANSWER_BYTES: usize = 512 * 1024 * 1024;

/// A request, with the path of its method and the type of its answer.
pub(super) trait Call: Message + Clone + Default + 'static {
    /// The type of the answer.
    type Answer: Answer;
    /// The path of the method.
    const PATH: &'static str;
}

/// An answer, which has a header.
pub(super) trait Answer: Message + Default + 'static {
    /// Returns the header of the answer.
    fn header(&self) -> Header;
}

/// Makes one call over a channel.
pub(super) async fn call<C: Call>(channel: Channel, request: C) -> Result<C::Answer, Status> {
    let mut client = Grpc::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
    client.ready().await.map_err(not_ready)?;
    let codec = ProstCodec::<C, C::Answer>::default();
    client.unary(Request::new(request), PathAndQuery::from_static(C::PATH), codec).await.map(Response::into_inner)
}

fn not_ready(error: tonic::transport::Error) -> Status {
    let mut status = Status::unavailable(error.to_string());
    status.set_source(Arc::new(error));
    status
}

/// Declares the methods: the request, the path and the answer of each.
macro_rules! calls {
    ($($Request:ident $path:literal $Answer:ident;)+) => {$(
        impl Call for $Request {
            type Answer = $Answer;
            const PATH: &'static str = $path;
        }

        impl Answer for $Answer {
            fn header(&self) -> Header {
                self.header.unwrap_or_default()
            }
        }
    )+};
}

calls! {
    RangeRequest "/etcdserverpb.KV/Range" RangeAnswer;
    TxnRequest "/etcdserverpb.KV/Txn" TxnAnswer;
    CompactionRequest "/etcdserverpb.KV/Compact" CompactionAnswer;
    StatusRequest "/etcdserverpb.Maintenance/Status" StatusAnswer;
    AlarmRequest "/etcdserverpb.Maintenance/Alarm" AlarmAnswer;
}

/// The header of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Header {
    /// The id of the cluster that answers.
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    /// The newest revision, at which the request was served.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

/// A row.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValue {
    /// The key of the row.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    /// The revision of the last change of the row.
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    /// The value of the row.
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: Bytes,
}

/// A read of one row, or of a range.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeRequest {
    /// The key of the row, or the first key of the range.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    /// The first key after the range; empty for one row.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    /// The most rows; 0 for all.
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// The revision at which the rows are read; 0 for the newest one.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    /// True if a member may answer without asking the others if its rows are the newest.
    #[prost(bool, tag = "7")]
    pub(super) serializable: bool,
    /// True if the values are left out.
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    /// True if the rows are counted only.
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
}

/// The rows of a read.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeAnswer {
    /// The header of the answer; absent inside of a transaction.
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    /// The rows.
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// The number of rows of the range, beyond the limit too.
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

/// A write of one row.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PutRequest {
    /// The key of the row.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    /// The new value.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

/// A deletion of one row, or of a range.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DeleteRangeRequest {
    /// The key of the row, or the first key of the range.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    /// The first key after the range; empty for one row.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RequestOp {
    /// The operation.
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(super) request: Option<Operation>,
}

/// The kinds of operations.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Operation {
    /// A read.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// A write.
    #[prost(message, tag = "2")]
    Put(PutRequest),
    /// A deletion.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// The answer to one operation. Those to writes are not read.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResponseOp {
    /// The rows of a read.
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeAnswer>,
}

/// The comparison "equal".
pub(super) const EQUAL: i32 = 0;
/// The comparison "less".
pub(super) const LESS: i32 = 2;
/// The revision of a row's creation, as the target of a comparison; 0 for an absent row.
pub(super) const CREATE: i32 = 1;
/// The revision of a row's last change, as the target of a comparison.
pub(super) const MOD: i32 = 2;
/// The value of a row, as the target of a comparison.
pub(super) const VALUE: i32 = 3;

/// A condition of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Compare {
    /// The comparison.
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    /// The target of the comparison.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    /// The key of the row, or the first key of the range.
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    /// The value with which the target is compared.
    #[prost(oneof = "Target", tags = "5, 6, 7")]
    pub(super) value: Option<Target>,
    /// The first key after the range; empty for one row.
    #[prost(bytes = "bytes", tag = "64")]
    pub(super) range_end: Bytes,
}

/// The values of comparisons.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Target {
    /// A revision of a row's creation.
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    /// A revision of a row's last change.
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    /// The value of a row.
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
}

/// A transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnRequest {
    /// The conditions.
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    /// The operations if all conditions hold.
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    /// The operations if a condition does not hold.
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

/// The answer to a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    /// True if all conditions held.
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    /// The answers to the operations.
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

/// The order to forget what rows were before a revision.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct CompactionRequest {
    /// The oldest revision that stays.
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

/// The answer to a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct CompactionAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

/// A question for the state of one member.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct StatusRequest {}

/// The state of one member.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    /// The size of the member's data on disk, in bytes.
    #[prost(int64, tag = "3")]
    pub(super) db_size: i64,
    /// The largest size of the member's data, in bytes; 0 before etcd 3.6.
    #[prost(int64, tag = "12")]
    pub(super) db_size_quota: i64,
}

/// A question for the alarms of the cluster. Fields at their defaults ask for all alarms of all members.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct AlarmRequest {}

/// The alarms of the cluster.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AlarmAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    /// The alarms.
    #[prost(message, repeated, tag = "2")]
    pub(super) alarms: Vec<Alarm>,
}

/// An alarm of one member: that its quota is used up, or that its data differ from the others'. The cluster
/// refuses writes until it is disarmed.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Alarm {
    /// The id of the member.
    #[prost(uint64, tag = "1")]
    pub(super) member: u64,
}
