//! The keepalive of a session: a thread that renews the session, and knows its deadline without the
//! server (K11).
//!
//! The thread has a runtime of its own, so that a caller who blocks all threads of another runtime
//! does not lose the session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use leasehold_core::standing::Standing;

use leasehold_core::standing::Deadlines;
use leasehold_proto::leasehold::sessions::v1::watch_session_response::News;
use leasehold_proto::leasehold::sessions::v1::{RenewSessionRequest, WatchSessionRequest};
use tokio::sync::{Notify, oneshot, watch};
use tonic::transport::Channel;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::endpoint::Endpoint;
use crate::refusal::Refusal;
use crate::stub::Stub;

/// The pause after a renewal without an answer, before the next one.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The terms of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    /// The time after a renewal for which the process may work.
    pub duration: Duration,
    /// The time from the end of the duration until the server expires the session.
    pub grace: Duration,
}

impl Default for SessionTerms {
    /// Returns a duration of 15 seconds and a grace of 5 seconds.
    fn default() -> Self {
        Self { duration: Duration::from_secs(15), grace: Duration::from_secs(5) }
    }
}

impl SessionTerms {
    fn deadlines(self) -> Deadlines {
        Deadlines::new(micros(self.duration), micros(self.grace))
    }

    fn held_for(self) -> Duration {
        Duration::from_micros(self.deadlines().held_micros())
    }

    fn renew_after(self) -> Duration {
        Duration::from_micros(self.deadlines().renewal_micros())
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The identity of a session that is kept alive.
pub(crate) struct Kept {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) store_id: Option<Uuid>,
    pub(crate) session: Uuid,
    pub(crate) terms: SessionTerms,
    /// The time at which the call was sent that opened the session.
    pub(crate) opened_at: Awake,
}

/// A running keepalive. Dropping it ends the thread, and the session then expires by its silence.
pub(crate) struct Keepalive {
    standing: watch::Receiver<Standing>,
    forced: watch::Receiver<ForcedLocks>,
    lost_at: Deadline,
    _end: oneshot::Sender<()>,
}

/// The locks that an operator took, by their fences: each with the moment at which it may pass on.
type ForcedLocks = BTreeMap<u64, Awake>;

/// The moment at which a session is lost if no further renewal succeeds.
#[derive(Clone, Debug)]
struct Deadline(Arc<Mutex<Awake>>);

impl Deadline {
    /// The deadline of a session that was opened, or last renewed, by a call sent at `sent_at`.
    fn new(terms: SessionTerms, sent_at: Awake) -> Self {
        Self(Arc::new(Mutex::new(sent_at.plus(terms.held_for()))))
    }

    fn set(&self, moment: Awake) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = moment;
    }

    fn get(&self) -> Awake {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a keepalive publishes of its session.
struct Published {
    standing: watch::Sender<Standing>,
    forced: watch::Sender<ForcedLocks>,
    lost_at: Deadline,
}

impl Published {
    /// Takes in the answer to a renewal that was sent at `sent_at`. A lock that an operator took
    /// keeps the deadline of the renewals before: it is withheld until then, and no longer (K20).
    fn renewed(&self, kept: &Kept, sent_at: Awake, forced: &[u64]) {
        let before = self.lost_at.get();
        let is_new = forced.iter().any(|fence| !self.forced.borrow().contains_key(fence));
        if is_new {
            self.forced.send_modify(|known| forced.iter().for_each(|fence| _ = known.entry(*fence).or_insert(before)));
        }
        self.lost_at.set(sent_at.plus(kept.terms.held_for()));
    }
}

impl Keepalive {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread or its runtime could not be started.
    pub(crate) fn start(kept: Kept) -> std::io::Result<Self> {
        let (sender, standing) = watch::channel(Standing::Safe);
        let (end, ended) = oneshot::channel();
        let lost_at = Deadline::new(kept.terms, kept.opened_at);
        let (forced_sender, forced) = watch::channel(ForcedLocks::new());
        let published = Published { standing: sender, forced: forced_sender, lost_at: lost_at.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            runtime.block_on(async {
                // The receiver ends when the handle is dropped.
                tokio::select! { () = keep(kept, &published) => {}, _ = ended => {} }
            });
        };
        std::thread::Builder::new().name("leasehold-keepalive".into()).spawn(run)?;
        Ok(Self { standing, forced, lost_at, _end: end })
    }

    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Returns the time until the lock of a fence may pass on if no further renewal succeeds.
    pub(crate) fn remaining(&self, fence: u64) -> Duration {
        // The session's deadline is read first. A force that arrives meanwhile is then seen.
        let of_session = self.lost_at.get();
        let moment = self.forced.borrow().get(&fence).copied().unwrap_or(of_session);
        moment.0.min(of_session.0).saturating_sub(Awake::now().0)
    }

    /// Waits until an operator has taken the lock of a fence. Waits for ever if the session is lost.
    pub(crate) async fn forced(&self, fence: u64) {
        if self.forced.clone().wait_for(|forced| forced.contains_key(&fence)).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Renews a session until it is lost.
async fn keep(kept: Kept, published: &Published) {
    let stub = Stub::new(kept.endpoint.connect_lazy());
    let stub = match kept.store_id {
        Some(id) => stub.with_store_id(id),
        None => stub,
    };
    let renew_now = Notify::new();
    tokio::select! {
        () = renew(&kept, stub.clone(), published, &renew_now) => {},
        () = watch_end(&kept, stub, &renew_now) => {},
    }
    published.lost_at.set(Awake::now());
    published.standing.send_replace(Standing::Lost);
}

/// Renews again and again. Returns when the session is lost.
async fn renew(kept: &Kept, stub: Stub<Channel>, published: &Published, renew_now: &Notify) {
    let standing = &published.standing;
    let mut renewed_at = kept.opened_at;
    let mut next = kept.terms.renew_after();
    loop {
        // Timers of the runtime stand still while the machine sleeps, but `Awake` does not. So the
        // pause may be long, and the state is judged again after each of them.
        let pause = next.saturating_sub(renewed_at.elapsed()).min(kept.terms.renew_after());
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = renew_now.notified() => {} }
        if judge(kept, renewed_at, standing) == Standing::Lost {
            return;
        }
        let sent_at = Awake::now();
        let left = kept.terms.held_for().saturating_sub(renewed_at.elapsed());
        let timeout = left.min(kept.terms.renew_after()).max(RETRY_PAUSE);
        let request = RenewSessionRequest { session_id: kept.session.as_bytes().to_vec() };
        let mut stub = stub.clone().with_deadline(timeout);
        let answer = with_judgement(kept, renewed_at, standing, timeout, stub.renew_session(request)).await;
        match answer {
            Some(Ok(answer)) => {
                renewed_at = sent_at;
                published.renewed(kept, sent_at, &answer.into_inner().forced_fences);
                next = kept.terms.renew_after();
                judge(kept, renewed_at, standing);
            }
            Some(Err(status)) if is_final(&status) => return,
            Some(Err(_)) | None => next = renewed_at.elapsed() + RETRY_PAUSE,
        }
    }
}

/// Waits for an answer, and keeps the standing true meanwhile. Returns `None` if no answer came.
async fn with_judgement<A>(
    kept: &Kept,
    renewed_at: Awake,
    standing: &watch::Sender<Standing>,
    timeout: Duration,
    answer: impl Future<Output = A>,
) -> Option<A> {
    let tick = (kept.terms.grace / 8).max(Duration::from_millis(10));
    let judge_on = async {
        loop {
            tokio::time::sleep(tick).await;
            if judge(kept, renewed_at, standing) == Standing::Lost {
                return;
            }
        }
    };
    tokio::select! {
        answer = tokio::time::timeout(timeout, answer) => answer.ok(),
        () = judge_on => None,
    }
}

/// Publishes the standing of a session that was last renewed by a call sent at `renewed_at`.
fn judge(kept: &Kept, renewed_at: Awake, standing: &watch::Sender<Standing>) -> Standing {
    let now = kept.terms.deadlines().standing(micros(renewed_at.elapsed()));
    standing.send_if_modified(|standing| std::mem::replace(standing, now) != now);
    now
}

/// Returns when the server says that the session has ended. A stream that breaks is opened again.
/// News that a lock was taken is a reason to renew, since the answer says which (K20).
async fn watch_end(kept: &Kept, stub: Stub<Channel>, renew_now: &Notify) {
    loop {
        let request = WatchSessionRequest { session_id: kept.session.as_bytes().to_vec() };
        let mut stub = stub.clone();
        match stub.watch_session(request).await {
            Ok(stream) => {
                let mut stream = stream.into_inner();
                while let Ok(Some(message)) = stream.message().await {
                    match message.news() {
                        News::Ended => return,
                        News::Forced => renew_now.notify_one(),
                        News::Watched | News::Moving | News::Unspecified => {}
                    }
                }
            }
            Err(status) if is_final(&status) => return,
            Err(_) => {}
        }
        tokio::time::sleep(kept.terms.renew_after()).await;
    }
}

/// True if no later renewal can succeed.
fn is_final(status: &Status) -> bool {
    let refusal = Refusal::of(status);
    let is_gone = matches!(refusal.reason.as_str(), "SESSION_ENDED" | "SESSION_NOT_FOUND" | "SESSION_NOT_OWNED");
    is_gone || matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
}

/// A moment on a clock that runs on while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awake(Duration);

impl Awake {
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Self {
        // INVARIANT: Linux has this clock since 2.6.39, and the call can't fail for a known clock.
        // If it failed, the moment 0 would make the session lost at once, which is safe.
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map(Duration::from);
        Self(time.unwrap_or_default())
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Self {
        // This clock may stand still while the machine sleeps. The deadline is then late by the
        // time of the sleep.
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Self(START.get_or_init(std::time::Instant::now).elapsed())
    }

    fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}
