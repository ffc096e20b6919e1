//! The batches of a worker: takes requests of queues, and settles them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::settle_request::Outcome;
use leasehold_proto::leasehold::queues::v1::take_response::News;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Status, Streaming};
use uuid::Uuid;

use crate::client::{CallIdentity, Client};
use crate::convert;
use crate::error::Error;
use crate::keepalive::{Standing, micros};
use crate::lock::{LockSession, RESUME_FOR, RESUME_PAUSE, SESSION_ENDED, id_bytes};
use crate::refusal::{FENCE_PASSED, Refusal};
use crate::request::RequestKind;
use crate::stub::Stub;
use crate::takes::QueueTakes;

/// The most fences that a stream names, as many as the server takes.
const MOST_FENCES: usize = 256;
/// The pause before a settle without an answer is repeated.
const SETTLE_PAUSE: Duration = Duration::from_millis(500);

/// The bounds of what a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeTerms {
    /// The most batches that the worker holds at a time, 1 to 256; 0 counts as 1.
    pub credit: u32,
    /// The most requests of a batch, 1 to 100; 0 counts as 100.
    pub max_requests: u32,
}

/// One batch at a time, of up to 100 requests.
impl Default for TakeTerms {
    fn default() -> Self {
        Self { credit: 1, max_requests: 100 }
    }
}

/// The batches of a queue that a session takes, in the order in which their lanes became ready.
pub struct Batches<'a> {
    session: &'a LockSession,
    queue: String,
    terms: TakeTerms,
    takes: Arc<QueueTakes>,
    // The number of this take among those of the session for the queue.
    number: u64,
    stream: Option<Streaming<wire::TakeResponse>>,
}

/// The next message of a stream.
enum Next {
    Batch(wire::Batch),
    /// The stream has nothing more to send.
    Ended,
    /// The stream broke, or moves to another server.
    Broken,
}

/// Returns the refusal of a stream, or that it may be opened again.
fn broken(status: &Status) -> Result<Next, Error> {
    match LockSession::refusal_or_break::<Next>(status) {
        Err(Error::Refused(refusal)) if refusal.reason == SESSION_ENDED => Err(Error::SessionLost),
        broken => broken.map(|_| Next::Broken),
    }
}

/// Requests of one key that a session has taken as one: one create, or updates (Q02).
///
/// Dropping the value does not settle the requests: they stay with the session.
pub struct Batch {
    client: Client,
    session: Uuid,
    queue: String,
    key: String,
    fence: u64,
    kind: RequestKind,
    requests: Vec<TakenRequest>,
    progress: Option<Vec<u8>>,
    takes: Arc<QueueTakes>,
    standing: watch::Receiver<Standing>,
}

/// A request of a batch.
#[derive(Clone, PartialEq, Eq)]
pub struct TakenRequest {
    /// The id of the request.
    pub id: Uuid,
    /// The number of the attempt, 1 for the first.
    pub attempt: u32,
    /// The body, as it was submitted.
    pub body: Vec<u8>,
}

/// Writes no body: bodies appear in no log (Q22).
impl fmt::Debug for TakenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TakenRequest({}, attempt {}, {} bytes)", self.id, self.attempt, self.body.len())
    }
}

/// Writes neither the key nor the bodies (Q22).
impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch(fence {}, {:?}, {:?})", self.fence, self.kind, self.requests)
    }
}

impl LockSession {
    /// Takes batches of a queue for this session, for as long as the worker holds fewer than its credit.
    /// The next take of the session for the same queue ends this one. What the worker holds then stays its
    /// own.
    ///
    /// ```no_run
    /// use leasehold_client::{Client, SessionTerms, TakeTerms};
    ///
    /// # async fn example(client: Client) -> Result<(), leasehold_client::Error> {
    /// let session = client.lock_session(SessionTerms::default()).await?;
    /// let mut batches = session.take("sheets", TakeTerms::default());
    /// loop {
    ///     let batch = batches.next().await?;
    ///     println!("working under the fence {}", batch.fence());
    ///     batch.complete().await?;
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn take(&self, queue: &str, terms: TakeTerms) -> Batches<'_> {
        let (takes, number) = self.takes.begin(queue);
        let terms = TakeTerms { credit: terms.credit.max(1), ..terms };
        Batches { session: self, queue: queue.to_owned(), terms, takes, number, stream: None }
    }
}

impl Batches<'_> {
    /// Waits for the next batch. A stream that breaks or moves to another server is opened again. If this
    /// future is dropped, a batch that it was about to return comes with the next call.
    ///
    /// # Errors
    /// The session is lost, a later take has taken the place of this one, the server refused the call, or gave no
    /// answer for half a minute.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        let session = self.session;
        tokio::select! {
            batch = self.next_batch() => batch,
            () = session.lost() => Err(Error::SessionLost),
        }
    }

    async fn next_batch(&mut self) -> Result<Batch, Error> {
        let mut heard_at = Instant::now();
        loop {
            if self.is_replaced() {
                return Err(Error::TakeReplaced);
            }
            match self.next_of_stream(&mut heard_at).await? {
                Next::Batch(batch) => return self.received(batch),
                Next::Ended | Next::Broken if heard_at.elapsed() < RESUME_FOR => {
                    tokio::time::sleep(RESUME_PAUSE).await;
                }
                Next::Ended | Next::Broken => return Err(Error::Refused(Box::new(Refusal::late(RESUME_FOR)))),
            }
        }
    }

    /// Takes nothing more, and gives back the batches that were on their way to the worker: their attempts do not
    /// count (Q11). Those that the worker holds stay its own.
    ///
    /// # Errors
    /// The errors are those of [`next`](Self::next).
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stream = None;
        self.terms.credit = 0;
        let session = self.session;
        tokio::select! {
            stopped = self.give_unseen_back() => stopped,
            () = session.lost() => Err(Error::SessionLost),
        }
    }

    async fn give_unseen_back(&mut self) -> Result<(), Error> {
        let mut heard_at = Instant::now();
        // A later take sees to what was on its way.
        while !self.is_replaced() {
            match self.next_of_stream(&mut heard_at).await? {
                Next::Batch(batch) => self.received(batch)?.give_back().await?,
                Next::Ended => return Ok(()),
                Next::Broken if heard_at.elapsed() < RESUME_FOR => tokio::time::sleep(RESUME_PAUSE).await,
                Next::Broken => return Err(Error::Refused(Box::new(Refusal::late(RESUME_FOR)))),
            }
        }
        Ok(())
    }

    fn is_replaced(&self) -> bool {
        !self.takes.is_last(self.number)
    }

    /// Reads the next message of the stream, which is opened if there is none.
    async fn next_of_stream(&mut self, heard_at: &mut Instant) -> Result<Next, Error> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                // Fences grow, so the newest are those that are still held.
                let held_fences = self.takes.held().iter().rev().take(MOST_FENCES).copied().collect();
                let TakeTerms { credit, max_requests } = self.terms;
                let (session_id, queue) = (id_bytes(self.session.id()), self.queue.clone());
                let message = wire::TakeRequest { session_id, queue, credit, held_fences, max_requests };
                let mut stub = self.session.stub();
                match tokio::time::timeout(RESUME_FOR, stub.take_batches(message)).await {
                    Ok(Ok(stream)) => self.stream.insert(stream.into_inner()),
                    Ok(Err(status)) => return broken(&status),
                    Err(_) => return Ok(Next::Broken),
                }
            }
        };
        let message = stream.message().await;
        // A stream may be silent for long, so the silence counts from its end.
        *heard_at = Instant::now();
        match message {
            Ok(Some(wire::TakeResponse { news: Some(News::Batch(batch)) })) => Ok(Next::Batch(batch)),
            Ok(Some(_)) => {
                self.stream = None;
                Ok(Next::Broken)
            }
            Ok(None) => {
                self.stream = None;
                Ok(Next::Ended)
            }
            Err(status) => {
                self.stream = None;
                broken(&status)
            }
        }
    }

    fn received(&self, batch: wire::Batch) -> Result<Batch, Error> {
        let kind = match batch.kind() {
            wire::RequestKind::Create => RequestKind::Create,
            wire::RequestKind::Update => RequestKind::Update,
            wire::RequestKind::Unspecified => return Err(Error::BadAnswer("a batch lacks its kind")),
        };
        let request = |wire::TakenRequest { request_id, attempt, body }| {
            Ok(TakenRequest { id: convert::id(&request_id)?, attempt, body })
        };
        let requests = batch.requests.into_iter().map(request).collect::<Result<_, Error>>()?;
        self.takes.held().insert(batch.fence);
        Ok(Batch {
            client: self.session.client().clone(),
            session: self.session.id(),
            queue: self.queue.clone(),
            key: batch.key,
            fence: batch.fence,
            kind,
            requests,
            progress: batch.progress,
            takes: self.takes.clone(),
            standing: self.session.standing(),
        })
    }
}

impl Batch {
    /// Returns the key of the resource that the requests are about.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the fence under which the session holds the lane, larger than every fence before it.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns the kind of the requests.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        self.kind
    }

    /// Returns the requests, in the order of their lane.
    #[must_use]
    pub fn requests(&self) -> &[TakenRequest] {
        &self.requests
    }

    /// Returns the progress that a former worker noted on the requests (Q20).
    #[must_use]
    pub fn progress(&self) -> Option<&[u8]> {
        self.progress.as_deref()
    }

    /// Settles the requests as complete. A repeated settle succeeds (Q10). A settle without an answer is repeated
    /// until the session is lost.
    ///
    /// # Errors
    /// The requests are another worker's by now, or the session has ended; or no answer came until then.
    pub async fn complete(&self) -> Result<(), Error> {
        self.settle(Outcome::Completed, None).await
    }

    /// Settles the requests as failed. Each is tried again after a time, or ends in error after its last
    /// attempt (Q13). Without a time of the caller's, the time doubles with each attempt, from 1 s to 300 s.
    ///
    /// # Errors
    /// The errors are those of [`complete`](Self::complete).
    pub async fn fail(&self, retry_after: Option<Duration>) -> Result<(), Error> {
        self.settle(Outcome::Failed, retry_after.map(micros)).await
    }

    /// Gives the requests back, for any worker to take. The attempt does not count (Q11).
    ///
    /// # Errors
    /// The errors are those of [`complete`](Self::complete).
    pub async fn give_back(&self) -> Result<(), Error> {
        self.settle(Outcome::GivenBack, None).await
    }

    /// Notes the progress on the requests, at most 2 KiB, for the next worker should this one fail (Q20).
    ///
    /// # Errors
    /// The errors are those of [`complete`](Self::complete).
    pub async fn note_progress(&self, progress: &[u8]) -> Result<(), Error> {
        let message = wire::NoteProgressRequest {
            session_id: id_bytes(self.session),
            queue: self.queue.clone(),
            key: self.key.clone(),
            fence: self.fence,
            progress: progress.to_vec(),
        };
        let send = |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.note_progress(message).await }
        };
        self.client.call(CallIdentity::default(), send).await.map(drop)
    }

    async fn settle(&self, outcome: Outcome, retry_micros: Option<u64>) -> Result<(), Error> {
        let message = wire::SettleRequest {
            session_id: id_bytes(self.session),
            queue: self.queue.clone(),
            key: self.key.clone(),
            fence: self.fence,
            outcome: outcome.into(),
            retry_micros,
        };
        let send = |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.settle_batch(message).await }
        };
        let mut standing = self.standing.clone();
        loop {
            let settled = self.client.call(CallIdentity::default(), send).await.map(drop);
            let refusal = settled.as_ref().err().and_then(Error::refusal);
            let has_passed = refusal.is_some_and(|refusal| refusal.reason == FENCE_PASSED);
            if settled.is_ok() || has_passed || refusal.is_some_and(|refusal| refusal.reason == SESSION_ENDED) {
                self.takes.held().remove(&self.fence);
            }
            match settled {
                // The session is live, so an earlier attempt of this call has ended the hold.
                Err(Error::Unanswered(_)) if has_passed => return Ok(()),
                Err(Error::Unanswered(_)) => {}
                settled => return settled,
            }
            // Without a decision the batch would be the session's for as long as it lives.
            tokio::select! {
                () = tokio::time::sleep(SETTLE_PAUSE) => {}
                _ = standing.wait_for(|standing| *standing == Standing::Lost) => return Err(Error::SessionLost),
            }
        }
    }
}
