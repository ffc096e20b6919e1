//! The cleanup after holders that have died in a namespace that is reaped.

use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::reap_lock_response::News;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::Error;
use crate::lock::{HeldLock, LockSession, RESUME_FOR, RESUME_PAUSE, id_bytes, random_id};
use crate::refusal::Refusal;

/// An orphaned lock that this process holds in order to clean up (K17).
///
/// The process cleans up in a transaction of its own, and releases the lock: as succeeded, and the lock
/// passes on; as failed, and the cleanup is begun again after a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    lock: HeldLock,
    obituary: wire::Obituary,
}

impl Orphan {
    /// Returns the lock, whose fence is that of the cleanup.
    #[must_use]
    pub fn lock(&self) -> &HeldLock {
        &self.lock
    }

    /// Returns the fence of the grant whose holder has died. The cleanup of one grant may come more than
    /// once; a note with this fence in the caller's own database makes it once.
    #[must_use]
    pub fn former_fence(&self) -> u64 {
        self.obituary.fence
    }

    /// Returns the number of this cleanup, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.obituary.attempts
    }

    /// Returns the most cleanups that are begun. After the last one has failed, the lock is set aside
    /// for an operator.
    #[must_use]
    pub fn most_attempts(&self) -> u32 {
        self.obituary.most_attempts
    }
}

impl LockSession {
    /// Waits for an orphaned lock of a namespace or of the namespaces in it, and acquires it for its
    /// cleanup (K17). If this future is dropped, a lock that it was about to return goes to another
    /// cleaner.
    ///
    /// ```no_run
    /// use leasehold_client::{LockSession, WorkOutcome};
    ///
    /// # async fn example(session: LockSession) -> Result<(), leasehold_client::Error> {
    /// loop {
    ///     let orphan = session.reap("runner").await?;
    ///     println!("cleaning up after the fence {}", orphan.former_fence());
    ///     session.release(orphan.lock(), WorkOutcome::Succeeded, b"").await?;
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server refused the call, or gave no answer for half a minute.
    pub async fn reap(&self, namespace: &str) -> Result<Orphan, Error> {
        let mut leaving = self.leaving(random_id());
        let orphan = self.wait_for_orphan(namespace, leaving.ask).await;
        leaving.is_answered = orphan.is_ok();
        orphan
    }

    async fn wait_for_orphan(&self, namespace: &str, ask: Uuid) -> Result<Orphan, Error> {
        let mut heard_at = Instant::now();
        loop {
            match self.reap_once(namespace, ask, &mut heard_at).await? {
                Some(orphan) => return Ok(orphan),
                None if heard_at.elapsed() < RESUME_FOR => tokio::time::sleep(RESUME_PAUSE).await,
                None => return Err(Error::Refused(Box::new(Refusal::late(RESUME_FOR)))),
            }
        }
    }

    /// Reads one stream. Returns `None` if it ended without a lock or a refusal.
    async fn reap_once(&self, namespace: &str, ask: Uuid, heard_at: &mut Instant) -> Result<Option<Orphan>, Error> {
        let (session_id, ask_id) = (id_bytes(self.id()), id_bytes(ask));
        let message = wire::ReapLockRequest { session_id, ask_id, namespace: namespace.to_owned() };
        let mut stream = match self.stub().reap_lock(message).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => return Self::refusal_or_break(&status),
        };
        let message = stream.message().await;
        // A stream may be silent for long, so the silence counts from its end.
        *heard_at = Instant::now();
        let news = match message {
            Ok(message) => message.and_then(|message| message.news),
            Err(status) => return Self::refusal_or_break(&status),
        };
        let Some(News::Orphan(wire::Orphan { lock: Some(path), fence, obituary })) = news else { return Ok(None) };
        let lock = HeldLock::new((self.id(), ask), path, fence);
        Ok(Some(Orphan { lock, obituary: obituary.unwrap_or_default() }))
    }
}
