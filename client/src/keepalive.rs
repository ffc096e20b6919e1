//! The keepalive of a session: a thread that renews the session, and knows its deadline without the
//! server (K11).
//!
//! The thread has a runtime of its own, so that a caller who blocks all threads of another runtime
//! does not lose the session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use leasehold_core::standing::Standing;

use leasehold_core::standing::Deadlines;
use leasehold_proto::leasehold::sessions::v1::watch_session_response::News as WatchNews;
use leasehold_proto::leasehold::sessions::v1::{RenewSessionRequest, WatchSessionRequest};
use tokio::runtime::Runtime;
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

/// A session that a [`Keepalive`] renews. Its other calls may be another client's: the language
/// packages make them.
#[derive(Clone, Debug)]
pub struct KeptSession {
    endpoint: Arc<Endpoint>,
    store_id: Option<Uuid>,
    id: Uuid,
    terms: SessionTerms,
    /// The moment before the call was sent that opened the session.
    opened_at: Awake,
}

impl KeptSession {
    /// Returns a session whose deadline counts from now. The caller sends the call that opens the
    /// session next, and then starts the keepalive.
    #[must_use]
    pub fn opening_now(endpoint: Arc<Endpoint>, store_id: Option<Uuid>, id: Uuid, terms: SessionTerms) -> Self {
        Self { endpoint, store_id, id, terms, opened_at: Awake::now() }
    }
}

/// A running keepalive: a thread with a runtime of its own. Dropping the value ends the thread, and
/// the session then expires by its silence.
#[derive(Debug)]
pub struct Keepalive {
    standing: watch::Receiver<Standing>,
    forced: watch::Receiver<ForcedLocks>,
    lost_at: Deadline,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// One piece of news of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The standing of the session has changed.
    Standing(Standing),
    /// An operator has taken the locks of these fences (K20).
    Forced(Vec<u64>),
}

/// The news of a session, for a thread that waits for them. The iterator ends with the keepalive.
#[derive(Debug)]
pub struct SessionNews {
    standing: watch::Receiver<Standing>,
    forced: watch::Receiver<ForcedLocks>,
    /// The fences of the locks whose loss was told.
    told: Vec<u64>,
    runtime: Runtime,
}

impl SessionNews {
    fn untold(&mut self) -> Vec<u64> {
        let forced = self.forced.borrow_and_update();
        let new: Vec<u64> = forced.keys().filter(|fence| !self.told.contains(fence)).copied().collect();
        self.told.extend_from_slice(&new);
        new
    }
}

impl Iterator for SessionNews {
    type Item = News;

    fn next(&mut self) -> Option<News> {
        let (standing, forced) = (&mut self.standing, &mut self.forced);
        let is_standing = self.runtime.block_on(async {
            tokio::select! {
                Ok(()) = forced.changed() => Ok(false),
                // The last news of a keepalive is the loss, so this branch alone sees its end.
                changed = standing.changed() => changed.map(|()| true),
            }
        });
        match is_standing.ok()? {
            true => Some(News::Standing(*self.standing.borrow_and_update())),
            false => Some(News::Forced(self.untold())),
        }
    }
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

    fn end_now(&self) {
        *self.moment() = Awake::now();
    }

    /// Moves the deadline to a later moment. Returns false if the deadline has passed: a caller may
    /// have seen that, and the session never comes back (K02).
    fn extend(&self, moment: Awake) -> bool {
        let mut current = self.moment();
        let is_before = Awake::now().0 < current.0;
        if is_before {
            *current = moment;
        }
        is_before
    }

    fn get(&self) -> Awake {
        *self.moment()
    }

    /// Returns the time until the deadline, or until an earlier moment.
    fn remaining(&self, earlier: Option<Awake>) -> Duration {
        // The clock is read under the mutex, so `extend` never follows a remaining time of zero.
        let moment = self.moment();
        earlier.map_or(moment.0, |earlier| earlier.0.min(moment.0)).saturating_sub(Awake::now().0)
    }

    fn moment(&self) -> MutexGuard<'_, Awake> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The standing, the taken locks and the deadline of a session, which its keepalive publishes.
struct Published {
    standing: watch::Sender<Standing>,
    forced: watch::Sender<ForcedLocks>,
    lost_at: Deadline,
}

impl Published {
    /// Takes in the answer to a renewal that was sent at `sent_at`. A lock that an operator took
    /// keeps the deadline of the renewals before: it is withheld until then, and no longer (K20).
    /// Returns false if the answer came after the deadline.
    fn renewed(&self, kept: &KeptSession, sent_at: Awake, forced: &[u64]) -> bool {
        let before = self.lost_at.get();
        let is_new = forced.iter().any(|fence| !self.forced.borrow().contains_key(fence));
        if is_new {
            self.forced.send_modify(|known| forced.iter().for_each(|fence| _ = known.entry(*fence).or_insert(before)));
        }
        self.lost_at.extend(sent_at.plus(kept.terms.held_for()))
    }
}

impl Keepalive {
    /// Starts the thread for a session that the server has opened.
    ///
    /// # Errors
    /// The thread or its runtime could not be started.
    pub fn start(kept: KeptSession) -> std::io::Result<Self> {
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
            // The look-up of a name can take long in a thread of its own, and nobody waits for it.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("leasehold-keepalive".into()).spawn(run)?;
        Ok(Self { standing, forced, lost_at, end, thread })
    }

    /// Returns the standing of the session, which changes by itself (K11).
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Returns the news of the session, for a thread that waits for them.
    ///
    /// # Errors
    /// The means to wait could not be made.
    pub fn news(&self) -> std::io::Result<SessionNews> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(SessionNews { standing: self.standing(), forced: self.forced.clone(), told: Vec::new(), runtime })
    }

    /// Returns the time until the session is lost if no further renewal succeeds; zero once it is lost.
    #[must_use]
    pub fn session_remaining(&self) -> Duration {
        self.lost_at.remaining(None)
    }

    /// Returns the time until the lock of a fence may pass on if no further renewal succeeds.
    #[must_use]
    pub fn remaining(&self, fence: u64) -> Duration {
        // The session's deadline is read first. A force that arrives meanwhile is then seen.
        let of_session = self.session_remaining();
        let forced = self.forced.borrow().get(&fence).copied();
        forced.map_or(of_session, |moment| self.lost_at.remaining(Some(moment)).min(of_session))
    }

    /// Returns true if an operator has taken the lock of a fence (K20).
    #[must_use]
    pub fn is_forced(&self, fence: u64) -> bool {
        self.forced.borrow().contains_key(&fence)
    }

    /// Waits until an operator has taken the lock of a fence. Waits for ever if the session is lost.
    pub(crate) async fn forced(&self, fence: u64) {
        if self.forced.clone().wait_for(|forced| forced.contains_key(&fence)).await.is_err() {
            std::future::pending().await
        }
    }

    /// Ends the thread, and waits for its end: no renewal is sent after that.
    pub fn stop(self) {
        drop(self.end);
        // A thread that has panicked sends nothing either.
        let _ = self.thread.join();
    }
}

/// Renews a session until it is lost.
async fn keep(kept: KeptSession, published: &Published) {
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
    published.lost_at.end_now();
    published.standing.send_replace(Standing::Lost);
}

/// Renews again and again. Returns when the session is lost.
async fn renew(kept: &KeptSession, stub: Stub<Channel>, published: &Published, renew_now: &Notify) {
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
        let request = RenewSessionRequest { session_id: kept.id.as_bytes().to_vec() };
        let mut stub = stub.clone().with_deadline(timeout);
        let answer = with_judgement(kept, renewed_at, standing, timeout, stub.renew_session(request)).await;
        match answer {
            Some(Ok(answer)) => {
                if !published.renewed(kept, sent_at, &answer.into_inner().forced_fences) {
                    return;
                }
                renewed_at = sent_at;
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
    kept: &KeptSession,
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
fn judge(kept: &KeptSession, renewed_at: Awake, standing: &watch::Sender<Standing>) -> Standing {
    let now = kept.terms.deadlines().standing(micros(renewed_at.elapsed()));
    standing.send_if_modified(|standing| std::mem::replace(standing, now) != now);
    now
}

/// Returns when the server says that the session has ended. A stream that breaks is opened again.
/// News that a lock was taken is a reason to renew, since the answer says which (K20).
async fn watch_end(kept: &KeptSession, stub: Stub<Channel>, renew_now: &Notify) {
    loop {
        let request = WatchSessionRequest { session_id: kept.id.as_bytes().to_vec() };
        let mut stub = stub.clone();
        match stub.watch_session(request).await {
            Ok(stream) => {
                let mut stream = stream.into_inner();
                while let Ok(Some(message)) = stream.message().await {
                    match message.news() {
                        WatchNews::Ended => return,
                        // A stream tells nothing of the time before its begin, so a renewal asks for it.
                        WatchNews::Forced | WatchNews::Watched => renew_now.notify_one(),
                        WatchNews::Moving | WatchNews::Unspecified => {}
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
        // If it failed, the moment would be after every deadline: the session is lost, which is safe.
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map(Duration::from);
        Self(time.unwrap_or(Duration::MAX))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k11_the_loss_is_told_though_the_keepalive_ends_with_it() {
        for _ in 0..200 {
            let (sender, standing) = watch::channel(Standing::Safe);
            let (forced_sender, forced) = watch::channel(ForcedLocks::new());
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut news = SessionNews { standing, forced, told: Vec::new(), runtime };
            forced_sender.send_replace(ForcedLocks::from([(7, Awake::now())]));
            assert_eq!(news.next(), Some(News::Forced(vec![7])));
            sender.send_replace(Standing::Lost);
            drop((sender, forced_sender));
            assert_eq!(news.next(), Some(News::Standing(Standing::Lost)));
            assert_eq!(news.next(), None);
        }
    }

    #[test]
    fn k02_a_deadline_that_has_passed_is_not_extended() {
        let terms = SessionTerms { duration: Duration::from_secs(60), grace: Duration::from_secs(1) };
        let deadline = Deadline::new(terms, Awake::now());
        assert!(deadline.extend(Awake::now().plus(Duration::from_secs(90))));
        assert!(deadline.remaining(None) > Duration::from_secs(80));
        deadline.end_now();
        assert!(!deadline.extend(Awake::now().plus(Duration::from_secs(90))));
        assert_eq!(deadline.remaining(None), Duration::ZERO);
    }
}
