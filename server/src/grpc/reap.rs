//! The stream `ReapLock`: waits for an orphaned lock, and acquires it for its cleanup.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::Fence;
use leasehold_core::lock::{AskId, AskState, Lock, LockPath, Obituary};
use leasehold_core::locking::acquire::Acquired;
use leasehold_core::locking::reap::{Reap, offered};
use leasehold_core::locking::scan::{LockList, LockScan};
use leasehold_core::locking::{HeldSlot, LockCommand, LockReply};
use leasehold_core::rejection::Reason;
use leasehold_core::session::SessionId;
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::reap_lock_response::News;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

use super::failed_reads::Read;
use super::locks::{wire_obituary, wire_path};
use super::sessions::{LockCaller, stopped};
use super::{Services, errors};
use crate::locks::{Attendance, Reaper, SessionNews};

/// The longest time between two reads of a call that waits, in case a wake-up is lost.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A call that waits for an orphaned lock.
pub(super) struct Reaping {
    pub(super) services: Arc<Services>,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) caller: LockCaller,
    pub(super) session: SessionId,
    pub(super) session_news: watch::Receiver<SessionNews>,
    pub(super) ask: AskId,
    pub(super) namespace: LockScan,
    pub(super) reaper: Reaper,
    // The time at which the stream ends so that the client begins another.
    pub(super) moves_at: Instant,
}

/// The orphaned lock that the call holds, with the attendance of the call.
struct Taken {
    lock: LockPath,
    row: Lock,
    obituary: Obituary,
    fence: Fence,
    attendance: Attendance,
}

/// The outcome of one look at the orphaned locks.
enum Look {
    Taken(Box<Taken>),
    /// No cleanup is due before this time has passed.
    Wait(Duration),
}

impl Reaping {
    /// The stream of the call: the one message that ends it.
    pub(super) fn into_stream(self) -> impl futures_util::Stream<Item = Result<wire::ReapLockResponse, Status>> + Send {
        stream::once(self.news())
    }

    async fn news(mut self) -> Result<wire::ReapLockResponse, Status> {
        if let Some(taken) = self.repeated().await? {
            return Ok(taken.tell());
        }
        loop {
            let look = self.look().await?;
            self.reaper.has_looked();
            let pause = match look {
                Look::Taken(taken) => return Ok(taken.tell()),
                Look::Wait(pause) => pause,
            };
            tokio::select! {
                biased;
                // A dropped sender means that the session has ended, too.
                _ = self.session_news.wait_for(|news| news.has_ended) => return Err(errors::session_ended()),
                () = stopped(&mut self.stopping) => return Ok(moving()),
                () = tokio::time::sleep_until(self.moves_at) => return Ok(moving()),
                () = self.reaper.woken() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns the lock that an earlier call with the same ask has taken.
    async fn repeated(&self) -> Result<Option<Box<Taken>>, Status> {
        let store = self.services.store();
        let ask = store.ask(self.ask).await.map_err(|error| errors::away(&error))?;
        let Some(ask) = ask.filter(|ask| ask.session == self.session) else { return Ok(None) };
        let AskState::Holding(_) = ask.state else { return Ok(None) };
        let row = store.lock(&ask.lock).await.map_err(|error| errors::away(&error))?;
        let Some((row, obituary)) = row.and_then(|row| row.obituary.map(|obituary| (row, obituary))) else {
            return Ok(None);
        };
        self.take(ask.lock, row, obituary).await
    }

    /// Takes the first lock whose cleanup is due and that no other cleaner takes before.
    async fn look(&self) -> Result<Look, Status> {
        let (mut after, mut pause) = (None, LONGEST_PAUSE);
        loop {
            let read = self.namespace.read(LockList::Orphaned, after.as_ref());
            let page = self.services.store().locks(read.clone()).await;
            let page = page.map_err(|error| self.services.unreadable(&error, Read::Locks(read)))?;
            let Some((last, _)) = page.last() else { return Ok(Look::Wait(pause)) };
            after = Some(last.clone());
            let inside = page.into_iter().filter(|(path, _)| self.namespace.contains(path)).collect();
            let offered = offered(inside, self.services.committer().clock().now());
            for (path, row, obituary) in offered.due {
                if let Some(taken) = self.take(path, row, obituary).await? {
                    return Ok(Look::Taken(taken));
                }
            }
            pause = offered.next_micros.map_or(pause, |micros| pause.min(Duration::from_micros(micros)));
        }
    }

    /// Takes one lock; `None` if its cleanup was begun or ended by somebody else meanwhile.
    async fn take(&self, lock: LockPath, row: Lock, obituary: Obituary) -> Result<Option<Box<Taken>>, Status> {
        let (services, caller) = (&self.services, &self.caller);
        let mut attendance = services.locks.attend(self.ask, self.session, &caller.principal).await;
        let (session, principal, ask) = (self.session, caller.principal.clone(), self.ask);
        let reap = Reap { session, principal, ask, lock: lock.clone(), fence: obituary.fence };
        let decision = services.committer().submit(caller.caller.clone(), Command::Lock(LockCommand::Reap(reap)));
        match decision.await.map_err(|refusal| errors::refused(&refusal))? {
            Ok(Reply::Lock(LockReply::Acquired(Acquired::Holding(HeldSlot { fence, .. })))) => {
                services.take_over(caller, (session, ask), &mut attendance).await?;
                Ok(Some(Box::new(Taken { lock, row, obituary, fence, attendance })))
            }
            Ok(_) => Err(errors::internal("a reap got the reply of another command")),
            Err(rejection) => {
                attendance.finish();
                let is_passed = rejection.reason() == Reason::FencePassed;
                if is_passed { Ok(None) } else { Err(services.reject(&caller.config, &rejection)) }
            }
        }
    }
}

impl Taken {
    /// Returns the message of a lock that is taken. The caller counts as told, since the message leaves
    /// now.
    fn tell(mut self) -> wire::ReapLockResponse {
        self.attendance.take_up();
        // The row was read before the cleanup was begun, unless the call is a repeated one.
        let is_repeated = self.row.grant().is_some();
        let attempts = self.obituary.attempts.saturating_add(u32::from(!is_repeated));
        let obituary = wire_obituary(&self.row, &Obituary { attempts, ..self.obituary });
        let (lock, obituary) = (wire_path(&self.lock), Some(obituary));
        let news = News::Orphan(wire::Orphan { lock, fence: self.fence.0, obituary });
        wire::ReapLockResponse { news: Some(news) }
    }
}

fn moving() -> wire::ReapLockResponse {
    wire::ReapLockResponse { news: Some(News::Moving(wire::Moving {})) }
}
