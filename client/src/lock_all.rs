//! Several locks that are acquired together (K14).

use std::time::Duration;

use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_locks_response::News;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::Error;
use crate::keepalive::micros;
use crate::lock::{HeldLock, LOCK_HELD, LockSession, RESUME_FOR, RESUME_PAUSE, WantedLock, id_bytes, random_id};
use crate::refusal::Refusal;

/// The reason of a refusal because asks of an earlier call have ended.
const ASK_REUSED: &str = "ASK_REUSED";

/// The locks that a task holds, those that it wants, and the id of the ask for each of these.
type Asked<'a> = (&'a [HeldLock], &'a [WantedLock], &'a [Uuid]);

impl LockSession {
    /// Acquires several locks together, and waits for all of them at most for `wait`. Returns `None` if
    /// other sessions held one or more all the time, and then holds none (K14). A wait of zero means now
    /// or never. Callers that name the same locks never wait for each other in a circle, in whatever
    /// order they name them.
    ///
    /// ```no_run
    /// use leasehold_client::{LockSession, WantedLock, WorkOutcome};
    /// use std::time::Duration;
    ///
    /// # async fn example(session: LockSession) -> Result<(), leasehold_client::Error> {
    /// let wanted = [WantedLock::alone("account", "7"), WantedLock::alone("account", "8")];
    /// if let Some(locks) = session.lock_all(&wanted, Duration::from_secs(2)).await? {
    ///     for lock in &locks {
    ///         session.release(lock, WorkOutcome::Succeeded, b"").await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server refused the acquire, or gave no answer for half a minute.
    pub async fn lock_all(&self, wanted: &[WantedLock], wait: Duration) -> Result<Option<Vec<HeldLock>>, Error> {
        self.lock_all_while_holding(&[], wanted, wait).await
    }

    /// Does what [`lock_all`](Self::lock_all) does for a task that holds these other locks meanwhile. If
    /// they are waited for, by however many other tasks, until this one is served, it would wait for ever: the
    /// server then refuses the call as `LOCK_CIRCLE` (K15). The task must release what it holds, and begin
    /// again.
    ///
    /// # Errors
    /// The errors are those of [`lock_all`](Self::lock_all). Or the wait would be a circle.
    pub async fn lock_all_while_holding(
        &self,
        held: &[HeldLock],
        wanted: &[WantedLock],
        wait: Duration,
    ) -> Result<Option<Vec<HeldLock>>, Error> {
        let until = Instant::now() + wait;
        loop {
            let asks: Vec<Uuid> = wanted.iter().map(|_| random_id()).collect();
            // Each ask leaves if this future is dropped.
            let mut leaving: Vec<_> = asks.iter().map(|ask| self.leaving(*ask)).collect();
            let granted = self.wait_for_all((held, wanted, &asks), until).await;
            let is_refused =
                |reason: &str| matches!(&granted, Err(Error::Refused(refusal)) if refusal.reason == reason);
            // The stream was broken for so long that asks have left. The others leave, and all ask anew.
            if is_refused(ASK_REUSED) {
                continue;
            }
            leaving.iter_mut().for_each(|leaving| leaving.is_answered = true);
            return match granted {
                Ok(grants) => {
                    let each = wanted.iter().zip(asks).zip(grants.locks);
                    let held = each.map(|((wanted, ask), grant)| self.held(wanted, ask, grant.fence, grant.slot));
                    Ok(Some(held.collect()))
                }
                Err(_) if is_refused(LOCK_HELD) => Ok(None),
                Err(error) => Err(error),
            };
        }
    }

    /// Waits for all grants. A stream that breaks or moves is opened again under the same asks, which keep
    /// their places.
    async fn wait_for_all(&self, asked: Asked<'_>, until: Instant) -> Result<wire::GrantedLocks, Error> {
        let mut heard_at = Instant::now();
        let mut left = until.saturating_duration_since(heard_at);
        loop {
            match self.acquire_all_once(asked, left, &mut heard_at).await? {
                Some(granted) => return Ok(granted),
                None if heard_at.elapsed() < RESUME_FOR => tokio::time::sleep(RESUME_PAUSE).await,
                None => {
                    for ask in asked.2 {
                        self.leave(*ask).await?;
                    }
                    return Err(Error::Refused(Box::new(Refusal::late(RESUME_FOR))));
                }
            }
            // A wait of zero would make the server refuse asks that are only late.
            left = until.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
        }
    }

    /// Reads one stream of the acquire. Returns `None` if it ended without the grants or a refusal.
    async fn acquire_all_once(
        &self,
        (held, wanted, asks): Asked<'_>,
        wait: Duration,
        heard_at: &mut Instant,
    ) -> Result<Option<wire::GrantedLocks>, Error> {
        let asks = wanted.iter().zip(asks).map(|(WantedLock { path, shared, permits }, ask)| {
            let (ask_id, lock) = (id_bytes(*ask), Some(path.clone()));
            wire::LockAsk { ask_id, lock, shared: *shared, permits: *permits }
        });
        let (session_id, asks) = (id_bytes(self.id()), asks.collect());
        let held_ask_ids = held.iter().map(|held| id_bytes(held.ask)).collect();
        let message = wire::AcquireLocksRequest { session_id, asks, wait_micros: micros(wait), held_ask_ids };
        let mut stream = match self.stub().acquire_locks(message).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => return Self::refusal_or_break(&status),
        };
        loop {
            let message = stream.message().await;
            // A stream may be silent for long, so the silence counts from its end.
            *heard_at = Instant::now();
            match message {
                Ok(Some(message)) => match message.news {
                    Some(News::Granted(granted)) => return Ok(Some(granted)),
                    Some(News::Moving(_)) => return Ok(None),
                    Some(News::Waiting(_)) | None => {}
                },
                Ok(None) => return Ok(None),
                Err(status) => return Self::refusal_or_break(&status),
            }
        }
    }
}
