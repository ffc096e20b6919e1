//! The requests of queues: submits them.

use std::fmt;
use std::time::Duration;

use leasehold_proto::leasehold::queues::v1 as wire;
use uuid::Uuid;

use crate::client::{CallIdentity, Client};
use crate::convert;
use crate::error::Error;
use crate::keepalive::micros;
use crate::lock::id_bytes;
use crate::stub::Stub;

/// The number of attempts of a request, if its front names none.
const DEFAULT_MAX_ATTEMPTS: u32 = 25;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// The request creates the resource of its key. It is taken alone, and a resource has at most one (Q09).
    Create,
    /// The request updates the resource of its key. Waiting updates are taken as one (Q02).
    Update,
}

/// A request to submit.
#[derive(Clone, PartialEq, Eq)]
pub struct NewRequest {
    id: Uuid,
    key: String,
    kind: RequestKind,
    priority: u32,
    delay: Duration,
    max_attempts: u32,
    body: Vec<u8>,
}

/// A request that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmittedRequest {
    /// The id of the request, or that of the first create of the same resource (Q09).
    pub id: Uuid,
    /// True if this submit made the request.
    pub is_new: bool,
}

impl NewRequest {
    /// An update of the resource `key`, with a body of at most 64 KiB that the server never decodes.
    pub fn update(key: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let (key, body) = (key.into(), body.into());
        let max_attempts = DEFAULT_MAX_ATTEMPTS;
        // Ids that begin with their time lie beside each other in a store.
        let id = Uuid::now_v7();
        Self { id, key, kind: RequestKind::Update, priority: 0, delay: Duration::ZERO, max_attempts, body }
    }

    /// The create of the resource `key`. Updates wait for it.
    pub fn create(key: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { kind: RequestKind::Create, ..Self::update(key, body) }
    }

    /// Sets the id of the request, a new one (UUIDv7) if not set. A submit with the id of an earlier request
    /// gets that request (Q09).
    #[must_use]
    pub fn with_id(self, id: Uuid) -> Self {
        Self { id, ..self }
    }

    /// Sets the priority, 0 to 9. Each step moves the request one minute ahead of others (Q12).
    #[must_use]
    pub fn with_priority(self, priority: u32) -> Self {
        Self { priority, ..self }
    }

    /// Sets the time for which the request is not taken, at most 365 days (Q12).
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Sets the number of attempts, 1 to 1,000; 25 if not set. The last one that fails ends the request in
    /// error (Q13).
    #[must_use]
    pub fn with_max_attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts, ..self }
    }

    /// Returns the id of the request.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    fn message(&self) -> wire::NewRequest {
        let kind = match self.kind {
            RequestKind::Create => wire::RequestKind::Create,
            RequestKind::Update => wire::RequestKind::Update,
        };
        wire::NewRequest {
            request_id: id_bytes(self.id),
            key: self.key.clone(),
            kind: kind.into(),
            priority: self.priority,
            delay_micros: micros(self.delay),
            max_attempts: self.max_attempts,
            body: self.body.clone(),
        }
    }
}

/// Writes neither the key nor the body: they appear in no log (Q22).
impl fmt::Debug for NewRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewRequest({}, {:?}, {} bytes)", self.id, self.kind, self.body.len())
    }
}

impl Client {
    /// Submits requests to a queue, all of them or none: 1 to 1,000, whose bodies have at most 4 MiB
    /// together. Returns an answer for each, in their order. Every attempt has the same ids, so a retry makes
    /// no second request (Q09).
    ///
    /// ```no_run
    /// use leasehold_client::{Client, NewRequest};
    ///
    /// # async fn example(client: Client) -> Result<(), leasehold_client::Error> {
    /// let requests = [NewRequest::create("7", "a new sheet"), NewRequest::update("7", "column C")];
    /// for submitted in client.submit("sheets", &requests).await? {
    ///     println!("{} is new: {}", submitted.id, submitted.is_new);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server refused the requests, or no answer came.
    pub async fn submit(&self, queue: &str, requests: &[NewRequest]) -> Result<Vec<SubmittedRequest>, Error> {
        let requests = requests.iter().map(NewRequest::message).collect();
        let message = wire::SubmitRequest { queue: queue.to_owned(), requests };
        let send = |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.submit_requests(message).await }
        };
        let answer = self.call(CallIdentity::default(), send).await?.into_inner();
        let submitted = answer.requests.into_iter().map(|wire::SubmittedRequest { request_id, is_new }| {
            Ok(SubmittedRequest { id: convert::id(&request_id)?, is_new })
        });
        submitted.collect()
    }
}
