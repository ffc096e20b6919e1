//! The client: typed calls with a deadline, which are retried if that is safe.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::{ClassifyRequest, ClassifyType};
use tonic::transport::Channel;
use tonic::{Response, Status};
use uuid::Uuid;

use crate::claim::{Bucket, Cell, Classification, FoundRecord, Lease};
use crate::convert;
use crate::endpoint::{Endpoint, EndpointError, Tls};
use crate::error::{Error, OtherStore, Unanswered};
use crate::handshake::Obstacle;
use crate::refusal::Refusal;
use crate::retry::{Attempts, NextAttempt, RetryPolicy};
use crate::stub::{self, Stub};

/// Default time limit of a call with all of its attempts.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of a [`Client`]. Made by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `build`"]
pub struct ClientBuilder {
    server: String,
    tls: Option<Tls>,
    is_plaintext_allowed: bool,
    timeout: Duration,
    retry: RetryPolicy,
    store_id: Option<Uuid>,
}

impl ClientBuilder {
    /// Encrypts the connection with these TLS files. A connection to another machine needs them.
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Allows an unencrypted connection to another machine, on a trusted network.
    pub fn allow_plaintext(self) -> Self {
        Self { is_plaintext_allowed: true, ..self }
    }

    /// Sets the time limit of each call with all of its attempts: [`DEFAULT_TIMEOUT`] if not set.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the number and timing of the attempts of each call.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// Accepts only a server whose store has this id. A server prints the id when it starts. A call
    /// to a server with another store fails with [`Error::OtherStore`] and changes nothing.
    pub fn store_id(self, store_id: Uuid) -> Self {
        Self { store_id: Some(store_id), ..self }
    }

    /// Checks the settings, reads the TLS files and returns the client. The client connects with
    /// its first call.
    ///
    /// # Errors
    /// The address is not valid, the connection to another machine would not be encrypted, or a TLS
    /// file is unusable.
    pub fn build(self) -> Result<Client, EndpointError> {
        let endpoint = Endpoint::new(&self.server, self.tls.as_ref())?;
        let endpoint = if self.is_plaintext_allowed { endpoint } else { endpoint.require_encryption()? };
        let client = Client::new(endpoint);
        let stub = match self.store_id {
            Some(store_id) => client.stub.with_store_id(store_id),
            None => client.stub,
        };
        let Self { timeout, retry, store_id, .. } = self;
        Ok(Client { stub, timeout, retry, store_id, ..client })
    }
}

/// A client of one server. Clones share its connection. After a broken connection the client
/// connects again.
///
/// A client must be built and used within a Tokio runtime.
#[derive(Clone)]
pub struct Client {
    stub: Stub<Channel>,
    endpoint: Arc<Endpoint>,
    timeout: Duration,
    pub(crate) retry: RetryPolicy,
    store_id: Option<Uuid>,
}

/// The failure of one attempt of a call.
enum Failure {
    Refused(Refusal),
    OtherStore(OtherStore),
}

/// The key or lease of a call, which an [`Unanswered`] error returns so that the caller can repeat
/// the call.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallIdentity {
    pub(crate) idempotency_key: Option<String>,
    pub(crate) lease_uuid: Option<Uuid>,
}

impl Client {
    /// Returns a builder for a client of `server`: `https://HOST:PORT`, or `http://HOST:PORT` for a
    /// server on this machine.
    pub fn builder(server: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            server: server.into(),
            tls: None,
            is_plaintext_allowed: false,
            timeout: DEFAULT_TIMEOUT,
            retry: RetryPolicy::default(),
            store_id: None,
        }
    }

    /// Returns a client of an endpoint, with the default settings. The connection may be
    /// unencrypted. The client connects with its first call.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        let stub = Stub::new(endpoint.connect_lazy());
        let (timeout, retry) = (DEFAULT_TIMEOUT, RetryPolicy::default());
        Self { stub, endpoint: Arc::new(endpoint), timeout, retry, store_id: None }
    }

    /// Returns this client with another time limit for each call. The connection stays the same.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns this client with another retry policy. The connection stays the same.
    #[must_use]
    pub fn with_retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// Commits a lease, which makes its changes final. A repeated commit succeeds (B22).
    ///
    /// # Errors
    /// The lease was rolled back, is unknown, or belongs to another cell; or no answer came.
    pub async fn commit(&self, cell_id: i64, lease_uuid: Uuid) -> Result<(), Error> {
        let message = wire::CommitUpdateRequest { cell_id, lease_uuid: Some(convert::wire_uuid(lease_uuid)) };
        let send = |mut stub: Stub<Channel>| {
            let message = message.clone();
            async move { stub.commit(message).await }
        };
        self.call(identity_of_lease(lease_uuid), send).await.map(drop)
    }

    /// Rolls a lease back, which undoes its changes. A repeated rollback succeeds (B22).
    ///
    /// # Errors
    /// The lease was committed, is unknown, or belongs to another cell; or no answer came.
    pub async fn rollback(&self, cell_id: i64, lease_uuid: Uuid) -> Result<(), Error> {
        let message = wire::RollbackUpdateRequest { cell_id, lease_uuid: Some(convert::wire_uuid(lease_uuid)) };
        let send = |mut stub: Stub<Channel>| {
            let message = message.clone();
            async move { stub.rollback(message).await }
        };
        self.call(identity_of_lease(lease_uuid), send).await.map(drop)
    }

    /// Returns the record of a bucket, whichever cell owns it, and the cell. Only administrators
    /// may call this.
    ///
    /// # Errors
    /// No cell claims the bucket, or the caller is not an administrator; or no answer came.
    pub async fn get(&self, bucket: &Bucket) -> Result<FoundRecord, Error> {
        let message = wire::GetRecordRequest { bucket: Some(bucket.into()), claim: None };
        let send = |mut stub: Stub<Channel>| {
            let message = message.clone();
            async move { stub.get_record(message).await }
        };
        convert::found_record(self.call(CallIdentity::default(), send).await?.into_inner())
    }

    /// Lists the cells of the server's configuration.
    ///
    /// # Errors
    /// The caller has no identity; or no answer came.
    pub async fn cells(&self) -> Result<Vec<Cell>, Error> {
        let send = |mut stub: Stub<Channel>| async move { stub.get_cells().await };
        let answer = self.call(CallIdentity::default(), send).await?.into_inner();
        Ok(answer.cells.into_iter().map(convert::cell).collect())
    }

    /// Searches the buckets in order for the first one that a cell owns, and returns this cell.
    ///
    /// # Errors
    /// No cell claims any of the buckets, or one of them cannot be classified; or no answer came.
    pub async fn classify(&self, buckets: &[Bucket]) -> Result<Classification, Error> {
        let claims = buckets.iter().map(convert::claim_of_bucket).collect::<Result<_, _>>()?;
        self.classify_message(ClassifyRequest { claims, ..ClassifyRequest::default() }).await
    }

    /// Returns the cell that has this session prefix.
    ///
    /// # Errors
    /// No cell has the prefix; or no answer came.
    pub async fn classify_session(&self, prefix: impl Into<String>) -> Result<Classification, Error> {
        self.classify_by(ClassifyType::SessionPrefix, prefix.into()).await
    }

    /// Returns the address of the cell with this id.
    ///
    /// # Errors
    /// The server's configuration lacks the cell; or no answer came.
    pub async fn classify_cell(&self, cell_id: i64) -> Result<Classification, Error> {
        self.classify_by(ClassifyType::CellId, cell_id.to_string()).await
    }

    /// Returns the address of the first cell, which takes the requests that belong to no other cell.
    ///
    /// # Errors
    /// The server's configuration has no cell; or no answer came.
    pub async fn classify_first_cell(&self) -> Result<Classification, Error> {
        self.classify_by(ClassifyType::FirstCell, String::new()).await
    }

    /// Returns the stub of this client, for calls that stay open.
    pub(crate) fn stub(&self) -> Stub<Channel> {
        self.stub.clone()
    }

    /// Returns the parts of this client from which another runtime can make a connection.
    pub(crate) fn endpoint_and_store(&self) -> (Arc<Endpoint>, Option<Uuid>) {
        (self.endpoint.clone(), self.store_id)
    }

    async fn classify_by(&self, classify_type: ClassifyType, value: String) -> Result<Classification, Error> {
        self.classify_message(ClassifyRequest { r#type: classify_type.into(), value, claims: Vec::new() }).await
    }

    async fn classify_message(&self, message: ClassifyRequest) -> Result<Classification, Error> {
        let send = |mut stub: Stub<Channel>| {
            let message = message.clone();
            async move { stub.classify(message).await }
        };
        convert::classification(self.call(CallIdentity::default(), send).await?.into_inner())
    }

    /// Begins an update under the idempotency key `key`. Every attempt carries this key, so a retry
    /// gets the lease of an earlier attempt (B09).
    pub(crate) async fn begin(&self, message: &wire::BeginUpdateRequest, key: &str) -> Result<Lease, Error> {
        let send = |mut stub: Stub<Channel>| {
            let (message, key) = (message.clone(), key.to_owned());
            async move { stub.begin(message, Some(&key)).await }
        };
        let identity = CallIdentity { idempotency_key: Some(key.to_owned()), lease_uuid: None };
        let answer = self.call(identity, send).await?;
        let metadata = answer.metadata().clone();
        convert::lease(answer.into_inner(), &metadata)
    }

    /// Sends a call until it is answered or refused for good, or until its attempts or time are
    /// used up.
    pub(crate) async fn call<A, F>(
        &self,
        identity: CallIdentity,
        send: impl Fn(Stub<Channel>) -> F,
    ) -> Result<Response<A>, Error>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut attempts = Attempts::new(self.retry, self.timeout, Instant::now());
        let mut obstacle = None;
        loop {
            let refusal = match self.attempt(&mut attempts, &send).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(refusal)) => refusal,
                Err(Failure::OtherStore(other)) => return Err(other.into()),
            };
            if refusal.is_broken && obstacle.is_none() {
                obstacle = self.endpoint.obstacle(attempts.remaining(Instant::now())).await;
            }
            let next = match obstacle {
                Some(ref found) if !may_pass(found) => attempts.give_up(&refusal),
                _ => attempts.next(&refusal, Instant::now(), rand::random()),
            };
            match next {
                NextAttempt::After(wait) => tokio::time::sleep(wait).await,
                NextAttempt::RefusedForGood => return Err(Error::Refused(Box::new(refusal))),
                NextAttempt::OutcomeUnknown => return Err(unanswered(refusal, obstacle, identity)),
            }
        }
    }

    async fn attempt<A, F>(
        &self,
        attempts: &mut Attempts,
        send: impl Fn(Stub<Channel>) -> F,
    ) -> Result<Response<A>, Failure>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let timeout = attempts.start(Instant::now());
        // The server gets the deadline too, so that it drops a call whose caller no longer waits.
        // The timeout here also covers the time to connect, which the server can't measure.
        let answer = tokio::time::timeout(timeout, send(self.stub.clone().with_deadline(timeout)));
        match answer.await {
            Ok(Ok(answer)) => match self.other_store(stub::store_id(answer.metadata())) {
                Some(other) => Err(Failure::OtherStore(other)),
                None => Ok(answer),
            },
            Ok(Err(status)) => Err(self.failure(&status)),
            Err(_) => Err(Failure::Refused(Refusal::late(timeout))),
        }
    }

    /// Returns the failure that a status means. A status without a store id is not checked against
    /// the expected store: it comes from a proxy, or from this client after the connection broke.
    fn failure(&self, status: &Status) -> Failure {
        let other = stub::store_id(status.metadata()).and_then(|found| self.other_store(Some(found)));
        other.map_or_else(|| Failure::Refused(Refusal::of(status)), Failure::OtherStore)
    }

    /// Returns the error for an answer with the store id `found`; `None` if the client accepts this
    /// store.
    fn other_store(&self, found: Option<Uuid>) -> Option<OtherStore> {
        let expected = self.store_id.filter(|expected| found != Some(*expected))?;
        Some(OtherStore { expected, found })
    }
}

/// Shows the address of the server only.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.endpoint.url())
    }
}

fn identity_of_lease(lease_uuid: Uuid) -> CallIdentity {
    CallIdentity { idempotency_key: None, lease_uuid: Some(lease_uuid) }
}

/// Returns true if a later attempt may succeed in spite of the obstacle. A server that stops in the
/// middle of a handshake looks like a server without TLS, so this obstacle may pass. The fault of a
/// certificate does not.
fn may_pass(obstacle: &Obstacle) -> bool {
    matches!(obstacle, Obstacle::ServerUsesNoTls)
}

fn unanswered(refusal: Refusal, obstacle: Option<Obstacle>, identity: CallIdentity) -> Error {
    // The obstacle was found at an earlier attempt. It explains this failure only if the connection
    // is broken now.
    let obstacle = obstacle.filter(|_| refusal.is_broken);
    let CallIdentity { idempotency_key, lease_uuid } = identity;
    Error::Unanswered(Box::new(Unanswered { refusal, obstacle, idempotency_key, lease_uuid }))
}
