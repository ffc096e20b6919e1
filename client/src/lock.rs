//! Locks: a session that renews itself, and the locks that it holds.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::lock::MAX_WAIT_MICROS;
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_lock_response::News;
use leasehold_proto::leasehold::sessions::v1::{CloseSessionRequest, OpenSessionRequest, RenewSessionRequest};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Channel;
use uuid::{Builder, Uuid};

use crate::client::{CallIdentity, Client};
use crate::error::{Error, Unanswered};
use crate::keepalive::{Keepalive, KeptSession, SessionTerms, Standing, micros};
use crate::refusal::{FENCE_PASSED, Refusal};
use crate::stub::Stub;
use crate::takes::Takes;

/// The reason of a refusal because another ask holds the lock.
pub(crate) const LOCK_HELD: &str = "LOCK_HELD";
/// The reason of a refusal because the session has ended.
pub(crate) const SESSION_ENDED: &str = "SESSION_ENDED";
/// The pause before a waiting call is repeated, after its stream has ended without a grant.
pub(crate) const RESUME_PAUSE: Duration = Duration::from_millis(100);
/// The time for which a waiting call that gets no answer is repeated, before it fails.
pub(crate) const RESUME_FOR: Duration = Duration::from_secs(30);

/// A live session: the keepalive of this process for all locks that it holds or waits for.
///
/// Dropping the value stops the renewals. The session then ends by its silence; [`close`](Self::close)
/// ends it at once.
pub struct LockSession {
    client: Client,
    id: Uuid,
    keepalive: Keepalive,
    pub(crate) takes: Takes,
}

/// A lock that this process holds.
///
/// Dropping the value does not release the lock: it stays with the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    pub(crate) ask: Uuid,
    session: Uuid,
    path: wire::LockPath,
    fence: u64,
}

/// The wish of an ask: a lock alone, or a share of it (K13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedLock {
    pub(crate) path: wire::LockPath,
    pub(crate) shared: bool,
    pub(crate) permits: u32,
}

/// The answer to an ask that was granted.
struct Grant {
    fence: u64,
    slot: u32,
}

impl WantedLock {
    /// A lock that the ask wants alone.
    #[must_use]
    pub fn alone(namespace: &str, key: &str) -> Self {
        let path = wire::LockPath { namespace: namespace.to_owned(), key: key.to_owned(), slot: 0 };
        Self { path, shared: false, permits: 0 }
    }

    /// A lock that the ask shares with all others who share it in this way, as readers do.
    #[must_use]
    pub fn shared(namespace: &str, key: &str) -> Self {
        Self { shared: true, ..Self::alone(namespace, key) }
    }

    /// One of the permits of a lock, at most 256.
    #[must_use]
    pub fn permit(namespace: &str, key: &str, permits: NonZeroU32) -> Self {
        Self { permits: permits.get(), ..Self::alone(namespace, key) }
    }
}

/// The outcome of the work under a lock (K03).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// The work succeeded.
    Succeeded,
    /// The work failed.
    Failed,
}

impl HeldLock {
    /// Returns the fence of the grant, larger than every fence before it.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns the namespace of the lock, its parts joined by dots.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.path.namespace
    }

    /// Returns the key of the lock within its namespace.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.path.key
    }

    /// Returns the slot of the lock if it is shared: a number from 1 on. Of the permits of a lock, each has
    /// another one. 0 if this process holds the lock alone.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.path.slot
    }

    pub(crate) fn new((session, ask): (Uuid, Uuid), path: wire::LockPath, fence: u64) -> Self {
        Self { ask, session, path, fence }
    }
}

/// An ask that leaves if this value is dropped before the ask was answered: the caller has dropped its
/// future, and a grant that was on its way would stay with the session.
pub(crate) struct Leaving<'a> {
    session: &'a LockSession,
    pub(crate) ask: Uuid,
    pub(crate) is_answered: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.is_answered {
            let mut stub = self.session.stub();
            let (session_id, ask_id) = (id_bytes(self.session.id), id_bytes(self.ask));
            // If this call fails, the grant stays until the session ends.
            runtime.spawn(async move { stub.leave_lock(wire::LeaveLockRequest { session_id, ask_id }).await.is_ok() });
        }
    }
}

pub(crate) fn random_id() -> Uuid {
    Builder::from_random_bytes(rand::random()).into_uuid()
}

pub(crate) fn id_bytes(id: Uuid) -> Vec<u8> {
    id.as_bytes().to_vec()
}

impl Client {
    /// Opens a session for locks, and starts the thread that renews it.
    ///
    /// ```no_run
    /// use leasehold_client::{Client, SessionTerms, WorkOutcome};
    /// use std::time::Duration;
    ///
    /// # async fn example(client: Client) -> Result<(), leasehold_client::Error> {
    /// let session = client.lock_session(SessionTerms::default()).await?;
    /// if let Some(lock) = session.lock("user.update", "7", Duration::from_secs(2)).await? {
    ///     println!("working under the fence {}", lock.fence());
    ///     session.release(&lock, WorkOutcome::Succeeded, b"").await?;
    /// }
    /// session.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server refused the session, or no answer came; or the thread could not be started.
    pub async fn lock_session(&self, terms: SessionTerms) -> Result<LockSession, Error> {
        let id = random_id();
        let (endpoint, store_id) = self.endpoint_and_store();
        let kept = KeptSession::opening_now(endpoint, store_id, id, terms);
        let (duration_micros, grace_micros) = (micros(terms.duration), micros(terms.grace));
        let message = OpenSessionRequest { session_id: id_bytes(id), duration_micros, grace_micros };
        self.call(CallIdentity::default(), |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.open_session(message).await }
        })
        .await?;
        let keepalive = Keepalive::start(kept).map_err(|error| Error::Thread(error.to_string()))?;
        Ok(LockSession { client: self.clone(), id, keepalive, takes: Takes::default() })
    }
}

impl LockSession {
    /// Returns the id of the session.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Returns the standing of the session, which changes by itself (K11).
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.keepalive.standing()
    }

    /// Returns the time until a lock may pass on if no renewal succeeds from now on; zero once the
    /// session is lost. A transaction in the caller's own PostgreSQL hands it to `leasehold_guard`,
    /// with the [fence](HeldLock::fence) and the [slot](HeldLock::slot) of the lock (K18).
    #[must_use]
    pub fn remaining(&self, lock: &HeldLock) -> Duration {
        self.keepalive.remaining(lock.fence)
    }

    /// Returns the time until all that the session holds may pass on if no renewal succeeds from now on; zero
    /// once the session is lost. A batch of a queue is held for this time.
    #[must_use]
    pub fn session_remaining(&self) -> Duration {
        self.keepalive.session_remaining()
    }

    /// Waits until an operator has taken a lock. The caller must then stop its work under the lock,
    /// which passes on after [`remaining`](Self::remaining) (K20). The session and its other locks
    /// live on.
    pub async fn forced(&self, lock: &HeldLock) {
        self.keepalive.forced(lock.fence).await;
    }

    /// Waits until the session is lost. The caller must then stop all work under its locks.
    pub async fn lost(&self) {
        let mut standing = self.standing();
        // An error means that the thread has ended, and nothing renews the session any more.
        let _ = standing.wait_for(|standing| *standing == Standing::Lost).await;
    }

    /// Acquires a lock, and waits for it at most for `wait`. Returns `None` if another session held
    /// it all the time (K01). A wait of zero means now or never.
    ///
    /// # Errors
    /// The server refused the acquire, or gave no answer for half a minute.
    pub async fn lock(&self, namespace: &str, key: &str, wait: Duration) -> Result<Option<HeldLock>, Error> {
        self.acquire(&WantedLock::alone(namespace, key), wait).await
    }

    /// Acquires a lock together with all others who share it in this way, as readers do (K13). Who wants
    /// the lock alone waits for them, and later ones wait behind.
    ///
    /// # Errors
    /// The errors are those of [`lock`](Self::lock).
    pub async fn lock_shared(&self, namespace: &str, key: &str, wait: Duration) -> Result<Option<HeldLock>, Error> {
        self.acquire(&WantedLock::shared(namespace, key), wait).await
    }

    /// Acquires one of the permits of a lock, at most 256 (K13). All who use the lock must name the same
    /// number of permits: an ask with another number waits until no permit is held.
    ///
    /// # Errors
    /// The errors are those of [`lock`](Self::lock).
    pub async fn lock_permit(
        &self,
        namespace: &str,
        key: &str,
        permits: NonZeroU32,
        wait: Duration,
    ) -> Result<Option<HeldLock>, Error> {
        self.acquire(&WantedLock::permit(namespace, key, permits), wait).await
    }

    /// Acquires a lock in the way that `wanted` says, as [`lock`](Self::lock),
    /// [`lock_shared`](Self::lock_shared) or [`lock_permit`](Self::lock_permit) does.
    ///
    /// # Errors
    /// The errors are those of [`lock`](Self::lock).
    pub async fn acquire(&self, wanted: &WantedLock, wait: Duration) -> Result<Option<HeldLock>, Error> {
        let mut leaving = self.leaving(random_id());
        let granted = match wait.is_zero() {
            true => self.try_acquire(wanted, leaving.ask).await,
            false => self.wait_for(wanted, leaving.ask, wait).await,
        };
        leaving.is_answered = true;
        match granted {
            Ok(Grant { fence, slot }) => Ok(Some(self.held(wanted, leaving.ask, fence, slot))),
            Err(Error::Refused(refusal)) if refusal.reason == LOCK_HELD => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn held(&self, wanted: &WantedLock, ask: Uuid, fence: u64, slot: u32) -> HeldLock {
        HeldLock::new((self.id, ask), wire::LockPath { slot, ..wanted.path.clone() }, fence)
    }

    async fn try_acquire(&self, wanted: &WantedLock, ask: Uuid) -> Result<Grant, Error> {
        let message = self.try_message(wanted, ask);
        let send = |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.try_acquire_lock(message).await }
        };
        let granted = self.client.call(CallIdentity::default(), send).await?.into_inner();
        Ok(Grant { fence: granted.fence, slot: granted.slot })
    }

    fn try_message(&self, wanted: &WantedLock, ask: Uuid) -> wire::TryAcquireLockRequest {
        let (session_id, ask_id) = (id_bytes(self.id), id_bytes(ask));
        let WantedLock { path, shared, permits } = wanted.clone();
        wire::TryAcquireLockRequest { session_id, ask_id, lock: Some(path), shared, permits }
    }

    /// Acquires a lock if it has room, by one call. Returns `None` if the ask would have to wait, or if no
    /// answer came: the same ask then gets the grant that this call may have made (K05).
    async fn try_once(&self, wanted: &WantedLock, ask: Uuid) -> Result<Option<Grant>, Error> {
        let mut stub = self.client.stub();
        let call = stub.try_acquire_lock(self.try_message(wanted, ask));
        let Ok(answer) = tokio::time::timeout(self.client.retry.attempt_timeout, call).await else { return Ok(None) };
        match answer {
            Ok(granted) => {
                let granted = granted.into_inner();
                Ok(Some(Grant { fence: granted.fence, slot: granted.slot }))
            }
            Err(status) if Refusal::of(&status).reason == LOCK_HELD => Ok(None),
            Err(status) => Self::refusal_or_break(&status),
        }
    }

    /// Waits for a lock. Most locks are free, and a call with one answer costs less than a stream, so
    /// the first call does not wait. A stream that breaks or moves is opened again under the same ask,
    /// which keeps its place.
    async fn wait_for(&self, wanted: &WantedLock, ask: Uuid, wait: Duration) -> Result<Grant, Error> {
        let until = Instant::now() + wait;
        // The server refuses a longer wait, which the first call does not name (K21).
        if micros(wait) <= MAX_WAIT_MICROS
            && let Some(granted) = self.try_once(wanted, ask).await?
        {
            return Ok(granted);
        }
        let mut heard_at = Instant::now();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.acquire_once(wanted, ask, left, &mut heard_at).await? {
                Some(granted) => return Ok(granted),
                None if heard_at.elapsed() < RESUME_FOR => tokio::time::sleep(RESUME_PAUSE).await,
                None => {
                    self.leave(ask).await?;
                    return Err(Error::Refused(Box::new(Refusal::late(RESUME_FOR))));
                }
            }
        }
    }

    /// Reads one stream of an acquire. Returns `None` if it ended without a grant or a refusal.
    async fn acquire_once(
        &self,
        wanted: &WantedLock,
        ask: Uuid,
        wait: Duration,
        heard_at: &mut Instant,
    ) -> Result<Option<Grant>, Error> {
        // A wait of zero would make the server refuse an ask that is only late.
        let wait_micros = micros(wait).max(1);
        let (session_id, ask_id) = (id_bytes(self.id), id_bytes(ask));
        let WantedLock { path, shared, permits } = wanted.clone();
        let message = wire::AcquireLockRequest {
            session_id,
            ask_id,
            lock: Some(path),
            wait_micros,
            shared,
            permits,
            ..Default::default()
        };
        let mut stream = match self.client.stub().acquire_lock(message).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => return Self::refusal_or_break(&status),
        };
        loop {
            let message = stream.message().await;
            // A stream may be silent for long, so the silence counts from its end.
            *heard_at = Instant::now();
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(None),
                Err(status) => return Self::refusal_or_break(&status),
            };
            match message.news {
                Some(News::Fence(fence)) => return Ok(Some(Grant { fence, slot: message.slot })),
                Some(News::Moving(_)) => return Ok(None),
                Some(News::Waiting(_)) | None => {}
            }
        }
    }

    pub(crate) fn stub(&self) -> Stub<Channel> {
        self.client.stub()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the refusal of a waiting call; `None` if no answer came or the server is overloaded, so
    /// that the call may be repeated.
    pub(crate) fn refusal_or_break<T>(status: &tonic::Status) -> Result<Option<T>, Error> {
        let refusal = Refusal::of(status);
        let has_no_decision = refusal.reason.is_empty() || refusal.reason == "STORE_UNAVAILABLE";
        if has_no_decision || refusal.reason == "OVERLOADED" {
            Ok(None)
        } else {
            Err(Error::Refused(Box::new(refusal)))
        }
    }

    /// Returns a guard for an ask whose answer the caller waits for.
    pub(crate) fn leaving(&self, ask: Uuid) -> Leaving<'_> {
        Leaving { session: self, ask, is_answered: false }
    }

    pub(crate) async fn leave(&self, ask: Uuid) -> Result<(), Error> {
        let message = wire::LeaveLockRequest { session_id: id_bytes(self.id), ask_id: id_bytes(ask) };
        let send = |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.leave_lock(message).await }
        };
        self.client.call(CallIdentity::default(), send).await.map(drop)
    }

    /// Releases a lock, with the outcome of the work and a value for the lock's readers (K03). A
    /// repeated release succeeds (K19).
    ///
    /// # Errors
    /// The lock has passed on, or the session has ended; or no answer came.
    pub async fn release(&self, lock: &HeldLock, outcome: WorkOutcome, value: &[u8]) -> Result<(), Error> {
        let message = wire::ReleaseLockRequest {
            session_id: id_bytes(self.id),
            lock: Some(lock.path.clone()),
            fence: lock.fence,
            failed: outcome == WorkOutcome::Failed,
            value: value.to_vec(),
        };
        let send = |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.release_lock(message).await }
        };
        match self.client.call(CallIdentity::default(), send).await.map(drop) {
            Err(Error::Unanswered(unanswered)) if unanswered.refusal.reason == FENCE_PASSED => {
                self.recheck_release(lock, unanswered).await
            }
            answered => answered,
        }
    }

    /// Decides a release that was repeated after an attempt without an answer, and refused because
    /// the fence has passed. The session is live, so the grant was ended by that attempt or by an
    /// operator. A renewal tells the locks that operators took (K20).
    async fn recheck_release(&self, lock: &HeldLock, unanswered: Box<Unanswered>) -> Result<(), Error> {
        let message = RenewSessionRequest { session_id: id_bytes(self.id) };
        let send = |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.renew_session(message).await }
        };
        let Ok(renewed) = self.client.call(CallIdentity::default(), send).await else {
            return Err(Error::Unanswered(unanswered));
        };
        // The server tells a taken lock for the session's duration and grace. Older news are known.
        let is_taken = renewed.into_inner().forced_fences.contains(&lock.fence) || self.keepalive.is_forced(lock.fence);
        if is_taken { Err(Error::Refused(Box::new(unanswered.refusal))) } else { Ok(()) }
    }

    /// Closes the session. Its locks go to the next processes that wait for them.
    ///
    /// # Errors
    /// The session was not live any more; or no answer came.
    pub async fn close(self) -> Result<(), Error> {
        let message = CloseSessionRequest { session_id: id_bytes(self.id) };
        let send = |mut stub: Stub<_>| {
            let message = message.clone();
            async move { stub.close_session(message).await }
        };
        self.client.call(CallIdentity::default(), send).await.map(drop)
    }
}
