//! A gRPC client for tests. It calls for one cell, claims usernames, and makes each call once,
//! without retries. A begin has an idempotency key only if the test sets one.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_client::{Refusal, Stub, fence};
use leasehold_core::lease::Outcome;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::types::v1::Uuid;
use prost_types::Any;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::server::Server;

/// The bucket type of the claims that the function [`user`] returns.
pub const BUCKET_TYPE: wire::bucket::Type = wire::bucket::Type::Usernames;
/// The source table of the claims that the function [`user`] returns.
pub const SOURCE_TYPE: wire::source::Type = wire::source::Type::RailsTableUsers;

/// The gRPC code and the reason with which a server refuses calls while it cannot reach its store.
pub const STORE_UNAVAILABLE: (Code, &str) = (Code::Unavailable, "STORE_UNAVAILABLE");

/// The deadline of each call. A call that takes longer shows that the server hangs.
const CALL_DEADLINE: Duration = Duration::from_secs(60);

/// The update that a test begins: its creates, its destroys and its idempotency key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// The claims that the update creates, in wire form.
    pub creates: Vec<wire::Metadata>,
    /// The claims that the update destroys, in wire form.
    pub destroys: Vec<wire::Metadata>,
    /// The idempotency key of the begin; `None` sends the begin without a key.
    pub key: Option<String>,
    /// The organization that the update is for; 0 is none.
    pub organization_id: i64,
}

/// The lease of an accepted begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The uuid of the begun lease, as text.
    pub lease: String,
    /// The fence of the begun lease.
    pub fence: u64,
}

/// Returns a claim of the username `name` for the user `number`, whose row in the table of users
/// has the same number. `data` is attached to the claim.
#[must_use]
pub fn user(name: impl Into<String>, number: u64, data: Vec<u8>) -> wire::Metadata {
    let user_data = Any { type_url: "example.com/padding".into(), value: data };
    wire::Metadata {
        bucket: Some(wire::Bucket { r#type: BUCKET_TYPE.into(), value: name.into() }),
        subject: Some(wire::Subject { r#type: wire::subject::Type::User.into(), id: number.cast_signed() }),
        source: Some(wire::Source { r#type: SOURCE_TYPE.into(), rails_primary_key_id: number.to_be_bytes().to_vec() }),
        user_data: Some(user_data),
        claim: None,
    }
}

/// Returns the value that a claim claims, such as the username; empty if the claim has no bucket.
#[must_use]
pub fn name_of(claim: &wire::Metadata) -> &str {
    claim.bucket.as_ref().map_or("", |bucket| &bucket.value)
}

/// Returns the reason code of a failed call; empty if the server gave no reason, as after a broken
/// connection.
#[must_use]
pub fn reason(status: &Status) -> String {
    Refusal::of(status).reason
}

/// A connection to a server, on which all calls are made for one cell. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    stub: Stub<Channel>,
    cell_id: i64,
    /// The number of damaged records that the server has left out of lists.
    pub damaged_records: u64,
}

impl Client {
    /// Connects to a server. The client calls for the cell of this id.
    ///
    /// # Errors
    /// No connection can be made.
    pub async fn connect(server: &Server, cell_id: i64) -> Result<Self> {
        Ok(Self::over(server.connect(None).await?, cell_id))
    }

    /// Returns a client that makes its calls over an open channel, for the cell of this id.
    #[must_use]
    pub fn over(channel: Channel, cell_id: i64) -> Self {
        // Tests attach more data to claims than cells do, so the client accepts answers of any
        // size.
        let stub = Stub::new(channel).with_max_answer_bytes(usize::MAX).with_deadline(CALL_DEADLINE);
        Self { stub, cell_id, damaged_records: 0 }
    }

    /// Begins an update of the client's cell. Returns the lease.
    ///
    /// # Errors
    /// The status of the server's refusal or of a broken connection.
    pub async fn begin(&mut self, update: Update) -> Result<Begun, Status> {
        let message = wire::BeginUpdateRequest {
            create_records: update.creates,
            destroy_records: update.destroys,
            cell_id: self.cell_id,
            organization_id: update.organization_id,
        };
        let response = self.stub.begin(message, update.key.as_deref()).await?;
        let fence = fence(response.metadata()).ok_or_else(|| Status::internal("the response has no fence"))?;
        Ok(Begun { lease: text(response.into_inner().lease_uuid), fence })
    }

    /// Commits the lease or rolls it back, as `outcome` says.
    ///
    /// # Errors
    /// The status of the server's refusal or of a broken connection.
    pub async fn settle(&mut self, lease: &str, outcome: Outcome) -> Result<(), Status> {
        let (cell_id, lease_uuid) = (self.cell_id, Some(Uuid { value: lease.into() }));
        match outcome {
            Outcome::Committed => {
                self.stub.commit(wire::CommitUpdateRequest { cell_id, lease_uuid }).await?;
            }
            Outcome::RolledBack => {
                self.stub.rollback(wire::RollbackUpdateRequest { cell_id, lease_uuid }).await?;
            }
        }
        Ok(())
    }

    /// Returns the record of a username.
    ///
    /// # Errors
    /// The status of the server's refusal or of a broken connection.
    pub async fn get(&mut self, name: &str) -> Result<wire::Record, Status> {
        let bucket = Some(wire::Bucket { r#type: BUCKET_TYPE.into(), value: name.into() });
        let response = self.stub.get_record(wire::GetRecordRequest { bucket, claim: None }).await?;
        response.into_inner().record.ok_or_else(|| Status::internal("the response has no record"))
    }

    /// Returns one page of the cell's records of the table of users, from the first row with a key
    /// above `source_id_gt`.
    ///
    /// # Errors
    /// The status of the server's refusal or of a broken connection.
    pub async fn page(&mut self, source_id_gt: Vec<u8>) -> Result<wire::ListRecordsResponse, Status> {
        let message = wire::ListRecordsRequest {
            cell_id: self.cell_id,
            source_type: SOURCE_TYPE.into(),
            source_id_gt,
            ..wire::ListRecordsRequest::default()
        };
        let answer = self.stub.list_records(message).await?;
        let damaged = answer.metadata().get("leasehold-damaged-records").and_then(|count| count.to_str().ok());
        self.damaged_records += damaged.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
        Ok(answer.into_inner())
    }

    /// Returns all records of the cell that come from the table of users, page by page.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn records(&mut self) -> Result<Vec<wire::Record>> {
        let mut records: Vec<wire::Record> = Vec::new();
        loop {
            let last = records.last().map(|record| source_id(record).to_vec());
            let page = self.page(last.unwrap_or_default()).await?;
            records.extend(page.records);
            if !page.truncated {
                return Ok(records);
            }
        }
    }

    /// Returns the uuids of the cell's outstanding leases that are on the first page of the list.
    ///
    /// # Errors
    /// The status of the server's refusal or of a broken connection.
    pub async fn first_leases(&mut self) -> Result<Vec<String>, Status> {
        let message = wire::ListLeasesRequest { cell_id: self.cell_id, ..Default::default() };
        let page = self.stub.list_leases(message).await?.into_inner();
        Ok(page.leases.into_iter().map(|lease| text(lease.uuid)).collect())
    }

    /// Returns the uuids of all outstanding leases of the cell, page by page.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn leases(&mut self) -> Result<Vec<String>> {
        let (mut leases, mut next) = (Vec::new(), None);
        loop {
            let message = wire::ListLeasesRequest { cell_id: self.cell_id, next, ..Default::default() };
            let page = self.stub.list_leases(message).await.context("leases cannot be listed")?.into_inner();
            leases.extend(page.leases.into_iter().map(|lease| text(lease.uuid)));
            next = page.next;
            if next.is_none() {
                return Ok(leases);
            }
        }
    }
}

/// Returns the uuid of the lease that holds the record's claim; `None` if the claim is active.
#[must_use]
pub fn lease_of(record: &wire::Record) -> Option<&str> {
    record.lease_uuid.as_ref().map(|uuid| uuid.value.as_str())
}

fn source_id(record: &wire::Record) -> &[u8] {
    let source = record.metadata.as_ref().and_then(|metadata| metadata.source.as_ref());
    source.map_or(&[], |source| &source.rails_primary_key_id)
}

fn text(uuid: Option<Uuid>) -> String {
    uuid.unwrap_or_default().value
}
