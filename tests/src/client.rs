//! A small client of the claims, in the words of the wire.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_core::lease::Outcome;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::types::v1::Uuid;
use prost_types::Any;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_types::StatusExt;

use crate::server::Server;

/// The bucket type of the claims that [`user`] makes.
pub const BUCKET_TYPE: wire::bucket::Type = wire::bucket::Type::Usernames;
/// The table that they come from.
pub const SOURCE_TYPE: wire::source::Type = wire::source::Type::RailsTableUsers;

/// No call takes longer than this, or the server hangs.
const CALL_DEADLINE: Duration = Duration::from_secs(15);

/// An update as sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// What to claim.
    pub creates: Vec<wire::Metadata>,
    /// What to give up.
    pub destroys: Vec<wire::Metadata>,
    /// The idempotency key.
    pub key: Option<String>,
}

/// The answer to a begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The lease.
    pub lease: String,
    /// Its fence.
    pub fence: u64,
}

/// A username that the user of this number claims. The row's key is the user's number.
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

/// The bucket's value in a claim.
#[must_use]
pub fn name_of(claim: &wire::Metadata) -> &str {
    claim.bucket.as_ref().map_or("", |bucket| &bucket.value)
}

/// The reason for machines, empty where the answer is not the server's own: the connection broke.
#[must_use]
pub fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// A connection of one cell. Clones share it.
#[derive(Clone, Debug)]
pub struct Client {
    claims: ClaimServiceClient<Channel>,
    cell_id: i64,
}

impl Client {
    /// Connects to a server as a cell.
    ///
    /// # Errors
    /// No connection can be made.
    pub async fn connect(server: &Server, cell_id: i64) -> Result<Self> {
        Ok(Self::over(server.connect(None).await?, cell_id))
    }

    /// Calls over a connection as a cell.
    #[must_use]
    pub fn over(channel: Channel, cell_id: i64) -> Self {
        let claims = ClaimServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        Self { claims, cell_id }
    }

    /// Begins an update.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn begin(&mut self, update: Update) -> Result<Begun, Status> {
        let mut request = request(wire::BeginUpdateRequest {
            create_records: update.creates,
            destroy_records: update.destroys,
            cell_id: self.cell_id,
        });
        if let Some(key) = update.key {
            let key = key.parse().map_err(|_| Status::internal("the key is no metadata"))?;
            request.metadata_mut().insert("leasehold-idempotency-key", key);
        }
        let response = self.claims.begin_update(request).await?;
        let fence = response.metadata().get("leasehold-fence").and_then(|fence| fence.to_str().ok()?.parse().ok());
        let fence = fence.ok_or_else(|| Status::internal("the response has no fence"))?;
        Ok(Begun { lease: text(response.into_inner().lease_uuid), fence })
    }

    /// Commits a lease or rolls it back.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn settle(&mut self, lease: &str, outcome: Outcome) -> Result<(), Status> {
        let (cell_id, lease_uuid) = (self.cell_id, Some(Uuid { value: lease.into() }));
        match outcome {
            Outcome::Committed => {
                self.claims.commit_update(request(wire::CommitUpdateRequest { cell_id, lease_uuid })).await?;
            }
            Outcome::RolledBack => {
                self.claims.rollback_update(request(wire::RollbackUpdateRequest { cell_id, lease_uuid })).await?;
            }
        }
        Ok(())
    }

    /// The record of a username.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn get(&mut self, name: &str) -> Result<wire::Record, Status> {
        let bucket = Some(wire::Bucket { r#type: BUCKET_TYPE.into(), value: name.into() });
        let response = self.claims.get_record(request(wire::GetRecordRequest { bucket, claim: None })).await?;
        response.into_inner().record.ok_or_else(|| Status::internal("the response has no record"))
    }

    /// One page of the cell's records, after a row's key.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn page(&mut self, source_id_gt: Vec<u8>) -> Result<wire::ListRecordsResponse, Status> {
        let request = request(wire::ListRecordsRequest {
            cell_id: self.cell_id,
            source_type: SOURCE_TYPE.into(),
            source_id_gt,
            ..wire::ListRecordsRequest::default()
        });
        Ok(self.claims.list_records(request).await?.into_inner())
    }

    /// All of the cell's records.
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

    /// The first page of the cell's outstanding leases.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn first_leases(&mut self) -> Result<Vec<String>, Status> {
        let request = request(wire::ListLeasesRequest { cell_id: self.cell_id, ..Default::default() });
        let page = self.claims.list_leases(request).await?.into_inner();
        Ok(page.leases.into_iter().map(|lease| text(lease.uuid)).collect())
    }

    /// All of the cell's outstanding leases.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn leases(&mut self) -> Result<Vec<String>> {
        let (mut leases, mut next) = (Vec::new(), None);
        loop {
            let request = request(wire::ListLeasesRequest { cell_id: self.cell_id, next, ..Default::default() });
            let page = self.claims.list_leases(request).await.context("leases cannot be listed")?.into_inner();
            leases.extend(page.leases.into_iter().map(|lease| text(lease.uuid)));
            next = page.next;
            if next.is_none() {
                return Ok(leases);
            }
        }
    }
}

/// The lease that a record is under.
#[must_use]
pub fn lease_of(record: &wire::Record) -> Option<&str> {
    record.lease_uuid.as_ref().map(|uuid| uuid.value.as_str())
}

fn source_id(record: &wire::Record) -> &[u8] {
    let source = record.metadata.as_ref().and_then(|metadata| metadata.source.as_ref());
    source.map_or(&[], |source| &source.rails_primary_key_id)
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_DEADLINE);
    request
}

fn text(uuid: Option<Uuid>) -> String {
    uuid.unwrap_or_default().value
}
