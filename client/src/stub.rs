//! The wire contract over any transport. Each method sends one message once, and returns the
//! server's answer.

use std::time::Duration;

use leasehold_proto::gitlab::cells::topology_service::claims::v1 as claims;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::classify_service_client::ClassifyServiceClient;
use leasehold_proto::gitlab::cells::topology_service::{
    ClassifyRequest, ClassifyResponse, GetCellsRequest, GetCellsResponse,
};
use leasehold_proto::leasehold::locks::v1::lock_service_client::LockServiceClient;
use leasehold_proto::leasehold::queues::v1::queue_service_client::QueueServiceClient;
use leasehold_proto::leasehold::sessions::v1::session_service_client::SessionServiceClient;
use leasehold_proto::leasehold::v1::admin_service_client::AdminServiceClient;
use leasehold_proto::leasehold::v1::{
    DropClaimsRequest, DropClaimsResponse, ListOutstandingLeasesResponse, ListTablesRequest, ListTablesResponse,
    ReloadConfigurationRequest, ReloadConfigurationResponse,
};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Request, Response, Status};
use uuid::{Builder, Uuid};

/// Name of the request metadata with the idempotency key of a begin (B09).
pub const IDEMPOTENCY_KEY: &str = "leasehold-idempotency-key";
/// Name of the response metadata with the fence of a begun lease (B13).
const FENCE: &str = "leasehold-fence";
/// Name of the response metadata with the server's time of a list, in microseconds since 1970
/// (R03).
const SERVER_TIME: &str = "leasehold-server-time-micros";

/// Name of the metadata with the id of a store. An answer has the id of the server's store, a
/// request the id of the store that the caller expects.
const STORE_ID: &str = "leasehold-store-id";

/// Largest answer that the client decodes, in bytes. The server limits a page by its number of
/// records, but a record carries the cell's own data. So a page may exceed tonic's default of 4
/// MiB.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A service that carries gRPC calls: a tonic `Channel`, or any other HTTP/2 connection.
pub trait Transport:
    GrpcService<
        Body,
        Error: Into<StdError>,
        ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
    > + Clone
{
}

impl<T> Transport for T where
    T: GrpcService<
            Body,
            Error: Into<StdError>,
            ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
        > + Clone
{
}

/// A client of the services of the wire contract over one transport. Clones share the transport.
///
/// ```no_run
/// use leasehold_client::{Endpoint, Stub, fence};
/// use leasehold_proto::gitlab::cells::topology_service::claims::v1::BeginUpdateRequest;
///
/// # async fn example(update: BeginUpdateRequest) -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint = Endpoint::new("http://127.0.0.1:7171", None)?;
/// let mut stub = Stub::new(endpoint.connect_lazy());
/// let begun = stub.begin(update, None).await?;
/// println!("{:?} {:?}", fence(begun.metadata()), begun.into_inner().lease_uuid);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Stub<T> {
    claims: ClaimServiceClient<T>,
    classification: ClassifyServiceClient<T>,
    admin: AdminServiceClient<T>,
    pub(crate) sessions: SessionServiceClient<T>,
    pub(crate) locks: LockServiceClient<T>,
    pub(crate) queues: QueueServiceClient<T>,
    deadline: Option<Duration>,
    store_id: Option<Uuid>,
}

impl<T: Transport> Stub<T> {
    /// Returns a stub over a transport, without a deadline.
    pub fn new(transport: T) -> Self {
        let claims = ClaimServiceClient::new(transport.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
        let admin = AdminServiceClient::new(transport.clone());
        let sessions = SessionServiceClient::new(transport.clone());
        let locks = LockServiceClient::new(transport.clone());
        let queues = QueueServiceClient::new(transport.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
        let classification = ClassifyServiceClient::new(transport);
        Self { claims, classification, admin, sessions, locks, queues, deadline: None, store_id: None }
    }

    /// Sets the time limit that is sent to the server with each call. The server ends a call after
    /// this time.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Sets the id of the store for which each call is meant. A server with another store refuses the
    /// calls and changes nothing.
    #[must_use]
    pub fn with_store_id(self, store_id: Uuid) -> Self {
        Self { store_id: Some(store_id), ..self }
    }

    /// Sets the largest answer that the stub decodes, in bytes.
    #[must_use]
    pub fn with_max_answer_bytes(self, bytes: usize) -> Self {
        Self { claims: self.claims.max_decoding_message_size(bytes), ..self }
    }

    /// Begins an update, under an idempotency key if one is given. [`fence`] reads the lease's
    /// fence from the answer's metadata.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection; INVALID_ARGUMENT if the key is not printable
    /// ASCII.
    pub async fn begin(
        &mut self,
        message: claims::BeginUpdateRequest,
        key: Option<&str>,
    ) -> Result<Response<claims::BeginUpdateResponse>, Status> {
        let mut request = self.request(message);
        if let Some(key) = key {
            let value = metadata_of_key(key).map_err(|error| Status::invalid_argument(error.to_string()))?;
            request.metadata_mut().insert(IDEMPOTENCY_KEY, value);
        }
        self.claims.begin_update(request).await
    }

    /// Commits a lease.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn commit(
        &mut self,
        message: claims::CommitUpdateRequest,
    ) -> Result<Response<claims::CommitUpdateResponse>, Status> {
        let request = self.request(message);
        self.claims.commit_update(request).await
    }

    /// Rolls a lease back.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn rollback(
        &mut self,
        message: claims::RollbackUpdateRequest,
    ) -> Result<Response<claims::RollbackUpdateResponse>, Status> {
        let request = self.request(message);
        self.claims.rollback_update(request).await
    }

    /// Returns the record of one bucket, and the cell that owns it.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn get_record(
        &mut self,
        message: claims::GetRecordRequest,
    ) -> Result<Response<claims::GetRecordResponse>, Status> {
        let request = self.request(message);
        self.claims.get_record(request).await
    }

    /// Returns one page of a cell's outstanding leases. [`server_time_micros`] reads the server's
    /// time from the answer's metadata.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn list_leases(
        &mut self,
        message: claims::ListLeasesRequest,
    ) -> Result<Response<claims::ListLeasesResponse>, Status> {
        let request = self.request(message);
        self.claims.list_leases(request).await
    }

    /// Returns one page of a cell's records whose sources are in one table. [`server_time_micros`]
    /// reads the server's time from the answer's metadata.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn list_records(
        &mut self,
        message: claims::ListRecordsRequest,
    ) -> Result<Response<claims::ListRecordsResponse>, Status> {
        let request = self.request(message);
        self.claims.list_records(request).await
    }

    /// Returns one page of a cell's outstanding leases with their organizations. A server that has
    /// no such call answers `UNIMPLEMENTED`.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn list_outstanding_leases(
        &mut self,
        message: claims::ListLeasesRequest,
    ) -> Result<Response<ListOutstandingLeasesResponse>, Status> {
        let request = self.request(message);
        self.admin.list_outstanding_leases(request).await
    }

    /// Lists the tables from which a cell has claims.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn list_tables(&mut self, message: ListTablesRequest) -> Result<Response<ListTablesResponse>, Status> {
        let request = self.request(message);
        self.admin.list_tables(request).await
    }

    /// Counts or drops the next claims of one table of a cell.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn drop_claims(&mut self, message: DropClaimsRequest) -> Result<Response<DropClaimsResponse>, Status> {
        let request = self.request(message);
        self.admin.drop_claims(request).await
    }

    /// Makes the server read its configuration again.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn reload_configuration(&mut self) -> Result<Response<ReloadConfigurationResponse>, Status> {
        let request = self.request(ReloadConfigurationRequest {});
        self.admin.reload_configuration(request).await
    }

    /// Lists the cells of the server's configuration.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn get_cells(&mut self) -> Result<Response<GetCellsResponse>, Status> {
        let request = self.request(GetCellsRequest {});
        self.claims.get_cells(request).await
    }

    /// Returns the cell to which a router must send a request.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn classify(&mut self, message: ClassifyRequest) -> Result<Response<ClassifyResponse>, Status> {
        let request = self.request(message);
        self.classification.classify(request).await
    }

    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline);
        }
        if let Some(id) = self.store_id.and_then(|id| AsciiMetadataValue::try_from(id.to_string()).ok()) {
            request.metadata_mut().insert(STORE_ID, id);
        }
        request
    }
}

/// The error for an idempotency key that is empty, or can't be sent as metadata because it is not
/// printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be an idempotency key: use printable ASCII, such as letters and digits")]
pub struct KeyError(pub String);

/// Returns a new random idempotency key: a UUID.
#[must_use]
pub fn new_idempotency_key() -> String {
    let uuid: Uuid = Builder::from_random_bytes(rand::random()).into_uuid();
    uuid.to_string()
}

/// Checks that an idempotency key is not empty and can be sent as metadata.
///
/// # Errors
/// The key is empty, or not printable ASCII.
pub fn check_idempotency_key(key: &str) -> Result<(), KeyError> {
    if key.is_empty() {
        return Err(KeyError(String::new()));
    }
    metadata_of_key(key).map(drop)
}

fn metadata_of_key(key: &str) -> Result<AsciiMetadataValue, KeyError> {
    AsciiMetadataValue::try_from(key).map_err(|_| KeyError(key.to_owned()))
}

/// Returns the fence from the metadata of a begin's answer; `None` if it is missing or malformed.
#[must_use]
pub fn fence(metadata: &MetadataMap) -> Option<u64> {
    number(metadata, FENCE)
}

/// Returns the server's time from the metadata of a list's answer, in microseconds since 1970;
/// `None` if it is missing or malformed.
#[must_use]
pub fn server_time_micros(metadata: &MetadataMap) -> Option<u64> {
    number(metadata, SERVER_TIME)
}

/// Returns the id of the server's store from the metadata of an answer or of a refusal; `None` if it
/// is missing, as in the answer of a proxy, or malformed.
#[must_use]
pub fn store_id(metadata: &MetadataMap) -> Option<Uuid> {
    metadata.get(STORE_ID)?.to_str().ok()?.parse().ok()
}

fn number(metadata: &MetadataMap, name: &str) -> Option<u64> {
    metadata.get(name)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printable_ascii() {
        assert_eq!(check_idempotency_key("k1"), Ok(()));
        assert_eq!(check_idempotency_key("a\nb"), Err(KeyError("a\nb".to_owned())));
        assert_ne!(new_idempotency_key(), new_idempotency_key());
    }

    #[test]
    fn b13_the_fence_is_read_from_metadata() {
        let mut metadata = MetadataMap::new();
        assert_eq!(fence(&metadata), None);
        metadata.insert(FENCE, 7_u64.into());
        assert_eq!(fence(&metadata), Some(7));
        metadata.insert(FENCE, AsciiMetadataValue::from_static("seven"));
        assert_eq!(fence(&metadata), None);
    }
}
